"""Versions: numbers, branches, tags, retries that adopt (invariant 11), rollback, differences, damage."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sevenfold import __version__
from sevenfold.storage import Lake, SevenfoldError, versions
from sevenfold.storage.diff import diff_sql
from sevenfold.storage.index import OVERLAY
from sevenfold.storage.keys import manifest_key


def test_a_commit_with_nothing_new_returns_the_head(filled: Callable[..., Lake]) -> None:
    lake = filled(5)
    head = lake.version("d")
    assert lake.commit("d", message="again") == (head, False)
    assert len(lake.versions("d")) == 1


def test_saying_the_last_overlays_again_adopts_the_version(filled: Callable[..., Lake], make: SimpleNamespace) -> None:
    """A step that crashed after its commit and is run again must not make a version of the same content."""
    lake = filled(5)
    ids = lake.samples("d")["id"].to_pylist()
    edits = [make.overlay(ids[:2], label="cat"), make.overlay(ids[1:3], exclude=True)]
    version, made = lake.commit("d", message="review", overlays=edits)
    assert made and version.number == 2
    assert lake.commit("d", message="review", overlays=edits) == (version, False)
    assert lake.commit("d", message="review", overlays=edits[1:]) == (version, False)
    assert lake.commit("d", message="nothing", overlays=[edits[0].slice(0, 0)]) == (version, False)
    assert lake.commit("d", message="other order", overlays=edits[:1])[1] is True


@pytest.mark.parametrize("clock", [3.0, 4.0])
def test_a_crash_between_version_and_branch_is_mended_by_the_re_run(
    filled: Callable[..., Lake], make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, clock: float
) -> None:
    lake = filled(5)
    edit = make.overlay(lake.samples("d")["id"].to_pylist()[:2], exclude=True)
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(versions, "move_branch", lambda *_: 1 / 0)
        lake.commit("d", message="m", overlays=[edit], clock=lambda: 3.0)
    assert [v.number for v in lake.versions("d")] == [1, 2] and lake.version("d").number == 1
    version, made = lake.commit("d", message="m", overlays=[edit], clock=lambda: clock)
    assert (version.number, made) == (2, False), "adopted, not made again"
    assert lake.version("d") == version and version.provenance["time"] == 3.0


def test_two_commits_of_the_same_content_at_once_are_one(filled: Callable[..., Lake], make: SimpleNamespace) -> None:
    lake = filled(3)
    store = lake.store
    versions.move_branch(store, "d", "main", 1, 1)
    versions.move_branch(store, "d", "main", 7, 1)  # somebody else already moved it to where we want it
    with pytest.raises(SevenfoldError, match="the branch main points at v1"):
        versions.move_branch(store, "d", "main", 7, 2)


def test_the_content_id_holds_no_time_message_or_place(tmp_path: Path, make: SimpleNamespace) -> None:
    ids = set()
    for name, clock, message in (("a", 1.0, "one"), ("b", 2.0, "two")):
        lake = Lake.create(tmp_path / name / "lake")
        lake.ingest(make.folder(tmp_path / name / "s", make.two_classes(4)), "d", "b", clock=lambda c=clock: c)
        lake.set_status("d", "b", "admitted", clock=lambda c=clock: c)
        version, _ = lake.commit("d", message=message, provenance={"host": name}, clock=lambda c=clock: c)
        assert version.message == message
        assert version.provenance.items() >= {"host": name, "time": clock, "code": __version__}.items()
        ids.add(version.content_id)
    assert len(ids) == 1


def test_versions_are_found_by_number_branch_tag_and_content_id(
    filled: Callable[..., Lake], make: SimpleNamespace
) -> None:
    lake = filled(5)
    lake.tag("d", "golden", "v1")
    second = make.commit(lake, overlays=[make.overlay(lake.samples("d")["id"].to_pylist()[:1], exclude=True)])
    assert second.parents == (1,)
    lake.branch("d", "exp", "v1")
    found = {ref: lake.version("d", ref).number for ref in ("main", "v1", "2", "golden", "exp", second.content_id[:8])}
    assert found == {"main": 2, "v1": 1, "2": 2, "golden": 1, "exp": 1, second.content_id[:8]: 2}
    for ref in ("v3", "nope", second.content_id[:5], "v" + "9" * 5000, "../main"):
        with pytest.raises(SevenfoldError, match=r"names no version of d"):
            lake.version("d", ref)


def test_tags_never_move_and_branches_are_not_taken_twice(filled: Callable[..., Lake], make: SimpleNamespace) -> None:
    lake = filled(5)
    make.commit(lake, overlays=[make.overlay(lake.samples("d")["id"].to_pylist()[:1], exclude=True)])
    lake.tag("d", "golden", "v1")
    assert lake.tag("d", "golden", "v1").number == 1
    with pytest.raises(SevenfoldError, match="the tag golden points at v1"):
        lake.tag("d", "golden", "v2")
    with pytest.raises(SevenfoldError, match="the branch main points at v2"):
        lake.branch("d", "main", "v1")
    for make_ref in (lake.tag, lake.branch):
        with pytest.raises(SevenfoldError, match="reads as a version number"):
            make_ref("d", "v1", "v2")


def test_a_branch_starts_where_it_is_told_and_grows_by_itself(
    filled: Callable[..., Lake], make: SimpleNamespace
) -> None:
    lake = filled(5)
    ids = lake.samples("d")["id"].to_pylist()
    second = make.commit(lake, overlays=[make.overlay(ids[:1], exclude=True)])
    control = make.commit(lake, branch="control", start="v1", overlays=[make.overlay(ids[1:2], exclude=True)])
    assert (control.number, control.parents) == (3, (1,))
    assert lake.version("d") == second and lake.version("d", "control") == control


def test_rollback_moves_the_branch_and_deletes_nothing(filled: Callable[..., Lake], make: SimpleNamespace) -> None:
    lake = filled(5)
    make.commit(lake, overlays=[make.overlay(lake.samples("d")["id"].to_pylist()[:1], exclude=True)])
    assert lake.rollback("d", "v1").number == 1
    assert lake.version("d").number == 1 and len(lake.versions("d")) == 2
    assert lake.samples("d").num_rows == 5


def test_what_a_rollback_took_away_does_not_come_back_with_the_next_commit(
    filled: Callable[..., Lake], tmp_path: Path, make: SimpleNamespace
) -> None:
    lake = filled(5)
    make.land(lake, make.folder(tmp_path / "bad", make.two_classes(3, start=100)), "second")
    make.commit(lake)
    lake.rollback("d", "v1")
    make.land(lake, make.folder(tmp_path / "good", make.two_classes(2, start=200)), "third")
    make.commit(lake)
    assert [b["batch"] for b in lake.manifest(lake.version("d").content_id).batches] == ["first", "third"]


def test_a_difference_counts_and_names_what_changed(
    filled: Callable[..., Lake], tmp_path: Path, make: SimpleNamespace
) -> None:
    lake = filled(8)
    rows = {r["id"]: r for r in lake.samples("d").to_pylist()}
    train = [k for k, r in rows.items() if r["split"] == "train"][:4]
    flip = {"cat": "dog", "dog": "cat"}
    make.land(lake, make.folder(tmp_path / "more", {"cat/new.png": make.png(99)}), "second")
    edits = [
        make.overlay(train[:1], exclude=True),
        make.overlay(train[1:2], label=flip[rows[train[1]]["label"]]),
        make.overlay(train[2:3], split="pool"),
        make.overlay(train[3:4], weight=3.0),
    ]
    make.commit(lake, overlays=edits)
    difference = lake.diff("d", "v1", "v2")
    assert difference["counts"] == {"added": 1, "removed": 1, "relabelled": 1, "moved": 1, "reweighted": 1}
    named = {r["change"]: (r["id"], r["before"], r["after"]) for r in difference["rows"].to_pylist()}
    assert named["moved"] == (train[2], "train", "pool")
    assert named["relabelled"] == (train[1], rows[train[1]]["label"], flip[rows[train[1]]["label"]])
    assert named["removed"][0] == train[0] and named["added"][2] == "cat"
    assert set(lake.diff("d", "v2", "v2")["counts"].values()) == {0}
    back = lake.diff("d", "v2", "v1")["counts"]
    assert (back["added"], back["removed"]) == (1, 1)


def test_nothing_to_commit_says_what_to_do(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    with pytest.raises(SevenfoldError, match="run `sevenfold ingest` first"):
        lake.commit("d", message="m")
    lake.ingest(make.folder(tmp_path / "s", make.two_classes(2)), "d", "b")
    with pytest.raises(SevenfoldError, match="run `sevenfold check b`"):
        lake.commit("d", message="m")


def test_a_damaged_manifest_is_refused_by_its_digest(filled: Callable[..., Lake]) -> None:
    lake = filled(5)
    path = lake.store.local(manifest_key(lake.version("d").content_id))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"cat"', b'"cow"'))
    for look in (lambda: lake.samples("d"), lambda: lake.sql("select * from samples")):
        with pytest.raises(SevenfoldError, match="expected: the digest in its file name"):
            look()
    path.write_bytes(whole[:-10])
    with pytest.raises(SevenfoldError, match="this manifest is not JSON"):
        lake.samples("d")
    path.unlink()
    with pytest.raises(SevenfoldError, match="there is no such manifest"):
        lake.samples("d")


def test_a_lake_of_another_format_or_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SevenfoldError, match="there is no lake"):
        Lake.open(tmp_path)
    for text, message in (
        ('{"format": 2}', "format 2"),
        ('{"format": 1}', "shard_bytes is None"),
        ("[]", "format list"),
        ("{", "is not JSON"),
    ):
        (tmp_path / "lake.json").write_text(text)
        with pytest.raises(SevenfoldError, match=message):
            Lake.open(tmp_path)


def test_a_branch_and_a_tag_never_share_a_name(filled: Callable[..., Lake], make: SimpleNamespace) -> None:
    """`release` names one version: a branch of that name would hide the tag."""
    lake = filled(4)
    lake.tag("d", "release", "v1")
    make.commit(lake, overlays=[make.overlay(lake.samples("d")["id"].to_pylist()[:1], exclude=True)])
    with pytest.raises(SevenfoldError, match="a tag release"):
        lake.branch("d", "release", "v2")
    with pytest.raises(SevenfoldError, match="a branch main"):
        lake.tag("d", "main", "v1")
    assert lake.version("d", "release").number == 1


def test_a_date_names_the_version_that_the_branch_had_then(filled: Callable[..., Lake], make: SimpleNamespace) -> None:
    lake = filled(5)
    ids = lake.samples("d")["id"].to_pylist()

    def at(text: str) -> Callable[[], float]:
        return lambda: datetime.fromisoformat(text).timestamp()

    lake.branch("d", "old", "v1")  # v1 is of 1970
    for i, (branch, moment) in enumerate(
        [("main", "2026-05-01T12:00+00:00"), ("main", "2026-05-02T23:30+02:00"), ("old", "2026-05-01T08:00+00:00")]
    ):
        make.commit(lake, branch=branch, overlays=[make.overlay(ids[i : i + 1], weight=2.0)], clock=at(moment))
    expected = {
        "2026-04-30": 1,
        "2026-05-01": 2,  # a date alone counts to its end
        "2026-05-01T11:59": 1,  # and a time without a zone is UTC
        "2026-05-01T12:00": 2,
        "2026-05-01T13:59+02:00": 1,
        "2026-05-01T14:00+02:00": 2,
        "2026-05-02T21:29:59Z": 2,
        "2026-05-02T21:30:00Z": 3,
        "2126-01-01": 3,
        "main@2026-05-01": 2,
        "old@2026-05-01T07:59": 1,
        "old@2026-05-01": 4,
    }
    assert {ref: lake.version("d", ref).number for ref in expected} == expected
    lake.rollback("d", "v2")
    assert lake.version("d", "2026-05-03").number == 2, "what was rolled back is not in the branch's history"
    make.commit(lake, overlays=[make.overlay(ids[:1], weight=5.0)], clock=at("2026-05-04T00:00+00:00"))
    assert [lake.version("d", f"2026-05-0{day}").number for day in (2, 3, 4)] == [2, 2, 5]


def test_a_date_before_the_first_version_or_of_no_branch_is_refused(filled: Callable[..., Lake]) -> None:
    lake = filled(5)
    with pytest.raises(
        SevenfoldError, match=r"main of d had no version at 1969-12-31[^\n]*\n  expected: 1970-01-01T00"
    ):
        lake.version("d", "1969-12-31")
    with pytest.raises(SevenfoldError, match="no branch 'nope'"):
        lake.version("d", "nope@2026-05-01")
    for ref in ("2026-13-01", "main@yesterday", "main@", "2026-05"):
        with pytest.raises(SevenfoldError, match="names no version of d"):
            lake.version("d", ref)


def test_a_version_tells_what_made_it_and_its_content_does_not(filled: Callable[..., Lake]) -> None:
    lake = filled(5)
    told = lake.version("d").provenance
    assert told["code"] == __version__ and len(told["config"]) == 64 and told["time"] == 3.0
    assert told["config"].encode() not in lake.store.read(manifest_key(lake.version("d").content_id))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(weights=st.lists(st.floats(0, 1e300), min_size=5, max_size=5), pick=st.permutations(range(8)))
def test_a_difference_as_a_query_gives_the_same_rows(eight: Lake, weights: list[float], pick: list[int]) -> None:
    lake = eight
    ids = sorted(lake.samples("d", "v1")["id"].to_pylist())
    rows = [{"id": ids[p], "weight": w} for p, w in zip(pick, weights, strict=False)]
    rows[0] |= {"exclude": True}
    rows[1] |= {"label": "eel"}
    rows[2] |= {"split": "pool", "label": "cat"}
    edit = pa.Table.from_pylist(rows, schema=OVERLAY)
    branch = f"b{len(lake.refs('d', 'branches'))}"
    version, _ = lake.commit("d", branch=branch, start="v1", message="edited", overlays=[edit])
    for before, after in (("v1", version.name), (version.name, "v1")):
        asked = lake.sql(diff_sql("d", before, after)).to_pylist()
        told = lake.diff("d", before, after)["rows"].to_pylist()
        by = [sorted(x, key=lambda r: (r["id"], r["change"])) for x in (asked, told)]
        assert by[0] == by[1] and len(told) > 0


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory, make: SimpleNamespace) -> Lake:
    root = tmp_path_factory.mktemp("eight")
    lake = Lake.create(root / "lake")
    make.land(lake, make.folder(root / "s", {f"train/{k}": v for k, v in make.two_classes(8).items()}), "b")
    make.commit(lake)
    return lake


def test_a_batch_that_cannot_be_committed_is_withdrawn(
    filled: Callable[..., Lake], tmp_path: Path, make: SimpleNamespace
) -> None:
    lake = filled(5)
    make.land(lake, make.folder(tmp_path / "lost", make.two_classes(3, start=100)), "lost")
    make.land(lake, make.folder(tmp_path / "good", make.two_classes(2, start=200)), "z")
    (tmp_path / "lost").rename(tmp_path / "elsewhere")
    with pytest.raises(SevenfoldError, match="`sevenfold withdraw lost --reason TEXT`"):
        make.commit(lake)
    with pytest.raises(SevenfoldError, match="there is no reason"):
        lake.withdraw("d", "lost", " ")
    withdrawn = lake.withdraw("d", "lost", "the disk\nis gone", clock=lambda: 9.0)
    assert (withdrawn.status, withdrawn.notes[-1]) == ("rejected", "withdrawn: the disk is gone")
    assert withdrawn.times["rejected"] == 9.0 and lake.withdraw("d", "lost", "the disk is gone") == withdrawn
    assert lake.manifest(make.commit(lake).content_id).batch_ids == ("first", "z")
    with pytest.raises(SevenfoldError, match="exclude overlay"):
        lake.withdraw("d", "z", "no longer wanted")
    (tmp_path / "elsewhere").rename(tmp_path / "lost")
    lake.set_status("d", "lost", "admitted")  # as `sevenfold check` does
    assert lake.manifest(make.commit(lake).content_id).batch_ids == ("first", "z", "lost")
    make.reconciles(lake)


@pytest.mark.parametrize("name", ["2026-05-01", "2026-05-01T12"])
def test_a_name_that_reads_as_a_date_is_refused(filled: Callable[..., Lake], name: str) -> None:
    lake = filled(2)
    for make_ref in (lake.tag, lake.branch):
        with pytest.raises(SevenfoldError, match="reads as a date"):
            make_ref("d", name, "v1")
