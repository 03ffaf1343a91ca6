"""The shared intervals: published examples, coverage, and what they say without data."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.intervals import (
    effective_number,
    mcnemar_p,
    mean_interval,
    paired_difference,
    wilson,
    wilson_half_width,
    z_value,
)


def test_published_examples() -> None:
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)  # Newcombe 1998a, table I
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-3)
    assert paired_difference(36, 12, 2, 0) == pytest.approx((0.0569, 0.3404), abs=1e-4)  # Newcombe 1998b, table II
    assert mcnemar_p(12, 2) == pytest.approx(2 * sum(math.comb(14, k) for k in range(3)) / 2**14)
    assert mcnemar_p(5, 5) == 1.0 and mcnemar_p(9000, 9800) < 1e-7
    assert z_value(0.95) == pytest.approx(1.959964, abs=1e-6)
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.48414, 2 + 2.48414), abs=1e-5)  # t(.975, 2) = 4.30265


def test_without_data_they_say_all_is_possible() -> None:
    assert wilson(0, 0) == (0, 1) and paired_difference(0, 0, 0, 0) == (-1, 1) and mcnemar_p(0, 0) == 1
    assert effective_number(np.zeros(3)) == (0, (0, 0)) and wilson_half_width(0) == 0.5
    with pytest.raises(ValueError, match="at least 2"):
        mean_interval([1.0])


@given(st.tuples(*[st.integers(0, 50)] * 4).filter(any), st.sampled_from([0.8, 0.95, 0.999]))
def test_paired_intervals_hold_the_difference_and_mirror(cells: tuple[int, ...], confidence: float) -> None:
    both, gained, lost, neither = cells
    low, high = paired_difference(both, gained, lost, neither, confidence)
    assert -1 <= low <= (gained - lost) / sum(cells) + 1e-12 and (gained - lost) / sum(cells) - 1e-12 <= high <= 1
    assert paired_difference(both, lost, gained, neither, confidence) == pytest.approx((-high, -low))


@given(st.integers(1, 500), st.data(), st.sampled_from([0.8, 0.95]))
def test_wilson_holds_the_share_mirrors_and_its_half_width_agrees(n: int, data: st.DataObject, c: float) -> None:
    k = data.draw(st.integers(0, n))
    low, high = wilson(k, n, c)
    assert 0 <= low <= k / n <= high <= 1
    assert wilson(n - k, n, c) == pytest.approx((1 - high, 1 - low))
    if 0 < k < n:
        assert (high - low) / 2 == pytest.approx(wilson_half_width(n, k / n, c))
