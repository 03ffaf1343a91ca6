"""The cache of a bucket's files: fetched once, verified, never pulled from under a reader, within its limit."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.bucket import BucketStore
from sevenfold.storage.cache import PAUSE, TRIES, Answer, FileCache, Held, Wanted
from sevenfold.storage.gc import evict
from sevenfold.storage.room import MOST, VARIABLE, CacheFull, Room, is_held
from sevenfold.storage.store import LocalStore

SCRIPT = Path(__file__).with_name("cache_process.py")
LAKE = "0123456789abcdef"


def content(seed: int, size: int = 1000) -> tuple[str, bytes]:
    """(key, bytes) of a shard."""
    data = hashlib.shake_256(b"%d" % seed).digest(size)
    digest = hashlib.sha256(data).hexdigest()
    return f"shards/{digest[:2]}/{digest}.tar", data


def wanted(data: bytes, *, asked: list[int] | None = None, breaks: int = 0, brings: int = 300) -> Wanted:
    """A file of a store that breaks its first answers off after `brings` bytes."""
    left = [breaks]

    def ask(offset: int, tag: str) -> Answer:
        if asked is not None:
            asked.append(offset)

        def pieces() -> Iterator[memoryview]:
            if left[0]:
                left[0] -= 1
                if brings:
                    yield memoryview(data[offset : offset + brings])
                raise OSError(errno.EIO, "broken off", "s3://b/x")
            yield memoryview(data[offset:])

        return Answer(len(data), "tag", pieces())

    return Wanted("s3://b/x", hashlib.sha256(data).hexdigest(), ask)


def slowly(data: bytes) -> tuple[threading.Event, threading.Event, Wanted]:
    """(its fetch has begun, it may end, a file)."""
    begun, go = threading.Event(), threading.Event()

    def pieces() -> Iterator[memoryview]:
        begun.set()
        go.wait(10)
        yield memoryview(data)

    digest = hashlib.sha256(data).hexdigest()
    return begun, go, Wanted("s3://b/x", digest, lambda offset, tag: Answer(len(data), "", pieces()))


def cache(folder: Path, limit: int | None = None, recent: float = 0.0, pauses: list[float] | None = None) -> FileCache:
    return FileCache(
        folder / LAKE, Room(folder, limit, recent=recent), pause=pauses.append if pauses is not None else time.sleep
    )


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def left_in(folder: Path) -> list[str]:
    """Names of all files in the cache but its account."""
    return sorted(p.name for p in folder.rglob("*") if p.is_file() and p.name != ".account")


# Fetching


def test_an_answer_that_breaks_off_is_continued_where_it_ended(tmp_path: Path) -> None:
    pauses: list[float] = []
    asked: list[int] = []
    here, (key, data) = cache(tmp_path, pauses=pauses), content(1)
    with here.hold(key, wanted(data, asked=asked, breaks=2)) as path:
        assert path.read_bytes() == data
    assert asked == [0, 300, 600] and here.tries == len(pauses) == 2


def test_pauses_grow_and_end_when_nothing_comes(tmp_path: Path) -> None:
    pauses: list[float] = []
    here, (key, data) = cache(tmp_path, pauses=pauses), content(1)
    with pytest.raises(OSError, match="broken off"):
        here.hold(key, wanted(data, breaks=99, brings=0))
    assert here.tries == len(pauses) == TRIES - 1
    assert all(0.5 * PAUSE * 2**i <= p <= 1.5 * PAUSE * 2**i for i, p in enumerate(pauses, start=1))
    assert left_in(tmp_path) == []


def test_what_changes_or_is_refused_while_it_is_read(tmp_path: Path) -> None:
    """A state that is gone is begun anew; a refusal is not tried again."""
    here, (key, data) = cache(tmp_path, pauses=[]), content(1)
    first = wanted(data, breaks=1)
    told = [OSError(errno.ESTALE, "changed"), PermissionError(errno.EACCES, "denied")]

    def ask(offset: int, tag: str) -> Answer:
        if offset:
            raise told.pop(0)
        return first.ask(offset, tag)

    with here.hold(key, Wanted("x", first.digest, ask)) as path:
        assert path.read_bytes() == data
    other, data = content(2)
    first = wanted(data, breaks=1)
    with pytest.raises(PermissionError):
        here.hold(other, Wanted("x", first.digest, ask))
    assert len(left_in(tmp_path)) == 1


def test_many_threads_fetch_a_file_once(tmp_path: Path) -> None:
    asked: list[int] = []
    here, (key, data) = cache(tmp_path), content(1, 100_000)
    what, held = wanted(data, asked=asked), []
    threads = [threading.Thread(target=lambda: held.append(here.hold(key, what))) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(10)
    assert len(held) == 16 and asked == [0]
    for h in held:
        assert is_held(h.path)
        h.release()
        h.release()
    assert not is_held(here.folder / key)


def test_two_processes_request_each_object_once(proxy: Any, bucket: str) -> None:
    store = BucketStore(bucket)
    made = dict(content(i, 200_000) for i in range(5))
    for key, data in made.items():
        store.create(key, data)
    before = proxy.seen["GET"]
    readers = [start("stress", bucket, str(i), "1.0", json.dumps(list(made))) for i in range(2)]
    for p in readers:
        assert json.loads(p.communicate(timeout=60)[0])["reads"] > len(made)
    assert proxy.seen["GET"] == before + len(made)


def test_a_process_killed_while_it_fetches_leaves_nothing_believed(
    proxy: Any, bucket: str, proxying: ModuleType, tmp_path: Path
) -> None:
    store, (key, data) = BucketStore(bucket), content(1, 16 << 20)
    store.create(key, data)
    coming = store.cache / Path(key).parent / f".{Path(key).name}.coming"
    with_half = threading.Event()

    def rule(method: str, path: str, n: int) -> str:
        if method == "GET" and with_half.is_set():
            proxy.ended.wait(60)  # the rest never comes
        return proxying.PASS if method != "GET" or with_half.is_set() else proxying.TRUNCATE

    proxy.rule = rule
    one = start("hold", bucket, key)
    deadline = time.monotonic() + 30
    while not (coming.exists() and coming.stat().st_blocks and with_half.is_set()):
        assert time.monotonic() < deadline
        if coming.exists() and coming.stat().st_size == len(data):
            with_half.set()
        time.sleep(0.01)
    assert is_held(coming)
    os.kill(one.pid, signal.SIGKILL)
    one.communicate()
    assert coming.exists() and not is_held(coming) and not (store.cache / key).exists()
    proxy.rule = lambda method, path, n: proxying.PASS
    assert store.local(key).read_bytes() == data
    assert left_in(store.cache) == [Path(key).name]


def test_what_a_killed_process_left_is_swept_when_room_is_needed(tmp_path: Path) -> None:
    here, (key, data) = cache(tmp_path, 1500), content(1)
    left = here.folder / "shards" / "aa" / ".x.tar.coming"
    left.parent.mkdir(parents=True)
    left.write_bytes(bytes(1000))
    here.hold(key, wanted(data)).release()
    assert left_in(tmp_path) == [Path(key).name]


# Verifying what is there


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_copy_is_fetched_again_with_a_warning(tmp_path: Path, damage: str) -> None:
    key, data = content(1)
    with cache(tmp_path).hold(key, wanted(data)) as path:
        bad = {"flip": data[:-1] + bytes([data[-1] ^ 1]), "cut": data[:700], "empty": b""}[damage]
    path.write_bytes(bad)
    again, asked = cache(tmp_path), []
    with pytest.warns(RuntimeWarning, match=r"damaged.*s3://b/x"), again.hold(key, wanted(data, asked=asked)) as path:
        assert path.read_bytes() == data
    again.hold(key, wanted(data, asked=asked)).release()
    assert asked == [0]


def test_half_an_index_that_was_there_is_found(tmp_path: Path) -> None:
    data = b"PAR1 rows PAR1"
    index = Wanted("s3://b/x", None, wanted(data).ask)
    with cache(tmp_path).hold("index/a.parquet", index) as path:
        path.write_bytes(data[:9])
    with pytest.warns(RuntimeWarning, match="damaged"), cache(tmp_path).hold("index/a.parquet", index) as path:
        assert path.read_bytes() == data


def test_a_flipped_byte_in_a_buckets_copy_is_found_by_the_next_process(bucket: str) -> None:
    store, (key, data) = BucketStore(bucket), content(1)
    store.create(key, data)
    path = store.local(key)
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.warns(RuntimeWarning, match="damaged"):
        assert BucketStore(bucket).local(key).read_bytes() == data


# Room


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=30), limit=st.integers(400, 1200), holds=st.integers(0, 2)
)
def test_the_limit_is_kept_whatever_is_read(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int, holds: int
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    here, held = cache(folder, limit), []
    for i, size in enumerate(sizes):
        key, data = content(i, size)
        try:
            now = here.hold(key, wanted(data))
        except CacheFull:
            assert sum(h.path.stat().st_size for h in held) + size > limit
            continue
        assert now.path.read_bytes() == data
        assert all(h.path.exists() for h in held), "what is held is there"
        held.append(now)
        for h in held[: max(0, len(held) - holds)]:
            h.release()
        held = held[-holds:] if holds else []
        assert sum(p.stat().st_size for p in folder.rglob("*.tar")) <= limit
    for h in held:
        h.release()


def test_the_least_recently_used_goes_first_and_a_shard_before_an_index(tmp_path: Path) -> None:
    here, made = cache(tmp_path, 3000), [content(i) for i in range(4)]
    index = b"PAR1" + bytes(400) + b"PAR1"
    here.hold("index/a.parquet", Wanted("x", None, wanted(index).ask)).release()
    os.utime(here.folder / "index/a.parquet", (1, 1))
    for i, (key, data) in enumerate(made[:2]):
        here.hold(key, wanted(data)).release()
        os.utime(here.folder / key, (100 + i, 100 + i))
    here.hold(made[0][0], wanted(made[0][1])).release()  # used again
    here.hold(made[2][0], wanted(made[2][1])).release()
    assert [(here.folder / key).exists() for key, _ in made] == [True, False, True, False]
    assert (here.folder / "index/a.parquet").exists()


def test_an_index_that_was_used_lately_is_never_taken(tmp_path: Path) -> None:
    here, index = cache(tmp_path, 1000), b"PAR1" + bytes(400) + b"PAR1"
    here.hold("index/a.parquet", Wanted("x", None, wanted(index).ask)).release()
    key, data = content(1, 900)
    with pytest.raises(CacheFull):
        here.hold(key, wanted(data))
    os.utime(here.folder / "index/a.parquet", (1, 1))
    here.hold(key, wanted(data)).release()
    assert left_in(tmp_path) == [Path(key).name]


def test_a_full_cache_says_what_is_held_and_how_much_it_lacks(tmp_path: Path) -> None:
    here = cache(tmp_path, 2500)
    held = [here.hold(key, wanted(data)) for key, data in (content(i) for i in range(2))]
    key, data = content(9)
    with pytest.raises(CacheFull) as caught:
        here.hold(key, wanted(data))
    for part in ("2,500 bytes", "2,000 bytes are being read", "500 bytes larger", f"{VARIABLE} to 3000"):
        assert part in str(caught.value)
    held[0].release()
    with here.hold(key, wanted(data)):
        assert left_in(tmp_path) == sorted(p.path.name for p in (held[1], Held(here.folder / key)))
    with pytest.raises(CacheFull, match="a file of 2,501 bytes: the limit is 2,500 bytes"):
        here.hold("shards/aa/big.tar", wanted(bytes(2501)))
    assert len(left_in(tmp_path)) == 2, "nothing is evicted for what can never fit"


def test_a_path_that_was_just_given_out_stays_for_a_moment(tmp_path: Path) -> None:
    here, made = cache(tmp_path, 1500, recent=0.5), [content(i) for i in range(2)]
    with here.hold(*(made[0][0], wanted(made[0][1]))) as path:
        pass
    began = time.monotonic()
    here.hold(made[1][0], wanted(made[1][1])).release()
    assert time.monotonic() - began > 0.3 and not path.exists()


def test_much_that_is_old_goes_at_once(tmp_path: Path) -> None:
    """So that a large cache is not looked through for every file."""
    here, made = cache(tmp_path, 30_000), [content(i, 100) for i in range(301)]
    for i, (key, data) in enumerate(made[:300]):
        here.hold(key, wanted(data)).release()
        os.utime(here.folder / key, (i, i) if i < 200 else None)
    here.hold(made[300][0], wanted(made[300][1])).release()
    assert [(here.folder / key).exists() for key, _ in made] == [False] * 4 + [True] * 297


def test_a_copy_that_is_used_keeps_its_time_of_change(tmp_path: Path) -> None:
    """DuckDB keeps a file's footer as long as that is the same."""
    here, (key, data) = cache(tmp_path), content(1)
    here.hold(key, wanted(data)).release()
    os.utime(here.folder / key, (5, 5))
    with here.hold(key, wanted(data)) as path:
        assert path.stat().st_mtime == 5 and time.time() - path.stat().st_atime < 60


def test_room_waits_for_what_another_fetches(tmp_path: Path) -> None:
    """What comes cannot be evicted, what has come can."""
    here, (key, data), (other, later) = cache(tmp_path, 1500), content(1), content(2)
    begun, go, slow = slowly(data)
    first = threading.Thread(target=lambda: here.hold(key, slow).release())
    second = threading.Thread(target=lambda: here.hold(other, wanted(later)).release())
    first.start()
    assert begun.wait(10)
    second.start()
    second.join(0.2)
    assert second.is_alive()
    go.set()
    second.join(10)
    first.join(10)
    assert not second.is_alive() and (here.folder / other).exists()


def test_what_is_forgotten_while_it_comes_is_gone(tmp_path: Path) -> None:
    """As a takedown wants it."""
    here, (key, data) = cache(tmp_path), content(1)
    begun, go, slow = slowly(data)

    def ask(offset: int, tag: str) -> Answer:
        if begun.is_set():
            raise FileNotFoundError(errno.ENOENT, "taken down")
        return slow.ask(offset, tag)

    def fetch() -> None:
        with suppress(FileNotFoundError):
            here.hold(key, Wanted("s3://b/x", slow.digest, ask)).release()

    fetching = threading.Thread(target=fetch)
    fetching.start()
    assert begun.wait(10)
    forgetting = threading.Thread(target=lambda: here.forget(here.folder / key))
    forgetting.start()
    forgetting.join(0.2)
    assert forgetting.is_alive()
    go.set()
    forgetting.join(10)
    fetching.join(10)
    assert left_in(tmp_path) == []


def test_only_the_folders_of_lakes_are_counted_and_evicted(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "only-copy.txt").write_bytes(bytes(5000))
    here, made = cache(tmp_path, 1500), [content(i) for i in range(3)]
    for key, data in made:
        here.hold(key, wanted(data)).release()
    assert left_in(tmp_path) == sorted(["only-copy.txt", Path(made[2][0]).name])


def test_what_others_put_among_the_copies_is_in_nobodys_way(tmp_path: Path) -> None:
    here, made = cache(tmp_path, 1500), [content(i) for i in range(3)]
    here.hold(made[0][0], wanted(made[0][1])).release()
    (tmp_path / "notes.txt").write_text("mine")
    (here.folder / "shards" / "link.tar").symlink_to(tmp_path / "notes.txt")
    (here.folder / "shards" / "dangling.tar").symlink_to(tmp_path / "nothing")
    os.mkfifo(here.folder / "shards" / "fifo.tar")
    for key, data in made[1:]:
        with here.hold(key, wanted(data)) as path:
            assert path.read_bytes() == data
    assert (tmp_path / "notes.txt").read_text() == "mine" and not (here.folder / made[0][0]).exists()


def test_a_copy_of_a_time_to_come_is_old(tmp_path: Path) -> None:
    """The clock was wrong when it was used, or jumped back since."""
    here, made = cache(tmp_path, 2000, recent=2.0), [content(i) for i in range(3)]
    for key, data in made[:2]:
        here.hold(key, wanted(data)).release()
        os.utime(here.folder / key, (time.time() + 1e6, time.time() + 1e6))
    here.hold(made[0][0], wanted(made[0][1])).release()  # used now
    began = time.monotonic()
    here.hold(made[2][0], wanted(made[2][1])).release()
    assert time.monotonic() - began < 1.0
    assert [(here.folder / key).exists() for key, _ in made] == [True, False, True]


@pytest.mark.parametrize("place", [".account", LAKE, f"{LAKE}/shards", "the copy"])
def test_what_bars_the_cache_is_named(tmp_path: Path, place: str) -> None:
    here, (key, data) = cache(tmp_path), content(1)
    barred = tmp_path / (f"{LAKE}/{key}" if place == "the copy" else place)
    barred.parent.mkdir(parents=True, exist_ok=True)
    if place in (".account", "the copy"):
        barred.symlink_to(tmp_path / "elsewhere")
    else:
        barred.write_bytes(b"a file")
    with pytest.raises(SevenfoldError, match="the cache cannot be used") as caught:
        here.hold(key, wanted(data))
    assert str(barred) in caught.value.where and "SEVENFOLD_CACHE" in caught.value.do
    assert not (tmp_path / "elsewhere").exists()


def test_a_refusal_of_the_store_is_not_taken_for_one_of_the_disk(tmp_path: Path) -> None:
    def ask(offset: int, tag: str) -> Answer:
        raise PermissionError(errno.EACCES, "access denied", "s3://b/x")

    with pytest.raises(PermissionError, match="access denied"):
        cache(tmp_path).hold(content(1)[0], Wanted("s3://b/x", "0" * 64, ask))


def test_readers_in_other_processes_read_every_byte_right_under_pressure(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = BucketStore(bucket)
    made = dict(content(i, 50_000) for i in range(12))
    for key, data in made.items():
        store.create(key, data)
    monkeypatch.setenv(VARIABLE, "300kB")
    readers = [start("stress", bucket, str(i), "2.0", json.dumps(list(made))) for i in range(3)]
    most = 0
    while any(p.poll() is None for p in readers):
        sizes = []
        for p in store.cache.rglob("*"):
            try:
                sizes.append(p.stat().st_size if p.is_file() else 0)
            except FileNotFoundError:
                continue
        most = max(most, sum(sizes))
        time.sleep(0.02)
    for p in readers:
        assert json.loads(p.communicate(timeout=30)[0])["reads"] > 5
        assert p.returncode == 0
    assert 200_000 < most <= 350_000, "a listing takes time: a copy may go and another come meanwhile"


def test_a_disk_that_is_full_is_said_in_one_line(bucket: str) -> None:
    store, (key, data) = BucketStore(bucket), content(1, 200_000)
    store.create(key, data)
    kind, text = json.loads(start("full", bucket, key).communicate(timeout=60)[0])
    assert kind == "CacheFull" and "the disk has no room for a file of 200,000 bytes" in text and VARIABLE in text
    assert left_in(store.cache) == []
    assert store.local(key).read_bytes() == data


def test_a_disk_that_is_too_small_or_fills_up_meanwhile(tmp_path: Path) -> None:
    namespace = ["unshare", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*namespace, "true"], check=False).returncode:
        pytest.skip("no disk may be mounted here")
    command = [*namespace, sys.executable, str(SCRIPT), "tiny", str(tmp_path)]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout.splitlines()
    (large, too_large), (full, filled), left = map(json.loads, lines)
    assert large == full == "CacheFull" and left == [".account"]
    assert "no room for a file of 2.1 MB: the limit is 1.0 MB" in too_large and "free some disk" in too_large
    assert "the disk has no room for a file of 524,288 bytes: No space left" in filled


@pytest.mark.slow
def test_readers_that_are_killed_at_any_instant_leave_nothing_wrong(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = BucketStore(bucket)
    made = dict(content(i, 400_000) for i in range(8))
    for key, data in made.items():
        store.create(key, data)
    monkeypatch.setenv(VARIABLE, "2MB")
    rng, keys = random.Random(1), json.dumps(list(made))
    survivor = start("stress", bucket, "0", "4.0", keys)
    for seed in range(1, 4):
        victims = [start("stress", bucket, str(10 * seed + i), "30", keys) for i in range(2)]
        time.sleep(rng.uniform(0.7, 1.2))
        for p in victims:
            assert p.poll() is None
            p.kill()
            p.communicate()
    assert json.loads(survivor.communicate(timeout=60)[0])["reads"] > 5
    again = BucketStore(bucket)
    again.copies.room._recent = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no copy is damaged
        for key, data in made.items():
            assert again.local(key).read_bytes() == data
    assert sum(p.stat().st_size for p in again.cache.rglob("*") if p.is_file()) <= 2_000_000


# The limit


@pytest.mark.parametrize("text", ["many", "-1GB", "0", "0.1", "5 XB", "1e9", "GB", "5GB5", "9" * 400 + "GB"])
def test_a_limit_that_is_no_size_is_an_error(bucket: str, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(SevenfoldError, match=VARIABLE) as caught:
        BucketStore(bucket)
    assert repr(text) in str(caught.value)


def test_without_a_limit_it_is_a_share_of_the_disk(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    share = 0.8 * disk.f_bavail * disk.f_frsize
    assert Room(tmp_path).most() == pytest.approx(min(MOST, share), rel=0.05)
    assert Room(tmp_path, 1000).most() == 1000
    assert Room(tmp_path, 1 << 60).most() <= disk.f_blocks * disk.f_frsize, "a limit beyond the disk is the disk"


# Stores


def test_a_local_lake_keeps_no_copies(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("a", b"1")
    assert not store.remote and store.room() is None
    with store.hold("a") as path:
        assert path == tmp_path / "a"
    with pytest.raises(FileNotFoundError):
        store.hold("b")


def test_a_held_file_survives_gc_of_the_cache_and_a_dead_process_holds_nothing(bucket: str) -> None:
    Lake.create(bucket)
    store, made = BucketStore(bucket), [content(i) for i in range(2)]
    for key, data in made:
        store.create(key, data)
        store.local(key)
    reader = start("hold", bucket, made[0][0])
    assert reader.stdout is not None
    path = Path(reader.stdout.readline().strip())
    assert made[0][0] not in {g.key for g in evict(store, 0)}
    assert made[0][0] not in {g.key for g in evict(store, 0, delete=True)}
    assert path.read_bytes() == made[0][1] and not (store.cache / made[1][0]).exists()
    os.kill(reader.pid, signal.SIGKILL)
    reader.communicate()
    assert [g.key for g in evict(store, 0, delete=True)] == [made[0][0]]


def test_a_changeable_file_is_held_too(bucket: str) -> None:
    store = BucketStore(bucket)
    store.replace("queues/q.parquet", b"now")
    with store.hold("queues/q.parquet") as path:
        assert path.read_bytes() == b"now" and is_held(path)
    assert not is_held(path)
