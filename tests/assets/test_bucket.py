"""The loop on a lake in a bucket: trained, scored, mined, registered, judged by the gate and promoted, as on a disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sevenfold.assets import fitting, gating, twinning
from sevenfold.assets.committing import commit
from sevenfold.assets.judging import judge_batch, judge_version
from sevenfold.assets.mining import mine
from sevenfold.assets.runs import newest_steps, results_of
from sevenfold.assets.scored import scored_runs
from sevenfold.storage import embeddings, takedown
from sevenfold.storage.forecasts import NEEDED, append_forecast, read_forecasts
from sevenfold.storage.index import read_parquet
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project
from sevenfold.storage.traces import Traces
from sevenfold.storage.verify import verify
from sevenfold.training import aliases, registry
from sevenfold.training.place import Place
from sevenfold.training.score import score
from sevenfold.training.trainer import train

COUNTS = {"train": 24, "val": 6, "test": 40, "pool": 12}
QUICK = {"epochs": 4, "batch_size": 16, "widths": [8], "lr": 0.1, "precision": "fp32", "threads": 1}


def pictures(folder: Path) -> Path:
    """Two classes that differ by colour; the pool has no labels."""
    random = np.random.default_rng(0)
    for split, count in COUNTS.items():
        for c, name in enumerate(("cat", "dog")):
            place = folder / split if split == "pool" else folder / split / name
            place.mkdir(parents=True, exist_ok=True)
            for i in range(count):
                pixels = random.integers(0, 120, (8, 8, 3), dtype=np.uint8)
                pixels[..., c] += 70
                Image.fromarray(pixels).save(place / f"{name}-{i}.png")
    return folder


def loop(project: Project, source: Path) -> tuple[Lake, dict[str, Any]]:
    """One turn; returns the lake and what came out, without times and places."""
    lake = project.create_lake()
    lake.ingest(source, "pets", "one")
    judge_batch(lake, project, "one")
    version, _ = commit(lake, project, message="one")
    settings = fitting.settings(lake, project, "main", QUICK)
    (result,) = train(lake.store.url, settings, Place())
    model = fitting.register(lake, project, result)
    judged = gating.compare(lake, project, model.ref)
    moved = gating.run_gate(lake, project, model.ref)
    scores = score(lake.store.url, settings, Place())
    queues = mine(lake, project, size=8)
    steps = newest_steps(lake, version.content_id)
    assert steps is not None
    came_out = {
        "version": version.content_id, "runs": [r["run_id"] for r in results_of(lake, version.content_id)],
        "splits": result["splits"], "steps": steps["loss"].to_pylist(), "scored": scored_runs(lake, version.content_id),
        "out of fold": scores["out_of_fold"], "queues": {n: t.to_pylist() for n, t in queues.items()},
        "models": [(m.ref, m.weights_digest, m.metrics().to_pylist()) for m in registry.models(lake, project.model)],
        "gate": [(o.promoted, o.moved, o.reasons) for o in (judged, moved)],
        "recorded": [(o.challenger, o.moved) for o in gating.outcomes(lake, project.model)],
        "champion": [(a.alias, a.number) for a in aliases.aliases(lake, project.model)],
    }  # fmt: skip
    return lake, came_out


@pytest.mark.e2e
def test_the_loop_comes_out_the_same_in_a_bucket_and_on_a_disk(bucket: str, tmp_path: Path) -> None:
    source = pictures(tmp_path / "source")
    there, found = loop(Project(folder=tmp_path / "there", lake=bucket, dataset="pets"), source)
    here, expected = loop(Project(folder=tmp_path / "here", dataset="pets"), source)
    assert found == expected
    assert found["champion"] == [("champion", 1)] and found["recorded"] == [
        ("classifier/1", False),
        ("classifier/1", True),
    ]
    keys, local = ({_unnamed(e.key) for e in lake.store.entries("", hidden=True)} for lake in (there, here))
    assert keys == {k for k in local if "/." not in f"/{k}"}, "the same files under the same names, and nothing hidden"
    rows = "select count(*) as n from "
    for view in ("runs", "steps", "models", "predictions"):
        assert there.sql(rows + view).to_pylist() == here.sql(rows + view).to_pylist()


@pytest.mark.e2e
def test_a_version_with_metadata_twins_and_vectors_is_judged_the_same_in_a_bucket(bucket: str, tmp_path: Path) -> None:
    """Every reader and writer of what the checks look at goes through the store, and takedown finds it all there."""
    source = pictures(tmp_path / "source")
    (source / "test" / "cat" / "cat-0.png").unlink()
    with Image.open(source / "train" / "cat" / "cat-0.png") as image:
        image.save(source / "test" / "cat" / "cat-0.png", optimize=True, compress_level=1)  # a twin across splits
    for picture in source.rglob("*.png"):
        picture.with_suffix(".json").write_text(json.dumps({"age": len(picture.stem), "place": picture.parent.name}))

    def judged(project: Project) -> tuple[Lake, list[Any]]:
        lake = project.create_lake()
        lake.ingest(source, "pets", "one")
        said: list[Any] = [(v.check, v.result, v.findings) for v in judge_batch(lake, project, "one")]
        version, _ = commit(lake, project, message="one")
        samples = lake.samples_of(version.content_id)
        said.append(twinning.twins(lake, project).pairs.to_pylist())
        vectors = np.arange(samples.num_rows * 4, dtype=np.float32).reshape(-1, 4)
        embeddings.describe(lake.store, "e-1", {"kind": "given", "dimension": 4})
        embeddings.write_part(lake.store, "e-1", samples["id"].combine_chunks(), vectors)
        forecast: dict[str, Any] = {name: [] for name in NEEDED}
        forecast |= {"dataset": "pets", "version": "v1", "content_id": version.content_id}
        append_forecast(lake.store, forecast, at=1.0)
        verdicts = judge_version(lake, project, clock=lambda: 2e9)
        said += [(v.check, v.result, v.statistic, v.findings) for v in verdicts if v.v != "velocity"]
        assert not [v.message for v in verdicts if v.result == "crashed"]
        said += [
            lake.metadata("pets").to_pylist(),
            read_forecasts(lake.store, "pets"),
            verify(lake.store, ["pets"]).findings,
        ]
        return lake, said

    there, found = judged(Project(folder=tmp_path / "there", lake=bucket, dataset="pets"))
    _, expected = judged(Project(folder=tmp_path / "here", dataset="pets"))
    assert found == expected
    assert next(x for x in found if x[0] == "cross_split_duplicates")[1] == "fail"
    victim = next(x for x in found if x[0] == "cross_split_duplicates")[-1][0]
    request = takedown.Request(key=victim)
    traces = takedown.find(there.store, request)
    assert isinstance(traces, Traces)
    takedown.carry_out(there.store, request, traces, "asked for")
    folders = ("metadata", "embeddings", "descriptors")
    keys = [e.key for folder in folders for e in there.store.entries(folder) if e.key.endswith(".parquet")]
    assert {key.partition("/")[0] for key in keys} == set(folders)
    for key in keys:
        assert victim not in read_parquet(there.store, key, columns=["id"])["id"].to_pylist()


def _unnamed(key: str) -> str:
    """A check's run has a name of its own each time."""
    return key.rpartition("/")[0] if key.startswith("checks/") else key
