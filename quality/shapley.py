"""kNN-Shapley: what each training sample is worth to a nearest-neighbour classifier, exactly.

Jia et al., "Efficient task-specific data valuation for nearest neighbor algorithms", VLDB 2019, Theorem 1. The utility
of a set S of training samples is the mean over validation points of the share of right labels among their K nearest,

    v(S) = mean over validation points of 1/K * sum over the min(K, |S|) nearest of S of [label is right],

and the Shapley values of all n samples follow from one sort of their distances to each validation point: from the
farthest (rank n) to the nearest (rank 1),

    s_n = [right_n] / max(n, K)        s_i = s_{i+1} + ([right_i] - [right_{i+1}]) / K * min(K, i) / i

They sum to v(all), since v(nothing) is 0. O(n log n) for each validation point; memory is that of one block of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

BLOCK = 1 << 22
"""Distances held at once: 16 MB of float32, about ten times that while they are sorted."""


@dataclass(frozen=True, eq=False)
class Values:
    """What training samples are worth, each with its spread over the validation set.

    Parameters
    ----------
    values : float64 [n]; they sum to `utility`.
    utility : v(all), 0 ... 1.
    draws : for each grouping float64 [b, g], the mean value of each group in bootstraps of the validation set.
    negative_draws : float64 [b], the share of samples below 0 in the same bootstraps.
    certain : bool [n], below 0 in nearly all bootstraps (one-sided, at the confidence asked for).
    """

    values: np.ndarray
    utility: float
    draws: tuple[np.ndarray, ...]
    negative_draws: np.ndarray
    certain: np.ndarray


def knn_shapley(
    train: np.ndarray, train_labels: np.ndarray, points: np.ndarray, point_labels: np.ndarray, k: int
) -> np.ndarray:
    """float64 [n]: the exact kNN-Shapley value of each training sample.

    Parameters
    ----------
    train, points : float [n, d] and [m, d]; Euclidean distances count. n, m and k are at least 1.
    train_labels, point_labels : int [n] and [m].
    """
    total = np.zeros(len(train))
    for _, block in point_values(train, train_labels, points, point_labels, k):
        total += block.sum(0)
    return total / len(points)


def point_values(
    train: np.ndarray,
    train_labels: np.ndarray,
    points: np.ndarray,
    point_labels: np.ndarray,
    k: int,
    block: int = BLOCK,
) -> Iterator[tuple[slice, np.ndarray]]:
    """Blocks of validation points: (which, float64 [b, n] of the value of each sample to each of them)."""
    n, m = len(train), len(points)
    if not n or not m or k < 1:
        raise ValueError(f"{n} training samples, {m} validation points, k = {k}: each must be at least 1")
    train, points = (np.ascontiguousarray(x, np.float32) for x in (train, points))
    squares = np.einsum("nd,nd->n", train, train)
    ranks = np.arange(1, n)
    steps = np.minimum(k, ranks) / (ranks * float(k))
    size = max(block // n, 1)
    for start in range(0, m, size):
        at = slice(start, min(start + size, m))
        order = np.argsort(squares - 2 * (points[at] @ train.T), axis=1, kind="stable")
        right = (train_labels[order] == point_labels[at, None]).astype(np.float64)
        ranked = np.empty_like(right)
        ranked[:, -1] = right[:, -1] / max(n, k)
        ranked[:, :-1] = (right[:, :-1] - right[:, 1:]) * steps
        np.cumsum(ranked[:, ::-1], axis=1, out=ranked[:, ::-1])
        values = np.empty_like(ranked)
        np.put_along_axis(values, order, ranked, axis=1)
        yield at, values


def bootstrapped(
    train: np.ndarray, train_labels: np.ndarray, points: np.ndarray, point_labels: np.ndarray, k: int,
    *, groups: Sequence[np.ndarray], draws: int, confidence: float, seed: int = 0,
) -> Values:  # fmt: skip
    """Values with their spread over the choice of validation points, which are drawn with replacement `draws` times.

    Parameters
    ----------
    groups : groupings, int [n] of 0 ... g - 1 each: the batch, the class ... of each sample.
    confidence : a sample is certainly below 0 when it is in more than this share of the bootstraps.
    """
    n, m = len(train), len(points)
    times = np.random.default_rng(seed).multinomial(m, np.full(m, 1 / m), draws).astype(np.float64)
    total, drawn = np.zeros(n), np.zeros((draws, n))
    for at, block in point_values(train, train_labels, points, point_labels, k):
        total += block.sum(0)
        drawn += times[:, at] @ block
    total, drawn = total / m, drawn / m
    below = drawn < 0
    return Values(
        values=total,
        utility=float(total.sum()),
        draws=tuple(group_means(drawn, one) for one in groups),
        negative_draws=below.mean(1),
        certain=below.mean(0) > confidence,
    )


def group_means(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """float64 [b, g]: the mean of each row of float [b, n] over each group, int [n] of 0 ... g - 1 without a gap."""
    sizes = np.bincount(groups)
    return np.stack([np.bincount(groups, weights=row) / sizes for row in values])
