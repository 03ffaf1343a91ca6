"""The learning curve: error(n) = a n^-b + c through runs on subsets, and what it foretells, with honest intervals.

An interval here joins four things that can go wrong: the parameters (bootstrap over sizes and over runs), the form
(what the curve missed when the largest size was held back, growing with the distance), the run (one more training's
own scatter) and the end (at each doubling the curve may go flat for good: capacity saturates, and no smaller size
can show it).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_EXPONENTS = np.geomspace(0.02, 2.0, 120)

FARTHEST = 100.0
"""A forecast beyond this many times the largest size measured counts as "never": the fit says nothing there."""

SATURATION = 0.2
"""The chance that the curve goes flat within one doubling of the data, where the policy says nothing else."""

_REACH = 10.0
"""A stored forecast covers sizes up to this many times the largest size measured."""


@dataclass(frozen=True)
class LearningCurve:
    """A fitted curve and draws of everything that is uncertain about it.

    Parameters
    ----------
    a, b, c : error(n) = a n^-b + c.
    draws : float64 [r, 3], bootstrap draws of (a, b, c).
    misfit : relative error of the largest size when it was foretold from the others, per unit of log n.
    scatter : relative standard deviation of one run among runs of one size.
    luck : float64 [r, 2], standard normal draws for misfit and scatter.
    ends : float64 [r], doublings after which a draw's curve goes flat.
    smallest, largest : the sizes measured.
    """

    a: float
    b: float
    c: float
    draws: np.ndarray
    misfit: float
    scatter: float
    luck: np.ndarray
    ends: np.ndarray
    smallest: float
    largest: float

    def error(self, n: float) -> tuple[float, tuple[float, float]]:
        """The expected error at n, and the interval that holds one training's error there with 95 %."""
        draws = self._errors(np.array([n]))[:, 0] * (1 + self.scatter * self.luck[:, 1])
        return _with_interval(self._expected(n), np.clip(draws, 0, 1))

    def gain_per_thousand(self, n: float) -> tuple[float, tuple[float, float]]:
        """How much lower the error gets with 1,000 more samples than n, and its interval (saturation included)."""
        pair = self._errors(np.array([n, n + 1000.0]))
        return _with_interval(self._expected(n) - self._expected(n + 1000.0), pair[:, 0] - pair[:, 1])

    def needed(self, target: float) -> tuple[float, tuple[float, float], float]:
        """(n at which the error reaches ``target``, its interval, the chance that it is reached at all).

        The interval holds while the curve keeps its shape; the chance counts that it may go flat before. n is inf
        beyond :data:`FARTHEST` times the largest size.
        """
        n = np.geomspace(self.smallest / 10, FARTHEST * self.largest, 800)
        point = _solve(self.a, self.b, self.c, target)
        point = point if point <= n[-1] else math.inf
        reached = self._errors(n, flat=False) <= target
        first = np.where(reached.any(1), n[reached.argmax(1)], math.inf)
        low, high = np.quantile(first, [0.025, 0.975], method="nearest")
        chance = float((self._errors(n) <= target).any(1).mean())
        return point, (min(point, float(low)), max(point, float(high))), chance

    def points(self, count: int = 33) -> list[list[float]]:
        """[n, error, low, high] on a log scale from the smallest size to 10 times the largest: what is stored."""
        sizes = np.geomspace(self.smallest, _REACH * self.largest, count)
        rows = [(float(n), *self.error(float(n))) for n in sizes]
        return [[n, y, low, high] for n, y, (low, high) in rows]

    def _expected(self, n: float) -> float:
        return float(min(1.0, self.a * n**-self.b + self.c))

    def _errors(self, n: np.ndarray, *, flat: bool = True) -> np.ndarray:
        """Draws of the expected error at sizes [s]: float64 [r, s]; `flat`: each draw's curve ends where it may."""
        distance = np.log(np.maximum(n, self.largest) / self.largest)[None, :]
        if flat:
            distance = np.minimum(distance, (self.ends * math.log(2))[:, None])
        reach = np.where(n[None, :] > self.largest, self.largest * np.exp(distance), n[None, :])
        a, b, c = (self.draws[:, [i]] for i in range(3))
        found: np.ndarray = (a * reach**-b + c) * np.exp(self.misfit * self.luck[:, [0]] * distance)
        return np.minimum(found, 1.0)


def fit_learning_curve(
    sizes: Sequence[float], errors: Sequence[float], *, draws: int = 1000, saturation: float = SATURATION
) -> LearningCurve:
    """Least squares of relative errors under a n^-b + c with a, c >= 0 and b in 0.02..2, and a two-level bootstrap.

    For each b on a fixed grid, a and c have a closed form, so the fit needs no starting point and always converges;
    the draws are fitted together. Residuals are resampled for sizes (what all runs of a size share) and for runs
    within a size apart. Same points, same answer.

    Parameters
    ----------
    sizes, errors : one entry per run: training size and held-out error (0..1); several runs may share a size.
    saturation : the chance that the curve goes flat within one doubling beyond the largest size (0: never).

    Raises
    ------
    ValueError
        For fewer than 4 different sizes, or numbers that are not positive and finite.
    """
    n, y = np.asarray(sizes, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if len(n) != len(y) or not (np.isfinite(n).all() and np.isfinite(y).all() and (n > 0).all() and (y >= 0).all()):
        raise ValueError("a learning curve needs one finite error (>= 0) for each size (> 0)")
    if not 0 <= saturation < 1:
        raise ValueError(f"saturation is {saturation}; expected a chance in 0..1")
    kinds, group = np.unique(n, return_inverse=True)
    if len(kinds) < 4:
        raise ValueError(f"{len(kinds)} different sizes; three parameters need at least 4")
    means = np.bincount(group, y) / np.bincount(group)
    scale = np.maximum(means, max(1e-6, 0.01 * float(means.max())))[group]  # noise grows with the error
    a, b, c = _least_squares(n, y[None], scale)[0]
    fitted = a * n**-b + c
    shared, apart, scatter = _residuals((y - fitted) / scale, group)
    rng = np.random.default_rng(20240607)
    resampled = fitted + scale * (
        shared[rng.integers(0, len(shared), (draws, len(kinds)))][:, group]
        + apart[rng.integers(0, len(apart), (draws, len(y)))]
    )
    rate = -math.log1p(-saturation)
    ends = rng.exponential(1.0, draws) / rate if rate > 0 else np.full(draws, math.inf)
    return LearningCurve(
        a=float(a),
        b=float(b),
        c=float(c),
        draws=_least_squares(n, np.maximum(resampled, 0), scale),
        misfit=_held_back(n, y, scale, kinds, means),
        scatter=scatter,
        luck=rng.standard_normal((draws, 2)),
        ends=ends,
        smallest=float(kinds[0]),
        largest=float(kinds[-1]),
    )


def foretold(points: Sequence[Sequence[float]], n: float) -> tuple[float, float, float] | None:
    """(error, low, high) at n from stored points [n, error, low, high], linear in log n; None outside of them."""
    table = np.asarray(points, dtype=np.float64).reshape(-1, 4)
    if not len(table) or not table[0, 0] * (1 - 1e-9) <= n <= table[-1, 0] * (1 + 1e-9):
        return None
    at = [float(np.interp(math.log(n), np.log(table[:, 0]), table[:, i])) for i in (1, 2, 3)]
    return at[0], at[1], at[2]


def as_stored(curve: LearningCurve) -> dict[str, Any]:
    """What a forecast keeps of a curve, as JSON: parameters, points (n, error, low, high), the gain of 1,000 labels."""
    gain, span = curve.gain_per_thousand(curve.largest)
    return {
        "curve": {"a": curve.a, "b": curve.b, "c": curve.c},
        "largest": curve.largest,
        "points": curve.points(),
        "gain_per_thousand": [gain, *span],
    }


def _residuals(relative: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Residuals of sizes and of runs within sizes, scaled for the freedom the fit took; and the scatter of a run."""
    counts = np.bincount(group)
    shared = np.bincount(group, relative) / counts
    apart = relative - shared[group]
    free = len(relative) - len(counts)
    scatter = math.sqrt(float((apart**2).sum()) / free) if free else float(np.std(shared))
    inflated = apart * np.sqrt(counts / np.maximum(counts - 1, 1))[group]
    return (shared - shared.mean()) * math.sqrt(len(counts) / max(1, len(counts) - 3)), inflated, scatter


def _held_back(n: np.ndarray, y: np.ndarray, scale: np.ndarray, kinds: np.ndarray, means: np.ndarray) -> float:
    """How far the largest size lies from what the others foretell, relative and per unit of log n; 0 for few sizes."""
    if len(kinds) < 5:
        return 0.0
    rest = n < kinds[-1]
    a, b, c = _least_squares(n[rest], y[rest][None], scale[rest])[0]
    before = float(a * kinds[-1] ** -b + c)
    miss = abs(math.log(max(float(means[-1]), 1e-6) / max(before, 1e-6)))
    return miss / math.log(kinds[-1] / kinds[-2])


def _least_squares(n: np.ndarray, y: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Best (a, b, c) of each row of float [r, p] at sizes [p], residuals over `scale` [p]: float64 [r, 3]."""
    w = scale**-2 / (scale**-2).sum()
    x = n[None, :] ** -_EXPONENTS[:, None]  # [g, p]
    xm, ym = x @ w, y @ w
    centred = (x - xm[:, None]) * w
    a = np.maximum((y - ym[:, None]) @ centred.T / ((x - xm[:, None]) ** 2 @ w), 0.0)  # [r, g]
    c = ym[:, None] - a * xm
    xy, xx = (y * w) @ x.T, x**2 @ w
    a, c = np.where(c < 0, np.maximum(xy / xx, 0.0), a), np.maximum(c, 0.0)
    # |y - a x - c|^2 expanded, so that no [r, g, p] array is built
    sse = (y**2 @ w)[:, None] + a**2 * xx + c**2 - 2 * a * xy - 2 * c * ym[:, None] + 2 * a * c * xm
    best, row = sse.argmin(1), np.arange(len(y))
    return np.stack([a[row, best], _EXPONENTS[best], c[row, best]], 1)


def _solve(a: float, b: float, c: float, target: float) -> float:
    """n at which a n^-b + c = target; inf where it never is."""
    room = target - c
    if a == 0 or room <= 0:
        return 0.0 if a == 0 and room >= 0 else math.inf
    power = math.log(a / room) / b
    return math.exp(power) if power < 700 else math.inf


def _with_interval(point: float, draws: np.ndarray) -> tuple[float, tuple[float, float]]:
    low, high = np.quantile(draws, [0.025, 0.975])
    return point, (min(point, float(low)), max(point, float(high)))
