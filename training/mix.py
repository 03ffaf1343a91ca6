"""Mixing several sources in one epoch: how many slots each has, and which slot comes when.

Slot j of a source with n slots lies at time (2 j + 1) / (2 n) of the epoch, and slots are merged by time, ties by
source. So every prefix of an epoch holds each source's share to within about one, and the slot at any place is found
without walking from the start. A source's slots continue its own endless sequence of passes: epoch e begins at its
slot e * n, so that each of its samples occurs floor or ceil (n / samples) times in an epoch, and evenly over many.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np

from sevenfold.storage.errors import SevenfoldError
from sevenfold.training.order import Layout, Stream

MOST = 2**31 - 1
"""Slots of one source of a mix: products of two such numbers fit into 64 bits."""


def slots(first: int, ratios: Sequence[float], size: int | None = None) -> tuple[int, ...]:
    """Slots of each source in an epoch, the first source's included.

    Parameters
    ----------
    first : samples of the first source.
    ratios : slots of each further source per slot of the first.
    size : slots in all; default: the first source once, the others in proportion.
    """
    if any(not 0 <= r < float("inf") for r in ratios):
        raise SevenfoldError(f"the ratios are {list(ratios)}", where="mix", expected="numbers that are not negative")
    base = first if size is None else size / (1 + sum(ratios))
    others = [round(min(base * r, 2.0 * MOST)) for r in ratios]  # a product may be infinite
    found = (first if size is None else size - sum(others), *others)
    if found[0] < 0 or max(found) > MOST:
        raise SevenfoldError(
            f"the sources would have {found} slots", where="mix", expected=f"0 ... {MOST} each", do="change the ratios"
        )
    return found


class Order:
    """The order of one epoch.

    Parameters
    ----------
    layout : of all sources.
    counts : slots of each source in an epoch.
    seed, window : of the permutations.
    epoch : which.
    """

    def __init__(self, layout: Layout, counts: Sequence[int], seed: int, window: int, epoch: int) -> None:
        if len(counts) > 1 and max(counts) > MOST:
            raise SevenfoldError(f"a source has {max(counts)} slots", where="epoch plan", expected=f"up to {MOST}")
        for i, n in enumerate(counts):
            if n and not layout.sources[i][1]:
                raise SevenfoldError(f"source {i} has {n} slots and no sample", where="epoch plan")
        self.layout, self.counts, self.epoch = layout, tuple(counts), epoch
        self.samples = sum(counts)
        self._streams = [Stream(layout, i, seed, window) for i in range(len(counts))]
        self._begins = [epoch * n for n in counts]

    def take(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """(positions int64 [k], passes int64 [k]) of the slots start ... stop - 1, 0 <= start <= stop <= samples.

        A pass is which round over its source a slot belongs to: the epoch where there is one source.
        """
        if not 0 <= start <= stop <= self.samples:
            raise IndexError(f"slots {start} ... {stop} of {self.samples}")
        if len(self.counts) == 1:
            return self._streams[0].take(self._begins[0] + start, self._begins[0] + stop)
        positions, passes = np.empty(stop - start, np.int64), np.empty(stop - start, np.int64)
        for i, at, begin in self._merged(start, stop):
            found = self._streams[i].take(self._begins[i] + begin, self._begins[i] + begin + len(at))
            positions[at], passes[at] = found
        return positions, passes

    def windows(self, start: int, stop: int) -> Iterator[tuple[int, list[int]]]:
        """(first slot, shard numbers): from that slot on, until the next item's, no other shard is read.

        With several sources an item is what all of them have open. Numbers are the dataset's, each once an item.
        """
        opened: list[list[int]] = [[] for _ in self.counts]
        for first, i, shards in heapq.merge(*(self._events(i, start, stop) for i in range(len(self.counts)))):
            opened[i] = shards
            yield first, list(dict.fromkeys(s for part in opened for s in part))

    def _events(self, i: int, start: int, stop: int) -> Iterator[tuple[int, int, list[int]]]:
        """(slot of the epoch, source, shards) for each window of one source that begins before `stop`."""
        low, high = self._before(i, start), self._before(i, stop)
        for slot, shards in self._streams[i].windows(self._begins[i] + low, self._begins[i] + high):
            yield int(self._places(i, np.array([slot - self._begins[i]]))[0]), i, shards

    def _merged(self, start: int, stop: int) -> Iterator[tuple[int, np.ndarray, int]]:
        """Per source with slots there: (source, places relative to start int64 [k], its first slot)."""
        for i, n in enumerate(self.counts):
            low, high = self._candidates(n, start, stop)
            at = self._places(i, np.arange(low, high))
            inside = (at >= start) & (at < stop)
            if inside.any():
                yield i, at[inside] - start, low + int(np.argmax(inside))

    def _before(self, i: int, place: int) -> int:
        """How many slots of source i lie before a place of the epoch."""
        low, high = self._candidates(self.counts[i], place, place)
        return low + int(np.searchsorted(self._places(i, np.arange(low, high)), place))

    def _candidates(self, n: int, start: int, stop: int) -> tuple[int, int]:
        """The slots of a source among which all that lie in start ... stop are.

        A slot's place differs from its time * samples by at most half the number of sources, so that a margin of
        sources + 2 slots on each side of the estimate is enough.
        """
        margin = len(self.counts) + 2
        total = max(self.samples, 1)
        return max(start * n // total - margin, 0), min(-(-stop * n // total) + margin, n)

    def _places(self, i: int, slot: np.ndarray) -> np.ndarray:
        """int64 [k]: where slots of source i lie in the epoch: the slots of all sources that come before, exactly.

        Slot h of source l comes before slot j of source i when (2 h + 1) n_i < (2 j + 1) n_l, or equal and l < i.
        """
        place = slot.astype(np.int64, copy=True)
        for other, n in enumerate(self.counts):
            if other != i and n and self.counts[i]:
                product = (2 * slot.astype(np.int64) + 1) * n
                odd = (product if other < i else product - 1) // self.counts[i]  # the largest 2 h + 1 there is room for
                place += (odd + 1) // 2
        return place
