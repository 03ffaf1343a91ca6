"""What judging takes from the lake: the reference, the policy file, the pictures, and the pair of mined and control."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from sevenfold.assets import twinning
from sevenfold.assets.committing import commit
from sevenfold.assets.judging import judge_batch, judge_version, pixel_reader, policy_of
from sevenfold.assets.mining import mine
from sevenfold.assets.runs import control_of, mined_gain, results_of
from sevenfold.assets.scored import scored, scored_runs
from sevenfold.storage.decode import EVERYTHING
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import OVERLAY
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project
from sevenfold.storage.records import Version


def pictures(folder: Path, seed: int, shift: int = 0) -> Path:
    random = np.random.default_rng(seed)
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            (folder / split / name).mkdir(parents=True, exist_ok=True)
            for i in range(30):
                pixels = np.clip(random.integers(0, 120, (8, 8, 3)) + shift, 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Two batches, the second brighter; v1 holds the first."""
    folder = tmp_path_factory.mktemp("judging")
    project = Project(folder=folder, dataset="pets")
    lake = project.create_lake()
    lake.ingest(pictures(folder / "one", 1), "pets", "one")
    judge_batch(lake, project, "one")
    commit(lake, project, message="one")
    lake.ingest(pictures(folder / "two", 2, shift=100), "pets", "two")
    return project


@pytest.fixture(scope="module")
def lake(project: Project) -> Lake:
    return project.open_lake()


def test_drift_is_told_against_the_newest_version_and_does_not_block(lake: Lake, project: Project) -> None:
    verdicts = {v.check: v for v in judge_batch(lake, project, "two", clock=lambda: 1e9)}
    assert verdicts["property_drift"].result in ("warn", "fail")
    assert verdicts["property_drift"].reference == "v1"
    assert not verdicts["property_drift"].blocking
    assert lake.batch("pets", "two").status == "admitted"
    stored = lake.verdicts("pets", "two")
    assert stored is not None
    assert set(stored["at"].to_pylist()) == {1e9}


def test_a_batch_judged_again_is_never_compared_with_itself(lake: Lake, project: Project) -> None:
    verdicts = {v.check: v for v in judge_batch(lake, project, "one")}
    assert verdicts["property_drift"].reference in (None, "the reference")
    assert verdicts["property_drift"].result == "not_measurable"


def test_a_policy_that_is_named_must_exist(project: Project) -> None:
    assert policy_of(project).validity.max_rejected_share == 0.01
    named = Project(folder=project.folder, policy=Path("mine.yaml"))
    with pytest.raises(SevenfoldError, match=r"mine\.yaml"):
        policy_of(named)


def test_pictures_are_read_in_the_order_asked(lake: Lake) -> None:
    samples = lake.samples("pets")
    ids = samples["id"].to_pylist()[:5]
    read = pixel_reader(lake, samples)
    pixels = read(ids[::-1])
    assert pixels.shape == (5, 8, 8, 3)
    assert (pixels[::-1] == read(ids)).all()
    assert len({p.tobytes() for p in pixels}) == 5


def test_unusual_pictures_that_were_accepted_look_to_checks_as_to_every_reader(tmp_path: Path) -> None:
    source = tmp_path / "odd"
    source.mkdir()
    deep = np.linspace(0, 65535, 1600).astype(np.uint16).reshape(40, 40)
    Image.fromarray(deep).save(source / "deep.png")
    Image.new("CMYK", (40, 40), (200, 10, 30, 40)).save(source / "print.jpg")
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray((deep >> 8).astype(np.uint8)).save(source / "turned.jpg", exif=turned)
    lake = Project(folder=tmp_path, dataset="pets").create_lake()
    lake.ingest(source, "pets", "one", accepts=EVERYTHING)
    lake.set_status("pets", "one", "admitted")
    version, _ = lake.commit("pets", message="one")
    samples = lake.samples_of(version.content_id)
    assert samples.num_rows == 3
    pixels = dict(zip(samples["path"].to_pylist(), pixel_reader(lake, samples)(samples["id"].to_pylist()), strict=True))
    assert (pixels["deep.png"][..., 0] == deep >> 8).all()
    assert pixels["turned.jpg"][0, -1, 0] < 10 and pixels["turned.jpg"][-1, 0, 0] > 245, "turned by 90 degrees"
    assert pixels["print.jpg"].std(axis=(0, 1)).max() < 3
    assert twinning.described(lake, "pets", samples).made == 3
    assert twinning.twins(lake, Project(folder=tmp_path, dataset="pets")).pairs.num_rows == 0


def test_the_run_that_covers_most_out_of_sample_is_taken(lake: Lake, project: Project) -> None:
    version = lake.version("pets", "v1")
    ids = lake.samples("pets", "v1")["id"].to_pylist()

    def predict(producer: str, outside: int) -> None:
        flags = [i >= outside for i in range(len(ids))]
        table = pa.table({"id": ids, "content_id": [version.content_id] * len(ids), "in_sample": flags})
        lake.write_predictions(producer, table)

    assert scored(lake, version) is None
    predict("score-a", len(ids))
    predict("run-b", 10)
    assert scored_runs(lake, version.content_id) == ["run-b", "score-a"]
    found = scored(lake, version)
    assert found is not None
    assert found[0] == "score-a"
    with pytest.raises(SevenfoldError, match="no out-of-sample predictions"):
        predict("run-c", 0)
        scored(lake, version, "run-c")
    (lake.root / "predictions" / "score-a.parquet").unlink()
    with pytest.raises(SevenfoldError, match="no run has scored v1"):  # a training run is no scoring
        mine(lake, project, "v1")
    for path in (lake.root / "predictions").iterdir():
        path.unlink()


def test_a_mined_version_finds_its_random_control_and_their_gain(lake: Lake, project: Project) -> None:
    ids = lake.samples("pets", "v1")["id"].to_pylist()

    def reviewed(name: str, queue: str, branch: str, sample: str) -> Version:
        row = {"id": sample, "weight": 0.5, "reviewer": "ada", "reason": name}
        table = pa.Table.from_pylist([row], schema=OVERLAY)
        lake.add_review("pets", name, table, branch=branch, queues=[queue], reviewer="ada")
        return commit(lake, project, message=name, branch=branch)[0]

    for branch in ("mined", "control"):
        lake.branch("pets", branch, "v1")
        lake.set_status("pets", "two", "committed")
    mined = reviewed("m", "hard-v1", "mined", ids[0])
    control = reviewed("c", "random-v1", "control", ids[1])
    assert control_of(lake, project, mined) == control
    assert control_of(lake, project, control) is None
    assert mined_gain(lake, project, mined) is None

    def trained(version: Version, seed: int, accuracy: float, **config: object) -> None:
        run = f"run-{version.name}-{seed}{len(config)}"
        result = {
            "run_id": run, "content_id": version.content_id, "seed": seed,
            "config": {"epochs": 1, "ref": version.name, "hold_out": None, **config},
            "splits": {"test": {"accuracy": accuracy}},
        }  # fmt: skip
        (lake.root / "runs" / run).mkdir(parents=True)
        (lake.root / "runs" / run / "result.json").write_text(json.dumps(result))

    for seed in (0, 1):
        trained(mined, seed, 0.8 + seed / 100)
        trained(control, seed, 0.7 + seed / 100)
    trained(mined, 2, 0.9)
    trained(mined, 0, 0.1, hold_out={"fold": 0, "of": 2})
    gain = mined_gain(lake, project, mined)
    assert gain is not None
    assert list(gain.chosen) == [0.8, 0.81]
    assert list(gain.control) == [0.7, 0.71]
    assert gain.reference == control.name
    assert len(results_of(lake, mined.content_id)) == 3
    assert len(results_of(lake, mined.content_id, whole=False)) == 4
    for path in sorted((lake.root / "runs").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def test_a_version_is_judged_by_all_seven(lake: Lake, project: Project) -> None:
    verdicts = judge_version(lake, project, "v1")
    assert {v.v for v in verdicts} == {
        "validity", "variety", "veracity", "value", "volume", "volatility", "velocity",
    }  # fmt: skip
    assert {v.subject for v in verdicts} == {"v1"}
