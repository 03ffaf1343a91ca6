"""The order of an epoch, computed where it is asked for: windowed permutations of shards, without a list of samples.

    shards     [a a a][b b][c c c][d d]       positions: the selection's rows, sorted by (source, shard)
    permute    [c c c][a a a][d d][b b]       shards, by a keyed hash of (seed, source, pass, shard)
    window 2   [c c c a a a][d d b b]         `window` whole shards are open at a time
    permute    [a c a c c a][b d d b]         samples inside each window, by one of (seed, source, pass, position)

A pass keeps three numbers per shard and the window it is in; any place of it is found by bisection.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sevenfold.storage.errors import SevenfoldError
from sevenfold.training.draw import key, numbered

_SHARDS, _SAMPLES = 1, 2  # the salts that keep the two permutations independent


@dataclass(frozen=True)
class Layout:
    """How the positions of a selection lie in shards.

    Parameters
    ----------
    rows : int64 [n], the dataset row of each position; None when they are the same numbers.
    sizes : int64 [shards], positions in each shard; a shard that two sources read counts once for each.
    shards : int64 [shards], the dataset's number of each shard.
    sources : per source (first position, positions, first shard, shards).
    copies : int64 [n], how many positions before it hold the same sample; None when every sample occurs once.
    most : the largest number of positions that hold one sample.
    """

    rows: np.ndarray | None
    sizes: np.ndarray
    shards: np.ndarray
    sources: tuple[tuple[int, int, int, int], ...]
    copies: np.ndarray | None = None
    most: int = 1

    @property
    def positions(self) -> int:
        """Positions in all."""
        return sum(source[1] for source in self.sources)

    def rows_of(self, positions: np.ndarray) -> np.ndarray:
        """int64 [k]: the dataset rows at these positions."""
        return positions if self.rows is None else self.rows[positions]

    def copies_of(self, positions: np.ndarray) -> np.ndarray:
        """int64 [k]: which copy of its sample lies at each of these positions; 0 for the first."""
        return np.zeros(len(positions), np.int64) if self.copies is None else self.copies[positions]


def layout(
    rows: np.ndarray, groups: np.ndarray, parts: np.ndarray | None = None, *, samples: np.ndarray | None = None
) -> Layout:
    """Sort a selection stably by (source, shard).

    Parameters
    ----------
    rows : int64 [n], dataset rows; a row may occur several times.
    groups : int64 [n], the number of the shard that each lies in.
    parts : int64 [n], the source of each: 0, 1, ... without a gap; None for one source.
    samples : int64 [n], equal where two rows hold the same sample; default `rows`. Copies are numbered by it.
    """
    rows, groups = np.asarray(rows, np.int64), np.asarray(groups, np.int64)
    parts = np.zeros(len(rows), np.int64) if parts is None else np.asarray(parts, np.int64)
    same = rows if samples is None else np.asarray(samples, np.int64)
    if not len(rows) == len(groups) == len(parts) == len(same):
        raise SevenfoldError(f"{len(rows)} rows, {len(groups)} shard numbers, {len(parts)} sources", where="layout")
    order = np.lexsort((groups, parts))
    rows, groups, parts, same = rows[order], groups[order], parts[order], same[order]
    starts = np.flatnonzero(np.r_[len(rows) > 0, (np.diff(groups) != 0) | (np.diff(parts) != 0)][: len(rows)])
    sizes = np.diff(np.r_[starts, len(rows)])
    count = int(parts.max(initial=0)) + 1
    position, shard = np.searchsorted(parts, np.arange(count + 1)), np.searchsorted(parts[starts], np.arange(count + 1))
    sources = tuple(
        (int(position[i]), int(position[i + 1] - position[i]), int(shard[i]), int(shard[i + 1] - shard[i]))
        for i in range(count)
    )
    copies = _copies(same)
    most = int(copies.max(initial=0)) + 1
    return Layout(rows, sizes, groups[starts], sources, copies if most > 1 else None, most)


class Pass:
    """One pass over a source: each of its positions once, in windows of whole shards.

    Parameters
    ----------
    layout : of all sources.
    source, number : which source, and which pass over it; with `seed` they key the hashes.
    window : whole shards shuffled together.
    """

    def __init__(self, layout: Layout, source: int, number: int, seed: int, window: int) -> None:
        first, _, shard, shards = layout.sources[source]
        sizes = layout.sizes[shard : shard + shards]
        window = min(window, max(shards, 1))  # a larger one is the same, and may not fit into 64 bits
        self.number = number
        self.permuted = np.argsort(numbered(np.arange(shards), key(seed, source, number, _SHARDS)), kind="stable")
        self._first, self._shard = first, shard
        self._begins = np.cumsum(sizes) - sizes  # within the source, in stored order
        self._sizes = sizes
        self.edges = np.r_[0, np.cumsum(sizes[self.permuted])][np.r_[np.arange(0, shards, window), shards]]
        self._window, self._salt = window, key(seed, source, number, _SAMPLES)
        self._open = (-1, np.zeros(0, np.int64))

    def shards(self, window: int) -> np.ndarray:
        """int64: the places in the layout of the shards of one window."""
        return self._shard + self.permuted[window * self._window : (window + 1) * self._window]

    def window_at(self, place: int) -> int:
        """The window that a place of the pass lies in."""
        return int(np.searchsorted(self.edges, place, side="right")) - 1

    def take(self, start: int, stop: int) -> np.ndarray:
        """int64 [stop - start]: positions at these places of the pass; one window is kept in memory."""
        window = self.window_at(start)
        parts = []
        while start < stop:
            begin, end = int(self.edges[window]), int(self.edges[window + 1])
            if start < end:
                parts.append(self._shuffled(window)[start - begin : min(stop, end) - begin])
                start = min(stop, end)
            window += 1
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])

    def _shuffled(self, window: int) -> np.ndarray:
        number, samples = self._open
        if number != window:
            shards = self.permuted[window * self._window : (window + 1) * self._window]
            local = _ranges(self._begins[shards], self._sizes[shards])
            samples = self._first + local[np.argsort(numbered(local, self._salt))]  # all distinct: no ties to break
            self._open = (window, samples)
        return samples


class Stream:
    """The endless sequence of passes over one source; slot q lies in pass q // positions."""

    def __init__(self, layout: Layout, source: int, seed: int, window: int) -> None:
        self.layout, self.source, self.seed, self.window = layout, source, seed, window
        self.length = layout.sources[source][1]
        self._pass: Pass | None = None

    def take(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """(positions int64 [k], passes int64 [k]) of the slots start ... stop - 1."""
        number, place = divmod(start, self.length) if start < stop else (0, 0)
        if place + stop - start <= self.length:  # nearly always: within one pass
            return self._at(number, place, place + stop - start), np.full(stop - start, number, np.int64)
        positions, passes = [], []
        while start < stop:
            number, place = divmod(start, self.length)
            count = min(stop - start, self.length - place)
            positions.append(self._at(number, place, place + count))
            passes.append(np.full(count, number, np.int64))
            start += count
        return np.concatenate(positions), np.concatenate(passes)

    def windows(self, start: int, stop: int) -> Iterator[tuple[int, list[int]]]:
        """(first slot at or after start, the dataset's numbers of the window's shards), in order."""
        while start < stop:
            number, place = divmod(start, self.length)
            now = Pass(self.layout, self.source, number, self.seed, self.window)
            base = start - place
            for window in range(now.window_at(place), len(now.edges) - 1):
                begin, end = base + int(now.edges[window]), base + int(now.edges[window + 1])
                if begin >= stop:
                    return
                if end > begin:
                    yield max(begin, start), self.layout.shards[now.shards(window)].tolist()
            start = base + self.length

    def _at(self, number: int, start: int, stop: int) -> np.ndarray:
        if start == stop:
            return np.zeros(0, np.int64)
        if self._pass is None or self._pass.number != number:
            self._pass = Pass(self.layout, self.source, number, self.seed, self.window)
        return self._pass.take(start, stop)


def _ranges(begins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """int64: begin, begin + 1, ... of each range, one range after the other."""
    ends = np.cumsum(sizes)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(begins - (ends - sizes), sizes)


def _copies(same: np.ndarray) -> np.ndarray:
    """int64 [n]: how many equal numbers stand before each."""
    order = np.argsort(same, kind="stable")
    ranked = same[order]
    begins = np.searchsorted(ranked, ranked, side="left")
    copies = np.empty(len(same), np.int64)
    copies[order] = np.arange(len(same)) - begins
    return copies
