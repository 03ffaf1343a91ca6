"""What may go wrong with a machine: crowds of writers, kill -9, full disks, stores that fail or are slow."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sevenfold.storage import Lake, SevenfoldError, files, takedown
from sevenfold.storage.canonical import digest_bytes
from sevenfold.storage.store import Draft, Entry, LocalStore

SCRIPT = Path(__file__).with_name("one_round.py")
CLI = [sys.executable, "-c", "from sevenfold.pipelines.cli import main; main()"]


# Crowds


def crowd(url: str, shares: list[list[str]]) -> tuple[list[dict[str, Any]], float]:
    """What a process per share says that commits an overlay for each of its ids, and the seconds from the start."""
    started = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), "commits", url, f"w{k}", json.dumps(share)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for k, share in enumerate(shares)
    ]  # fmt: skip
    for p in started:
        assert p.stdout is not None and p.stdout.readline() == "ready\n"
    began = time.monotonic()
    for p in started:
        assert p.stdin is not None
        p.stdin.write("go\n")
        p.stdin.flush()
    outputs = [p.communicate(timeout=150)[0] for p in started]
    assert [p.returncode for p in started] == [0] * len(started)
    return [json.loads(o) for o in outputs], time.monotonic() - began


def none_lost(lake: Lake, said: list[dict[str, Any]], shares: list[list[str]]) -> None:
    """Assert that the head holds every acknowledged commit once, on a log without gaps or strays."""
    n = sum(map(len, shares))
    versions = {v.number: v for v in lake.versions("d")}
    assert list(versions) == list(range(1, n + 2)), "numbers without a gap, and no version that nobody asked for"
    head = lake.version("d")
    chain = [head.number]
    while versions[chain[-1]].parents:
        chain.append(versions[chain[-1]].parents[0])
    assert chain == list(range(n + 1, 0, -1)), "one line of ancestors"
    made = sorted(number for s in said for number in s["made"])
    assert made == list(range(2, n + 2)), "every number was acknowledged to one writer"
    assert sum(s["retries"] for s in said) == 0, "and nobody was told to try again"
    overlays = lake.manifest(head.content_id).overlays
    reasons = [r for digest in overlays for r in lake.overlay(digest)["reason"].to_pylist()]
    assert sorted(reasons) == sorted(f"w{k} {i}" for k, share in enumerate(shares) for i in range(len(share)))
    assert lake.samples("d")["label"].to_pylist().count("owl") == n


def test_eight_processes_make_200_commits_and_none_is_lost(filled: Callable[..., Lake]) -> None:
    lake = filled(200)
    ids = lake.samples("d")["id"].to_pylist()
    shares = [ids[k::8] for k in range(8)]
    said, seconds = crowd(str(lake.root), shares)
    none_lost(lake, said, shares)
    print(f"{200 / seconds:.0f} commits/s by 8 processes on one branch of a lake on disk")


def test_four_processes_commit_to_a_bucket_and_none_is_lost(bucket: str, tmp_path: Path, make: SimpleNamespace) -> None:
    lake = Lake.create(bucket)
    make.land(lake, make.folder(tmp_path / "s", make.two_classes(20)), "first")
    make.commit(lake)
    ids = lake.samples("d")["id"].to_pylist()
    shares = [ids[k::4] for k in range(4)]
    said, seconds = crowd(bucket, shares)
    none_lost(lake, said, shares)
    assert all("/." not in e.key for e in lake.store.entries("", hidden=True)), "no lock is left"
    print(f"{20 / seconds:.1f} commits/s by 4 processes on one branch of a lake in a bucket")


# kill -9


def whole(lake: Lake, versions: list[str]) -> None:
    """Assert that whatever a reader can see of the lake is complete; `versions`: the content ids there are to be."""
    there = lake.versions("d")
    assert [v.content_id for v in there] == versions[: len(there)]
    for name, number in {**lake.refs("d", "branches"), **lake.refs("d", "tags")}.items():
        assert name in ("main", "release") and 1 <= number <= len(there)
    for batch in lake.batches("d"):
        assert lake.batch_rows("d", batch.batch).num_rows >= batch.counts["samples"]
        assert lake.quarantine("d", batch.batch).num_rows == batch.counts["quarantined"]
        measured, landed = lake.batch_properties("d", batch.batch), lake.batch_rows("d", batch.batch)
        assert measured.num_rows == landed.num_rows or takedown.unfinished(lake.store)
    for path in (lake.root / "shards").rglob("[!.]*.tar"):
        assert digest_bytes(path.read_bytes()) == path.stem
    for version in there:
        rows = lake.samples("d", version.name)
        assert [digest_bytes(d) for d in lake.read_images(rows.slice(0, 20))] == rows["id"].to_pylist()[:20]


def acknowledged(lake: Lake, said: list[list[str]]) -> None:
    """Assert that every step that was acknowledged is there."""
    versions = [v.content_id for v in lake.versions("d")]
    for name, result in said:
        what, _, batch = name.partition(" ")
        if what == "ingest":
            assert lake.batch("d", batch).digest == result
        elif what == "pack":
            assert lake.batch("d", batch).packed is not None
        elif what == "admit":
            assert lake.batch("d", batch).status in ("admitted", "committed")
        elif what == "take":
            assert all(result not in lake.samples("d", v.name)["id"].to_pylist() for v in lake.versions("d"))
            assert takedown.unfinished(lake.store) == []
        elif what == "tag":
            assert lake.version("d", "release").content_id == result
        else:
            assert result in versions and lake.refs("d", "branches")["main"] >= versions.index(result) + 1


def kill_at(instants: int, tmp_path: Path, make: SimpleNamespace, rounds: ModuleType) -> None:
    source = tmp_path / "source"
    make.folder(source / "one", {**make.two_classes(200), "cat/bad.png": b""})
    make.folder(source / "two", make.two_classes(200, start=130))
    steps = rounds.steps(str(source))
    undisturbed = Lake.create(tmp_path / "undisturbed", shard_bytes=16 << 10)
    began = time.monotonic()
    expected = [[name, act(undisturbed)] for name, act in steps]
    seconds = time.monotonic() - began
    versions = [v.content_id for v in undisturbed.versions("d")]
    chance, killed, reached = random.Random(instants), 0, set()
    for i in range(instants):
        root = tmp_path / f"lake{i}"
        lake = Lake.create(root, shard_bytes=16 << 10)
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), "walk", str(root), str(source), "0"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(seconds * (i + chance.random()) / instants)
        process.send_signal(signal.SIGKILL)
        lines = process.stdout.read().splitlines(keepends=True)
        process.wait()
        process.stdout.close()
        killed += process.returncode == -signal.SIGKILL
        said = [json.loads(line) for line in lines if line.endswith("\n")]
        assert said == expected[: len(said)]
        lake = Lake.open(root)
        whole(lake, versions)
        acknowledged(lake, said)
        reached.add(len(said))
        assert [[name, act(lake)] for name, act in steps[len(said) :]] == expected[len(said) :], f"killed after {said}"
        whole(lake, versions)
        acknowledged(lake, expected)
        make.reconciles(lake)
        assert {b.status for b in lake.batches("d")} == {"committed"}
        shutil.rmtree(root)
    assert killed >= instants * 0.6 and len(reached) > 2, "most kills must hit a running process, in different steps"


def test_killed_at_10_instants_nothing_acknowledged_is_lost(
    tmp_path: Path, make: SimpleNamespace, rounds: ModuleType
) -> None:
    kill_at(10, tmp_path, make, rounds)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_at_100_instants_nothing_acknowledged_is_lost(
    tmp_path: Path, make: SimpleNamespace, rounds: ModuleType
) -> None:
    kill_at(100, tmp_path, make, rounds)


# A full disk


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Callable[[int], None]]:
    """A file system of `size` bytes in memory; yields what gives it another size. Skips where that is not allowed."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield lambda n: subprocess.run(["mount", "-o", f"remount,size={n}", str(folder)], check=True).check_returncode()
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def used(folder: Path) -> int:
    return sum(-(-p.stat().st_size // 4096) * 4096 for p in folder.rglob("*") if p.is_file())


def test_a_full_disk_is_said_and_leaves_nothing_behind(
    tmp_path: Path, make: SimpleNamespace, rounds: ModuleType
) -> None:
    source = tmp_path / "source"
    make.folder(source / "one", make.two_classes(150))
    make.folder(source / "two", make.two_classes(150, start=100))
    steps = rounds.steps(str(source))
    undisturbed = Lake.create(tmp_path / "undisturbed", shard_bytes=64 << 10)
    expected = [[name, act(undisturbed)] for name, act in steps]
    failed = set()
    for i in range(1, 12):
        size = used(undisturbed.root) * i // 12 // 4096 * 4096
        with small_disk(tmp_path / f"disk{i}", size) as resize:
            root = tmp_path / f"disk{i}" / "lake"
            lake = Lake.create(root, shard_bytes=64 << 10)
            said = []
            with pytest.raises(OSError, match="No space left on device") as caught:
                for name, act in steps:
                    said.append([name, act(lake)])
            failed.add(steps[len(said)][0])
            assert caught.value.errno == errno.ENOSPC and str(caught.value.filename).startswith(str(root))
            assert list(root.rglob(".tmp-*")) == []
            acknowledged(Lake.open(root), said)
            resize(8 * used(undisturbed.root))
            assert [[name, act(lake)] for name, act in steps[len(said) :]] == expected[len(said) :]
            whole(lake, [v.content_id for v in undisturbed.versions("d")])
    assert len(failed) >= 3, f"the disk was full in several steps: {failed}"


def test_the_command_line_says_that_the_disk_is_full(tmp_path: Path, make: SimpleNamespace) -> None:
    make.folder(tmp_path / "one", make.two_classes(400))
    with small_disk(tmp_path / "disk", 64 << 10) as resize:
        lake = Lake.create(tmp_path / "disk" / "lake")

        def run() -> subprocess.CompletedProcess[str]:
            words = ["--lake", str(lake.root), "ingest", "one", "--batch", "b", "--workers", "1"]
            return subprocess.run([*CLI, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120)

        full = run()
        assert full.returncode == 3 and "Traceback" not in full.stderr
        assert full.stderr.startswith("error: No space left on device") and str(lake.root) in full.stderr
        assert "make room there and run the command again" in full.stderr
        resize(8 << 20)
        assert run().returncode == 0


# Stores that fail


class FlakyStore(LocalStore):
    """A disk of which 5 % of the calls fail, half of them after they have been done, and 10 % take their time."""

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__(root)
        self.failures = 0
        self._chance, self._guard = random.Random(seed), threading.Lock()

    @contextmanager
    def _fate(self, key: str) -> Iterator[None]:
        with self._guard:
            fate = self._chance.random()
        if 0.1 <= fate < 0.2:
            time.sleep(0.005)
        if fate < 0.025:
            self._fail(key)
        yield
        if 0.025 <= fate < 0.05:
            self._fail(key)

    def _fail(self, key: str) -> None:
        self.failures += 1
        raise OSError(errno.EIO, "the store failed", f"{self.url}/{key}")

    def read(self, key: str) -> bytes:
        with self._fate(key):
            return super().read(key)

    def stat(self, key: str) -> Entry | None:
        with self._fate(key):
            return super().stat(key)

    def entries(self, prefix: str, *, hidden: bool = False) -> list[Entry]:
        with self._fate(prefix):
            return super().entries(prefix, hidden=hidden)

    def names(self, folder: str) -> list[str]:
        with self._fate(folder):
            return super().names(folder)

    def create(self, key: str, data: bytes) -> bool:
        with self._fate(key):
            return super().create(key, data)

    def replace(self, key: str, data: bytes) -> None:
        with self._fate(key):
            super().replace(key, data)

    def swap(self, key: str, expected: bytes | None, data: bytes) -> bool:
        with self._fate(key):
            return super().swap(key, expected, data)

    def delete(self, key: str) -> bool:
        with self._fate(key):
            return super().delete(key)

    def local(self, key: str) -> Path:
        with self._fate(key):
            return super().local(key)

    def renew(self, key: str) -> bool:
        with self._fate(key):
            return super().renew(key)

    def forget(self, key: str) -> None:
        with self._fate(key):
            super().forget(key)

    @contextmanager
    def writing(self, key: str, *, overwrite: bool = False) -> Iterator[Draft]:
        with self._fate(key), super().writing(key, overwrite=overwrite) as draft:
            yield draft

    @contextmanager
    def _lock(self, key: str) -> Iterator[None]:
        with self._fate(key), super()._lock(key):
            yield


def persist(act: Callable[[], Any], tries: int = 200) -> Any:
    """What a program gets that tries again when the store fails."""
    for _ in range(tries):
        try:
            return act()
        except OSError as e:
            assert e.errno == errno.EIO
    raise AssertionError("it fails for ever")


def test_a_program_that_tries_again_ends_with_the_same_ids_on_a_flaky_store(
    tmp_path: Path, make: SimpleNamespace, rounds: ModuleType
) -> None:
    source = tmp_path / "source"
    make.folder(source / "one", make.two_classes(12))
    make.folder(source / "two", make.two_classes(12, start=8))
    steps = rounds.steps(str(source))[:-1]  # a takedown makes hundreds of calls: too many to get through at once
    undisturbed = Lake.create(tmp_path / "undisturbed", shard_bytes=64 << 10)
    expected = [act(undisturbed) for _, act in steps]
    for seed in range(3):
        store = FlakyStore(tmp_path / f"lake{seed}", seed)
        lake = persist(lambda store=store: Lake.create(store, shard_bytes=64 << 10))
        assert [persist(lambda act=act, lake=lake: act(lake)) for _, act in steps] == expected
        assert store.failures > 2
        sound = Lake.open(tmp_path / f"lake{seed}")
        assert [v.content_id for v in sound.versions("d")] == [v.content_id for v in undisturbed.versions("d")]
        assert list(sound.root.rglob(".tmp-*")) == []
        make.reconciles(sound)


def test_writers_on_a_flaky_store_lose_nothing(filled: Callable[..., Lake], make: SimpleNamespace) -> None:
    lake = filled(40)
    ids = lake.samples("d")["id"].to_pylist()
    made: list[int] = []

    def write(k: int) -> None:
        flaky = Lake(FlakyStore(lake.root, k), lake.shard_bytes)
        for n, one in enumerate(ids[k::4]):
            edit = make.overlay([one], label="owl", reason=f"w{k} {n}")
            made.append(persist(lambda edit=edit: make.commit(flaky, overlays=[edit])).number)

    threads = [threading.Thread(target=write, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(made) == 40 and lake.samples("d")["label"].to_pylist().count("owl") == 40
    versions = {v.number: v for v in lake.versions("d")}
    assert list(versions) == list(range(1, len(versions) + 1))
    chain = [lake.version("d").number]
    while versions[chain[-1]].parents:
        chain += versions[chain[-1]].parents
    assert set(made) <= set(chain), "every acknowledged commit is an ancestor of the head"
    reasons = {
        r for d in lake.manifest(lake.version("d").content_id).overlays for r in lake.overlay(d)["reason"].to_pylist()
    }
    assert reasons == {f"w{k} {n}" for k in range(4) for n in range(10)}


def test_a_flaky_server_is_not_noticed(
    proxy: Any, bucket: str, tmp_path: Path, make: SimpleNamespace, rounds: ModuleType, proxying: ModuleType
) -> None:
    """5 % of the requests are refused, dropped before or after they were done, or answered by half; 10 % are late."""
    source = tmp_path / "source"
    make.folder(source / "one", make.two_classes(40))
    make.folder(source / "two", make.two_classes(40, start=30))
    steps = rounds.steps(str(source))[:-1]
    undisturbed = Lake.create(tmp_path / "undisturbed", shard_bytes=16 << 10)
    expected = [act(undisturbed) for _, act in steps]
    chance = random.Random(7)
    faults = [proxying.REFUSE, proxying.DROP, proxying.LOSE, proxying.TRUNCATE]

    def rule(method: str, path: str, number: int) -> str:
        fate = chance.random()
        if fate < 0.1:
            time.sleep(0.05)
        if fate > 0.95:
            fault: str = chance.choice(faults)
            return proxying.REFUSE if fault == proxying.TRUNCATE and method != "GET" else fault
        return str(proxying.PASS)

    proxy.rule = rule
    for n in range(2):
        lake = Lake.create(f"{bucket}{n}", shard_bytes=16 << 10)
        assert [act(lake) for _, act in steps] == expected
    proxy.rule = lambda method, path, number: proxying.PASS
    keys = [e.key for e in lake.store.entries("", hidden=True) if not e.key.startswith(".probe")]
    assert keys == [e.key for e in undisturbed.store.entries("")]
    assert sum(n for fault, n in proxy.acted.items() if fault in faults) > 10, proxy.acted


# Two writers


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """What the acts return or raise (SevenfoldError) when they start together."""
    gate, results = threading.Barrier(len(acts)), [None] * len(acts)

    def run(i: int) -> None:
        gate.wait()
        try:
            results[i] = acts[i]()
        except SevenfoldError as e:
            results[i] = e  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(acts))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


def test_commits_and_rollbacks_at_once(filled: Callable[..., Lake], make: SimpleNamespace) -> None:
    lake = filled(30)
    ids = lake.samples("d")["id"].to_pylist()

    def edits(k: int) -> list[Any]:
        return [make.commit(lake, overlays=[make.overlay([one], label="owl")]) for one in ids[k::3]]

    def rollbacks() -> list[str]:
        said = []
        for _ in range(15):
            try:
                said.append(lake.rollback("d", "v1").name)
            except SevenfoldError as e:
                said.append(e.expected)
        return said

    *made, rolled = at_once(lambda: edits(0), lambda: edits(1), lambda: edits(2), rollbacks)
    assert all(r == "v1" or "another writer moved it meanwhile" in r for r in rolled)
    versions = lake.versions("d")
    assert [v.number for v in versions] == list(range(1, 32)), "each commit one version, a refused rollback none"
    assert sorted(v.number for part in made for v in part) == list(range(2, 32))
    by_number = {v.number: v for v in versions}
    for v in versions[1:]:
        parent, mine = (lake.manifest(by_number[n].content_id).overlays for n in (v.parents[0], v.number))
        assert mine[:-1] == parent, "each version is its parent and one edit"
    assert lake.refs("d", "branches")["main"] in by_number


def test_one_of_many_makes_a_branch_or_a_tag(filled: Callable[..., Lake], make: SimpleNamespace) -> None:
    lake = filled(6)
    for i in range(4):
        make.commit(lake, overlays=[make.overlay(lake.samples("d")["id"].to_pylist()[:1], label=f"l{i}")])
    for kind, act in (("tags", lake.tag), ("branches", lake.branch)):
        said = at_once(*(lambda act=act, kind=kind, n=n: act("d", f"x-{kind}", f"v{n}") for n in range(1, 6)))
        won = [v for v in said if not isinstance(v, SevenfoldError)]
        assert len(won) == 1 and lake.refs("d", kind)[f"x-{kind}"] == won[0].number
        same = at_once(*(lambda act=act, kind=kind: act("d", f"y-{kind}", "v2") for _ in range(5)))
        assert [v.number for v in same] == [2] * 5, "saying the same is no conflict"
    for i in range(8):
        said = at_once(lambda i=i: lake.tag("d", f"z{i}", "v1"), lambda i=i: lake.branch("d", f"z{i}", "v1"))
        assert sum(isinstance(s, SevenfoldError) for s in said) == 1, "never a tag and a branch of one name"
        assert (f"z{i}" in lake.refs("d", "tags")) != (f"z{i}" in lake.refs("d", "branches"))


def test_first_commits_at_once_make_one_root(tmp_path: Path, make: SimpleNamespace) -> None:
    lake = Lake.create(tmp_path / "lake", shard_bytes=16 << 10)
    make.land(lake, make.folder(tmp_path / "s", make.two_classes(10)), "first")
    made = at_once(*(lambda: make.commit(lake) for _ in range(4)))
    assert {v.number for v in made} == {1} and len(lake.versions("d")) == 1
    assert lake.refs("d", "branches") == {"main": 1}


# A power cut


def test_bytes_are_on_the_disk_before_their_name_and_the_name_before_the_answer(
    tmp_path: Path, make: SimpleNamespace, rounds: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    make.folder(source / "one", make.two_classes(20))
    make.folder(source / "two", make.two_classes(20, start=10))
    events: list[tuple[str, int, int]] = []
    fsync, link, rename, mkdir = os.fsync, os.link, Path.replace, Path.mkdir

    def synced(fd: int) -> None:
        fsync(fd)
        status = os.fstat(fd)
        events.append(("sync", status.st_ino, status.st_size))

    def named(old: Path, new: Path) -> None:
        status = old.stat()
        events.append(("name", status.st_ino, status.st_size))
        events.append(("in", new.parent.stat().st_ino, 0))

    def linked(old: Path, new: Path) -> None:
        link(old, new)
        named(old, new)

    def renamed(old: Path, new: Path) -> Path:
        named(old, new)
        return rename(old, new)

    def made(path: Path, *arguments: Any, **options: Any) -> None:
        mkdir(path, *arguments, **options)
        events.append(("in", path.parent.stat().st_ino, 0))

    lake = Lake.create(tmp_path / "lake", shard_bytes=16 << 10)
    monkeypatch.setattr(files.os, "fsync", synced)
    monkeypatch.setattr(files.os, "link", linked)
    monkeypatch.setattr(Path, "replace", renamed)
    monkeypatch.setattr(Path, "mkdir", made)
    for _, act in rounds.steps(str(source)):
        act(lake)
        unsynced: set[int] = set()
        content: dict[int, int] = {}
        for what, inode, size in events:
            if what == "sync":
                content[inode] = size
                unsynced.discard(inode)
            elif what == "name":
                assert content.get(inode) == size, "all bytes were synced before they got their name"
            else:
                unsynced.add(inode)
        assert unsynced == set(), "every folder that got a name was synced before the call returned"
    assert sum(e[0] == "name" for e in events) > 30
