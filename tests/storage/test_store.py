"""The contract of a store, kept on a disk and in a bucket: one winner, whole files, the same words for the same."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sevenfold.storage import SevenfoldError
from sevenfold.storage.store import LocalStore, Store, open_store

SCRIPT = Path(__file__).with_name("one_round.py")
ODD = ["a b", "a+b", "ä/ö.json", "a%20b", "a#b?c&d=e", "a'b\"c", "日本.json", "a[b]{c}*", "a:b|c", "n@m;e!f$g,h", "~x"]


@pytest.fixture(params=["disk", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    url = tmp_path / "lake" if request.param == "disk" else request.getfixturevalue("bucket")
    return open_store(url)


def at_once(n: int, act: Callable[[int], Any]) -> list[Any]:
    """What `act(i)` returns in n threads that start together."""
    gate, results = threading.Barrier(n), [None] * n

    def run(i: int) -> None:
        gate.wait()
        results[i] = act(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


def processes(store: Store, *modes: list[str]) -> list[str]:
    """What processes say that each do one thing to the store at once (one_round.py store ...)."""
    command = [sys.executable, str(SCRIPT), "store", store.url]
    started = [
        subprocess.Popen([*command, *mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for mode in modes
    ]
    for p in started:
        assert p.stdout is not None and p.stdout.readline() == "ready\n"
    outputs = []
    for p in started:
        assert p.stdin is not None
        p.stdin.write("go\n")
        p.stdin.flush()
    for p in started:
        outputs.append(p.communicate(timeout=60)[0].strip())
        assert p.returncode == 0
    return outputs


def test_a_file_is_created_once(store: Store) -> None:
    assert store.create("a/b.json", b"one") is True
    assert store.create("a/b.json", b"two") is False
    assert store.read("a/b.json") == b"one"
    store.replace("a/b.json", b"three")
    store.replace("a/c.json", b"")
    assert (store.read("a/b.json"), store.read("a/c.json")) == (b"three", b"")


def test_what_is_absent_is_said_in_one_way(store: Store) -> None:
    for act in (store.read, store.local):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            act("a/nowhere")
    assert store.stat("a/nowhere") is None and not store.exists("a/nowhere")
    assert store.delete("a/nowhere") is False
    assert store.names("a") == [] and store.entries("a") == [] and store.read_folder("a", "") == {}
    assert store.swap("a/nowhere", b"expected", b"new") is False


def test_a_swap_wants_what_it_expects(store: Store) -> None:
    assert store.swap("ref", None, b"1") is True
    assert store.swap("ref", None, b"2") is False
    assert store.swap("ref", b"0", b"2") is False
    assert store.swap("ref", b"1", b"2") is True
    assert store.read("ref") == b"2"
    assert store.delete("ref") is True and store.delete("ref") is False
    assert store.swap("ref", b"2", b"3") is False and store.swap("ref", None, b"4") is True


def test_files_are_listed_without_the_hidden_ones(store: Store) -> None:
    for key in ("a/x.json", "a/y/z.json", "a/.tmp-1", "a/.hidden/w.json", "ab/q.json", "top.json", ".probe"):
        store.replace(key, key.encode())
    assert [e.key for e in store.entries("a")] == ["a/x.json", "a/y/z.json"]
    assert [e.key for e in store.entries("")] == ["a/x.json", "a/y/z.json", "ab/q.json", "top.json"]
    assert {".probe", "a/.tmp-1", "a/.hidden/w.json"} <= {e.key for e in store.entries("", hidden=True)}
    assert store.names("a") == ["x.json", "y"] and store.names("") == ["a", "ab", "top.json"]
    entry = store.stat("a/x.json")
    assert entry is not None and entry.bytes == len("a/x.json") and abs(entry.modified - time.time()) < 60
    assert store.entries("a")[0].bytes == entry.bytes
    assert store.read_folder("a", ".json") == {"x.json": b"a/x.json"}


def test_a_folder_is_read_as_it_is_now(store: Store) -> None:
    for i in range(40):
        store.create(f"f/{i:02d}.json", b"%d" % i)
    assert store.read_folder("f", ".json") == {f"{i:02d}.json": b"%d" % i for i in range(40)}
    store.replace("f/07.json", b"x")
    store.delete("f/08.json")
    found = store.read_folder("f", ".json")
    assert len(found) == 39 and found["07.json"] == b"x" and found["09.json"] == b"9"


@pytest.mark.parametrize("key", ["../out.json", "shards/../../out.tar", "/etc/hostname"])
def test_a_key_leads_nowhere_outside(store: Store, key: str) -> None:
    with pytest.raises(SevenfoldError, match="leads out of the lake"):
        store.local(key)


def test_odd_characters_are_characters(store: Store) -> None:
    for key in ODD:
        assert store.create(f"odd/{key}", key.encode()) is True
        assert store.create(f"odd/{key}", b"again") is False
    assert [e.key for e in store.entries("odd")] == sorted(f"odd/{k}" for k in ODD)
    assert store.names("odd") == sorted({k.split("/")[0] for k in ODD})
    for key in ODD:
        assert store.read(f"odd/{key}") == store.local(f"odd/{key}").read_bytes() == key.encode()
        assert store.local(f"odd/{key}").name == key.split("/")[-1]
        assert store.delete(f"odd/{key}") is True
    assert store.entries("odd") == []


def test_a_draft_is_published_whole_under_the_key_it_decides_on(store: Store) -> None:
    with store.writing("d/first") as draft:
        draft.file.write(b"12")
        draft.key = "d/named/late"
        assert store.entries("d") == []
    assert draft.made and store.read("d/named/late") == b"12"
    with store.writing("d/named/late") as draft:
        draft.file.write(b"other")
    assert not draft.made and store.read("d/named/late") == b"12", "what is there stays"
    with store.writing("d/named/late", overwrite=True) as draft:
        draft.file.write(b"new")
    assert draft.made and store.read("d/named/late") == b"new"
    with pytest.raises(ZeroDivisionError), store.writing("d/failed") as draft:
        draft.file.write(b"half")
        _ = 1 / 0
    assert [e.key for e in store.entries("", hidden=True) if "failed" in e.key or "tmp" in e.key] == []


def test_local_gives_the_bytes_of_now(store: Store) -> None:
    store.replace("q/a.parquet", b"one")
    assert store.local("q/a.parquet").read_bytes() == b"one"
    store.replace("q/a.parquet", b"two")
    path = store.local("q/a.parquet")
    assert path.read_bytes() == b"two" and path.name == "a.parquet"
    assert store.local("q/a.parquet") == path
    store.delete("q/a.parquet")
    with pytest.raises(FileNotFoundError):
        store.local("q/a.parquet")


def test_of_many_threads_one_wins(store: Store) -> None:
    assert at_once(8, lambda i: store.create("race", b"%d" % i)).count(True) == 1
    before = store.read("race")
    won = at_once(8, lambda i: store.swap("race", before, b"swap %d" % i))
    assert won.count(True) == 1 and store.read("race") == b"swap %d" % won.index(True)


def test_of_many_processes_one_wins(store: Store) -> None:
    store.create("there", b"0")
    said = processes(store, *([["create", str(i)], ["swap", str(i)]][i % 2] for i in range(8)))
    created, swapped = said[0::2], said[1::2]
    assert created.count("True") == swapped.count("True") == 1
    assert store.read("race") == b"%d" % (2 * created.index("True"))
    assert store.read("there") == b"%d" % (2 * swapped.index("True") + 1)


def test_no_update_is_lost(store: Store) -> None:
    def add(before: bytes | None) -> bytes:
        return b"%d" % (int(before or b"0") + 1)

    at_once(4, lambda i: [store.update("n", add) for _ in range(5)])
    assert store.read("n") == b"20"
    assert store.update("n", lambda before: before or b"") == b"20"


def test_a_reader_sees_the_old_bytes_or_the_new(store: Store) -> None:
    versions = [bytes([65 + i]) * 200_000 for i in range(4)]
    store.replace("big", versions[0])
    stop, seen = threading.Event(), set()

    def read() -> None:
        while not stop.is_set():
            seen.add(store.read("big"))
            seen.add(store.local("big").read_bytes())

    readers = [threading.Thread(target=read) for _ in range(3)]
    for r in readers:
        r.start()
    for i in range(24):
        store.replace("big", versions[i % 4])
    stop.set()
    for r in readers:
        r.join()
    assert seen <= set(versions) and len(seen) > 1


def test_a_lock_excludes_threads_and_processes(store: Store) -> None:
    inside: list[int] = []

    def hold(i: int) -> bool:
        with store.locked("d/commits"):
            inside.append(i)
            time.sleep(0.02)
            return inside.pop() == i and not inside

    assert all(at_once(4, hold))
    store.create("count", b"0")
    processes(store, *([["count"]] * 3))
    assert store.read("count") == b"15", "read and written under the lock, five times by each"
    assert all(".lock" not in e.key for e in store.entries(""))


def test_a_lock_may_be_nested(store: Store) -> None:
    with store.locked("a"), store.locked("b"):
        with store.locked("a"):
            pass
        order: list[str] = []
        other = threading.Thread(target=lambda: _enter(store, "a", order))
        other.start()
        other.join(0.3)
        assert order == [], "leaving the inner block does not let others in"
        order.append("left")
    other.join(20)
    assert order == ["left", "entered"]


def _enter(store: Store, key: str, order: list[str]) -> None:
    with store.locked(key):
        order.append("entered")


def test_the_lock_of_a_killed_process_is_free_again(store: Store) -> None:
    seconds = "1" if not isinstance(store, LocalStore) else ""
    holder = subprocess.Popen(
        [sys.executable, str(SCRIPT), "store", store.url, "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert holder.stdout is not None and holder.stdout.readline() == "ready\n"
    assert holder.stdin is not None
    holder.stdin.write("go\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    waiting = store
    if seconds:
        from sevenfold.storage.bucket import BucketStore

        waiting = BucketStore(store.url, lock_seconds=1.0)
    began = time.monotonic()
    with waiting.locked("held"):
        assert time.monotonic() - began < 20
    with waiting.locked("held"):
        pass
    assert all(".lock" not in e.key or isinstance(store, LocalStore) for e in store.entries("", hidden=True))


def test_a_store_goes_to_other_processes(store: Store) -> None:
    store.create("x", b"1")
    again = pickle.loads(pickle.dumps(store))
    assert (again.url, again.read("x")) == (store.url, b"1")
    with again.locked("x"):
        again.replace("x", b"2")
    assert store.read("x") == b"2"


def test_other_schemes_are_refused() -> None:
    with pytest.raises(SevenfoldError, match="gopher"):
        open_store("gopher://somewhere/lake")
