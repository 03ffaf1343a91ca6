"""The Vendi score: how many different samples a set holds in effect, from their embeddings (Friedman & Dieng 2023)."""

from __future__ import annotations

import numpy as np

_TINY = 1e-12


def unit(vectors: np.ndarray) -> np.ndarray:
    """float64 [n, d] of length 1 each; a vector of zeros becomes an axis of its own kind: the first."""
    found = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    found = found / np.maximum(lengths, _TINY)
    found[lengths[:, 0] <= _TINY, 0] = 1.0
    return found


def vendi_score(vectors: np.ndarray, confidence: float = 0.95) -> tuple[float, tuple[float, float], float]:
    """(score, interval, standard error of its log) of float [n, d] under the cosine kernel.

    The score is exp(H) of the eigenvalues of K / n, K the n x n matrix of cosines: n for orthogonal vectors, 1 for
    equal ones. K / n and the d x d second moment C = X'X / n share their eigenvalues other than 0, so the smaller of
    the two is decomposed. H is smooth in C, with the influence -x' log(C) x - H of a sample x, whose variance over n
    is H's: no bootstrap is needed (and one would repeat samples, which lowers the score by itself).
    """
    from sevenfold.intervals import z_value

    x = unit(vectors)
    n, d = x.shape
    if n == 0:
        raise ValueError("no vectors have no Vendi score")
    dual = d <= n
    values, basis = np.linalg.eigh((x.T @ x if dual else x @ x.T) / n)
    keep = values > _TINY
    values, basis = values[keep], basis[:, keep]
    entropy = float(-(values * np.log(values)).sum())
    # (v_i . x_j)^2 for every sample j and direction i
    spread = (x @ basis) ** 2 if dual else basis**2 * values * n
    influence = -(spread @ np.log(values)) - entropy
    error = float(np.sqrt((influence**2).mean() / n))
    z, most = z_value(confidence), float(min(n, d))
    score = float(np.exp(entropy))
    low, high = float(np.exp(entropy - z * error)), float(np.exp(entropy + z * error))
    return score, (min(score, max(1.0, low)), max(score, min(most, high))), error
