"""Volume: is there enough? Slices that can be tested, what more data would bring, and whether past forecasts held."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.intervals import wilson, wilson_half_width
from sevenfold.quality import policy as limits
from sevenfold.quality.context import Check, Context
from sevenfold.quality.forecast import FARTHEST, LearningCurve, fit_learning_curve
from sevenfold.quality.variety import class_counts
from sevenfold.quality.verdict import Verdict


def slice_precision(
    rows: pa.Table, *, subject: str, policy: limits.Volume, classes: Sequence[str] | None = None
) -> Verdict:
    """Whether each class's accuracy on the test split can be told within ``max_half_width`` at 95 % (worst case .5).

    Findings: the slices that cannot.
    """
    test = rows.select(["label"]).filter(pc.equal(rows["split"], policy.test_split))
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


def learning_curve(sizes: Sequence[float], errors: Sequence[float], *, subject: str, policy: limits.Volume) -> Verdict:
    """What more data would bring: samples needed for ``target_error``, else the gain of 1,000 more labels.

    Not measurable below ``min_sizes`` sizes with ``min_seeds`` runs each. Warns when the target needs more samples
    than ``max_samples`` (or than can be foreseen).
    """
    known = [(s, e) for s, e in zip(sizes, errors, strict=True) if math.isfinite(e)]  # a run may have diverged
    sizes, errors = [s for s, _ in known], [e for _, e in known]
    n = np.asarray(sizes, dtype=np.float64)
    kinds, runs = np.unique(n, return_counts=True)
    enough = int((runs >= policy.min_seeds).sum())
    thresholds = {
        "min_sizes": float(policy.min_sizes),
        "min_seeds": float(policy.min_seeds),
        "saturation_per_doubling": policy.saturation_per_doubling,
    }
    if enough < policy.min_sizes:
        return Verdict(
            "volume",
            "learning_curve",
            subject,
            "not_measurable",
            n=len(n),
            thresholds=thresholds,
            message=f"{enough} training sizes have {policy.min_seeds} or more runs; a curve needs {policy.min_sizes}.",
            remedy=f"Train on subsets: sevenfold forecast {subject}.",
        )
    curve = fit_learning_curve(sizes, errors, saturation=policy.saturation_per_doubling)
    largest = float(kinds[-1])
    gain, gain_span = curve.gain_per_thousand(largest)
    text = (
        f"Error = {curve.a:.3g} n^-{curve.b:.2f} + {curve.c:.3f} over {len(n)} runs of {len(kinds)} sizes up to "
        f"{largest:,.0f}; 1,000 more labels bring {100 * gain:.2f} points ({100 * gain_span[0]:.2f} to "
        f"{100 * gain_span[1]:.2f}); {foresight(curve, 2)}; {foresight(curve, 5)}."
    )
    common: dict[str, Any] = {"v": "volume", "check": "learning_curve", "subject": subject, "n": len(n)}
    common["data"] = {"curve": drawn(curve, sizes, errors, policy.target_error)}
    if policy.target_error is None:
        return Verdict(
            **common,
            result="pass",
            statistic=gain,
            statistic_name="error removed by 1,000 more labels",
            interval=gain_span,
            thresholds=thresholds,
            message=text + " The policy sets no target error.",
        )
    need, (low, high), chance = curve.needed(policy.target_error)
    budget = policy.max_samples
    reached = math.isfinite(need)
    over = not reached or (budget is not None and need > budget)
    thresholds |= {"target_error": policy.target_error} | ({"max_samples": float(budget)} if budget else {})
    return Verdict(
        **common,
        result="warn" if over else "pass",
        statistic=need if reached else None,
        statistic_name=f"samples needed for an error of {policy.target_error:g}",
        interval=(low, high) if math.isfinite(high) else None,
        effect=gain,
        thresholds=thresholds,
        message=f"{text} {takes(policy.target_error, need, low, high, chance)}",
        remedy="Better labels or a larger model may be cheaper than more samples." if over else "",
    )


def foresight(curve: LearningCurve, times: float) -> str:
    """What the curve foretells at some times its largest size, in words."""
    error, (low, high) = curve.error(times * curve.largest)
    return f"with {times:g} times the samples the error is {error:.1%} ({low:.1%} to {high:.1%})"


def takes(target: float, need: float, low: float, high: float, chance: float) -> str:
    """What a target error takes, in words; inf for what cannot be foreseen."""
    if not math.isfinite(need):
        return f"An error of {target:.1%} is out of sight: not within {FARTHEST:g} times the largest size."
    until = f"{high:,.0f}" if math.isfinite(high) else "beyond what can be foreseen"
    return (
        f"An error of {target:.1%} takes {need:,.0f} samples ({low:,.0f} to {until}) if the curve keeps its shape; "
        f"the chance that it gets there is {chance:.0%}."
    )


def drawn(
    curve: LearningCurve, sizes: Sequence[float], errors: Sequence[float], target: float | None
) -> dict[str, Any]:
    """The curve for a plot (the key ``curve`` of a verdict's data)."""
    return {
        "title": "Learning curve",
        "x_name": "training samples",
        "y_name": "test error",
        "points": [[float(x), float(y)] for x, y in zip(sizes, errors, strict=True)],
        "fit": curve.points(),
        "target": target,
    }


def forecast_score(forecasts: Sequence[Mapping[str, Any]], *, subject: str, policy: limits.Volume) -> Verdict:
    """Whether earlier versions foretold this one's error, and how often forecasts held so far.

    Parameters
    ----------
    forecasts : one mapping per forecast and later version that was trained alike: version (that made it), target (the
        version it is scored on), largest (samples it was made from), n (samples of the target), error, low, high
        (foretold at n), actual (mean test error of the target's runs), runs (how many).

    A miss warns; so does a coverage over all forecasts whose upper bound is below ``min_coverage``. The statistic is
    the absolute error of the newest forecast about ``subject``. Findings: the versions whose forecasts missed.
    """
    mine = [f for f in forecasts if f["target"] == subject]
    if not mine:
        return Verdict(
            "volume",
            "forecast_score",
            subject,
            "not_measurable",
            message="No earlier version foretold this one's error, or it was not trained with the same settings.",
            remedy="Run `sevenfold forecast` before a version grows, and train the larger one.",
        )
    newest = max(mine, key=lambda f: (f["largest"], int(str(f["version"]).lstrip("v") or 0)))
    held = [f["low"] <= f["actual"] <= f["high"] for f in forecasts]
    share, n = wilson(sum(held), len(held)), len(held)
    missed = sorted(
        (f for f, ok in zip(forecasts, held, strict=True) if not ok),
        key=lambda f: -abs(f["actual"] - f["error"]),
    )
    hit = newest["low"] <= newest["actual"] <= newest["high"]
    unsound = share[1] < policy.min_coverage
    off = newest["actual"] - newest["error"]
    return Verdict(
        v="volume",
        check="forecast_score",
        subject=subject,
        result="pass" if hit and not unsound else "warn",
        statistic=abs(off),
        statistic_name="absolute error of the newest forecast",
        interval=share,
        n=n,
        effect=off,
        thresholds={"min_coverage": policy.min_coverage},
        reference=str(newest["version"]),
        message=f"{'Hit' if hit else 'Miss'}: {newest['version']} foretold an error of {newest['error']:.1%} "
        f"({newest['low']:.1%} to {newest['high']:.1%}) at {newest['n']:,.0f} samples; {newest['runs']} run(s) gave "
        f"{newest['actual']:.1%}. {sum(held)} of {n} forecasts so far held ({share[0]:.0%} to {share[1]:.0%} in truth; "
        f"declared 95 %).",
        remedy=""
        if hit and not unsound
        else "Do not plan by these forecasts: the new samples differ from the old, or the model is at its capacity.",
        findings=tuple(f"version:{f['version']}" for f in missed),
        notes=tuple(
            f"{f['target']}: foretold {f['low']:.1%} to {f['high']:.1%}, was {f['actual']:.1%}" for f in missed
        ),
    )


def _testable(context: Context) -> Verdict:
    return slice_precision(context.rows, subject=context.subject, policy=context.policy.volume, classes=context.classes)


def _curve(context: Context) -> Verdict:
    sizes, errors = (context.curve.sizes, context.curve.errors) if context.curve else ((), ())
    return learning_curve(sizes, errors, subject=context.subject, policy=context.policy.volume)


def _score(context: Context) -> Verdict:
    return forecast_score(context.forecasts, subject=context.subject, policy=context.policy.volume)


CHECKS = (
    Check("volume", "testable_slices", _testable, ("version",)),
    Check("volume", "learning_curve", _curve, ("version",)),
    Check("volume", "forecast_score", _score, ("version",)),
)
