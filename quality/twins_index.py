"""One picture looked up among a million: every stored vector is compared, most of them by their first numbers alone.

The first HEAD numbers of a vector hold most of its length, and the distance of two beginnings is never more than that
of the wholes: what is too far there needs no second look, and nothing near is missed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sevenfold.quality.twins_describe import Described, mirror_signs
from sevenfold.quality.twins_search import LEAST, Candidates, unit

HEAD = 16
"""Numbers of a vector that are compared first."""

NEAREST = 24
"""Neighbours, straight and mirrored each, that are looked at: more than the search of all pairs takes."""

BITS = 6
"""Hashes this close are candidates too."""


@dataclass(frozen=True)
class TwinIndex:
    """Descriptors of n pictures, their beginnings as float32 [n, HEAD], and each beginning's squared length."""

    described: Described
    head: np.ndarray
    squares: np.ndarray
    lengths: np.ndarray

    @staticmethod
    def of(described: Described) -> TwinIndex:
        """Prepare descriptors for questions: 76 more bytes a picture."""
        n = len(described)
        head, lengths = np.empty((n, HEAD), np.float32), np.empty(n, np.float32)
        for start in range(0, n, 1 << 16):
            floats = described.vectors[start : start + (1 << 16)].astype(np.float32)
            length = np.maximum(np.linalg.norm(floats, axis=1), 1)
            head[start : start + len(floats)] = floats[:, :HEAD] / length[:, None]
            lengths[start : start + len(floats)] = length
        return TwinIndex(described, head, np.einsum("ij,ij->i", head, head), lengths)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, without ids and paths."""
        d = self.described
        arrays = (d.vectors, d.thumbs, d.hashes, d.mirrored, self.head, self.squares, self.lengths)
        return sum(a.nbytes for a in arrays)

    def near(self, asked: Described) -> Candidates:
        """Candidates of one picture (a Described of one): `second` are the rows here, `first` is 0."""
        query = unit(asked.vectors)[0]
        parts = []
        for mirrored, turned in ((False, query), (True, query * mirror_signs())):
            start = turned[:HEAD]
            apart = self.squares - 2 * (self.head @ start) + start @ start
            rows = np.flatnonzero(apart <= 2 - 2 * LEAST + 1e-4)
            cosine = (self.described.vectors[rows] @ turned) / self.lengths[rows]
            best = np.flatnonzero(cosine >= LEAST)
            if len(best) > NEAREST:
                best = best[np.argpartition(cosine[best], -NEAREST)[-NEAREST:]]
            parts.append((rows[best], np.full(len(best), mirrored), cosine[best]))
            own = (asked.mirrored if mirrored else asked.hashes)[0]
            close = np.flatnonzero(np.bitwise_count(self.described.hashes ^ own) <= BITS)[:NEAREST]
            parts.append((close, np.full(len(close), mirrored), np.full(len(close), np.nan, np.float32)))
        rows, mirror, cosine = (np.concatenate(x) for x in zip(*parts, strict=True))
        _, first = np.unique(rows * 2 + mirror, return_index=True)
        first = np.sort(first)
        return Candidates(np.zeros(len(first), np.int64), rows[first], mirror[first], cosine[first])
