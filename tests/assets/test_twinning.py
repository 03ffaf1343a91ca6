"""Twins in a lake: descriptors are made once and kept, a picture is found from them, and takedown drops them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from PIL import Image

from sevenfold.assets import reviewing, twinning
from sevenfold.assets.committing import commit
from sevenfold.quality.twins_describe import PRODUCER
from sevenfold.quality.twins_pairs import leaks
from sevenfold.storage import takedown
from sevenfold.storage.descriptors import descriptors_key, read_descriptors
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.gc import gc
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project
from sevenfold.storage.verify import verify


def scene(seed: int, size: int = 48) -> Image.Image:
    """A picture of smooth shapes that depends on the seed alone."""
    rough = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(rough).resize((size, size), Image.Resampling.BICUBIC)


def save(image: Image.Image, path: Path, **options: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """v1: twenty pictures of test and train each; three of test are in train too, mirrored, brighter and re-encoded."""
    source = tmp_path / "source"
    for i in range(20):
        save(scene(i), source / "test" / "cat" / f"{i:02d}.png")
        save(scene(100 + i, 40), source / "train" / "dog" / f"{i:02d}.png")
    save(scene(0).transpose(Image.Transpose.FLIP_LEFT_RIGHT), source / "train" / "cat" / "mirrored.png")
    save(scene(1).point(lambda v: min(255, int(v * 1.2))), source / "train" / "cat" / "brighter.png")
    save(scene(2), source / "train" / "cat" / "reencoded.jpg", quality=60)
    project = Project(folder=tmp_path, dataset="pets")
    lake = project.create_lake()
    lake.ingest(source, "pets", "one")
    lake.set_status("pets", "one", "admitted")
    commit(lake, project, message="one")
    return project


@pytest.fixture
def lake(project: Project) -> Lake:
    return project.open_lake()


def names(lake: Lake, ids: list[str]) -> set[str]:
    rows = lake.samples("pets")
    paths = dict(zip(rows["id"].to_pylist(), rows["path"].to_pylist(), strict=True))
    return {paths[i] for i in ids}


def kept_ids(lake: Lake) -> set[str]:
    return {i for t in read_descriptors(lake.store, PRODUCER, "pets", twinning.SCHEMA) for i in t["id"].to_pylist()}


def encoded(image: Image.Image, form: str = "JPEG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form)
    return buffer.getvalue()


def test_the_train_side_of_each_twin_is_excluded_by_one_overlay(lake: Lake, project: Project) -> None:
    found = twinning.cross_split(lake, project)
    wanted = {"train/cat/mirrored.png", "train/cat/brighter.png", "train/cat/reencoded.jpg"}
    assert names(lake, found["exclude"].to_pylist()) == wanted
    samples = lake.samples("pets")
    decided = reviewing.exclude_twins(found)
    reviewed = reviewing.decisions_to_overlay(
        samples, decided, lake.manifest(lake.version("pets").content_id).classes, reviewer="ada", reason="twins"
    )
    lake.commit("pets", message="without twins", overlays=[reviewed.overlay])
    assert lake.samples("pets").num_rows == samples.num_rows - 3
    assert leaks(twinning.twins(lake, project)).num_rows == 0


def test_descriptors_are_made_once_and_again_only_where_they_are_lost(lake: Lake, project: Project) -> None:
    samples = lake.samples("pets")
    assert twinning.described(lake, "pets", samples).made == samples.num_rows
    again = twinning.described(lake, "pets", samples)
    assert again.made == 0
    shuffled = samples.take(np.random.default_rng(0).permutation(samples.num_rows))
    turned = twinning.described(lake, "pets", shuffled).described
    place = pc.index_in(shuffled["id"], samples["id"].combine_chunks()).to_numpy()
    assert (turned.vectors == again.described.vectors[place]).all()
    assert (turned.thumbs == again.described.thumbs[place]).all()
    path = lake.root / descriptors_key(PRODUCER, "pets", "one")
    path.write_bytes(path.read_bytes()[:100])
    mended = twinning.described(lake, "pets", samples)
    assert mended.made == samples.num_rows and (mended.described.hashes == again.described.hashes).all()


def test_a_later_batch_and_a_compaction_describe_only_what_is_new(lake: Lake, project: Project, tmp_path: Path) -> None:
    twinning.described(lake, "pets", lake.samples("pets"))
    for i in range(5):
        save(scene(200 + i), tmp_path / "more" / "train" / "dog" / f"n{i}.png")
    lake.ingest(tmp_path / "more", "pets", "two")
    lake.set_status("pets", "two", "admitted")
    commit(lake, project, message="two")
    assert twinning.described(lake, "pets", lake.samples("pets")).made == 5
    before = twinning.twins(lake, project)
    lake.compact("pets")
    assert twinning.described(lake, "pets", lake.samples("pets")).made == 0
    assert twinning.twins(lake, project).pairs.equals(before.pairs)


def test_a_picture_is_found_from_the_kept_descriptors(lake: Lake, project: Project, tmp_path: Path) -> None:
    finder = twinning.Finder.open(lake, project)
    best, second = finder.find(encoded(scene(0)))
    assert {(best.path, best.split), (second.path, second.split)} == {
        ("test/cat/00.png", "test"),
        ("train/cat/mirrored.png", "train"),
    }
    assert best.path == "test/cat/00.png" and second.transform.startswith("mirrored") and second.score > 0.9
    assert finder.find(encoded(scene(0), "PNG"))[0].transform == "equal pixels"
    cropped = scene(107, 200).crop((8, 8, 196, 196))
    assert [m.path for m in finder.find(encoded(cropped))] == ["train/dog/07.png"]
    assert finder.find(encoded(scene(999))) == []
    (tmp_path / "x.jpg").write_bytes(encoded(scene(5)))
    assert [m.path for m in twinning.find(lake, project, tmp_path / "x.jpg")] == ["test/cat/05.png"]


def test_what_is_no_picture_is_refused_with_its_reason(lake: Lake, project: Project, tmp_path: Path) -> None:
    with pytest.raises(SevenfoldError, match="not_an_image"):
        twinning.Finder.open(lake, project).find(b"words", "words.jpg")
    with pytest.raises(SevenfoldError, match="cannot be read"):
        twinning.find(lake, project, tmp_path / "absent.jpg")


def test_a_takedown_drops_the_descriptor_and_it_does_not_come_back(lake: Lake, project: Project) -> None:
    finder = twinning.Finder.open(lake, project)
    gone = finder.find(encoded(scene(3)))[0].id
    assert gone in kept_ids(lake)
    samples = lake.samples("pets")
    request = takedown.Request(key=gone)
    traces = takedown.find(lake.store, request)
    assert not isinstance(traces, takedown.Takedown)
    takedown.carry_out(lake.store, request, traces, "consent withdrawn")
    assert gone not in kept_ids(lake) and len(kept_ids(lake)) == samples.num_rows - 1
    row = samples.filter(pc.equal(samples["id"], gone))
    described = finder.index.described.take(np.flatnonzero(pc.equal(samples["id"], gone).to_numpy()))
    twinning.keep(lake, "pets", "one", row["id"], described)  # a search that began before the takedown
    assert gone not in kept_ids(lake)
    assert twinning.Finder.open(lake, project).find(encoded(scene(3))) == []


def test_verification_and_garbage_collection_leave_them(lake: Lake, project: Project) -> None:
    twinning.described(lake, "pets", lake.samples("pets"))
    assert verify(lake.store, ["pets"]).findings == ()
    gc(lake.store, grace=0, delete=True, alone=True)
    assert len(kept_ids(lake)) == lake.samples("pets").num_rows


def test_the_grid_is_one_picture_of_the_pairs(lake: Lake, project: Project) -> None:
    pairs = twinning.listed(twinning.twins(lake, project))
    with Image.open(io.BytesIO(twinning.grid(lake, lake.samples("pets"), pairs))) as drawn:
        assert drawn.format == "PNG" and drawn.width > 3 * 2 * 72
