"""Invariant 2: a crash before any publication leaves a whole lake, and a re-run gives the same id; see test_faults."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from sevenfold.storage import Lake, files
from sevenfold.storage.index import INDEX, write_parquet
from sevenfold.storage.query import VIEWS
from sevenfold.storage.store import LocalStore


class Crash(BaseException):
    """Ends a call as a crash would: nothing in the product may catch it."""


def test_a_crash_before_any_single_publication_leaves_a_whole_lake(
    tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rename and link of a round fails once, and the re-run still gives the same content id."""
    source = make.folder(tmp_path / "s", {**make.two_classes(6), "cat/bad.png": b""})

    def one(lake: Lake) -> str:
        make.land(lake, source, "b")
        lake.pack("d", "b")
        return make.commit(lake).content_id

    expected = one(Lake.create(tmp_path / "undisturbed", shard_bytes=8192))
    link, rename = files.os.link, Path.replace
    left = [-1]

    def counted(original: object) -> object:
        def call(*arguments: object, **options: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                raise Crash
            return original(*arguments, **options)  # type: ignore[operator]

        return call

    monkeypatch.setattr(files.os, "link", counted(link))
    monkeypatch.setattr(Path, "replace", counted(rename))
    crashes = 0
    for n in range(1, 200):
        lake = Lake.create(tmp_path / f"lake{n}", shard_bytes=8192)
        left[0] = n
        try:
            one(lake)
            break
        except Crash:
            crashes += 1
        left[0] = -1
        assert [v.content_id for v in lake.versions("d")] in ([], [expected])
        assert one(lake) == expected
        assert len(lake.versions("d")) == 1
        make.reconciles(lake)
    assert crashes > 15, "landing, shards, index, record, manifest, version, branch"


def test_temporary_files_are_seen_by_nobody(tmp_path: Path, make: SimpleNamespace) -> None:
    lake = Lake.create(tmp_path / "lake")
    make.land(lake, make.folder(tmp_path / "s", {**make.two_classes(5), "cat/bad.png": b""}), "b")
    version = make.commit(lake)
    lake.tag("d", "first")
    row = make.overlay(["x"]).select(["id"])
    lake.write_queue("d", "q", row)
    lake.append_verdicts("d", "b", row.append_column("result", [["pass"]]))
    lake.write_predictions("run", row)
    (lake.root / "runs" / "r1" / "steps").mkdir(parents=True)
    files.create(lake.root / "runs" / "r1" / "config.json", b'{"run_id": "r1"}')
    files.create(lake.root / "models" / "m" / "1" / "model.json", b'{"name": "m"}')
    before = {view: lake.sql(f"select count(*) n from {view}")["n"][0].as_py() for view in VIEWS}
    assert before["runs"] == before["models"] == before["queues"] == before["verdicts"] == before["predictions"] == 1
    for folder in [lake.root, *[p for p in lake.root.rglob("*") if p.is_dir()]]:
        (folder / ".tmp-0123").write_bytes(b"half")
        (folder / ".tmp-0123.json").write_bytes(b"{half")
        (folder / ".tmp-0123.parquet").write_bytes(b"half")
    for name in ("runs/.tmp-9/config.json", "models/m/.tmp-9/model.json", "runs/.tmp-9/steps/part-0-0.parquet"):
        files.create(lake.root / name, b"half")
    lake = Lake.open(lake.root)
    assert {view: lake.sql(f"select count(*) n from {view}")["n"][0].as_py() for view in VIEWS} == before
    assert [b.batch for b in lake.batches("d")] == ["b"] and lake.datasets() == ["d"]
    assert lake.refs("d", "branches") == {"main": 1} and lake.refs("d", "tags") == {"first": 1}
    assert [v.number for v in lake.versions("d")] == [1]
    assert lake.signal("brightness").num_rows == 5 and lake.queue("d", "q").num_rows == 1
    verdicts = lake.verdicts("d")
    assert verdicts is not None and verdicts.num_rows == 1
    lake.append_verdicts("d", "b", row.append_column("result", [["warn"]]))
    assert lake.verdicts("d", "b")["result"].to_pylist() == ["pass", "warn"]
    assert make.commit(lake) == version


def test_publishing_never_overwrites_and_says_who_won(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    assert files.create(path, b"one") is True
    assert files.create(path, b"two") is False
    assert path.read_bytes() == b"one"
    temporary = files.temporary_beside(path)
    temporary.write_bytes(b"three")
    assert files.publish(temporary, path) is False
    assert path.read_bytes() == b"one" and not temporary.exists()
    files.replace(path, b"four")
    assert path.read_bytes() == b"four" and [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk what is left behind would keep it full, and no second try could end better."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.create(tmp_path / "a", b"bytes")
    with pytest.raises(OSError, match="No space"):
        write_parquet(LocalStore(tmp_path), "b", [INDEX.empty_table()], INDEX, overwrite=False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_the_users_is_replaced_whole_and_a_device_never(tmp_path: Path) -> None:
    real, link, pipe = tmp_path / "real.html", tmp_path / "link.html", tmp_path / "pipe"
    real.write_bytes(b"old")
    link.symlink_to(real)
    files.hand_out(link, b"new")
    assert link.is_symlink() and real.read_bytes() == b"new"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.hand_out(pipe, b"said")
    assert os.read(end, 9) == b"said" and not pipe.is_file()
    os.close(end)
    with pytest.raises(OSError, match="full") as error:
        files.hand_out(Path("/dev/full"), b"data")
    assert error.value.filename == "/dev/full" and Path("/dev/full").is_char_device()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.html", "pipe", "real.html"]
