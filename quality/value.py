"""Value: what does data contribute? The gain of one selection over another, over paired seeds; all checks of the V.

The value of single samples is in sample_value.py, what training itself says of them in learned.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sevenfold.intervals import mean_interval
from sevenfold.quality import policy as limits
from sevenfold.quality.context import Check, Context
from sevenfold.quality.learned import dynamics
from sevenfold.quality.sample_value import sample_value
from sevenfold.quality.verdict import Verdict, missing


def selection_gain(
    chosen: Sequence[float],
    control: Sequence[float],
    *,
    subject: str,
    reference: str,
    policy: limits.Value,
    what: str = "mined",
) -> Verdict:
    """Accuracy after adding the chosen samples minus after adding as many random ones, same seeds in the same order.

    The interval is Student's t over the paired differences: it covers the seeds, not the test set. Warns when it
    covers 0, fails when all of it is below 0.

    Parameters
    ----------
    chosen, control : held-out accuracy (0..1) per seed, paired.
    reference : the control's name, such as the version with the random queue.

    Raises
    ------
    ValueError
        When the two are not paired.
    """
    if len(chosen) != len(control):
        raise ValueError(f"{len(chosen)} accuracies against {len(control)}: a paired gain needs the same seeds")
    gains = np.asarray(chosen, dtype=np.float64) - np.asarray(control, dtype=np.float64)
    n = len(gains)
    if n < policy.min_pairs or not np.isfinite(gains).all():
        return Verdict(
            "value",
            "selection_gain",
            subject,
            "not_measurable",
            n=n,
            reference=reference,
            message=f"{n} paired seeds; a gain with an interval needs {policy.min_pairs} with an accuracy each.",
            remedy="Train both selections with more seeds.",
        )
    mean, spread = float(gains.mean()), float(gains.std(ddof=1))
    if spread < 1e-9 and mean != 0:
        return Verdict(
            "value",
            "selection_gain",
            subject,
            "not_measurable",
            n=n,
            reference=reference,
            message=f"All {n} paired seeds gained the same ({100 * mean:+.2f} points): what chance does is not known.",
            remedy="Train both selections with more seeds.",
        )
    low, high = mean_interval(gains, policy.confidence)
    points = f"{100 * mean:+.2f} points ({100 * low:+.2f} to {100 * high:+.2f}) over {n} paired seeds"
    if low > 0:
        result, said, remedy = "pass", f"The {what} samples gained more than {reference}: {points}.", ""
    elif high < 0:
        result, said = "fail", f"The {what} samples gained less than {reference}: {points}."
        remedy = f"Prefer random samples, or change how the {what} ones are chosen."
    else:
        result, said = "warn", f"The {what} samples and {reference} cannot be told apart: {points}."
        remedy = "Train more seeds or add a larger queue before believing in either."
    return Verdict(
        v="value",
        check="selection_gain",
        subject=subject,
        result=result,
        statistic=mean,
        statistic_name=f"accuracy gain of {what} over {reference}",
        interval=(low, high),
        n=n,
        effect=mean / spread if spread > 0 else None,
        thresholds={"min_gain": 0.0},
        reference=reference,
        message=said,
        remedy=remedy,
    )


def _gain(context: Context) -> Verdict:
    gain = context.gain
    if gain is None:
        return missing(
            "value",
            "selection_gain",
            context.subject,
            "No pair of selections was trained.",
            "Mine a queue, and train its version and the random control's with the same seeds.",
        )
    return selection_gain(
        gain.chosen,
        gain.control,
        subject=context.subject,
        reference=gain.reference,
        policy=context.policy.value,
        what=gain.what,
    )


def _sample_value(context: Context) -> Verdict:
    found = context.embeddings
    if found is None:
        return missing(
            "value",
            "sample_value",
            context.subject,
            "The samples have no embeddings, which kNN-Shapley values need.",
            f"Run `sevenfold embed {context.subject}`.",
        )
    return sample_value(
        context.rows,
        found.ids,
        found.vectors,
        subject=context.subject,
        policy=context.policy.value,
        producer=found.producer,
    )


def _dynamics(context: Context) -> Verdict:
    if context.dynamics is None:
        return missing(
            "value",
            "dynamics",
            context.subject,
            "No training of these samples under these labels was noted.",
            f"Run `sevenfold train {context.subject}`, with several seeds for steadier numbers (`--seeds 0,1,2`).",
        )
    return dynamics(
        context.rows,
        context.dynamics,
        subject=context.subject,
        policy=context.policy.value,
        predictions=context.predictions,
    )


CHECKS = (
    Check("value", "selection_gain", _gain, ("version",)),
    Check("value", "sample_value", _sample_value, ("version",)),
    Check("value", "dynamics", _dynamics, ("version",)),
)
