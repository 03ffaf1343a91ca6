"""Classifier two-sample test: can a classifier tell new samples from reference ones it has not seen?

A regularised least-squares classifier on standardised embeddings and their squares (so that a change of spread is seen
as well as one of mean), cross-validated. It is linear in the labels, so that all permutations of them are
cross-validated too, by one solve: the null is exact (Lopez-Paz and Oquab 2017).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sevenfold.quality.two_sample import DRAWS, permutations

FOLDS = 5
_RIDGE = 0.1  # of the mean squared length of a sample: the features are many and the samples few


@dataclass(frozen=True)
class Separation:
    """What the classifier managed.

    Parameters
    ----------
    auc : the chance that a held-out new sample scores higher than a held-out reference one; 0.5 is guessing.
    interval : its 95 % interval (Hanley and McNeil 1982).
    effect : 2 auc - 1 without what permuted labels reach on average; 0 is guessing, 1 is certain.
    accuracy : share of held-out samples on the right side of the middle, both sides weighing alike.
    scores_now, scores_reference : held-out scores, float [n] and [m].
    """

    auc: float
    interval: tuple[float, float]
    effect: float
    accuracy: float
    p: float
    scores_now: np.ndarray
    scores_reference: np.ndarray


def classifier_test(now: np.ndarray, before: np.ndarray, *, draws: int = DRAWS, seed: int = 0) -> Separation:
    """Tell float [n, d] from float [m, d]; both finite, n and m at least 2 * :data:`FOLDS`."""
    n, m = len(now), len(before)
    order = np.random.default_rng([seed, 2]).permutation(n + m)  # breaks ties of scores without a look at the labels
    sides = permutations(n, m, draws, seed)[order]
    scores = held_out(features(np.concatenate([now, before])[order]), sides.astype(np.float32), seed)
    auc = _aucs(scores, sides, n, m)
    observed = np.empty(n + m)
    observed[order] = scores[:, 0]
    a = float(auc[0])
    middle = float(np.median(observed[:n]) + np.median(observed[n:])) / 2
    right = [(observed[:n] > middle).mean(), (observed[n:] <= middle).mean()]
    return Separation(
        auc=a,
        interval=_hanley(a, n, m),
        effect=max(0.0, 2 * (a - float(auc[1:].mean()))),
        accuracy=float(np.mean(right)),
        p=float((auc >= auc[0] - 1e-9).mean()),
        scores_now=observed[:n],
        scores_reference=observed[n:],
    )


@dataclass(frozen=True)
class _Scaler:
    """The pooled moments by which columns and their squares are standardised; constant ones are left out."""

    mean: np.ndarray
    spread: np.ndarray
    square_mean: np.ndarray
    square_spread: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray) -> _Scaler:
        x = x.astype(np.float64)
        mean, spread = x.mean(axis=0), _no_zero(x.std(axis=0))
        squares = ((x - mean) / spread) ** 2
        return cls(mean, spread, squares.mean(axis=0), _no_zero(squares.std(axis=0)))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        z = (x - self.mean) / self.spread
        return np.concatenate([z, (z * z - self.square_mean) / self.square_spread], axis=1).astype(np.float32)


def _no_zero(spread: np.ndarray) -> np.ndarray:
    return np.where(spread > 1e-9, spread, np.inf)  # a constant column says nothing: 0 everywhere


def features(x: np.ndarray) -> np.ndarray:
    """Standardised columns and their standardised squares, by the pooled moments: float32 [n, 2 d]."""
    return _Scaler.of(x)(x)


def scores_of(now: np.ndarray, before: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The classifier trained on both sides whole: scores float [p] of float [p, d] that were not among them."""
    x = np.concatenate([now, before])
    scale = _Scaler.of(x)
    y = np.zeros((len(x), 1), np.float32)
    y[: len(now)] = 1
    weights = ridge(scale(x), y - y.mean())[:, 0]
    return lambda points: np.asarray(scale(points) @ weights)


def held_out(z: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    """Cross-validated ridge scores float32 [N, b] of features float32 [N, p] for labels float32 [N, b], by column.

    Folds are drawn without a look at the labels, so that permuting these is exact.
    """
    fold = np.random.default_rng([seed, 1]).permutation(len(z)) % FOLDS
    out = np.empty(labels.shape, np.float32)
    for k in range(FOLDS):
        test, train = fold == k, fold != k
        known = labels[train]
        out[test] = z[test] @ ridge(z[train], known - known.mean(axis=0))
    return out


def ridge(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Weights float32 [p, b] of features [n, p] for centred labels [n, b], through the smaller of the two systems."""
    primal = z.shape[1] <= len(z)
    gram = (z.T @ z if primal else z @ z.T).astype(np.float64)
    gram[np.diag_indices_from(gram)] += _RIDGE * np.trace(gram) / len(z) or 1.0
    weights = np.linalg.solve(gram, z.T @ y) if primal else z.T @ np.linalg.solve(gram, y)
    return np.asarray(weights, np.float32)


def _aucs(scores: np.ndarray, sides: np.ndarray, n: int, m: int) -> np.ndarray:
    """Area under the ROC of every column: float64 [b]."""
    ordered = np.take_along_axis(
        np.ascontiguousarray(sides.T), np.argsort(np.ascontiguousarray(scores.T), axis=1), axis=1
    )
    total = ordered @ np.arange(1, len(scores) + 1, dtype=np.float64)
    return np.asarray((total - n * (n + 1) / 2) / (n * m))


def _hanley(a: float, n: int, m: int) -> tuple[float, float]:
    q1, q2 = a / (2 - a), 2 * a * a / (1 + a)
    variance = (a * (1 - a) + (n - 1) * (q1 - a * a) + (m - 1) * (q2 - a * a)) / (n * m)
    half = 1.96 * float(np.sqrt(max(variance, 0.0)))
    return max(0.0, a - half), min(1.0, a + half)
