"""Groups of pictures that are linked by pairs: which there are, and which pairs inside them were not looked at."""

from __future__ import annotations

import numpy as np

from sevenfold.quality.twins_search import Candidates

CLOSED = 64
"""Groups up to this size are looked at pair by pair, so that a leak is not missed among many copies."""


def components(first: np.ndarray, second: np.ndarray, n: int) -> np.ndarray:
    """The connected component of each of n pictures, int [n], by pairs of their numbers."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(first), np.int8), (first, second)), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1])


def within_groups(found: Candidates, n: int) -> Candidates:
    """All pairs inside groups of 3 to CLOSED pictures that were not looked at, both ways round."""
    component = components(found.first, found.second, n)
    sizes = np.bincount(component, minlength=1)
    found = found.take(sizes[component[found.first]] <= CLOSED)
    members = np.flatnonzero((sizes[component] > 2) & (sizes[component] <= CLOSED))
    members = members[np.argsort(component[members], kind="stable")]
    edges = np.flatnonzero(np.diff(component[members])) + 1
    known = set(zip(found.first.tolist(), found.second.tolist(), strict=True))
    new = [
        (int(a), int(b))
        for group in np.split(members, edges)
        for i, a in enumerate(group)
        for b in group[i + 1 :]
        if (int(a), int(b)) not in known
    ]
    return both_ways(np.array(new, np.int64).reshape(-1, 2))


def both_ways(pairs: np.ndarray) -> Candidates:
    """Pairs [n, 2] as they are and mirrored; their cosine is not known."""
    a, b = (np.tile(pairs[:, i], 2) for i in (0, 1))
    mirrored = np.repeat([False, True], len(pairs))
    return Candidates(np.minimum(a, b), np.maximum(a, b), mirrored, np.full(len(a), np.nan, np.float32))
