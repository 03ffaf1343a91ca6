"""Confidence intervals and exact tests that every room may use: shares, paired shares, means, entropies; closed forms.

Below all rooms: this file imports none of them. Everything is deterministic, no generator is involved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np


def z_value(confidence: float) -> float:
    """The two-sided standard normal quantile: 1.96 for 0.95."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def wilson(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for k of n; (0, 1) when n is 0 (Wilson, JASA 1927)."""
    if n == 0:
        return 0.0, 1.0
    z = z_value(confidence)
    p, zz = k / n, z * z / n
    centre = (p + zz / 2) / (1 + zz)
    half = z / (1 + zz) * math.sqrt(p * (1 - p) / n + zz / (4 * n))
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return (0.0 if k == 0 else low), (1.0 if k == n else high)


def wilson_half_width(n: int, p: float = 0.5, confidence: float = 0.95) -> float:
    """Half the width of Wilson's interval at an expected share p: 0.05 at n = 381, p = 0.5."""
    if n <= 0:
        return 0.5
    z = z_value(confidence)
    zz = z * z / n
    return z / (1 + zz) * math.sqrt(p * (1 - p) / n + zz / (4 * n))


def paired_difference(both: int, gained: int, lost: int, neither: int, confidence: float = 0.95) -> tuple[float, float]:
    """Interval of the difference of two paired proportions, (gained - lost) / n (Newcombe 1998, method 10).

    The Wilson intervals of both proportions are combined by square and add, their dependence by the phi coefficient
    with Newcombe's continuity correction. Good coverage also when few pairs differ.
    """
    n = both + gained + lost + neither
    if n == 0:
        return -1.0, 1.0
    new, old = (both + gained) / n, (both + lost) / n
    new_low, new_high = wilson(both + gained, n, confidence)
    old_low, old_high = wilson(both + lost, n, confidence)
    margins = (both + gained) * (lost + neither) * (both + lost) * (gained + neither)
    phi = 0.0
    if margins:
        cross = both * neither - gained * lost
        phi = (max(cross - n / 2, 0) if cross > 0 else cross) / math.sqrt(margins)
    down, up = new - new_low, old_high - old
    low = new - old - math.sqrt(max(down * down - 2 * phi * down * up + up * up, 0.0))
    down, up = old - old_low, new_high - new
    high = new - old + math.sqrt(max(down * down - 2 * phi * down * up + up * up, 0.0))
    return max(low, -1.0), min(high, 1.0)


def mcnemar_p(gained: int, lost: int) -> float:
    """Exact two-sided p that gains and losses are equally likely (McNemar; binomial with 1/2); 1 without any."""
    from scipy.special import bdtr

    n = gained + lost
    return min(2 * float(bdtr(min(gained, lost), n, 0.5)), 1.0) if n else 1.0


def mean_interval(values: Sequence[float] | np.ndarray, confidence: float = 0.95) -> tuple[float, float]:
    """Student's t interval of the mean of float [n]. Raises ValueError for fewer than two values."""
    from scipy.special import stdtrit

    n = len(values)
    if n < 2:
        raise ValueError(f"an interval needs at least 2 values, got {n}")
    mean = math.fsum(values) / n
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    half = float(stdtrit(n - 1, 0.5 + confidence / 2)) * spread / math.sqrt(n)
    return mean - half, mean + half


def effective_number(counts: np.ndarray, confidence: float = 0.95) -> tuple[float, tuple[float, float]]:
    """exp(H) of class counts int [k], with its delta-method interval.

    H is Shannon's entropy of the shares p in nats, so exp(H) is k for k equal classes and 1 for a single one
    (Hill's number of order 1). Var(H) ~ (sum p ln(p)^2 - H^2) / n; the plug-in's first-order bias (k - 1) / (2 n)
    is not removed, since the check describes these samples and compares like with like.
    """
    counts = np.asarray(counts, dtype=np.float64)
    counts = counts[counts > 0]
    n = counts.sum()
    if n == 0:
        return 0.0, (0.0, 0.0)
    p = counts / n
    logs = np.log(p)
    entropy = float(-(p * logs).sum())
    variance = max(0.0, float((p * logs**2).sum()) - entropy**2) / n
    half = z_value(confidence) * math.sqrt(variance)
    k = float(len(counts))
    centre = math.exp(entropy)
    return centre, (max(1.0, math.exp(entropy - half)), max(centre, min(k, math.exp(entropy + half))))
