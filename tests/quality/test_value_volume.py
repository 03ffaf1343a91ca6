import math

import numpy as np
import pytest

from sevenfold.quality import value, volume
from sevenfold.quality.policy import Policy, Volume

VALUE, VOLUME = Policy().value, Policy().volume


@pytest.mark.parametrize(
    ("chosen", "control", "result"),
    [
        ([0.83, 0.84, 0.835], [0.80, 0.81, 0.806], "pass"),
        ([0.83, 0.80, 0.81], [0.82, 0.81, 0.81], "warn"),
        ([0.80, 0.81, 0.806], [0.83, 0.84, 0.835], "fail"),
        ([0.83], [0.80], "not_measurable"),
        ([0.83, math.nan], [0.80, 0.8], "not_measurable"),
    ],
)
def test_a_gain_is_judged_by_its_interval(chosen: list, control: list, result: str) -> None:
    v = value.selection_gain(chosen, control, subject="v2", reference="random control", policy=VALUE)
    assert (v.result, v.blocking, v.n) == (result, False, len(chosen))
    if result != "not_measurable":
        assert v.statistic == pytest.approx(np.mean(chosen) - np.mean(control))


def test_equal_selections_rarely_win_or_lose() -> None:
    rng = np.random.default_rng(0)
    results = []
    for _ in range(400):
        a, b = rng.normal(0.8, 0.01, (2, 4))
        results.append(value.selection_gain(a, b, subject="v", reference="r", policy=VALUE).result)
    assert results.count("warn") >= 400 - 34  # binomial(400, .05) exceeds 34 with probability .001


def test_unpaired_accuracies_are_refused() -> None:
    with pytest.raises(ValueError, match="same seeds"):
        value.selection_gain([0.1], [0.1, 0.2], subject="v", reference="r", policy=VALUE)


def test_a_class_without_test_samples_cannot_be_tested(rows, classes) -> None:
    table = rows(600, split=["test"] * 300 + ["train"] * 300)
    v = volume.slice_precision(table, subject="v1", policy=VOLUME, classes=classes)
    assert v.result == "pass" and v.statistic == pytest.approx(0.096, abs=0.002)
    v = volume.slice_precision(table, subject="v1", policy=VOLUME, classes=(*classes, "hat"))
    assert (v.result, v.findings) == ("fail", ("slice:test/hat",))
    assert volume.slice_precision(rows(0), subject="v1", policy=VOLUME).result == "not_measurable"


@pytest.mark.parametrize("half", [0.02, 0.05, 0.1, 0.3])
def test_the_samples_needed_are_the_fewest(half: float) -> None:
    n = volume.samples_for_half_width(half)
    assert volume.wilson_half_width(n) <= half < volume.wilson_half_width(n - 1)


SIZES = [s for s in (250, 500, 1000, 2000, 4000, 8000) for _ in range(3)]


def errors(seed: int, noise: float = 0.003, a: float = 3.0, b: float = 0.45, c: float = 0.05) -> list[float]:
    n = np.array(SIZES, float)
    return (a * n**-b + c + np.random.default_rng(seed).normal(0, noise, len(n))).tolist()


def test_an_exact_curve_is_recovered() -> None:
    curve = volume.fit_learning_curve(SIZES, errors(0, noise=0.0), draws=20)
    assert (curve.b, curve.c) == (pytest.approx(0.45, rel=0.05), pytest.approx(0.05, abs=0.005))
    assert curve.error(4000)[0] == pytest.approx(3 * 4000**-0.45 + 0.05, abs=1e-3)
    assert curve.needed(0.1)[0] == pytest.approx((3 / 0.05) ** (1 / 0.45), rel=0.1)


def test_the_forecast_interval_covers_the_truth() -> None:
    truth = 3 * 16000**-0.45 + 0.05
    spans = [volume.fit_learning_curve(SIZES, errors(seed), draws=200).error(16000)[1] for seed in range(60)]
    assert np.mean([low <= truth <= high for low, high in spans]) > 0.8


def test_a_target_below_the_plateau_is_out_of_sight() -> None:
    v = volume.learning_curve(SIZES, errors(1), subject="v1", policy=Volume(target_error=0.02))
    assert v.result == "warn" and v.statistic is None and "out of sight" in v.message


def test_the_need_is_held_against_the_budget() -> None:
    enough = volume.learning_curve(SIZES, errors(1), subject="v1", policy=Volume(target_error=0.1, max_samples=20000))
    assert enough.result == "pass" and enough.interval[0] < enough.statistic < enough.interval[1]
    short = volume.learning_curve(SIZES, errors(1), subject="v1", policy=Volume(target_error=0.1, max_samples=5000))
    assert short.result == "warn"


def test_few_sizes_or_seeds_are_not_measurable() -> None:
    some = [(s, e) for s, e in zip(SIZES, errors(1), strict=True) if s < 4000]
    v = volume.learning_curve(*zip(*some, strict=True), subject="v1", policy=VOLUME)
    assert v.result == "not_measurable"
    assert volume.learning_curve(SIZES[::3], errors(1)[::3], subject="v1", policy=VOLUME).result == "not_measurable"
    assert volume.learning_curve([], [], subject="v1", policy=VOLUME).result == "not_measurable"
    with pytest.raises(ValueError, match="at least 4"):
        volume.fit_learning_curve([1, 2, 3], [0.3, 0.2, 0.1])


def test_flat_errors_promise_nothing() -> None:
    v = volume.learning_curve(SIZES, [0.2] * len(SIZES), subject="v1", policy=Volume(target_error=0.1))
    assert v.result == "warn" and v.effect == pytest.approx(0, abs=1e-6)
