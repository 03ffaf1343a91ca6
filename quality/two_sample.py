"""Two-sample tests of many variables at once, pure NumPy: one null of pooled permutations for a whole check.

All variables are permuted together, so their dependence is kept, ties need no rule, and the largest standardised
statistic of a permutation gives family-wise p-values (Westfall and Young 1993, step-down maxT).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

DRAWS = 399
"""Pooled permutations: the smallest p is 1 / 400. The level is exact for any number of them."""

FEWER = 199
"""Permutations at the least, where there are many variables."""

_BLOCK = 64
_MANY = 30  # variables from which on the permutations become fewer, so that a thousand softmax outputs take seconds


@dataclass(frozen=True)
class Shift:
    """One variable's move.

    Parameters
    ----------
    kind : "numeric" (KS distance) or "categorical" (total variation).
    distance, interval : that distance in 0..1 and its interval.
    effect : what is left of the distance, or of Cohen's w for categories, once chance is taken off; it does not grow as
        n shrinks.
    delta : Cliff's delta, P(now > reference) - P(now < reference); 0 for categories.
    p, adjusted : the permutation p, alone and over all variables of the check.
    """

    name: str
    kind: str
    distance: float
    interval: tuple[float, float]
    effect: float
    delta: float
    p: float
    adjusted: float


def permutations(n: int, m: int, draws: int, seed: int) -> np.ndarray:
    """Which side each pooled sample is on: uint8 [n + m, draws + 1], 1 for now; column 0 is what was observed."""
    rng = np.random.default_rng(seed)
    sides = np.zeros((draws + 1, n + m), np.uint8)
    sides[:, :n] = 1
    rng.permuted(sides[1:], axis=1, out=sides[1:])
    return np.ascontiguousarray(sides.T)


def draws_for(variables: int) -> int:
    """Permutations for a check of so many variables: :data:`DRAWS`, down to :data:`FEWER` for hundreds of them."""
    return max(FEWER, min(DRAWS, DRAWS * _MANY // max(variables, 1)))


def ks_under(pooled: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """KS distance of every permutation: float64 [b] of float [N] (what is not finite is left out) and uint8 [N, b].

    A permutation that leaves a side without a known value has distance 0.
    """
    order = np.argsort(np.where(np.isfinite(pooled), pooled, np.nan), kind="stable")
    order = order[: int(np.isfinite(pooled).sum())]  # NaN sorts last
    values = pooled[order]
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True)) if len(order) else order
    if len(ends) < 2:
        return np.zeros(sides.shape[1])
    total = len(order)
    whole = np.int64 if total > 40_000 else np.int32  # products up to the total's square
    upto = (ends + 1)[:, None].astype(whole)
    out = np.empty(sides.shape[1])
    for start in range(0, sides.shape[1], _BLOCK):  # whole numbers, and few enough columns to stay in the cache
        seen = np.cumsum(sides[order, start : start + _BLOCK], axis=0, dtype=whole)
        n = seen[-1].astype(np.int64)
        gap = np.multiply(seen if len(ends) == total else seen[ends], total, dtype=whole)
        gap -= upto * seen[-1]
        widest = np.abs(gap, out=gap).max(axis=0)
        out[start : start + _BLOCK] = widest / np.maximum(n * (total - n), 1)
        out[start : start + _BLOCK][(n == 0) | (n == total)] = 0.0
    return out


def counts_under(codes: np.ndarray, k: int, sides: np.ndarray) -> np.ndarray:
    """How many of side now are in each category, by permutation: int64 [k, b] of int [N] in 0..k-1 (-1: left out)."""
    order = np.argsort(codes, kind="stable")
    order = order[int((codes < 0).sum()) :]
    there, starts = np.unique(codes[order], return_index=True)
    counts = np.zeros((k, sides.shape[1]), np.int64)
    if len(there):
        counts[there] = np.add.reduceat(sides[order], starts, axis=0, dtype=np.int64)
    return counts


def g_statistic(a: np.ndarray, total: np.ndarray) -> np.ndarray:
    """G of now's counts int [k, b] against the rest of the pooled counts int [k]: float64 [b]."""
    everything = total[:, None].astype(np.float64)
    n = a.sum(axis=0, keepdims=True)
    out = np.zeros(a.shape[1])
    for counts, side in ((a, n), (total[:, None] - a, total.sum() - n)):
        expected = everything * side / max(total.sum(), 1)
        ratio = np.divide(counts, expected, out=np.ones(a.shape), where=(counts > 0) & (expected > 0))
        out += 2 * (counts * np.log(ratio)).sum(axis=0)
    return out


def step_down(statistics: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(p alone, p adjusted over all) of statistics float [v, b]; column 0 is observed, large is unusual.

    Each row is first standardised by its own permutations, so that variables of different kinds weigh alike. The
    adjusted p controls the family-wise error exactly, and with it the false discovery rate.
    """
    mean, spread = statistics.mean(axis=1, keepdims=True), statistics.std(axis=1, keepdims=True)
    scaled = np.divide(statistics - mean, spread, out=np.zeros_like(statistics), where=spread > 1e-12)
    tiny = 1e-9
    alone = (scaled >= scaled[:, :1] - tiny).mean(axis=1)
    order = np.argsort(-scaled[:, 0], kind="stable")
    later = np.maximum.accumulate(scaled[order][::-1], axis=0)[::-1]  # the largest among this and less unusual ones
    adjusted = np.empty(len(order))
    adjusted[order] = np.maximum.accumulate((later >= scaled[order, :1] - tiny).mean(axis=1))
    return alone, adjusted


def shifts(
    now: Mapping[str, np.ndarray],
    before: Mapping[str, np.ndarray],
    *,
    alpha: float = 0.05,
    draws: int | None = None,
    seed: int = 0,
) -> list[Shift]:
    """Every variable that both sides have, tested together; the most unusual first.

    Parameters
    ----------
    now, before : name -> float [n] and float [m] (NaN: unknown, left out), or str/object [n] and [m] for categories
        (None: a category of its own).

    The interval of a KS distance is distribution-free: the two sides' DKW-Massart bands at confidence 1 - alpha; that
    of a total variation is the multinomial bootstrap's, shifted for its upward bias.
    """
    names = [name for name in now if name in before]
    if not names:
        return []
    n, m = len(now[names[0]]), len(before[names[0]])
    sides = permutations(n, m, draws_for(len(names)) if draws is None else draws, seed)
    rows, found = [], []
    for name in names:
        x, y = now[name], before[name]
        if x.dtype.kind == "f":
            distances = ks_under(np.concatenate([x, y]), sides)
            rows.append(distances)
            found.append(_numeric(name, _known(x), _known(y), distances, alpha))
        else:
            codes, k = categories(x, y)
            statistics, one = _categorical(name, codes, k, n, sides, alpha, seed)
            rows.append(statistics)
            found.append(one)
    alone, adjusted = step_down(np.stack(rows))
    done = [Shift(*one, p=float(p), adjusted=float(q)) for one, p, q in zip(found, alone, adjusted, strict=True)]
    return sorted(done, key=lambda s: (s.adjusted, -s.effect, -s.distance, s.name))


def categories(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, int]:
    """(codes int64 [n + m] of the pooled categories in sorted order, their number); None is one of them."""
    pooled = np.array(["" if v is None else f"={v}" for v in (*x, *y)])
    known, codes = np.unique(pooled, return_inverse=True)
    return codes.astype(np.int64), len(known)


def ks_distance(x: np.ndarray, y: np.ndarray) -> float:
    """Kolmogorov-Smirnov's distance D of float [n] and float [m]; ties are handled."""
    sides = np.zeros((len(x) + len(y), 1), np.uint8)
    sides[: len(x)] = 1
    return float(ks_under(np.concatenate([x, y]), sides)[0])


def cliffs_delta(x: np.ndarray, y: np.ndarray) -> float:
    """P(x > y) - P(x < y) for float [n] (now) and float [m] (reference), in -1..1 (Cliff 1993)."""
    y = np.sort(y)
    below, upto = np.searchsorted(y, x, "left"), np.searchsorted(y, x, "right")
    return float((below - (len(y) - upto)).mean() / len(y))


def cohens_w(a: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Cohen's w squared between the shares of counts int [k, b] and of the rest of int [k], against pooled shares."""
    n = a.sum(axis=0)
    m = total.sum() - n
    gap = a / np.maximum(n, 1) - (total[:, None] - a) / np.maximum(m, 1)
    pooled = total / max(total.sum(), 1)
    return np.asarray((gap**2 / np.where(pooled > 0, pooled, 1)[:, None]).sum(axis=0))


def _numeric(
    name: str, x: np.ndarray, y: np.ndarray, distances: np.ndarray, alpha: float
) -> tuple[str, str, float, tuple[float, float], float, float]:
    d = float(distances[0])
    if not len(x) or not len(y):
        return name, "numeric", 0.0, (0.0, 1.0), 0.0, 0.0
    band = sum(math.sqrt(math.log(4 / alpha) / (2 * len(side))) for side in (x, y))
    effect = max(0.0, d - float(distances[1:].mean()))
    return name, "numeric", d, (max(0.0, d - band), min(1.0, d + band)), effect, cliffs_delta(x, y)


def _categorical(
    name: str, codes: np.ndarray, k: int, n: int, sides: np.ndarray, alpha: float, seed: int
) -> tuple[np.ndarray, tuple[str, str, float, tuple[float, float], float, float]]:
    a, total = counts_under(codes, k, sides), np.bincount(codes, minlength=k)
    squares = cohens_w(a, total)
    effect = math.sqrt(max(0.0, float(squares[0] - squares[1:].mean())))
    x, y = a[:, 0], total - a[:, 0]
    variation = float(np.abs(x / n - y / (len(codes) - n)).sum() / 2)
    interval = variation_interval(x, y, alpha=alpha, seed=seed)
    return g_statistic(a, total), (name, "categorical", variation, interval, effect, 0.0)


def variation_interval(
    a: np.ndarray, b: np.ndarray, *, alpha: float, seed: int, draws: int = 399
) -> tuple[float, float]:
    """Multinomial bootstrap interval of the total variation of counts int [k] and int [k], shifted for its bias."""
    rng = np.random.default_rng(seed)
    n, m = int(a.sum()), int(b.sum())
    variation = float(np.abs(a / n - b / m).sum() / 2)
    boot = np.abs(rng.multinomial(n, a / n, size=draws) / n - rng.multinomial(m, b / m, size=draws) / m).sum(1) / 2
    low, high = np.quantile(boot, [alpha / 2, 1 - alpha / 2]) - (boot.mean() - variation)
    return float(np.clip(low, 0, variation)), float(np.clip(high, variation, 1))


def _known(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]
