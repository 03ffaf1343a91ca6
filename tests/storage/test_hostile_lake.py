"""Records that somebody edited: one clear error or a finding, never a hang, never a file outside the lake."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sevenfold.storage import Lake, gc, redactions, takedown
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.leases import leases
from sevenfold.storage.verify import verify

DIGEST = "a" * 64


def edit(path: Path, **fields: Any) -> None:
    """Change some fields of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **fields}))


VERSION = [
    {"parents": [1]}, {"parents": ["x"]}, {"parents": 5}, {"number": 7}, {"number": "1"}, {"dataset": "other"},
    {"content_id": "../../x"}, {"content_id": None}, {"provenance": None}, {"provenance": {"time": "x"}},
    {"provenance": {"time": 1e300}}, {"message": 5}, {"bogus": 1},
]  # fmt: skip


@pytest.mark.parametrize("fields", VERSION, ids=str)
def test_an_edited_version_is_an_error_and_a_finding(fields: dict[str, Any], filled: Callable[..., Lake]) -> None:
    lake = filled(4)
    edit(lake.root / "datasets/d/versions/00000001.json", **fields)
    for ask in (lambda: lake.version("d"), lambda: lake.versions("d"), lambda: gc.gc(lake.store)):
        with pytest.raises(SevenfoldError):
            ask()
    assert [f.problem for f in verify(lake.store, ["d"]).findings] == ["unreadable"]


@pytest.mark.parametrize(
    "data", [b"[]", b"{}", b"[" * 100_000, b'{"version":"x"}', b'{"version":-1}', b"\xff"], ids=repr
)
def test_an_edited_branch_is_an_error(data: bytes, filled: Callable[..., Lake]) -> None:
    lake = filled(4)
    (lake.root / "datasets/d/refs/branches/main.json").write_bytes(data)
    for ask in (lambda: lake.version("d"), lambda: lake.refs("d", "branches"), lambda: gc.gc(lake.store)):
        with pytest.raises(SevenfoldError, match="branch or tag"):
            ask()


BATCH = [
    {"batch": "../../x"}, {"dataset": "other"}, {"counts": {}}, {"status": "bogus"}, {"notes": 5},
    {"packed": {"index": "../../x", "samples": 0, "shards": []}}, {"packed": {}},
]  # fmt: skip


@pytest.mark.parametrize("fields", BATCH, ids=str)
def test_an_edited_batch_record_is_an_error(fields: dict[str, Any], filled: Callable[..., Lake]) -> None:
    lake = filled(4)
    edit(lake.root / "batches/d/first.json", **fields)
    with pytest.raises(SevenfoldError):
        lake.batches("d")


@pytest.mark.parametrize("to", ["itself", "around", "../../x", 5])
def test_redactions_that_lead_nowhere_or_in_a_circle_are_an_error(to: Any, lake: Lake) -> None:
    other = "b" * 64
    redactions.record(lake.store, "index", DIGEST, other, DIGEST, 1.0)
    if to == "around":
        redactions.record(lake.store, "index", other, DIGEST, DIGEST, 1.0)
    else:
        edit(lake.root / redactions.redaction_key("index", DIGEST), to=DIGEST if to == "itself" else to)
    with pytest.raises(SevenfoldError):
        redactions.current(lake.store).last("index", DIGEST)


@pytest.mark.parametrize(
    "fields", [{"ids": ["../../../evil"]}, {"ids": 5}, {"places": [5]}, {"digest": "../evil"}, {"pixels": 5}], ids=str
)
def test_a_forged_takedown_writes_nothing(fields: dict[str, Any], lake: Lake, tmp_path: Path) -> None:
    journal = {"format": 1, "digest": DIGEST, "ids": [DIGEST], "reason": "r", "time": 1.0, "asked": DIGEST,
               "versions": [], "models": [], "places": [], "pixels": {}, **fields}  # fmt: skip
    lake.store.create(f"{takedown.PENDING}/{DIGEST}.json", json.dumps(journal).encode())
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SevenfoldError):
        takedown.finish(lake.store)
    assert sorted(tmp_path.iterdir()) == before
    assert not lake.store.names("tombstones")


def test_a_lease_that_names_another_file_is_an_error(lake: Lake) -> None:
    lake.store.create("leases/x.json", json.dumps({
        "format": 1, "id": "../lake", "what": "w", "host": "h", "pid": 1, "content_ids": [], "keys": [], "since": 0,
        "until": 0}).encode())  # fmt: skip
    with pytest.raises(SevenfoldError, match="lease"):
        leases(lake.store)
    with pytest.raises(SevenfoldError):
        gc.gc(lake.store, delete=True, grace=0.0, alone=True)
    assert lake.store.exists("lake.json")


def test_keys_do_not_lead_out_of_the_lake(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    for key in ("../secret", str(tmp_path / "secret"), "shards/../../secret", "a\0b"):
        for ask in (lake.store.read, lake.store.local, lake.store.delete, lake.store.renew):
            with pytest.raises(SevenfoldError, match="leads out of the lake"):
                ask(key)
        with pytest.raises(SevenfoldError):
            lake.store.create(key, b"y")
    assert (tmp_path / "secret").read_bytes() == b"x"


def test_nothing_is_written_or_removed_through_a_link_inside_the_lake(lake: Lake, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.tar").write_bytes(b"x")
    (lake.root / "shards").mkdir(exist_ok=True)
    (lake.root / "shards/aa").symlink_to(outside)
    for ask in (
        lambda: lake.store.create("shards/aa/b.tar", b"y"),
        lambda: lake.store.replace("shards/aa/a.tar", b"y"),
        lambda: lake.store.delete("shards/aa/a.tar"),
    ):
        with pytest.raises(SevenfoldError, match="link"):
            ask()
    with pytest.raises(SevenfoldError), lake.store.writing("shards/.new") as draft:
        draft.key = "shards/aa/b.tar"
    assert [(p.name, p.read_bytes()) for p in outside.iterdir()] == [("a.tar", b"x")]


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_not_read(kind: str, lake: Lake) -> None:
    path = lake.root / "odd.json"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    for ask in (lake.store.read, lake.store.local):
        with pytest.raises(OSError, match="not a regular file"):
            ask("odd.json")


def test_an_index_of_other_columns_is_a_finding(filled: Callable[..., Lake]) -> None:
    lake = filled(4)
    (path,) = lake.root.glob("index/*/*.parquet")
    pq.write_table(pa.table({"id": pa.array([1], pa.date32())}), path)
    assert [f.problem for f in verify(lake.store, ["d"]).findings] == ["index"]
