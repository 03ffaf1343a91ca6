"""A forecast from real runs on nested subsets, and how it is held against what a later version did."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from sevenfold.assets.committing import commit
from sevenfold.assets.fitting import settings, write_ids
from sevenfold.assets.forecasting import curve_of, forecast, outcomes, settings_digest, sizes_of
from sevenfold.assets.runs import SUBSET, results_of
from sevenfold.assets.timing import review_queues, timed_records
from sevenfold.quality.forecast import as_stored, fit_learning_curve
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.forecasts import append_forecast
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project
from sevenfold.training.task import resolve


def pictures(folder: Path, seed: int, each: int) -> Path:
    random = np.random.default_rng(seed)
    for split, n in (("train", each), ("test", 20)):
        for name, level in (("cat", 70), ("dog", 120)):
            (folder / split / name).mkdir(parents=True, exist_ok=True)
            for i in range(n):
                pixels = np.clip(random.normal(level, 40, (8, 8, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{i}.png")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(folder=tmp_path, dataset="pets", train={"epochs": 1, "widths": [4], "threads": 1})
    land(project, "one", 1)
    return project


def land(project: Project, name: str, seed: int) -> Lake:
    lake = project.create_lake() if seed == 1 else project.open_lake()
    lake.ingest(pictures(project.folder / name, seed, 110), "pets", name)
    lake.set_status("pets", name, "admitted")
    commit(lake, project, message=name)
    return lake


def trained(lake: Lake, project: Project, ref: str, error: float, n: int, **changes: object) -> None:
    """A finished run of a version, as its result.json tells it."""
    version = lake.version("pets", ref)
    config = resolve(lake, settings(lake, project, ref, changes)).model_dump(mode="json")
    run = f"run-{ref}-{len(results_of(lake, version.content_id, whole=False))}"
    result = {
        "run_id": run, "content_id": version.content_id, "seed": 0, "config": config, "trained": n,
        "splits": {"test": {"accuracy": 1 - error, "n": 80}},
    }  # fmt: skip
    lake.store.create(f"runs/{run}/result.json", json.dumps(result).encode())


def foretell(lake: Lake, project: Project, ref: str) -> None:
    """A forecast as it is stored, from a curve that is known."""
    sizes = [s for s in (14, 28, 55, 110, 220) for _ in range(2)]
    errors = [2 * n**-0.6 + 0.02 + 0.001 * (i % 2) for i, n in enumerate(sizes)]
    version = lake.version("pets", ref)
    record = {
        "dataset": "pets", "version": ref, "content_id": version.content_id, "split": "test",
        "settings": settings_digest(resolve(lake, settings(lake, project, ref))),
        "runs": [{"run_id": "r", "seed": 0, "n": n, "error": e} for n, e in zip(sizes, errors, strict=True)],
        **as_stored(fit_learning_curve(sizes, errors)),
    }  # fmt: skip
    append_forecast(lake.store, record, at=1.0)


def test_a_forecast_is_held_against_larger_versions_trained_alike(project: Project) -> None:
    lake = project.open_lake()
    one = lake.version("pets", "v1")
    assert outcomes(lake, project, one) == [] and curve_of(lake, project, one) is None
    foretell(lake, project, "v1")
    curve = curve_of(lake, project, one)
    assert curve is not None and len(curve.sizes) == 10
    lake = land(project, "two", 2)
    two = lake.version("pets", "v2")
    assert curve_of(lake, project, two) is None
    assert outcomes(lake, project, two) == [], "the larger version was not trained yet"
    trained(lake, project, "v2", 0.9, 440, epochs=7)
    part = lake.samples("pets", "v2")["id"].to_pylist()[:220]
    trained(lake, project, "v2", 0.9, 220, select_ids=write_ids(lake, part, SUBSET))
    assert outcomes(lake, project, two) == [], "other settings and parts of a version are no answer"
    truth = 2 * 440**-0.6 + 0.02
    trained(lake, project, "v2", truth - 0.001, 440)
    trained(lake, project, "v2", truth + 0.001, 440, predict="none", workers=1)
    (told,) = outcomes(lake, project, two)
    assert (told["version"], told["target"], told["n"], told["runs"]) == ("v1", "v2", 440, 2)
    assert told["actual"] == pytest.approx(truth)
    assert told["low"] <= truth <= told["high"] and told["error"] == pytest.approx(truth, abs=0.01)
    assert outcomes(lake, project, one) == [], "nothing is known about a version before it"


def test_batches_know_the_first_model_that_learned_them(project: Project) -> None:
    from sevenfold.training import registry

    lake = project.open_lake()
    (before,) = timed_records(lake, project)
    assert "modelled" not in before["times"]
    weights = project.folder / "model.safetensors"
    from safetensors.numpy import save_file

    save_file({"w": np.zeros(2, np.float32)}, weights)
    for run, at in (("run-b", 50.0), ("run-a", 70.0)):
        registry.register(
            lake, project.model, run_id=run, weights=weights, dataset="pets", version="v1",
            content_id=lake.version("pets", "v1").content_id, classes=["cat", "dog"], config={}, clock=lambda at=at: at,
        )  # fmt: skip
    land(project, "two", 2)
    times = {r["batch"]: r["times"].get("modelled") for r in timed_records(lake, project)}
    assert times == {"one": 50.0, "two": None}


def test_only_the_newest_mined_queue_of_a_kind_waits(project: Project) -> None:
    from sevenfold.storage.index import OVERLAY, QUEUE

    lake = project.open_lake()
    for name in ("hard-v1", "random-v1", "hard-v2", "relabels-b1", "relabels-b2"):
        lake.write_queue("pets", name, QUEUE.empty_table())
    overlay = pa.Table.from_pylist([{"id": lake.samples("pets")["id"][0].as_py(), "weight": 0.5}], schema=OVERLAY)
    lake.add_review("pets", "r", overlay, queues=["relabels-b1"], reviewer="ada", clock=lambda: 9.0)
    found = {r["name"]: r["reviewed"] for r in review_queues(lake, project).to_pylist()}
    assert found == {"hard-v2": None, "relabels-b1": 9.0, "relabels-b2": None}


def test_sizes_halve_and_too_few_samples_are_refused() -> None:
    assert sizes_of(16000, 5) == [1000, 2000, 4000, 8000, 16000]
    assert sizes_of(300, 5)[0] == 50 and sizes_of(300, 5)[-1] == 300
    for n, count in ((150, 5), (10000, 3)):
        with pytest.raises(SevenfoldError):
            sizes_of(n, count)


def test_settings_that_mix_in_other_samples_are_refused(project: Project) -> None:
    mix = [{"dataset": "pets", "ratio": 1.0}]
    with pytest.raises(SevenfoldError, match="own samples"):
        forecast(project.open_lake(), project, "v1", overrides={"mix": mix})


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_second_forecast_trains_nothing_and_changes_nothing(project: Project) -> None:
    lake = project.open_lake()
    told: list = []
    first = forecast(lake, project, "v1", sizes=4, seeds=1, clock=lambda: 1.0, progress=lambda *a: told.append(a))
    assert first.new and [r["n"] for r in first.runs] == sizes_of(220, 4) and not any(r["adopted"] for r in first.runs)
    assert told[0][0] == 0 and told[-1][0] == told[-1][1]
    again = forecast(lake, project, "v1", sizes=4, seeds=1, clock=lambda: 2.0)
    assert (again.new, again.key) == (False, first.key) and all(r["adopted"] for r in again.runs)
    assert len(results_of(lake, lake.version("pets", "v1").content_id)) == 1, "parts are no runs of the version"
    subsets = [json.loads(p.read_text()) for p in (lake.root / "runs" / ".selections").glob("subset-*")]
    smaller, *larger = sorted(map(set, subsets), key=len)
    assert len(subsets) == 3 and all(smaller <= other for other in larger), "nested"
