"""Classifier two-sample test: can a classifier tell new samples from reference ones it has not seen?

A regularised least-squares classifier on standardised embeddings and their squares (so that a change of spread is seen
as well as one of mean), cross-validated. Its held-out scores are a fixed matrix times the labels, so that every
permutation of the labels is cross-validated too, by one matrix product: the null is exact (Lopez-Paz and Oquab 2017).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sevenfold.quality.two_sample import permutations

FOLDS = 5
DRAWS = 499
_RIDGE = 0.1  # of the mean eigenvalue: the features are many and the samples few


@dataclass(frozen=True)
class Separation:
    """What the classifier managed.

    Parameters
    ----------
    auc : the chance that a held-out new sample scores higher than a held-out reference one; 0.5 is guessing.
    interval : its 95 % interval (Hanley and McNeil 1982).
    effect : 2 auc - 1 without what permuted labels reach on average; 0 is guessing, 1 is certain.
    accuracy : share of held-out samples on the right side when both sides weigh alike.
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
    sides = permutations(n, m, draws, seed)
    smoother = held_out(features(np.concatenate([now, before])), seed)
    scores = smoother @ sides.astype(np.float32)
    auc = _aucs(scores, sides, n, m)
    observed = scores[:, 0].astype(np.float64)
    a = float(auc[0])
    right = [(observed[:n] > _middle(observed)).mean(), (observed[n:] <= _middle(observed)).mean()]
    return Separation(
        auc=a,
        interval=_hanley(a, n, m),
        effect=max(0.0, 2 * (a - float(auc[1:].mean()))),
        accuracy=float(np.mean(right)),
        p=float((auc >= auc[0] - 1e-9).mean()),
        scores_now=observed[:n],
        scores_reference=observed[n:],
    )


def features(x: np.ndarray) -> np.ndarray:
    """Standardised columns and their standardised squares, by the pooled moments: float32 [n, <= 2 d]."""
    out = []
    for block in (x.astype(np.float64), None):
        block = out[0] ** 2 if block is None else block
        spread = block.std(axis=0)
        kept = spread > 1e-9
        out.append((block[:, kept] - block[:, kept].mean(axis=0)) / spread[kept])
    return np.concatenate(out, axis=1).astype(np.float32)


def held_out(z: np.ndarray, seed: int) -> np.ndarray:
    """The matrix S float32 [N, N] with S @ y the cross-validated ridge scores of any labels y [N].

    Folds are drawn without a look at the labels, so that permuting these is exact.
    """
    total = len(z)
    fold = np.random.default_rng([seed, 1]).permutation(total) % FOLDS
    gram = (z @ z.T) / max(z.shape[1], 1)
    smoother = np.zeros((total, total), np.float32)
    for k in range(FOLDS):
        test, train = np.flatnonzero(fold == k), np.flatnonzero(fold != k)
        inner = gram[np.ix_(train, train)].astype(np.float64)
        strength = _RIDGE * np.trace(inner) / len(train) 
        inner[np.diag_indices_from(inner)] += strength
        weights = np.linalg.solve(inner, gram[np.ix_(train, test)]).T
        weights -= weights.mean(axis=1, keepdims=True)  # the labels' mean carries nothing
        smoother[np.ix_(test, train)] = weights
    return smoother


def _aucs(scores: np.ndarray, sides: np.ndarray, n: int, m: int) -> np.ndarray:
    """Area under the ROC of every column: float64 [b]."""
    ranks = np.empty(scores.shape, np.int32)
    np.put_along_axis(ranks, np.argsort(scores, axis=0), np.arange(1, len(scores) + 1, dtype=np.int32)[:, None], axis=0)
    total = np.einsum("ib,ib->b", ranks, sides, dtype=np.float64)
    return (total - n * (n + 1) / 2) / (n * m)


def _middle(scores: np.ndarray) -> float:
    return float(np.median(scores))


def _hanley(a: float, n: int, m: int) -> tuple[float, float]:
    q1, q2 = a / (2 - a), 2 * a * a / (1 + a)
    variance = (a * (1 - a) + (n - 1) * (q1 - a * a) + (m - 1) * (q2 - a * a)) / (n * m)
    half = 1.96 * float(np.sqrt(max(variance, 0.0)))
    return max(0.0, a - half), min(1.0, a + half)
