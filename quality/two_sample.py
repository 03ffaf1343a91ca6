"""Two-sample statistics, pure numpy: samples by id hash, KS, Cliff's delta, false discovery, shifts of counts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_DRAWS = 2000  # pooled permutations: the smallest p is 1 / 2001


@dataclass(frozen=True)
class Shift:
    """One variable's move: KS distance with its interval, Cliff's delta (> 0: larger now), p and adjusted p."""

    name: str
    distance: float
    interval: tuple[float, float]
    delta: float
    p: float
    adjusted: float


def subsample(ids: Sequence[str], budget: int) -> np.ndarray:
    """Row numbers int64 [min(n, budget)], ascending: those whose salted id hash is smallest.

    The choice depends on the ids alone, never on their order, and adding samples replaces few of those chosen.
    """
    n = len(ids)
    if n <= budget:
        return np.arange(n)
    keys = np.fromiter((_key(i) for i in ids), np.uint64, n)
    return np.sort(np.argsort(keys, kind="stable")[:budget])


def ks_distance(x: np.ndarray, y: np.ndarray) -> float:
    """Kolmogorov-Smirnov's distance D of float [n] and float [m]; ties are handled."""
    x, y = np.sort(x), np.sort(y)
    points = np.concatenate([x, y])
    return float(np.abs(_cdf(x, points) - _cdf(y, points)).max())


def ks_p(distance: float, n: int, m: int) -> float:
    """The asymptotic two-sample p-value of D; conservative under ties (Kolmogorov's law at D sqrt(nm / (n + m)))."""
    from scipy.special import kolmogorov

    return float(kolmogorov(distance * math.sqrt(n * m / (n + m))))


def cliffs_delta(x: np.ndarray, y: np.ndarray) -> float:
    """P(x > y) - P(x < y) for float [n] (now) and float [m] (reference), in -1..1 (Cliff 1993)."""
    y = np.sort(y)
    below, upto = np.searchsorted(y, x, "left"), np.searchsorted(y, x, "right")
    return float((below - (len(y) - upto)).mean() / len(y))


def benjamini_hochberg(p: Sequence[float]) -> np.ndarray:
    """Adjusted p-values float [k]: those at most alpha are discoveries at false discovery rate alpha (1995)."""
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values)[::-1]
    ranks = np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum.accumulate(values[order] * len(values) / ranks)
    return np.minimum(adjusted, 1.0)


def shifts(now: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray], *, alpha: float) -> list[Shift]:
    """Every variable that both sides have, tested, largest distance first.

    The interval is distribution-free: D +- the two sides' DKW-Massart bands at confidence 1 - alpha, each at alpha / 2.
    """
    names = [name for name in now if name in before]
    measured = []
    for name in names:
        x, y = now[name], before[name]
        d = ks_distance(x, y)
        band = sum(math.sqrt(math.log(4 / alpha) / (2 * len(side))) for side in (x, y))
        interval = (max(0.0, d - band), min(1.0, d + band))
        measured.append((name, d, interval, cliffs_delta(x, y), ks_p(d, len(x), len(y))))
    adjusted = benjamini_hochberg([m[4] for m in measured])
    found = [Shift(*m, adjusted=float(q)) for m, q in zip(measured, adjusted, strict=True)]
    return sorted(found, key=lambda s: (-s.distance, s.name))


@dataclass(frozen=True)
class CountShift:
    """Total variation, its chance level and interval, the excess over chance, and the permutation p."""

    variation: float
    chance: float
    effect: float
    interval: tuple[float, float]
    p: float


def count_shift(a: np.ndarray, b: np.ndarray, *, draws: int = _DRAWS) -> CountShift:
    """Compare class counts int [k] with int [k]: G statistic under pooled permutations, exact up to ``draws``.

    Permuting the pooled labels makes the counts multivariate hypergeometric, so no small-count rule is needed. The
    interval is the multinomial bootstrap of the total variation, shifted for its upward bias. Same counts, same answer.
    """
    seed = int.from_bytes(hashlib.blake2b(np.concatenate([a, b]).astype("<i8").tobytes(), digest_size=8).digest())
    rng = np.random.default_rng(seed)
    pooled, n, m = a + b, int(a.sum()), int(b.sum())
    null_a = rng.multivariate_hypergeometric(pooled, n, size=draws, method="marginals")
    null_b = pooled - null_a
    observed = _g(a[None], b[None])[0]
    p = (1 + int((_g(null_a, null_b) >= observed - 1e-9).sum())) / (draws + 1)
    variation = float(np.abs(a / n - b / m).sum() / 2)
    chance = float((np.abs(null_a / n - null_b / m).sum(1) / 2).mean())
    boot = np.abs(rng.multinomial(n, a / n, size=draws) / n - rng.multinomial(m, b / m, size=draws) / m).sum(1) / 2
    low, high = np.quantile(boot, [0.025, 0.975]) - (boot.mean() - variation)
    interval = (float(np.clip(low, 0, variation)), float(np.clip(high, variation, 1)))
    return CountShift(variation, chance, max(0.0, variation - chance), interval, p)


def _g(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The G statistic of each row: int [r, k], int [r, k] -> float [r]."""
    total = (a + b).astype(np.float64)
    n, m = a.sum(1, keepdims=True), b.sum(1, keepdims=True)
    out = np.zeros(len(a))
    for counts, side in ((a, n), (b, m)):
        expected = total * side / (n + m)
        ratio = np.divide(counts, expected, out=np.ones_like(expected), where=(counts > 0) & (expected > 0))
        out += 2 * (counts * np.log(ratio)).sum(1)
    return out


def _cdf(ordered: np.ndarray, points: np.ndarray) -> np.ndarray:
    return np.searchsorted(ordered, points, "right") / len(ordered)


def _key(sample_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(sample_id.encode(), digest_size=8, person=b"volatility").digest())
