"""The prefetcher: the window under the cursor held, the next one fetched, errors raised, nothing wanted of a disk."""

from __future__ import annotations

import errno
import hashlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.storage import SevenfoldError
from sevenfold.storage.cache import Answer, FileCache, Held, Wanted
from sevenfold.storage.keys import shard_key
from sevenfold.storage.room import CacheFull, Room, is_held
from sevenfold.storage.store import LocalStore
from sevenfold.training.prefetch import Prefetcher


class Far(LocalStore):
    """A local folder behind the cache, as a bucket is: what it is asked for is counted, and may fail or be slow."""

    def __init__(self, root: Path, limit: int) -> None:
        super().__init__(root / "far")
        self.copies = FileCache(root / "cache" / "0123456789abcdef", Room(root / "cache", limit, recent=0.0))
        self.asked: list[str] = []
        self.delay = 0.0
        self.broken: dict[str, Exception] = {}

    @property
    def remote(self) -> bool:
        return True

    def room(self) -> int:
        return self.copies.room.most()

    def hold(self, key: str) -> Held:
        def ask(offset: int, tag: str) -> Answer:
            self.asked.append(key)
            if key in self.broken:
                raise self.broken[key]
            time.sleep(self.delay)
            data = self.read(key)
            return Answer(len(data), "", iter([memoryview(data)]))

        return self.copies.hold(key, Wanted(key, Path(key).stem, ask))

    def copy(self, digest: str) -> Path:
        return self.copies.folder / shard_key(digest)


def far(root: Path, limit: int, sizes: list[int]) -> tuple[Far, list[tuple[str, int]]]:
    store, shards = Far(root, limit), []
    for i, size in enumerate(sizes):
        data = hashlib.shake_256(b"%d" % i).digest(size)
        digest = hashlib.sha256(data).hexdigest()
        store.create(shard_key(digest), data)
        shards.append((digest, size))
    return store, shards


def by_two(shards: int, slots: int = 10) -> object:
    """Windows of two shards, each of so many slots, rotated by the epoch."""

    def windows(epoch: int, consumed: int) -> Iterator[tuple[int, list[int]]]:
        for i, first in enumerate(range(0, shards, 2)):
            if (i + 1) * 2 * slots > consumed:
                yield i * 2 * slots, [(n + epoch) % shards for n in range(first, min(first + 2, shards))]

    return windows


def until(true: object, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def there(store: Far, shards: list[tuple[str, int]]) -> set[int]:
    return {i for i, (digest, _) in enumerate(shards) if store.copy(digest).exists()}


def held(store: Far, shards: list[tuple[str, int]]) -> set[int]:
    return {i for i, (digest, _) in enumerate(shards) if is_held(store.copy(digest))}


def test_the_window_read_is_held_and_the_next_one_is_fetched(tmp_path: Path) -> None:
    store, shards = far(tmp_path, 4000, [1000] * 6)
    with Prefetcher(store, shards, by_two(6)) as ahead:
        for epoch, consumed, now, then in (
            (0, 0, {0, 1}, {2, 3}), (0, 20, {2, 3}, {4, 5}), (0, 45, {4, 5}, {1, 2}), (1, 0, {1, 2}, {3, 4}),
        ):  # fmt: skip
            ahead.advance(epoch, consumed)
            assert ahead.wait(10) and ahead.missing == []
            until(lambda then=then: then <= there(store, shards))
            until(lambda now=now: held(store, shards) == now)
            ahead.advance(epoch, consumed + 5)
            assert held(store, shards) == now
        assert sum(store.copy(d).exists() for d, _ in shards) <= 4, "the limit"
    assert held(store, shards) == set()


def test_in_plan_order_and_each_shard_once(tmp_path: Path) -> None:
    store, shards = far(tmp_path, 10_000, [1000] * 6)
    with Prefetcher(store, shards, by_two(6), threads=1, epochs=1) as ahead:
        for consumed in range(0, 60, 5):
            ahead.advance(0, consumed)
            assert ahead.wait(10)
        until(lambda: len(store.asked) == 6)
    assert store.asked == [shard_key(d) for d, _ in shards]


def test_what_is_read_now_comes_before_anything_else(tmp_path: Path) -> None:
    """However many threads there are: the next window must not take its room."""
    store, shards = far(tmp_path, 10_000, [1000] * 6)
    store.delay = 0.3
    with Prefetcher(store, shards, by_two(6), threads=4) as ahead:
        ahead.advance(0, 0)
        until(lambda: len(store.asked) >= 2)
        time.sleep(0.1)
        assert sorted(store.asked) == sorted(shard_key(d) for d, _ in shards[:2])
        until(lambda: len(store.asked) == 4)
        assert ahead.missing == []


def test_where_only_one_window_fits_none_is_fetched_in_advance(tmp_path: Path) -> None:
    store, shards = far(tmp_path, 3900, [1000] * 6)
    with Prefetcher(store, shards, by_two(6)) as ahead:
        ahead.advance(0, 0)
        assert ahead.wait(10)
        time.sleep(0.1)
        assert there(store, shards) == {0, 1}
        ahead.advance(0, 20)
        assert ahead.wait(10) and held(store, shards) == {2, 3}


def test_after_the_last_epoch_nothing_is_fetched(tmp_path: Path) -> None:
    store, shards = far(tmp_path, 10_000, [1000] * 4)
    with Prefetcher(store, shards, by_two(4), epochs=2) as ahead:
        ahead.advance(1, 20)
        assert ahead.wait(10)
        time.sleep(0.1)
        assert there(store, shards) == {3, 0}
        ahead.advance(2, 0)
        assert ahead.wait(10) and held(store, shards) == set()


def test_a_limit_below_a_window_is_an_error_at_once(tmp_path: Path) -> None:
    """And below a window and one shard of the next: a loader that reads ahead would find all room held."""
    store, shards = far(tmp_path, 2999, [1000] * 4)
    with pytest.raises(SevenfoldError, match="a window of 2 shards and one of the next has 3,000 bytes") as caught:
        Prefetcher(store, shards, by_two(4))
    assert "SEVENFOLD_CACHE_LIMIT to 3000" in str(caught.value) and "`window`" in str(caught.value)
    assert store.asked == []
    Prefetcher(far(tmp_path / "enough", 3000, [1000] * 4)[0], shards, by_two(4)).close()
    store, shards = far(tmp_path / "alone", 1999, [1000] * 2)
    with pytest.raises(SevenfoldError, match="a window of 2 shards has 2,000 bytes"):
        Prefetcher(store, shards, by_two(2))
    Prefetcher(far(tmp_path / "just", 2000, [1000] * 2)[0], shards, by_two(2)).close()


def test_a_window_of_a_later_epoch_counts_too(tmp_path: Path) -> None:
    """[small, large] [large, small] [small, middle], then a shift brings the large ones together."""
    store, shards = far(tmp_path, 2001, [1, 1000, 1000, 1, 1, 500])
    Prefetcher(store, shards, by_two(6), epochs=1).close()
    with pytest.raises(SevenfoldError, match="2,500 bytes"):
        Prefetcher(store, shards, by_two(6), epochs=2)


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "denied"), FileNotFoundError(errno.ENOENT, "gone")])
def test_what_goes_wrong_in_the_background_is_raised_at_the_next_advance(tmp_path: Path, error: Exception) -> None:
    store, shards = far(tmp_path, 10_000, [1000] * 6)
    store.broken[shard_key(shards[2][0])] = error
    with Prefetcher(store, shards, by_two(6)) as ahead:
        ahead.advance(0, 0)
        until(lambda: there(store, shards) == {0, 1, 3})
        with pytest.raises(SevenfoldError, match=f"cannot be opened: {error.strerror}"):
            until(lambda: ahead.advance(0, 5))  # returns None until it raises
        store.broken.clear()
        ahead.advance(0, 20)
        assert ahead.wait(10), "who goes on all the same gets it"


def test_a_window_without_room_is_an_error_but_one_ahead_may_wait(tmp_path: Path) -> None:
    store, shards = far(tmp_path, 4000, [1000] * 6)
    others = store.hold(shard_key(shards[4][0])), store.hold(shard_key(shards[5][0]))
    with Prefetcher(store, shards, by_two(6)) as ahead:
        ahead.advance(0, 0)
        assert ahead.wait(10)
        time.sleep(0.1)
        ahead.advance(0, 10)
        more = store.hold(shard_key(shards[0][0]))
        ahead.advance(0, 20)
        with pytest.raises(CacheFull, match="being read"):
            ahead.wait(10)
        for h in (*others, more):
            h.release()
        assert ahead.wait(10)


def test_at_rest_nothing_is_held_or_waited_for(tmp_path: Path) -> None:
    store, shards = far(tmp_path, 10_000, [1000] * 6)
    with Prefetcher(store, shards, by_two(6)) as ahead:
        ahead.advance(0, 0)
        assert ahead.wait(10)
        until(lambda: held(store, shards) == {0, 1})  # what is being fetched ahead is held for that moment
        ahead.rest()
        assert held(store, shards) == set() and ahead.missing == []
        store.copies.forget(store.copy(shards[0][0]))
        ahead.advance(0, 5)
        assert ahead.wait(10)
        until(lambda: held(store, shards) == {0, 1})  # what is being fetched ahead is held for that moment


def test_waiting_is_counted(tmp_path: Path) -> None:
    store, shards = far(tmp_path, 10_000, [1000] * 6)
    store.delay = 0.2
    with Prefetcher(store, shards, by_two(6)) as ahead:
        assert ahead.waited == 0
        ahead.advance(0, 0)
        assert len(ahead.missing) == 2
        assert ahead.wait(10) and 0.15 < ahead.waited < 2
        until(lambda: {2, 3} <= there(store, shards))
        before = ahead.waited
        ahead.advance(0, 20)
        assert ahead.wait(10) and ahead.waited - before < 0.1


def test_closing_releases_what_comes_later(tmp_path: Path) -> None:
    store, shards = far(tmp_path, 10_000, [1000] * 6)
    store.delay = 0.3
    with Prefetcher(store, shards, by_two(6)) as ahead:
        ahead.advance(0, 0)
        until(lambda: bool(store.asked))
    until(lambda: not any(t.is_alive() for t in threading.enumerate() if t.name.startswith("prefetch")))
    assert held(store, shards) == set()


def test_a_local_lake_needs_nothing(tmp_path: Path) -> None:
    before = threading.active_count()
    with Prefetcher(LocalStore(tmp_path), [("a" * 64, 1 << 60)], by_two(1)) as ahead:
        ahead.advance(0, 0)
        assert ahead.wait(0) and ahead.waited == 0 and threading.active_count() == before
    assert not list(tmp_path.iterdir())


@settings(max_examples=30, deadline=None)
@given(data=st.data(), sizes=st.lists(st.integers(1, 300), min_size=1, max_size=12), limit=st.integers(900, 1500))
def test_wherever_the_cursor_jumps_its_window_is_held(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sizes: list[int], limit: int
) -> None:
    store, shards = far(tmp_path_factory.mktemp("jumps"), limit, sizes)
    windows = by_two(len(sizes))
    with Prefetcher(store, shards, windows) as ahead:
        for _ in range(5):
            epoch, consumed = data.draw(st.integers(0, 3)), data.draw(st.integers(0, len(sizes) * 10 - 1))
            ahead.advance(epoch, consumed)
            assert ahead.wait(10)
            assert set(next(windows(epoch, consumed))[1]) <= held(store, shards)  # type: ignore[operator]
            assert sum(store.copy(d).stat().st_size for d, _ in shards if store.copy(d).exists()) <= limit
