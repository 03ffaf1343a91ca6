"""Volume: is there enough? Slices that can be tested, and a learning curve that says what more data would bring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality import policy as limits
from sevenfold.quality.context import Check, Context
from sevenfold.quality.intervals import wilson_half_width
from sevenfold.quality.variety import class_counts
from sevenfold.quality.verdict import Verdict

_EXPONENTS = np.geomspace(0.02, 2.0, 120)
_FARTHEST = 100.0  # a forecast beyond this many times the largest size measured counts as "never"


def slice_precision(
    rows: pa.Table, *, subject: str, policy: limits.Volume, classes: Sequence[str] | None = None
) -> Verdict:
    """Whether each class's accuracy on the test split can be told within ``max_half_width`` at 95 % (worst case .5).

    Findings: the slices that cannot.
    """
    test = rows.filter(pc.equal(rows["split"], policy.test_split))
    counts = class_counts(test, classes or list(class_counts(rows)))
    if not counts:
        return Verdict("volume", "testable_slices", subject, "not_measurable", message="No sample has a label.")
    widths = {c: wilson_half_width(k) for c, k in counts.items()}
    short = sorted((c for c in counts if widths[c] > policy.max_half_width), key=lambda c: (counts[c], c))
    worst = max(counts, key=lambda c: (widths[c], c))
    needed = samples_for_half_width(policy.max_half_width)
    return Verdict(
        v="volume",
        check="testable_slices",
        subject=subject,
        result="fail" if short else "pass",
        statistic=widths[worst],
        statistic_name="half width of the accuracy interval of the smallest test slice",
        n=sum(counts.values()),
        thresholds={"max_half_width": policy.max_half_width},
        message=f"{len(short)} of {len(counts)} classes cannot be tested within {100 * policy.max_half_width:g} points "
        f"in the {policy.test_split} split (that takes {needed} samples); {worst!r} has {counts[worst]}, which gives "
        f"{100 * widths[worst]:.0f} points.",
        remedy="Add test samples to the slices listed." if short else "",
        findings=tuple(f"slice:{policy.test_split}/{c}" for c in short),
    )


def samples_for_half_width(half_width: float) -> int:
    """The fewest samples whose Wilson interval at p = 0.5 is at most this half width."""
    n = max(1, int(0.25 * (1.95 / half_width) ** 2) - 5)
    while wilson_half_width(n) > half_width:
        n += 1
    return n


@dataclass(frozen=True)
class LearningCurve:
    """error(n) = a n^-b + c, and bootstrap draws [r, 3] of (a, b, c)."""

    a: float
    b: float
    c: float
    draws: np.ndarray
    largest: float

    def error(self, n: float) -> tuple[float, tuple[float, float]]:
        """The expected error at n and its 95 % interval."""
        draws = self.draws[:, 0] * n ** -self.draws[:, 1] + self.draws[:, 2]
        return self._with_interval(self.a * n**-self.b + self.c, draws)

    def gain_per_thousand(self, n: float) -> tuple[float, tuple[float, float]]:
        """How much lower the error gets with 1,000 more samples than n, and its interval."""
        step = n + 1000.0
        draws = self.draws[:, 0] * (n ** -self.draws[:, 1] - step ** -self.draws[:, 1])
        return self._with_interval(self.a * (n**-self.b - step**-self.b), draws)

    def needed(self, target: float) -> tuple[float, tuple[float, float]]:
        """The n at which the error reaches ``target``, and its interval; inf where it never does.

        Beyond 100 times the largest size measured counts as never: the fit says nothing there.
        """
        draws = _solve(self.draws[:, 0], self.draws[:, 1], self.draws[:, 2], target)
        value = _solve(np.array([self.a]), np.array([self.b]), np.array([self.c]), target)
        both = [np.where(x > _FARTHEST * self.largest, math.inf, x) for x in (value, draws)]
        low, high = np.quantile(both[1], [0.025, 0.975], method="nearest")
        point = float(both[0][0])
        return point, (min(point, float(low)), max(point, float(high)))

    @staticmethod
    def _with_interval(point: float, draws: np.ndarray) -> tuple[float, tuple[float, float]]:
        low, high = np.quantile(draws, [0.025, 0.975])
        return float(point), (min(float(point), float(low)), max(float(point), float(high)))


def fit_learning_curve(sizes: Sequence[float], errors: Sequence[float], *, draws: int = 400) -> LearningCurve:
    """Least squares of a n^-b + c with a, c >= 0 and b in 0.02..2, and a residual bootstrap.

    For each b on a fixed grid, a and c have a closed form, so the fit needs no starting point and always converges;
    the draws are fitted together. Residuals are scaled by sqrt(N / (N - 3)). Same points, same answer.

    Parameters
    ----------
    sizes, errors : one entry per run: training size and held-out error (0..1); several runs may share a size.

    Raises
    ------
    ValueError
        For fewer than 4 different sizes, or numbers that are not positive and finite.
    """
    n, y = np.asarray(sizes, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if len(n) != len(y) or not (np.isfinite(n).all() and np.isfinite(y).all() and (n > 0).all() and (y >= 0).all()):
        raise ValueError("a learning curve needs one finite error (>= 0) for each size (> 0)")
    if len(np.unique(n)) < 4:
        raise ValueError(f"{len(np.unique(n))} different sizes; three parameters need at least 4")
    a, b, c = _least_squares(n, y[None])[0]
    fitted = a * n**-b + c
    scale = math.sqrt(len(y) / (len(y) - 3))
    residuals = (y - fitted - (y - fitted).mean()) * scale
    rng = np.random.default_rng(20240607)
    resampled = fitted + residuals[rng.integers(0, len(y), (draws, len(y)))]
    return LearningCurve(float(a), float(b), float(c), _least_squares(n, resampled), float(n.max()))


def learning_curve(sizes: Sequence[float], errors: Sequence[float], *, subject: str, policy: limits.Volume) -> Verdict:
    """What more data would bring: samples needed for ``target_error``, else the gain of 1,000 more labels.

    Not measurable below ``min_sizes`` sizes with ``min_seeds`` runs each. Warns when the target needs more samples
    than ``max_samples`` (or than can be foreseen).
    """
    n = np.asarray(sizes, dtype=np.float64)
    kinds, runs = np.unique(n, return_counts=True)
    enough = int((runs >= policy.min_seeds).sum())
    thresholds = {"min_sizes": float(policy.min_sizes), "min_seeds": float(policy.min_seeds)}
    if enough < policy.min_sizes:
        return Verdict(
            "volume",
            "learning_curve",
            subject,
            "not_measurable",
            n=len(n),
            thresholds=thresholds,
            message=f"{enough} training sizes have {policy.min_seeds} or more runs; a curve needs {policy.min_sizes}.",
            remedy="Train on subsets of more sizes, spread evenly on a log scale.",
        )
    curve = fit_learning_curve(sizes, errors)
    largest = float(kinds[-1])
    gain, gain_span = curve.gain_per_thousand(largest)
    text = (
        f"Error = {curve.a:.3g} n^-{curve.b:.2f} + {curve.c:.3f} over {len(n)} runs of {len(kinds)} sizes up to "
        f"{largest:,.0f}; 1,000 more labels bring {100 * gain:.2f} points ({100 * gain_span[0]:.2f} to "
        f"{100 * gain_span[1]:.2f})."
    )
    common = {"v": "volume", "check": "learning_curve", "subject": subject, "n": len(n)}
    if policy.target_error is None:
        return Verdict(
            **common,  # type: ignore[arg-type]
            result="pass",
            statistic=gain,
            statistic_name="error removed by 1,000 more labels",
            interval=gain_span,
            thresholds=thresholds,
            message=text + " The policy sets no target error.",
        )
    need, (low, high) = curve.needed(policy.target_error)
    budget = policy.max_samples
    reached = math.isfinite(need)
    over = not reached or (budget is not None and need > budget)
    thresholds |= {"target_error": policy.target_error} | ({"max_samples": float(budget)} if budget else {})
    until = f"{high:,.0f}" if math.isfinite(high) else "beyond what can be foreseen"
    plan = (
        f" An error of {policy.target_error:.1%} needs {need:,.0f} samples ({low:,.0f} to {until})."
        if reached
        else f" An error of {policy.target_error:.1%} is out of sight: not within {_FARTHEST:g} times the largest size."
    )
    return Verdict(
        **common,  # type: ignore[arg-type]
        result="warn" if over else "pass",
        statistic=need if reached else None,
        statistic_name=f"samples needed for an error of {policy.target_error:g}",
        interval=(low, high) if math.isfinite(high) else None,
        effect=gain,
        thresholds=thresholds,
        message=text + plan,
        remedy="Better labels or a larger model may be cheaper than more samples." if over else "",
    )


def _least_squares(n: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Best (a, b, c) for each row: float [p], float [r, p] -> float [r, 3]."""
    x = n[None, :] ** -_EXPONENTS[:, None]  # [g, p]
    xm, ym = x.mean(1), y.mean(1)
    xx = ((x - xm[:, None]) ** 2).sum(1)
    xy = (y - ym[:, None]) @ (x - xm[:, None]).T  # [r, g]
    a = np.maximum(xy / xx, 0.0)
    c = ym[:, None] - a * xm
    through_zero = (y @ x.T) / (x**2).sum(1)
    a, c = np.where(c < 0, np.maximum(through_zero, 0.0), a), np.maximum(c, 0.0)
    # |y - a x - c|^2 expanded, so that no [r, g, p] array is built
    sse = (
        (y**2).sum(1)[:, None]
        + a**2 * (x**2).sum(1)
        + len(n) * c**2
        - 2 * a * (y @ x.T)
        - 2 * c * y.sum(1)[:, None]
        + 2 * a * c * x.sum(1)
    )
    best, row = sse.argmin(1), np.arange(len(y))
    return np.stack([a[row, best], _EXPONENTS[best], c[row, best]], 1)


def _solve(a: np.ndarray, b: np.ndarray, c: np.ndarray, target: float) -> np.ndarray:
    """n at which a n^-b + c = target, elementwise; inf where it never is."""
    room = target - c
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        n = np.exp(np.log(a / room) / b)
    return np.where(a == 0, np.where(room >= 0, 0.0, math.inf), np.where(room > 0, n, math.inf))


def _testable(context: Context) -> Verdict:
    return slice_precision(context.rows, subject=context.subject, policy=context.policy.volume, classes=context.classes)


def _curve(context: Context) -> Verdict:
    sizes, errors = (context.curve.sizes, context.curve.errors) if context.curve else ((), ())
    return learning_curve(sizes, errors, subject=context.subject, policy=context.policy.volume)


CHECKS = (
    Check("volume", "testable_slices", _testable, ("version",)),
    Check("volume", "learning_curve", _curve, ("version",)),
)
