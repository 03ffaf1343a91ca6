"""Coverage in embeddings: clusters of the reference that are no longer reached, and samples foreign to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_BLOCK = 1 << 22
"""Distances held at once."""


@dataclass(frozen=True)
class Reached:
    """Which clusters of a reference a set reaches.

    Parameters
    ----------
    reached : bool [k].
    expected : the share of clusters that so many samples of the reference's own kind reach, on average.
    band : the central 95 % of that share.
    p : the chance of reaching so few by chance.
    sizes : int64 [k], samples of the reference in each cluster (of the half that did not shape them).
    nearest : int64 [k], the reference's row nearest to each centre.
    """

    reached: np.ndarray
    expected: float
    band: tuple[float, float]
    p: float
    sizes: np.ndarray
    nearest: np.ndarray


def reach(reference: np.ndarray, now: np.ndarray, clusters: int, *, draws: int = 2000) -> Reached:
    """k-means on one half of the reference; the other half tells how likely each cluster is, and `now` is held to it.

    The share a cluster has is itself uncertain, so each draw takes shares from a Dirichlet posterior and as many
    samples as `now` has: a small set is expected to reach fewer.

    Parameters
    ----------
    reference, now : float [n, d], [m, d], of length 1 each; the reference's rows in random order.
    clusters : k.
    """
    from sklearn.cluster import KMeans

    half = len(reference) // 2
    model = KMeans(clusters, n_init=1, max_iter=50, random_state=0).fit(reference[:half])
    centres = model.cluster_centers_
    counts = np.bincount(nearest_rows(reference[half:], centres)[0], minlength=clusters)
    reached = np.bincount(nearest_rows(now, centres)[0], minlength=clusters) > 0
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(counts + 1 / clusters, draws)
    null = (rng.multinomial(len(now), shares) > 0).mean(1)
    low, high = np.quantile(null, [0.025, 0.975])
    p = float(((null <= reached.mean() + 1e-12).sum() + 1) / (draws + 1))
    nearest = nearest_rows(centres, reference)[0]
    return Reached(reached, float(null.mean()), (float(low), float(high)), p, counts, nearest)


def nearest_rows(points: np.ndarray, among: np.ndarray, k: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """(row of the nearest, distance of the k-th nearest) of `among` for each of `points`: int64 [n], float64 [n]."""
    rows, far = np.zeros(len(points), np.int64), np.zeros(len(points))
    square = (among**2).sum(1)
    step = max(1, _BLOCK // max(1, len(among)))
    for start in range(0, len(points), step):
        part = points[start : start + step]
        apart = square[None, :] - 2 * (part @ among.T)
        rows[start : start + step] = apart.argmin(1)
        kth = np.partition(apart, k - 1, axis=1)[:, k - 1] if k > 1 else apart.min(1)
        far[start : start + step] = np.sqrt(np.maximum(kth + (part**2).sum(1), 0))
    return rows, far


@dataclass(frozen=True)
class Foreign:
    """How far samples lie from a reference.

    Parameters
    ----------
    distances : float64 [m], to the k-th neighbour; limit : the distance beyond which a sample is foreign.
    rank : calibration samples beyond the limit, of `calibration` in all.
    p : the chance that so many lie beyond it when all are of the reference's kind.
    """

    distances: np.ndarray
    limit: float
    rank: int
    calibration: int
    p: float


def foreign(reference: np.ndarray, now: np.ndarray, alpha: float, *, k: int = 5) -> Foreign:
    """Conformal: one half of the reference is the neighbours, the other says how far its own kind lies from them.

    The limit is the r-th farthest of the m calibration samples, r = alpha (m + 1) rounded up. Samples of the same kind
    lie beyond it with a chance that is Beta(r, m + 1 - r) over limits, so their number is beta-binomial, whatever the
    embedding is (Vovk et al. 2005; distances to the k-th neighbour: Sun et al. 2022).

    Parameters
    ----------
    reference, now : float [n, d], [m, d], of length 1 each; the reference's rows in random order.
    """
    from scipy.stats import betabinom

    half = len(reference) // 2
    near, rest = reference[:half], reference[half:]
    usual = np.sort(nearest_rows(rest, near, k)[1])
    distances = nearest_rows(now, near, k)[1]
    m = len(usual)
    rank = max(1, int(np.ceil(alpha * (m + 1))))
    limit = float(usual[m - rank])
    beyond = int((distances > limit).sum())
    p = 1.0 if beyond == 0 else float(betabinom.sf(beyond - 1, len(now), rank, m + 1 - rank))
    return Foreign(distances, limit, rank, m, p)
