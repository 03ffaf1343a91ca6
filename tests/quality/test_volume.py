import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.quality import volume
from sevenfold.quality.forecast import as_stored, fit_learning_curve, foretold
from sevenfold.quality.policy import Policy, Volume

VOLUME = Policy().volume


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
    curve = fit_learning_curve(SIZES, errors(0, noise=0.0), draws=20)
    assert (curve.b, curve.c) == (pytest.approx(0.45, rel=0.05), pytest.approx(0.05, abs=0.005))
    assert curve.error(4000)[0] == pytest.approx(3 * 4000**-0.45 + 0.05, abs=1e-3)
    assert curve.needed(0.1)[0] == pytest.approx((3 / 0.05) ** (1 / 0.45), rel=0.1)


def test_the_forecast_interval_covers_a_run_of_twice_and_five_times_the_samples() -> None:
    for n in (16000, 40000):
        truth = 3 * n**-0.45 + 0.05
        spans = [fit_learning_curve(SIZES, errors(seed), draws=200).error(n)[1] for seed in range(60)]
        real = truth + np.random.default_rng(9).normal(0, 0.003, 60)
        assert np.mean([low <= x <= high for (low, high), x in zip(spans, real, strict=True)]) > 0.85


def test_a_capacity_that_saturates_on_the_way_is_within_the_interval() -> None:
    """No smaller size can show it: the interval has to allow for it, and does not when told that it never happens."""
    flat = 3 * 10000**-0.45 + 0.05  # the curve ends a third of a doubling beyond the largest size
    spans, blind = [], []
    for seed in range(40):
        spans.append(fit_learning_curve(SIZES, errors(seed), draws=300).error(32000)[1])
        blind.append(fit_learning_curve(SIZES, errors(seed), draws=300, saturation=0).error(32000)[1])
    held, fooled = (np.mean([low <= flat <= high for low, high in s]) for s in (spans, blind))
    assert held > 0.85 > fooled + 0.2


def test_a_form_that_does_not_fit_widens_the_interval() -> None:
    """An error that falls off a cliff is no power law: what the largest size showed is not trusted further ahead."""
    cliff = [0.5 if s < 8000 else 0.2 for s in SIZES]
    low, high = fit_learning_curve(SIZES, cliff).error(16000)[1]
    smooth = fit_learning_curve(SIZES, errors(0)).error(16000)[1]
    assert high - low > 5 * (smooth[1] - smooth[0])


@settings(max_examples=25, deadline=None)
@given(
    a=st.floats(0.5, 5), b=st.floats(0.1, 0.9), c=st.floats(0, 0.2), scale=st.floats(1, 100), seed=st.integers(0, 99)
)
def test_a_forecast_is_ordered_bounded_and_the_same_again(
    a: float, b: float, c: float, scale: float, seed: int
) -> None:
    n = np.array(SIZES) * scale
    y = np.clip(a * n**-b + c + np.random.default_rng(seed).normal(0, 0.005, len(n)), 0, 1)
    curve = fit_learning_curve(n, y, draws=60)
    points = np.array(as_stored(curve)["points"])
    assert (points[:, 2] <= points[:, 1]).all() and (points[:, 1] <= points[:, 3]).all()
    assert points[:, 1:].min() >= 0 and points[:, 1:].max() <= 1
    assert (np.diff(points[:, 1]) <= 1e-12).all(), "more samples are never foretold to hurt"
    need, (low, high), chance = curve.needed(0.1)
    assert low <= need <= high and 0 <= chance <= 1
    assert as_stored(fit_learning_curve(n, y, draws=60)) == as_stored(curve)


def test_a_stored_forecast_is_read_between_its_points_only() -> None:
    points = [[100, 0.5, 0.4, 0.6], [10000, 0.1, 0.0, 0.2]]
    assert foretold(points, 1000) == pytest.approx((0.3, 0.2, 0.4))
    assert foretold(points, 99) is None and foretold(points, 10001) is None and foretold([], 5) is None


def told(target: str, actual: float, version: str = "v1", low: float = 0.1, high: float = 0.2) -> dict:
    return {
        "version": version, "target": target, "largest": 1000, "n": 2000, "error": 0.15, "low": low, "high": high,
        "actual": actual, "runs": 2, "at": 1.0,
    }  # fmt: skip


def test_a_forecast_is_scored_when_its_larger_version_was_trained() -> None:
    hit = volume.forecast_score([told("v2", 0.16)], subject="v2", policy=VOLUME)
    assert (hit.result, hit.reference, hit.findings) == ("pass", "v1", ())
    assert hit.statistic == pytest.approx(0.01) and hit.effect == pytest.approx(0.01)
    miss = volume.forecast_score([told("v2", 0.25)], subject="v2", policy=VOLUME)
    assert (miss.result, miss.findings) == ("warn", ("version:v1",)) and "Miss" in miss.message
    assert volume.forecast_score([told("v2", 0.25)], subject="v3", policy=VOLUME).result == "not_measurable"


def test_forecasts_that_miss_too_often_are_told_even_when_the_newest_hits() -> None:
    past = [told(f"v{i}", 0.3) for i in range(2, 9)]
    v = volume.forecast_score([*past, told("v9", 0.15)], subject="v9", policy=VOLUME)
    assert v.result == "warn" and v.message.startswith("Hit") and len(v.findings) == 7 == len(v.notes)
    assert v.interval[1] < VOLUME.min_coverage


def test_the_curve_is_given_to_the_plot() -> None:
    v = volume.learning_curve(SIZES, errors(1), subject="v1", policy=Volume(target_error=0.1))
    drawn = v.data["curve"]
    assert drawn["target"] == 0.1 and len(drawn["points"]) == len(SIZES) and len(drawn["fit"][0]) == 4


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
        fit_learning_curve([1, 2, 3], [0.3, 0.2, 0.1])


def test_flat_errors_promise_nothing() -> None:
    v = volume.learning_curve(SIZES, [0.2] * len(SIZES), subject="v1", policy=Volume(target_error=0.1))
    assert v.result == "warn" and v.effect == pytest.approx(0, abs=1e-6)
