"""Versions: numbers, branches, tags, retries that adopt (invariant 11), rollback, differences, damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from sevenfold import __version__
from sevenfold.storage import Lake, SevenfoldError, versions
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
