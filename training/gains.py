"""Did one way of choosing data help more than another? Gains over a baseline, compared seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sevenfold.intervals import mean_interval
from sevenfold.storage.errors import SevenfoldError


@dataclass(frozen=True)
class GainComparison:
    """Whether arm A gained more than arm B over the same baseline, seed by seed.

    `interval` is Student's 95 % interval of `difference` over paired seeds, None below two seeds. `within_noise` is
    true unless that interval excludes 0, so also when it cannot be measured.
    """

    seeds: int
    gain_a: float
    gain_b: float
    difference: float
    interval: tuple[float, float] | None
    within_noise: bool
    sentence: str


def compare_gains(
    arm_a: Sequence[float],
    arm_b: Sequence[float],
    baseline: Sequence[float],
    *,
    names: tuple[str, str] = ("mined", "random"),
) -> GainComparison:
    """Compare two arms' accuracies over the same seeds, on the same test set, as gains over the baseline's.

    Entry k of each is the accuracy with seed k. The interval covers the chance of training (seeds), not the choice of
    test samples, which all arms share, nor the choice of the two selections: it speaks of these two sets of samples.

    Raises
    ------
    SevenfoldError : the three have different lengths, or none.
    """
    n = len(arm_a)
    if not n or len(arm_b) != n or len(baseline) != n:
        raise SevenfoldError(
            f"{len(arm_a)}, {len(arm_b)} and {len(baseline)} accuracies",
            where="compare_gains",
            expected="one per seed for each arm and the baseline",
        )
    gain_a, gain_b = (float(np.mean(np.subtract(arm, baseline))) for arm in (arm_a, arm_b))
    differences = [float(a - b) for a, b in zip(arm_a, arm_b, strict=True)]
    difference = float(np.mean(differences))
    said = (
        f"{names[0]} gained {100 * gain_a:+.2f} points and {names[1]} {100 * gain_b:+.2f}, "
        f"a difference of {100 * difference:+.2f}"
    )
    if n < 2:
        sentence = f"{said}; with one seed the noise is not measurable, so nothing is claimed."
        return GainComparison(n, gain_a, gain_b, difference, None, True, sentence)
    low, high = mean_interval(differences)
    within = low <= 0 <= high
    better = names[0] if difference > 0 else names[1]
    claim = "within noise" if within else f"beyond noise: {better} gained more"
    sentence = f"{said} (95 % interval {100 * low:+.2f} to {100 * high:+.2f} over {n} paired seeds): {claim}."
    return GainComparison(n, gain_a, gain_b, difference, (low, high), within, sentence)
