"""Intervals and exact tests for accuracies: closed forms, deterministic, no generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist


def wilson(right: int, n: int, alpha: float = 0.05) -> tuple[float, float]:
    """Score interval of a proportion (Wilson 1927): (low, high); (0, 1) for n = 0."""
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(1 - alpha / 2)
    share = right / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low = 0.0 if right == 0 else max(centre - half, 0.0)
    return low, 1.0 if right == n else min(centre + half, 1.0)


def paired_difference(both: int, gained: int, lost: int, neither: int, alpha: float = 0.05) -> tuple[float, float]:
    """Interval of the difference of two paired proportions (Newcombe 1998, method 10): (low, high).

    The Wilson intervals of both proportions are combined by square and add, their dependence by the phi coefficient
    with Newcombe's continuity correction. Good coverage also when few pairs differ. Newcombe's difference is
    (gained - lost) / n.
    """
    n = both + gained + lost + neither
    if n == 0:
        return -1.0, 1.0
    new, old = (both + gained) / n, (both + lost) / n
    new_low, new_high = wilson(both + gained, n, alpha)
    old_low, old_high = wilson(both + lost, n, alpha)
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
    n, few = gained + lost, min(gained, lost)
    if n == 0:
        return 1.0
    log_terms = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in range(few + 1)]
    top = max(log_terms)
    tail = math.exp(top - n * math.log(2)) * sum(math.exp(t - top) for t in log_terms)
    return min(2 * tail, 1.0)


def t_interval(values: Sequence[float], alpha: float = 0.05) -> tuple[float, float]:
    """Student's interval of a mean, from at least two values: (low, high)."""
    from scipy.special import stdtrit

    n = len(values)
    mean = math.fsum(values) / n
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    half = float(stdtrit(n - 1, 1 - alpha / 2)) * spread / math.sqrt(n)
    return mean - half, mean + half
