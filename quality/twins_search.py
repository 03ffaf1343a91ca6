"""Which pictures could be twins: neighbours of vectors, and hashes that are close; few enough to look at each.

Up to EXACT rows every pair is compared, in blocks of matrix products. Beyond, an inverted file (Jegou et al. 2011):
vectors are put into cells by their nearest centre, and a query is compared with those of its PROBES nearest cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

EXACT = 16_384
"""Rows up to which all pairs are compared."""

PROBES = 8
"""Cells that a query is compared with."""

NEAREST = 6
"""Neighbours of a picture, and of its mirror image, that are looked at."""

LEAST = 0.6
"""Cosine below which two vectors are no candidates: a picture shifted by 2 of 32 pixels keeps .64 in 99 of 100."""

_BLOCK = 2048
_LEARNT = 65_536


@dataclass(frozen=True)
class Candidates:
    """Pairs of row numbers, int64 [m] with first < second, whether one is mirrored, and their cosine (float32)."""

    first: np.ndarray
    second: np.ndarray
    mirrored: np.ndarray
    cosine: np.ndarray

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: np.ndarray) -> Candidates:
        """Those of some rows (or of a mask)."""
        return Candidates(self.first[rows], self.second[rows], self.mirrored[rows], self.cosine[rows])

    @staticmethod
    def joined(parts: list[Candidates]) -> Candidates:
        """Each pair and orientation once, ordered by both rows."""
        if not parts:
            none = np.zeros(0, np.int64)
            return Candidates(none, none, none.astype(bool), none.astype(np.float32))
        a, b, m, c = (np.concatenate([getattr(p, f) for p in parts]) for f in Candidates.__dataclass_fields__)
        low, high = np.minimum(a, b), np.maximum(a, b)
        order = np.lexsort((-c, m, high, low))
        low, high, m, c = low[order], high[order], m[order], c[order]
        fresh = np.ones(len(low), bool)
        fresh[1:] = (np.diff(low) != 0) | (np.diff(high) != 0) | (m[1:] != m[:-1])
        fresh &= low != high
        return Candidates(low[fresh], high[fresh], m[fresh], c[fresh])


def neighbours(
    vectors: np.ndarray, *, signs: np.ndarray | None = None, nearest: int = NEAREST, least: float = LEAST,
    exact: int = EXACT,
) -> Candidates:  # fmt: skip
    """Each row's `nearest` others of cosine `least` or more, and with `signs` those of its mirror image.

    Parameters
    ----------
    vectors : int8 or float [n, d], any length but zero; the answer depends on them alone, and for more than `exact`
        rows on their order too (the cells are learnt from some of them).
    signs : float [d]: times these a vector is that of the mirror image.
    """
    parts = []
    turned = [(False, None)] + ([(True, signs)] if signs is not None else [])
    if len(vectors) <= exact:
        base = unit(vectors)
        for mirrored, sign in turned:
            for start in range(0, len(base), _BLOCK):
                rows = np.arange(start, min(start + _BLOCK, len(base)))
                queries = base[rows] if sign is None else base[rows] * sign
                parts.append(_best(queries @ base.T, rows, None, mirrored, nearest, least))
        return Candidates.joined(parts)
    cells = Cells.learn(vectors)
    for mirrored, sign in turned:
        found = []
        probed = cells.probes(vectors, sign)
        query, cell = np.repeat(np.arange(len(vectors)), probed.shape[1]), probed.ravel()
        order = np.argsort(cell, kind="stable")
        query, edges = query[order], np.searchsorted(cell[order], np.arange(len(cells.centres) + 1))
        for c in range(len(cells.centres)):
            members, rows = cells.members(c), query[edges[c] : edges[c + 1]]
            if len(members) and len(rows):
                queries = unit(vectors[rows])
                scores = (queries if sign is None else queries * sign) @ unit(vectors[members]).T
                found.append(_best(scores, rows, members, mirrored, nearest, least))
        parts.append(_top(found, nearest))
    return Candidates.joined(parts)


def close_hashes(hashes: np.ndarray, mirrored: np.ndarray, bits: int, most: int = 20) -> Candidates:
    """Pairs whose 64-bit hashes, or one's and the other's mirrored, differ in at most `bits`; cosine is NaN.

    Four 16-bit bands are joined: none within 3 bits is missed, few within 6. Of a band that many share (blank frames)
    each row meets its `most` next ones only. `mirrored` may be empty: then only hashes as they are meet.
    """
    parts = []
    n = len(hashes)
    for turned in (False, True) if len(mirrored) else (False,):
        every = np.concatenate([hashes, mirrored]) if turned else hashes
        row = np.concatenate([np.arange(n)] * 2) if turned else np.arange(n)
        for band in range(4):
            key = (every >> (16 * band)) & 0xFFFF
            order = np.lexsort((every, key))
            key, place, value = key[order], row[order], every[order]
            own = order < n
            for step in range(1, most + 1):
                same = key[step:] == key[:-step]
                if not same.any():
                    break
                if turned:  # one as it is, the other mirrored
                    same &= own[step:] != own[:-step]
                at = np.flatnonzero(same)
                near = np.bitwise_count(value[at] ^ value[at + step]) <= bits
                a, b = place[at[near]], place[at[near] + step]
                parts.append(Candidates(a, b, np.full(len(a), turned), np.full(len(a), np.nan, np.float32)))
    return Candidates.joined(parts)


@dataclass(frozen=True)
class Cells:
    """An inverted file: `centres` float32 [c, d], the rows by cell, and where each cell's begin."""

    centres: np.ndarray
    rows: np.ndarray
    starts: np.ndarray

    @staticmethod
    def learn(vectors: np.ndarray) -> Cells:
        """As many cells as twice the root of the rows, from at most 65,536 of them at even distances."""
        from sklearn.cluster import MiniBatchKMeans

        sample = unit(vectors[:: -(-len(vectors) // _LEARNT)])
        count = min(2 * int(np.sqrt(len(vectors))), len(sample) // 8)
        means = MiniBatchKMeans(count, init="random", n_init=1, batch_size=8192, max_iter=10, random_state=0).fit(
            sample
        )
        centres = unit(means.cluster_centers_)
        nearest = _nearest_cells(vectors, None, centres, 1)[:, 0]
        rows = np.argsort(nearest, kind="stable")
        return Cells(centres, rows, np.searchsorted(nearest[rows], np.arange(count + 1)))

    def members(self, cell: int) -> np.ndarray:
        """The rows of a cell, ascending."""
        return self.rows[self.starts[cell] : self.starts[cell + 1]]

    def probes(self, vectors: np.ndarray, signs: np.ndarray | None) -> np.ndarray:
        """The nearest cells of each vector, int [n, PROBES]."""
        return _nearest_cells(vectors, signs, self.centres, PROBES)


def unit(vectors: np.ndarray) -> np.ndarray:
    """float32 of length 1; zeros stay zero."""
    floats = vectors.astype(np.float32)
    length = np.linalg.norm(floats, axis=1, keepdims=True)
    return np.asarray(floats / np.where(length > 0, length, 1))


def _nearest_cells(vectors: np.ndarray, signs: np.ndarray | None, centres: np.ndarray, count: int) -> np.ndarray:
    count = min(count, len(centres))
    found = np.empty((len(vectors), count), np.int32)
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK].astype(np.float32)
        scores = (block if signs is None else block * signs) @ centres.T
        if count == 1:
            found[start : start + _BLOCK, 0] = scores.argmax(1)
        else:
            found[start : start + _BLOCK] = np.argpartition(scores, -count, axis=1)[:, -count:]
    return found


def _best(
    scores: np.ndarray, rows: np.ndarray, columns: np.ndarray | None, mirrored: bool, nearest: int, least: float
) -> Candidates:
    """The best `nearest` of each row (one more where a row may meet itself) that reach `least`."""
    keep = nearest + (not mirrored)
    if scores.shape[1] > keep:
        places = np.argpartition(scores, -keep, axis=1)[:, -keep:]
        values = np.take_along_axis(scores, places, 1)
    else:
        places, values = np.broadcast_to(np.arange(scores.shape[1]), scores.shape), scores
    at, which = np.nonzero(values >= least)
    place = places[at, which]
    a, b = rows[at], place if columns is None else columns[place]
    return Candidates(a, b, np.full(len(a), mirrored), values[at, which])


def _top(parts: list[Candidates], nearest: int) -> Candidates:
    """Of what several cells gave for each row the best."""
    a, b, m, c = (np.concatenate([getattr(p, f) for p in parts]) for f in Candidates.__dataclass_fields__)
    apart = a != b
    a, b, m, c = a[apart], b[apart], m[apart], c[apart]
    order = np.lexsort((b, -c, a))
    a, b, m, c = a[order], b[order], m[order], c[order]
    first = np.searchsorted(a, a)
    best = np.arange(len(a)) - first < nearest
    return Candidates(a[best], b[best], m[best], c[best])
