import math

import numpy as np
import pytest

from sevenfold.intervals import effective_number, wilson, wilson_half_width
from sevenfold.quality import variety
from sevenfold.quality.policy import Policy

LIMITS = Policy().variety


def test_effective_number_is_k_for_equal_classes_and_1_for_one() -> None:
    assert effective_number(np.array([50, 50, 50, 0]))[0] == pytest.approx(3)
    assert effective_number(np.array([10])) == (1, (1, 1))
    assert effective_number(np.array([900, 100]))[0] == pytest.approx(
        math.exp(-0.9 * math.log(0.9) - 0.1 * math.log(0.1))
    )


def test_the_delta_interval_covers_the_truth_about_95_percent_of_the_time() -> None:
    rng = np.random.default_rng(1)
    p = np.array([0.5, 0.2, 0.15, 0.1, 0.05])
    truth = math.exp(-(p * np.log(p)).sum())
    spans = [effective_number(counts)[1] for counts in rng.multinomial(1000, p, size=1000)]
    cover = np.mean([low <= truth <= high for low, high in spans])
    assert 0.92 < cover < 0.98


def test_wilson_agrees_with_known_values() -> None:
    assert wilson(0, 10) == pytest.approx((0, 0.2775), abs=1e-3)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-3)
    assert wilson(0, 0) == (0, 1)
    assert wilson_half_width(385) == pytest.approx(0.05, abs=5e-4)


def test_a_fall_against_the_reference_warns_and_noise_does_not(rows) -> None:
    before = rows(900)
    lost = rows(900, prefix="t", label=["boot"] * 800 + ["coat"] * 60 + ["shirt"] * 40)
    v = variety.effective_classes(lost, subject="b1", policy=LIMITS, reference_rows=before, reference="v1")
    assert v.result == "warn" and v.effect > 0.3 and v.reference == "v1"
    few = rows(20, prefix="u", label=["boot"] * 11 + ["coat"] * 6 + ["shirt"] * 3)
    v = variety.effective_classes(few, subject="b1", policy=LIMITS, reference_rows=before, reference="v1")
    assert v.effect > LIMITS.max_fall and v.result == "pass"


def test_unlabelled_rows_are_not_measurable(rows) -> None:
    table = rows(10, label=[None] * 10)
    for check in (variety.effective_classes, variety.balance):
        assert check(table, subject="b1", policy=LIMITS).result == "not_measurable"


def test_a_class_without_samples_is_the_rarest(rows, classes) -> None:
    v = variety.balance(rows(), subject="b1", policy=LIMITS, classes=(*classes, "hat"))
    assert (v.result, v.statistic, v.findings) == ("warn", 0.0, ("class:hat",))
    assert v.interval[0] == 0 < v.interval[1]


def test_equal_pixels_count_once(rows) -> None:
    digests = ["a", "a", "b", "a", *(str(i) for i in range(96))]
    table = rows(100, pixel_digest=digests)
    v = variety.duplicate_share(table, subject="b1", policy=LIMITS)
    ids = table["id"].to_pylist()
    assert (v.result, v.statistic) == ("warn", 0.02)
    assert v.findings == tuple(sorted(sorted([ids[0], ids[1], ids[3]])[1:]))  # the smallest id stands for the others
    assert variety.duplicate_share(rows(98), subject="b1", policy=LIMITS, aliases=2).statistic == 0.02
    assert variety.duplicate_share(rows(0), subject="b1", policy=LIMITS).result == "not_measurable"
