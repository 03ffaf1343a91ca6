"""Fetches the shards that the plan comes to next, while the trainer works, and keeps from eviction what it reads now.

The window under the cursor is held. The windows after it are fetched in plan order but not held: of two jobs that
share a cache, neither then waits for what the other only may need, and eviction takes the least recently used first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from time import perf_counter
from types import TracebackType

from sevenfold.storage import SevenfoldError
from sevenfold.storage.cache import Held
from sevenfold.storage.keys import shard_key
from sevenfold.storage.room import VARIABLE, CacheFull
from sevenfold.storage.sizes import said, setting
from sevenfold.storage.store import Store
from sevenfold.training.reader import cannot_open

Windows = Callable[[int, int], Iterator[tuple[int, list[int]]]]
"""(epoch, samples consumed) -> the windows to come in that epoch: (first slot, numbers of its shards in plan order)."""


class Prefetcher:
    """Background threads that follow the plan's cursor. A context manager; without it all works too, only later.

    Call `advance` before the first step and after each. A local lake needs nothing, and nothing happens.

    Parameters
    ----------
    store : the lake's.
    shards : (digest, bytes) of each shard, by the numbers that `windows` uses.
    windows : see Windows.
    epochs : the number of the last epoch plus one; None when it is not known: the next one is always fetched then.
    ahead : windows fetched in advance, where the limit has room for them beside the one that is read.
    threads : fetches at once.

    Raises SevenfoldError at once when the cache's limit does not hold a window and one shard of the next: a loader
    reads ahead of the cursor, and what it needs then must have room while the window is held.
    """

    def __init__(
        self,
        store: Store,
        shards: Sequence[tuple[str, int]],
        windows: Windows,
        *,
        epochs: int | None = None,
        ahead: int = 1,
        threads: int = 4,
    ) -> None:
        self._store, self._shards, self._windows, self._epochs, self._ahead = store, shards, windows, epochs, ahead
        self._limit = store.room() if store.remote else None
        self._change = threading.Condition()
        self._at = self._until = (-1, 0)  # (epoch, slot): where the window under the cursor was entered, and its end
        self._now: list[int] = []  # shards of the window under the cursor
        self._next: list[int] = []  # those of the windows after it
        self._held: dict[int, Held] = {}
        self._busy: set[int] = set()
        self._done: set[int] = set()  # of the next ones: there, or without room for now
        self._failed: dict[int, Exception] = {}
        self._waited, self._since = 0.0, perf_counter()
        self._closed = False
        self._threads: list[threading.Thread] = []
        if self._limit is not None:
            self._check(self._limit)
            self._threads = [
                threading.Thread(target=self._work, name=f"prefetch-{i}", daemon=True) for i in range(threads)
            ]
        for thread in self._threads:
            thread.start()

    def advance(self, epoch: int, consumed: int) -> None:
        """Tell where the trainer is: holds the window there, releases those behind, fetches those after it.

        Raises SevenfoldError for what went wrong in the background since the last call.
        """
        if self._limit is None:
            return
        with self._change:
            self._raise()
            if not self._at <= (epoch, consumed) < self._until:
                self._move(epoch, consumed, self._limit)

    def rest(self) -> None:
        """Hold and fetch nothing until the next `advance`: something else needs the room meanwhile."""
        with self._change:
            self._count_waiting()
            self._at = self._until = (-1, 0)
            self._now, self._next = [], []
            self._release(self._held)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the window under the cursor is there; False when that takes longer. Raises as `advance` does."""
        with self._change:
            there = self._change.wait_for(lambda: self._failed or not self._missing(), timeout)
            self._raise()
            return bool(there)

    @property
    def waited(self) -> float:
        """Seconds, so far, in which the window under the cursor was not all there."""
        with self._change:
            return self._waited + (perf_counter() - self._since if self._missing() else 0.0)

    @property
    def missing(self) -> list[str]:
        """Digests of the shards under the cursor that are still waited for."""
        with self._change:
            return [self._shards[n][0] for n in self._missing()]

    def close(self) -> None:
        """Release everything. A fetch that is on its way ends by itself."""
        with self._change:
            self._closed = True
            self._release(self._held)
            self._change.notify_all()
        for thread in self._threads:
            thread.join(1.0)

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # Under the lock

    def _move(self, epoch: int, consumed: int, limit: int) -> None:
        """Want the window at the cursor, and after it as many as have room beside it."""
        self._count_waiting()
        windows = list(islice(self._to_come(epoch, consumed), 1 + max(1, self._ahead)))
        self._now = list(dict.fromkeys(windows[0][2])) if windows else []
        self._at, self._until = (epoch, consumed), (epoch + 1, 0)
        if len(windows) > 1:
            self._until = windows[1][:2]
        self._next, left = [], limit - self._bytes(self._now)
        for _, _, numbers in windows[1 : 1 + self._ahead]:
            more = [n for n in numbers if n not in self._now and n not in self._next]
            left -= self._bytes(more)
            if left < 0:
                break
            self._next += more
        self._done &= set(self._next)
        self._release(set(self._held) - set(self._now))
        self._since = perf_counter()
        self._change.notify_all()

    def _to_come(self, epoch: int, consumed: int) -> Iterator[tuple[int, int, list[int]]]:
        """(epoch, first slot, shards) of the windows from the cursor to the end of the next epoch."""
        for of, start in ((epoch, consumed), (epoch + 1, 0)):
            if self._epochs is None or of < self._epochs:
                for first, numbers in self._windows(of, start):
                    yield of, first, list(numbers)

    def _check(self, limit: int) -> None:
        """Raise when a window and one shard more is larger than the limit; looked at only where one might be."""
        sizes = sorted((size for _, size in self._shards), reverse=True)
        longest = max((len(numbers) for _, numbers in self._windows(0, 0)), default=0)
        if sum(sizes[: longest + 1]) <= limit:
            return
        for epoch in range(self._epochs or 1):
            windows = [set(numbers) for _, numbers in self._windows(epoch, 0)]
            every = sorted(set().union(*windows), key=lambda n: -self._shards[n][1])
            for window in windows:
                more = next((n for n in every if n not in window), None)
                need = self._bytes([*window, *([] if more is None else [more])])
                if need > limit:
                    raise self._too_small(len(window), more is not None, need, limit)

    def _too_small(self, window: int, more: bool, need: int, limit: int) -> SevenfoldError:
        return SevenfoldError(
            f"a window of {window} shard{'s' * (window != 1)}{' and one of the next' if more else ''} "
            f"has {said(need)}, and the cache's limit is {said(limit)}",
            where=str(self._store.folder),
            expected="a limit that holds the window which is read and what the loader reads ahead, better two windows",
            do=f"set {VARIABLE} to {setting(need)} or more (better {setting(2 * need)}) if the disk has that much"
            + (", or lower `window`" if window > 1 else ""),
        )

    def _bytes(self, numbers: Iterable[int]) -> int:
        return sum(self._shards[n][1] for n in set(numbers))

    def _missing(self) -> list[int]:
        return [n for n in self._now if n not in self._held]

    def _release(self, numbers: Iterable[int]) -> None:
        for n in list(numbers):
            self._held.pop(n).release()

    def _count_waiting(self) -> None:
        now = perf_counter()
        self._waited += now - self._since if self._missing() else 0.0
        self._since = now

    def _raise(self) -> None:
        """Raise what went wrong, once: what comes after is tried anew."""
        if self._failed:
            number, error = next(iter(self._failed.items()))
            self._failed.clear()
            self._change.notify_all()
            if isinstance(error, OSError):
                raise cannot_open(error, str(error.filename or self._shards[number][0])) from error
            raise error

    def _pick(self) -> int | None:
        """The next shard to fetch. What is read now goes first: the next window must not take its room."""
        missing = self._missing()
        wanted = missing or [n for n in self._next if n not in self._done]
        return next((n for n in wanted if n not in self._busy and n not in self._failed), None)

    # The threads

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._closed or self._pick() is not None)
                number = self._pick()
                if self._closed or number is None:
                    return
                self._busy.add(number)
            held: Held | None = None
            error: Exception | None = None
            try:
                held = self._store.hold(shard_key(self._shards[number][0]))
            except Exception as e:  # whatever it is, the trainer raises it
                error = e
            with self._change:
                self._end(number, held, error)
                self._change.notify_all()

    def _end(self, number: int, held: Held | None, error: Exception | None) -> None:
        self._busy.discard(number)
        if held is not None and number in self._now and not self._closed:
            last = self._missing() == [number]
            if last:
                self._count_waiting()
            self._held[number] = held
            return
        if held is not None:
            held.release()
        if error is None or (isinstance(error, CacheFull) and number not in self._now):
            self._done.add(number)
        else:
            self._failed[number] = error
