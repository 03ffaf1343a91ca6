"""Shards of small files, kept in memory while their window is read: one long read instead of thousands of short ones.

The plan reads every sample of a window, in random order. At 1 KB a sample the system call costs more than the bytes,
and it hands Python's lock over, for which a second thread waits; a slice of a shard in memory does neither.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

MEMORY = 256 << 20
"""Bytes a loader keeps; its workers share them. What does not fit is read sample by sample."""
_SMALL = 8192
"""Bytes of shard per sample up to which taking a whole shard is cheaper than reading its samples one by one."""
_FEW = 16
"""Samples read from a shard before it is taken into free memory: random look-ups alone take none."""
_IDLE = 64
"""Requests without a use after which a shard makes room: its window has passed."""

Held = dict[int, memoryview]
"""Shard number -> the beginning of its file."""


def worth_holding(groups: np.ndarray, ends: np.ndarray, shards: int) -> np.ndarray:
    """int64 [shards]: bytes of each shard to keep, up to its last sample; 0 where its samples are too large.

    Parameters
    ----------
    groups, ends : int64 [n], the shard of each sample and where it ends there.
    """
    lengths = np.zeros(shards, np.int64)
    np.maximum.at(lengths, groups, ends)
    return np.where(lengths <= _SMALL * np.bincount(groups, minlength=shards), lengths, 0)


class HeldShards:
    """Decides which shards are in memory; any thread may ask.

    A shard that is worth it is taken once a few of its samples were read, if there is room. Otherwise shards that have
    been idle for a while make room, but only once so many of its samples were read singly that taking it costs no more
    than that did: an order that jumps between more shards than fit costs at most twice what single reads do.

    Parameters
    ----------
    lengths : int64 [shards], of :func:`worth_holding`.
    limit : bytes kept at most.
    """

    def __init__(self, lengths: np.ndarray, limit: int) -> None:
        self.lengths, self.limit = lengths, limit
        self._held: Held = {}
        self._used: dict[int, int] = {}
        self._reads: Counter[int] = Counter()
        self._requests = self._bytes = 0
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes kept now."""
        return self._bytes

    def of(self, shards: Sequence[int], load: Callable[[int, int], memoryview | None]) -> Held:
        """Those of the shards that are in memory, after taking what is due.

        Parameters
        ----------
        shards : of the samples that are to be read, one each.
        load : (shard, length) -> the beginning of its file, shorter where that ends early; None if it cannot be read.
        """
        self._requests = now = self._requests + 1  # a request lost between two threads makes no difference
        numbers, held = set(shards), self._held
        found = {n: data for n in numbers if (data := held.get(n)) is not None}
        self._used |= dict.fromkeys(found, now)
        if len(found) < len(numbers):
            for number, count in Counter(shards).items():
                if number not in found and self.lengths[number] and self._due(number, count):
                    data = load(number, int(self.lengths[number]))
                    if self._taken(number, data) is not None:
                        found[number] = self._held[number]
        return found

    def _due(self, number: int, count: int) -> bool:
        """Whether this shard is to be taken now: room for it is set aside then."""
        with self._lock:
            if number in self._used:  # another thread is at it
                return False
            self._reads[number] += count
            length = int(self.lengths[number])
            if self._reads[number] < _FEW or length > self.limit:
                return False
            if self._bytes + length > self.limit and self._reads[number] * _SMALL >= length:
                self._drop_idle(self._bytes + length - self.limit)
            if self._bytes + length > self.limit:
                return False
            self._bytes += length
            self._used[number] = self._requests
            return True

    def _drop_idle(self, wanted: int) -> None:
        """Let go of shards that nobody reads from any more, longest unused first, if that frees enough."""
        idle = [n for n in self._held if self._used[n] < self._requests - _IDLE]
        if sum(int(self.lengths[n]) for n in idle) < wanted:
            return
        for number in sorted(idle, key=self._used.__getitem__):
            if wanted <= 0:
                break
            del self._held[number], self._used[number]  # readers that hold a slice of it keep it for as long
            wanted -= int(self.lengths[number])
            self._bytes -= int(self.lengths[number])

    def _taken(self, number: int, data: memoryview | None) -> memoryview | None:
        with self._lock:
            self._reads[number] = 0
            if data is None:  # it is tried again after as many reads
                self._bytes -= int(self.lengths[number])
                del self._used[number]
            else:
                self._held[number] = data
        return data
