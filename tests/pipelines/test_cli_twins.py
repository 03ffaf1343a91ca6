"""`sevenfold twins`: lists, finds, draws, and leads to the one command that excludes the train side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from cli_project import Project
from PIL import Image

from sevenfold.storage.lake import Lake


def scene(seed: int) -> Image.Image:
    rough = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(rough).resize((40, 40), Image.Resampling.BICUBIC)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A committed version of sixteen pictures; one of test is in train too, mirrored."""
    monkeypatch.chdir(tmp_path)
    for i in range(16):
        path = tmp_path / "in" / ("test" if i % 2 else "train") / ("cat" if i % 4 < 2 else "dog") / f"{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        scene(i).save(path)
    scene(1).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(tmp_path / "in" / "train" / "cat" / "twin.png")
    project = Project(tmp_path)
    project.ok("init")
    project.ok("ingest", "in", "--batch", "b1")
    Lake.open(tmp_path / "lake").set_status("main", "b1", "admitted")
    project.ok("commit", "-m", "first")
    return project


def test_it_lists_pairs_writes_them_and_draws_them(project: Project) -> None:
    shown = project.ok("twins", "--out", "pairs.parquet", "--grid", "twins.png")
    assert "mirrored" in shown.out and "train/cat/twin.png" in shown.out
    assert "sevenfold review --exclude-twins" in shown.out
    (pair,) = pq.read_table("pairs.parquet").to_pylist()
    assert (pair["keep_split"], pair["exclude_split"], pair["mirrored"]) == ("test", "train", True)
    assert pair["group"] == pair["keep"] and pair["score"] > 0.9
    with Image.open("twins.png") as drawn:
        assert drawn.format == "PNG"
    told = project.ok("twins", "--json", "--across").json
    assert (told["pairs"], told["groups"], told["samples"], told["leaks"]) == (1, 1, 2, 1)
    assert told["twins"][0]["exclude"] == pair["exclude"]


def test_excluding_the_train_side_leaves_none_across_splits(project: Project) -> None:
    project.ok("review", "--exclude-twins", "--commit")
    told = project.ok("twins", "--json").json
    assert (told["version"], told["leaks"], told["twins"]) == ("v2", 0, [])
    assert "no twins" in project.ok("twins").out


def test_it_tells_whether_a_picture_is_in_already(project: Project, tmp_path: Path) -> None:
    scene(1).resize((90, 90)).save(tmp_path / "asked.jpg", quality=70)
    found = project.ok("twins", "--find", "asked.jpg", "--json").json["matches"]
    assert {(m["split"], m["path"]) for m in found} == {("test", "test/cat/01.png"), ("train", "train/cat/twin.png")}
    assert "test/cat/01.png" in project.ok("twins", "--find", "asked.jpg").out
    scene(99).save(tmp_path / "new.png")
    assert "is not in v1" in project.ok("twins", "--find", "new.png").out
    assert project("twins", "--find", "absent.png").code == 3
