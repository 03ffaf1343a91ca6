"""Invariant 2: killed at any instant, the lake opens, shows no half version, and a re-run gives the same content id."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from sevenfold.storage import Lake, files
from sevenfold.storage.canonical import digest_bytes
from sevenfold.storage.index import INDEX, write_parquet
from sevenfold.storage.query import VIEWS
from sevenfold.storage.store import LocalStore

SCRIPT = Path(__file__).with_name("one_round.py")


def start(root: Path, source: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, str(SCRIPT), "round", str(root), str(source)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def finish(root: Path, source: Path) -> tuple[str, float]:
    """(content id, seconds from ready to done)."""
    process = start(root, source)
    began = time.monotonic()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return output.decode().strip(), time.monotonic() - began


def new_lake(path: Path) -> Lake:
    return Lake.create(path, shard_bytes=64 << 10)


def whole(lake: Lake, expected: str) -> None:
    """Assert that whatever a reader can see of the lake is complete."""
    versions = lake.versions("d")
    assert [v.content_id for v in versions] in ([], [expected])
    lake.sql(f"select {', '.join(f'(select count(*) from {view})' for view in VIEWS)}", dataset="d")
    for branch, number in lake.refs("d", "branches").items():
        assert (branch, number) == ("main", 1)
    for batch in lake.batches("d"):
        assert lake.batch_rows("d", batch.batch).num_rows == batch.counts["samples"]
        assert lake.quarantine("d", batch.batch).num_rows == batch.counts["quarantined"]
        assert lake.batch_properties("d", batch.batch).num_rows == batch.counts["samples"]
    for path in (lake.root / "shards").rglob("*.tar"):
        assert digest_bytes(path.read_bytes()) == path.stem
    for version in versions:
        rows = lake.samples("d", version.name)
        assert rows.num_rows == lake.manifest(version.content_id).stored
        assert [digest_bytes(d) for d in lake.read_images(rows.slice(0, 50))] == rows["id"].to_pylist()[:50]


def kill_at(instants: int, tmp_path: Path, make: SimpleNamespace) -> None:
    members = {f"{'cat' if i % 3 else 'dog'}/{i:05d}.png": make.png(i) for i in range(1500)}
    source = make.folder(tmp_path / "source", {**members, "cat/bad.png": b"", "cat/copy.png": make.png(1)})
    expected, seconds = finish(new_lake(tmp_path / "undisturbed").root, source)
    assert expected == Lake.open(tmp_path / "undisturbed").version("d").content_id
    lake, killed = new_lake(tmp_path / "lake"), 0
    chance = random.Random(instants)
    stages = set()
    for i in range(instants):
        process = start(lake.root, source)
        time.sleep(seconds * (i + chance.random()) / instants)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        lake = Lake.open(lake.root)
        whole(lake, expected)
        stages.add((len(lake.batches("d")), len(list(lake.root.rglob("*.tar"))) > 0, len(lake.versions("d"))))
        if i % 3 == 2 or lake.versions("d"):  # the others go on from where the last was killed
            if i % 9 == 2:
                assert finish(lake.root, source)[0] == expected
                whole(lake, expected)
            shutil.rmtree(lake.root)
            lake = new_lake(lake.root)
    assert killed >= instants * 0.6, "most kills must hit a running process"
    assert len(stages) > 1, "and in different stages"
    assert finish(lake.root, source)[0] == expected
    whole(lake, expected)
    assert Lake.open(lake.root).version("d").content_id == expected


def test_killed_at_10_instants(tmp_path: Path, make: SimpleNamespace) -> None:
    kill_at(10, tmp_path, make)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_at_100_instants(tmp_path: Path, make: SimpleNamespace) -> None:
    kill_at(100, tmp_path, make)


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
