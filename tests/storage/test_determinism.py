"""Invariant 1: the same source gives the same shards, indexes and content id, however it got here."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sevenfold.storage import Lake, chunks, workers
from sevenfold.storage import ingest as landing

MIXED = {
    "cat/bad.png": b"\x89PNG\r\n\x1a\nnothing",
    "cat/page.jpg": b"<html>404</html>",
    "dog/empty.png": b"",
}


def print_of(lake: Lake, dataset: str = "d") -> dict[str, Any]:
    """Everything of a lake that must not depend on the way there."""
    version = lake.version(dataset)
    manifest = lake.manifest(version.content_id)
    return {
        "content_id": version.content_id,
        "shards": [(s["digest"], s["index"], s["samples"], s["split"]) for s in manifest.shards],
        "tars": sorted(p.name for p in (lake.root / "shards").rglob("*.tar")),
        "batches": {b.batch: (b.digest, b.counts, b.reasons) for b in lake.batches(dataset)},
    }


def test_one_worker_or_two_and_any_file_order_give_the_same_lake(
    tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "WORTH_SECONDS", 0.0)
    members = {**make.two_classes(2 * chunks.CHUNK + 50), **MIXED, "dog/copy.png": make.png(0)}
    prints = []
    for name, count in (("one", 1), ("two", 2)):
        order = list(members.items())
        random.Random(name).shuffle(order)
        source = make.folder(tmp_path / name / "source", dict(order))
        lake = Lake.create(tmp_path / name / "lake", shard_bytes=64 << 10)
        make.land(lake, source, "b", workers=count)
        make.commit(lake)
        prints.append(print_of(lake))
        assert len(prints[-1]["shards"]) > 4
        assert lake.batch("d", "b").reasons == {"not_an_image": 3}
        assert lake.batch("d", "b").counts["samples"] == 2 * chunks.CHUNK + 50
        assert all(r["label"] == r["path"].split("/")[0] for r in lake.samples("d").to_pylist())
        make.reconciles(lake)
    assert prints[0] == prints[1]


def test_the_pool_is_used_when_there_is_enough_work(
    tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the test above: it must compare a pool with a loop, not two loops."""

    def refuse(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(workers, "ProcessPoolExecutor", refuse)
    monkeypatch.setattr(landing, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(chunks, "CHUNK", 4)
    source = make.folder(tmp_path / "s", make.two_classes(20))
    with pytest.raises(ZeroDivisionError):
        Lake.create(tmp_path / "lake").ingest(source, "d", "b", workers=2)


def test_batches_in_any_order_of_arrival_give_the_same_version(tmp_path: Path, make: SimpleNamespace) -> None:
    sources = {f"b{k}": make.folder(tmp_path / f"b{k}", make.two_classes(40, start=25 * k)) for k in range(3)}
    prints = []
    for order in (("b0", "b1", "b2"), ("b2", "b0", "b1")):
        lake = Lake.create(tmp_path / "".join(order), shard_bytes=16 << 10)
        for name in order:
            lake.ingest(sources[name], "d", name)
        for name in reversed(order):
            lake.set_status("d", name, "admitted")
        if order[0] == "b2":
            lake.pack("d", "b2")  # ahead of the commit, as Dagster's partitions do
        make.commit(lake)
        make.reconciles(lake)
        prints.append(print_of(lake))
    assert prints[0] == prints[1]
    assert prints[0]["batches"]["b1"][1]["aliases"] == 15, "25..39 overlap"


def test_folder_zip_and_csv_of_the_same_images_give_the_same_shards(tmp_path: Path, make: SimpleNamespace) -> None:
    members = make.two_classes(30)
    tree = make.folder(tmp_path / "tree", members)
    with zipfile.ZipFile(tmp_path / "tree.zip", "w") as z:
        for name, data in reversed(members.items()):
            z.writestr(name, data)
    lines = ["path,label", *(f"{name},{name.split('/')[0]}" for name in members)]
    (tree / "list.csv").write_text("\n".join(lines))
    prints = []
    for source in (tree / "list.csv", tmp_path / "tree.zip", tree):
        if source == tree:
            (tree / "list.csv").unlink()
        lake = Lake.create(tmp_path / f"lake-{source.name}", shard_bytes=16 << 10)
        make.land(lake, source, "b")
        make.commit(lake)
        prints.append(print_of(lake))
    assert prints[0] == prints[1] == prints[2]


def test_another_label_split_class_order_or_image_changes_the_content_id(tmp_path: Path, make: SimpleNamespace) -> None:
    base = make.two_classes(8)
    variants = {
        "base": base,
        "label": {k.replace("cat/00003", "dog/00003"): v for k, v in base.items()},
        "image": {**base, "cat/00003.png": make.png(99)},
        "split": {f"train/{k}": v for k, v in base.items()},
    }
    ids = {}
    for name, members in variants.items():
        lake = Lake.create(tmp_path / f"lake-{name}")
        make.land(lake, make.folder(tmp_path / name, members), "b")
        ids[name] = make.commit(lake).content_id
    lake = Lake.create(tmp_path / "lake-classes")
    make.land(lake, tmp_path / "base", "b", classes=["dog", "cat"])
    ids["classes"] = make.commit(lake).content_id
    assert len(set(ids.values())) == len(ids), ids


def test_a_golden_content_id(tmp_path: Path) -> None:
    """Own PNG writer, own tar writer: the id is the same on every machine. A change here is a change of format."""
    import gzip

    import numpy as np

    images = (np.arange(6 * 4 * 5) * 7 % 256).astype(np.uint8).reshape(6, 4, 5)
    header = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in images.shape)
    (tmp_path / "toy-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images.tobytes()))
    (tmp_path / "toy-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 6, 0, 1, 2, 0, 1, 2]))
    lake = Lake.create(tmp_path / "lake")
    lake.ingest(tmp_path / "toy-images-idx3-ubyte.gz", "toy", "b")
    lake.set_status("toy", "b", "admitted")
    version, _ = lake.commit("toy", message="golden")
    assert version.content_id == GOLDEN


GOLDEN = "ebb3e1ca63612655dbdae49f1c774699ce6ba22d9d456db5bca9c4b0d6823f0c"

# A source in small: what each file is (a few different images so that copies happen, or one of several bad ones).
FILES = st.lists(
    st.tuples(
        st.sampled_from(["train", "test", "val", "pool"]),
        st.sampled_from(["cat", "dog", "eel"]),
        st.sampled_from([0, 1, 2, 3, "empty", "html", "cut", "suffix"]),
    ),
    min_size=1,
    max_size=14,
)


def members_of(make: SimpleNamespace, files: list[tuple[str, str, Any]]) -> dict[str, bytes]:
    bad = {"empty": b"", "html": b"<html>", "cut": make.png(7)[:60]}
    return {
        f"{split}/{label}/{i}.{'jpg' if what == 'suffix' else 'png'}": bad.get(what) if what in bad else make.png(
            5 if what == "suffix" else what
        )
        for i, (split, label, what) in enumerate(files)
    }  # fmt: skip


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(first=FILES, second=FILES, ontology=st.booleans())
def test_whatever_is_landed_every_input_is_accounted_for_and_each_id_is_there_once(
    make: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory, first: Any, second: Any, ontology: bool
) -> None:
    root = tmp_path_factory.mktemp("p")
    classes = ["cat", "dog"] if ontology else None
    lake = Lake.create(root / "lake", shard_bytes=4096)
    placed: dict[str, str] = {}
    for name, files in (("a", first), ("b", second)):
        source = make.folder(root / name, members_of(make, files))
        make.land(lake, source, name, classes=classes)
        make.reconciles(lake)
        assert lake.batch("d", name).counts["inputs"] == len(files)
        rows = lake.batch_rows("d", name)
        assert len(set(rows["id"].to_pylist())) == rows.num_rows
        assert rows["id"].to_pylist() == sorted(rows["id"].to_pylist())
        make.commit(lake)
        make.reconciles(lake)
        samples = lake.samples("d").to_pylist()
        ids = [s["id"] for s in samples]
        assert len(set(ids)) == len(ids)
        now = {s["id"]: s["split"] for s in samples}
        assert placed.items() <= now.items(), "a known id never moves and never goes"
        placed = now
        assert all(s["split"] == "pool" or s["label"] is not None for s in samples)
        assert all(s["label"] is None for s in samples if s["split"] == "pool")
    if classes:
        assert {s["label"] for s in lake.samples("d").to_pylist()} <= {"cat", "dog", None}
    recorded = pq.read_table(next((lake.root / "batches" / "d").glob("a.parquet")))
    assert recorded.num_rows == lake.batch_rows("d", "a").num_rows
