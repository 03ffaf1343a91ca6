"""Merges: both sides' batches and edits, or a refusal with every sample on which they disagree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sevenfold.storage import Lake, SevenfoldError, merge
from sevenfold.storage.index import OVERLAY
from sevenfold.storage.merge import CONFLICTS, MergeConflict

EDIT = st.fixed_dictionaries(
    {
        "exclude": st.sampled_from([None, True, False]),
        "label": st.sampled_from([None, "cat", "dog"]),
        "split": st.sampled_from([None, "train", "test"]),
        "weight": st.sampled_from([None, 0.5, 2.0]),
    }
)
SIDE = st.lists(st.dictionaries(st.integers(0, 11), EDIT, max_size=6), max_size=2)


def by_id(lake: Lake, ref: str) -> dict[str, dict[str, Any]]:
    return {r["id"]: r for r in lake.samples("d", ref).to_pylist()}


def batch(lake: Lake, make: SimpleNamespace, root: Path, name: str, start: int, n: int = 4) -> None:
    """Land `n` images of two classes as the batch `name`, admitted."""
    make.land(lake, make.folder(root / name, make.two_classes(n, start)), name)


@pytest.fixture
def split(filled: Callable[..., Lake], tmp_path: Path, make: SimpleNamespace) -> Lake:
    """v1 of 12 samples; `trial` has the batch t and an edit more, main the batch m and another edit."""
    lake = filled(12)
    ids = sorted(by_id(lake, "v1"))
    batch(lake, make, tmp_path, "t", 100)
    make.commit(lake, branch="trial", start="v1", overlays=[make.overlay(ids[:2], weight=2.0, reviewer="ada")])
    batch(lake, make, tmp_path, "m", 200)
    make.commit(lake, overlays=[make.overlay(ids[1:3], exclude=True)])
    return lake


def test_batches_and_edits_of_both_are_in_the_merge(split: Lake) -> None:
    ours, theirs = split.version("d"), split.version("d", "trial")
    merged, made = split.merge("d", "trial", message="trial is good")
    assert made and merged.parents == (ours.number, theirs.number) and merged.message == "trial is good"
    manifest = split.manifest(merged.content_id)
    assert manifest.batch_ids == ("first", "m", "t"), "a batch that is on one branch is not taken up by another"
    rows = by_id(split, "main")
    ids = sorted(by_id(split, "v1"))
    assert len(rows) == 12 - 2 + 8 and rows[ids[0]]["weight"] == 2.0 and ids[1] not in rows
    assert split.merge("d", "trial") == (merged, False), "again: nothing to do"
    assert split.merge("d", "v1") == (merged, False)


def test_a_branch_that_is_behind_is_moved_forward(split: Lake) -> None:
    merged, _ = split.merge("d", "trial")
    n = len(split.versions("d"))
    assert split.merge("d", "main", "trial") == (merged, False)
    assert split.version("d", "trial") == merged and len(split.versions("d")) == n


def test_work_goes_on_after_merges_in_both_directions(split: Lake, make: SimpleNamespace) -> None:
    ids = sorted(by_id(split, "v1"))
    split.merge("d", "trial")
    make.commit(split, branch="trial", overlays=[make.overlay(ids[3:4], weight=3.0)])
    make.commit(split, overlays=[make.overlay(ids[4:5], weight=4.0)])
    split.merge("d", "main", "trial")
    make.commit(
        split, branch="trial", overlays=[make.overlay(ids[3:4], weight=5.0), make.overlay(ids[5:6], label="cat")]
    )
    make.commit(split, overlays=[make.overlay(ids[4:5], weight=6.0)])
    split.merge("d", "trial")
    rows = by_id(split, "main")
    assert [rows[i]["weight"] for i in (ids[0], ids[3], ids[4])] == [2.0, 5.0, 6.0]
    manifest = split.manifest(split.version("d").content_id)
    reviewers = {x for d in manifest.overlays for x in split.overlay(d)["reviewer"].to_pylist()}
    assert "ada" in reviewers, "whose decisions they are is kept"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, make: SimpleNamespace) -> Lake:
    root = tmp_path_factory.mktemp("merge")
    lake = Lake.create(root / "lake", shard_bytes=16 << 10)
    members = {f"train/{k}": v for k, v in make.two_classes(12).items()}
    make.land(lake, make.folder(root / "s", members), "b")
    make.commit(lake)
    lake.tag("d", "start")
    return lake


def last_words(layers: list[dict[int, dict[str, Any]]]) -> dict[tuple[int, str], Any]:
    return {(i, k): v for layer in layers for i, edit in layer.items() for k, v in edit.items() if v is not None}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ours=SIDE, theirs=SIDE, compacted=st.sampled_from(["", "ours", "theirs"]))
def test_a_merge_is_both_sides_edits_on_one_branch_or_the_list_of_their_contradictions(
    base: Lake, ours: Any, theirs: Any, compacted: str
) -> None:
    ids = sorted(by_id(base, "start"))
    n = len(base.refs("d", "branches"))

    def tables(layers: Any) -> list[pa.Table]:
        return [pa.Table.from_pylist([{"id": ids[i], **e} for i, e in x.items()], schema=OVERLAY) for x in layers]

    names = {side: f"{side}{n}" for side in ("ours", "theirs", "both")}
    for side, layers in (("ours", ours), ("theirs", theirs), ("both", [*ours, *theirs])):
        base.branch("d", names[side], "start")
        base.commit("d", branch=names[side], message=side, overlays=tables(layers))
    if compacted:
        base.compact("d", names[compacted])
    mine, other = last_words(ours), last_words(theirs)
    clashing = {(ids[k[0]], k[1]) for k in mine.keys() & other.keys() if mine[k] != other[k]}
    if compacted:  # what is baked in is known by its effect: an edit that said nothing new contradicts nothing
        assume(not clashing)
    base.branch("d", f"x{n}", names["theirs"])
    if clashing:
        with pytest.raises(MergeConflict, match=f"{len(clashing)} edits contradict") as caught:
            base.merge("d", names["theirs"], names["ours"])
        assert caught.value.conflicts.schema == CONFLICTS
        assert {(r["id"], r["field"]) for r in caught.value.conflicts.to_pylist()} == clashing
        return
    for into, what in ((names["ours"], names["theirs"]), (f"x{n}", names["ours"])):
        base.merge("d", what, into)
        assert set(base.diff("d", into, names["both"])["counts"].values()) == {0}
    assert base.merge("d", names["theirs"], names["ours"])[1] is False


def test_contradictions_are_listed_and_nothing_moves(split: Lake, make: SimpleNamespace) -> None:
    ids = sorted(by_id(split, "v1"))
    head = make.commit(split, overlays=[make.overlay(ids[:1], weight=9.0)])
    with pytest.raises(MergeConflict) as caught:
        split.merge("d", "trial")
    assert caught.value.conflicts.to_pylist() == [{"id": ids[0], "field": "weight", "ours": "9", "theirs": "2"}]
    assert ids[0] in caught.value.found and "v2 into main" in caught.value.where and caught.value.do
    assert split.version("d") == head
    make.commit(split, overlays=[make.overlay(ids[:1], weight=2.0)])
    assert split.merge("d", "trial")[1], "once both say the same"


def test_a_sample_that_came_in_different_batches_is_refused(
    filled: Callable[..., Lake], tmp_path: Path, make: SimpleNamespace
) -> None:
    lake = filled(6)
    batch(lake, make, tmp_path, "t", 100)
    make.commit(lake, branch="trial", start="v1")
    batch(lake, make, tmp_path, "m", 102)
    make.commit(lake)
    with pytest.raises(MergeConflict, match="2 samples came in different batches") as caught:
        lake.merge("d", "trial")
    rows = caught.value.conflicts.to_pylist()
    assert len(rows) == 2 and {(r["field"], r["ours"], r["theirs"]) for r in rows} == {("batch", "m", "t")}


def test_a_batch_that_both_sides_packed_differently_is_refused(
    filled: Callable[..., Lake], tmp_path: Path, make: SimpleNamespace
) -> None:
    lake = filled(6)
    lake.branch("d", "trial", "v1")
    batch(lake, make, tmp_path, "m", 100, n=2)
    make.commit(lake)
    make.land(lake, make.folder(tmp_path / "s", make.two_classes(4, 100)), "shared")
    make.commit(lake)  # two of its samples are known here
    reopen(lake, "shared")
    make.commit(lake, branch="trial")
    with pytest.raises(MergeConflict, match="both sides hold shared, in different shards") as caught:
        lake.merge("d", "trial")
    assert caught.value.conflicts.num_rows == 4


def reopen(lake: Lake, name: str) -> None:
    """Admit a committed batch anew, as an older release did for every branch that lacked it."""
    from dataclasses import replace

    from sevenfold.storage.keys import batch_key

    record = lake.batch("d", name)
    lake.store.replace(batch_key("d", name), replace(record, status="admitted").to_json())


def test_the_same_batch_on_both_sides_is_one(
    filled: Callable[..., Lake], tmp_path: Path, make: SimpleNamespace
) -> None:
    lake = filled(6)
    lake.branch("d", "trial", "v1")
    batch(lake, make, tmp_path, "shared", 100)
    make.commit(lake)
    reopen(lake, "shared")
    make.commit(lake, branch="trial", overlays=[make.overlay(sorted(by_id(lake, "v1"))[:1], weight=2.0)])
    merged, _ = lake.merge("d", "trial")
    assert lake.manifest(merged.content_id).batch_ids == ("first", "shared") and len(by_id(lake, "main")) == 10


def test_classes_have_to_continue_each_other(filled: Callable[..., Lake], make: SimpleNamespace) -> None:
    lake = filled(6)
    ids = sorted(by_id(lake, "v1"))
    make.commit(lake, branch="trial", start="v1", overlays=[make.overlay(ids[:1], label="eel")])
    make.commit(lake, overlays=[make.overlay(ids[1:2], weight=2.0)])
    merged, _ = lake.merge("d", "trial")
    assert lake.manifest(merged.content_id).classes == ("cat", "dog", "eel")
    make.commit(lake, branch="ape", start="v1", overlays=[make.overlay(ids[2:3], label="ape")])
    with pytest.raises(SevenfoldError, match="class 2 is 'eel' in ours and 'ape' in theirs"):
        lake.merge("d", "ape")


def test_a_compaction_on_either_side_can_be_merged(split: Lake, make: SimpleNamespace) -> None:
    expected = sorted(by_id(split, split.merge("d", "trial")[0].name))
    split.rollback("d", "v3")
    split.compact("d")
    split.merge("d", "trial")
    assert sorted(by_id(split, "main")) == expected
    ids = sorted(by_id(split, "v1"))
    make.commit(split, branch="back", start="trial", overlays=[make.overlay(ids[2:3], exclude=False)])
    with pytest.raises(MergeConflict, match="1 edits contradict"):
        split.merge("d", "back")
    split.branch("d", "squeezed", "trial")
    split.compact("d", "squeezed")
    split.rollback("d", "v3")
    with pytest.raises(MergeConflict, match="both sides hold first") as caught:
        split.merge("d", "squeezed")
    assert "from before the compaction" in caught.value.do


def test_what_compaction_dropped_cannot_be_brought_back_by_a_merge(
    filled: Callable[..., Lake], make: SimpleNamespace
) -> None:
    lake = filled(6)
    key = sorted(by_id(lake, "v1"))[0]
    make.commit(lake, overlays=[make.overlay([key], exclude=True)])
    make.commit(lake, branch="back", start="v2", overlays=[make.overlay([key], exclude=False)])
    lake.compact("d")
    with pytest.raises(MergeConflict, match="have no bytes in ours") as caught:
        lake.merge("d", "back")
    assert caught.value.conflicts.to_pylist() == [{"id": key, "field": "bytes", "ours": "gone", "theirs": "wanted"}]


def test_branches_and_refs_that_do_not_exist_are_named(split: Lake) -> None:
    with pytest.raises(SevenfoldError, match=r"no branch 'x'[^\n]*\n  expected: one of: main, trial"):
        split.merge("d", "trial", "x")
    with pytest.raises(SevenfoldError, match="'y' names no version"):
        split.merge("d", "y")


def test_a_merge_that_loses_a_race_is_made_again(
    split: Lake, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = sorted(by_id(split, "v1"))
    plain, calls = merge.publish, []

    def late(*arguments: Any) -> Any:
        if not calls:
            make.commit(split, overlays=[make.overlay(ids[5:6], weight=5.0)])
        calls.append(1)
        return plain(*arguments)

    monkeypatch.setattr(merge, "publish", late)
    merged, made = split.merge("d", "trial")
    assert made and len(calls) == 2 and by_id(split, "main")[ids[5]]["weight"] == 5.0
    assert split.version("d") == merged
