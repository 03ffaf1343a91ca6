"""Compaction: other shards, no overlays, the same samples; deterministic, verified, and a basis for further work."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.canonical import digest_bytes
from sevenfold.storage.index import OVERLAY
from sevenfold.storage.keys import index_key, shard_key
from sevenfold.storage.rows import read_index

EDIT = st.fixed_dictionaries(
    {
        "exclude": st.sampled_from([None, None, True, False]),
        "label": st.sampled_from([None, "cat", "eel"]),
        "split": st.sampled_from([None, "train", "test", "pool"]),
        "weight": st.sampled_from([None, 0.0, 0.5, 2.0]),
    }
)
LAYERS = st.lists(st.dictionaries(st.integers(0, 19), EDIT, max_size=8), min_size=1, max_size=3)


def by_id(lake: Lake, ref: str) -> dict[str, dict[str, Any]]:
    """Effective samples without the place where their bytes lie."""
    return {
        r["id"]: {k: v for k, v in r.items() if k not in ("shard", "offset", "size")}
        for r in lake.samples("d", ref).to_pylist()
    }


def same_samples(lake: Lake, before: str, after: str) -> None:
    assert set(lake.diff("d", before, after)["counts"].values()) == {0}
    assert by_id(lake, before) == by_id(lake, after)
    rows = lake.samples("d", after)
    assert [digest_bytes(d) for d in lake.read_images(rows)] == rows["id"].to_pylist()


@pytest.fixture
def grown(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> Lake:
    """Three small batches, one of them unlabelled, and overlays of every kind."""
    make.land(lake, make.folder(tmp_path / "a", {f"train/{k}": v for k, v in make.two_classes(12).items()}), "a")
    make.commit(lake)
    more = {f"pool/{i}.png": make.png(i) for i in range(50, 54)}
    make.land(lake, make.folder(tmp_path / "b", more), "b")
    make.commit(lake)
    make.land(lake, make.folder(tmp_path / "c", {"test/cat/1.png": make.png(70), "train/dog/2.png": make.png(71)}), "c")
    ids = sorted(lake.samples("d")["id"].to_pylist())
    make.commit(lake, overlays=[make.overlay(ids[:3], exclude=True), make.overlay(ids[3:6], label="eel", weight=0.5)])
    make.commit(lake, overlays=[make.overlay(ids[5:7], split="test"), make.overlay(ids[:1], exclude=False)])
    return lake


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, make: SimpleNamespace) -> Lake:
    """20 samples in two committed batches, and the branch `start` there."""
    root = tmp_path_factory.mktemp("compact")
    lake = Lake.create(root / "lake", shard_bytes=16 << 10)
    for name, start in (("a", 0), ("b", 9)):
        members = {f"train/{k}": v for k, v in make.two_classes(9, start).items()}
        members[f"pool/{start}.png"] = make.png(start + 100)
        make.land(lake, make.folder(root / name, members), name)
        make.commit(lake)
    lake.tag("d", "start")
    return lake


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(layers=LAYERS)
def test_a_compacted_version_is_equal_sample_for_sample(base: Lake, layers: Any) -> None:
    ids = sorted(base.samples("d", "start")["id"].to_pylist())
    rows = [[{"id": ids[i], **edit} for i, edit in layer.items()] for layer in layers]
    branch = f"t{len(base.refs('d', 'branches'))}"
    base.branch("d", branch, "start")
    edits = [pa.Table.from_pylist(r, schema=OVERLAY) for r in rows]
    edited, _ = base.commit("d", branch=branch, message="edited", overlays=edits)
    compacted, _ = base.compact("d", branch)
    assert compacted.parents == (edited.number,), "made, or adopted where another branch made it"
    same_samples(base, edited.name, compacted.name)
    manifest = base.manifest(compacted.content_id)
    assert (len(manifest.batches), manifest.overlays) == (1, ())
    assert manifest.classes == base.manifest(edited.content_id).classes
    assert manifest.batch_ids == ("a", "b") and manifest.stored == base.samples("d", branch).num_rows
    assert read_index(base.store, manifest).num_rows == 20, "excluded samples keep a row"
    assert base.compact("d", branch) == (compacted, False)
    assert base.properties("d", branch).num_rows == manifest.stored


def test_small_shards_become_full_ones_in_id_order(grown: Lake) -> None:
    before = grown.manifest(grown.version("d").content_id)
    compacted, _ = grown.compact("d", message="tidy")
    after = grown.manifest(compacted.content_id)
    assert compacted.message == "tidy" and len(after.shards) < len(before.shards)
    rows = grown.samples("d")
    for shard in after.shards:
        assert digest_bytes(grown.shard_path(shard["digest"]).read_bytes()) == shard["digest"]
        assert shard["bytes"] <= grown.shard_bytes + 1024
        held = [r["id"] for r in rows.to_pylist() if r["shard"] == shard["digest"]]
        assert held == sorted(held) and len(held) == shard["samples"]


def test_a_stock_reader_sees_the_effective_labels_and_splits(grown: Lake) -> None:
    import webdataset

    with pytest.raises(SevenfoldError, match=r"4 overlays.*\n.*\n.*`sevenfold compact`"):
        grown.urls("d")
    before = grown.samples("d").to_pylist()
    classes = grown.manifest(grown.compact("d")[0].content_id).classes
    for split in ("train", "test", "pool"):
        seen = {
            s["__key__"]: (digest_bytes(s["png"]), int(s["cls"]) if "cls" in s else None)
            for s in webdataset.WebDataset(grown.urls("d", "main", split), shardshuffle=False)
        }
        assert seen == {
            r["id"]: (r["id"], None if r["label"] is None else classes.index(r["label"]))
            for r in before
            if r["split"] == split
        }
    assert grown.urls("d", "main", "val") == []
    with pytest.raises(SevenfoldError, match="no split 'dev'"):
        grown.urls("d", "main", "dev")


def test_the_same_version_gives_the_same_content_in_any_lake(grown: Lake, tmp_path: Path) -> None:
    shutil.copytree(grown.root, tmp_path / "copy")
    shutil.rmtree(tmp_path / "a")  # sources are not needed
    one, two = (x.compact("d")[0].content_id for x in (grown, Lake.open(tmp_path / "copy")))
    assert one == two
    other = Lake.open(tmp_path / "copy")
    other.shard_bytes = 1 << 20
    larger = other.compact("d")[0]
    assert larger.content_id != one, "the size of shards is part of it"
    same_samples(other, "main", f"v{larger.parents[0]}")


def test_later_batches_and_edits_go_on_top(grown: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    ids = sorted(by_id(grown, "main"))
    grown.write_predictions("p", pa.table({"id": ids}))
    signal = pa.table({"id": ids, "value": [1.0] * len(ids)})
    grown.write_signal("s", "p", signal, scope="content", in_sample=False)
    compacted, _ = grown.compact("d")
    gone = {r["id"]: r for r in read_index(grown.store, grown.manifest(compacted.content_id)).to_pylist()}
    excluded = [k for k, r in gone.items() if r["exclude"]]
    assert len(excluded) == 2 and all(gone[k]["shard"] is None for k in excluded)
    flip = {"cat": "dog", "dog": "cat"}
    known = next(r for r in gone.values() if r["label"] in flip and not r["exclude"])
    again = {f"train/{gone[excluded[0]]['label']}/again.png": image(grown, excluded[0])}
    again[f"train/{flip[known['label']]}/other.png"] = image(grown, known["id"])
    again["train/dog/new.png"] = make.png(999)
    make.land(grown, make.folder(tmp_path / "again", again), "again")
    version = make.commit(grown)
    counts = grown.batch("d", "again").counts
    assert (counts["samples"], counts["aliases"], counts["relabels"]) == (1, 1, 1)
    assert grown.queue("d", "relabels-again")["id"].to_pylist() == [known["id"]]
    assert set(by_id(grown, "main")) == {*ids, digest_bytes(make.png(999))}, "what was excluded stays excluded"
    make.commit(grown, overlays=[make.overlay([known["id"]], label="eel", weight=3.0)])
    assert by_id(grown, "main")[known["id"]]["label"] == "eel"
    last, made = grown.compact("d")
    assert made and grown.manifest(last.content_id).batch_ids == ("a", "b", "c", "again")
    same_samples(grown, f"v{version.number + 1}", "main")
    assert grown.properties("d").num_rows == len(ids) + 1
    make.reconciles(grown)
    joined = grown.samples("d").join(grown.signal("s").select(["id", "value"]), "id", join_type="inner")
    assert joined.num_rows == grown.predictions("p").num_rows == len(ids)


def image(lake: Lake, key: str) -> bytes:
    """An image, excluded or not, as it lies in the version before the compaction."""
    rows = read_index(lake.store, lake.manifest(lake.version("d", "v4").content_id))
    return lake.read_images(rows.filter(pc.equal(rows["id"], key)))[0]


def test_an_exclusion_that_is_baked_in_cannot_be_taken_back_in_silence(grown: Lake, make: SimpleNamespace) -> None:
    compacted, _ = grown.compact("d")
    rows = read_index(grown.store, grown.manifest(compacted.content_id)).to_pylist()
    key = next(r["id"] for r in rows if r["exclude"])
    with pytest.raises(SevenfoldError, match="1 samples that the overlay takes back have no bytes"):
        make.commit(grown, overlays=[make.overlay([key], exclude=False)])
    make.commit(grown, overlays=[make.overlay([key], exclude=True)])
    back = make.commit(
        grown, branch="before", start=f"v{compacted.parents[0]}", overlays=[make.overlay([key], exclude=False)]
    )
    assert key in by_id(grown, back.name)


def test_one_batch_without_overlays_is_compact_already(filled: Callable[..., Lake]) -> None:
    lake = filled(30)
    assert lake.compact("d") == (lake.version("d"), False)
    with pytest.raises(SevenfoldError, match=r"no branch 'nope'[^\n]*\n  expected: one of: main"):
        lake.compact("d", "nope")


def test_a_version_of_which_all_is_excluded_keeps_its_rows(filled: Callable[..., Lake], make: SimpleNamespace) -> None:
    lake = filled(4)
    make.commit(lake, overlays=[make.overlay(lake.samples("d")["id"].to_pylist(), exclude=True)])
    manifest = lake.manifest(lake.compact("d")[0].content_id)
    assert (manifest.shards, manifest.stored, lake.samples("d").num_rows) == ((), 0, 0)
    assert read_index(lake.store, manifest).num_rows == 4


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_shard_is_named_and_nothing_is_published(grown: Lake, damage: str) -> None:
    head = grown.version("d")
    row = grown.samples("d").sort_by("offset").to_pylist()[-1]
    path = grown.shard_path(row["shard"])
    data = bytearray(path.read_bytes())
    data[row["offset"] + 5] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data if damage == "flip" else data[: row["offset"] + 3])
    with pytest.raises(SevenfoldError) as caught:
        grown.compact("d")
    assert shard_key(row["shard"]) in caught.value.where
    if damage != "gone":
        assert f"the member {row['id']}.png at byte {row['offset']}" in caught.value.found
    assert ("ends after 3 of" in caught.value.found) == (damage == "cut")
    assert grown.version("d") == head


def test_a_re_run_after_a_crash_adopts_what_is_there(grown: Lake, make: SimpleNamespace) -> None:
    compacted, _ = grown.compact("d")
    shards = [grown.shard_path(s["digest"]) for s in grown.manifest(compacted.content_id).shards]
    files = [p.stat().st_ino for p in shards[1:]]
    shards[0].unlink()  # as if killed before the first was named, and after the version was numbered
    grown.store.delete(index_key(grown.manifest(compacted.content_id).batches[0]["index"]))
    grown.rollback("d", f"v{compacted.parents[0]}")
    assert grown.compact("d") == (compacted, False)
    same_samples(grown, "main", f"v{compacted.parents[0]}")
    assert files == [p.stat().st_ino for p in shards[1:]], "and puts nothing in the place of what is there"


COMPACTS = """
import sys
from sevenfold.storage import Lake
lake = Lake.open(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
lake.compact("d")
"""


def test_a_commit_and_a_compaction_at_once_lose_nothing(grown: Lake, make: SimpleNamespace) -> None:
    ids = sorted(by_id(grown, "main"))
    process = subprocess.Popen(
        [sys.executable, "-c", COMPACTS, str(grown.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"ready\n"
    process.stdin.write(b"\n")
    process.stdin.flush()
    for i in range(6):
        make.commit(grown, overlays=[make.overlay(ids[i : i + 1], weight=7.0 + i)])
    process.communicate(timeout=60)
    assert process.returncode == 0
    weights = {k: r["weight"] for k, r in by_id(grown, "main").items()}
    assert [weights[ids[i]] for i in range(6)] == [7.0 + i for i in range(6)]
    assert sum(len(v.parents) == 1 for v in grown.versions("d")) == len(grown.versions("d")) - 1, "one line"


def test_an_edit_that_contradicts_one_baked_in_meanwhile_is_refused(grown: Lake, make: SimpleNamespace) -> None:
    """The overlay of the other is gone from the manifest, what it said is not."""
    from sevenfold.storage import overlays
    from sevenfold.storage.rows import edits_since

    before = grown.manifest(grown.version("d").content_id)
    key = sorted(by_id(grown, "main"))[0]
    make.commit(grown, overlays=[make.overlay([key], weight=9.0)])
    grown.compact("d")
    since = edits_since(grown.store, before, grown.manifest(grown.version("d").content_id))
    for weight, n in ((8.0, 1), (9.0, 0)):
        edit = overlays.checked(make.overlay([key], weight=weight, split="test"))
        assert overlays.conflicts(since, [edit]).num_rows == n
