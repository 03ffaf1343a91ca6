"""Pace: rate and time left from progress reports, stage by stage."""

from __future__ import annotations

import pytest

from sevenfold.storage.progress import Pace


def test_the_rate_is_that_of_the_last_seconds() -> None:
    pace = Pace(window=10)
    assert pace.rate is None and pace.left is None
    for second in range(21):
        pace.report(second * 100, 10_000, float(second))
    assert pace.rate == pytest.approx(100) and pace.left == pytest.approx(80)
    for second in range(21, 41):
        pace.report(2000 + (second - 20) * 10, 10_000, float(second))
    assert pace.rate == pytest.approx(10) and pace.left == pytest.approx(780)


def test_what_an_earlier_try_left_behind_is_not_speed() -> None:
    pace = Pace()
    pace.report(9_000, 10_000, 0.0)
    assert pace.rate is None
    pace.report(9_100, 10_000, 10.0)
    assert pace.rate == pytest.approx(10) and pace.left == pytest.approx(90)


def test_a_new_stage_starts_afresh_and_an_unknown_total_has_no_end() -> None:
    pace = Pace()
    pace.report(0, 100, 0.0)
    pace.report(100, 100, 1.0)
    pace.report(0, 50, 2.0)
    assert pace.rate is None
    pace.report(10, 50, 3.0)
    assert pace.rate == pytest.approx(10) and pace.left == pytest.approx(4)
    pace.report(5, 50, 4.0)
    assert pace.rate is None, "less is done than before: another stage of the same size"
    pace.report(1000, 0, 5.0)
    pace.report(2000, 0, 6.0)
    assert pace.rate == pytest.approx(1000) and pace.left is None


def test_a_stage_that_says_nothing_for_long_slows_down() -> None:
    pace = Pace()
    pace.report(0, 6, 0.0)
    pace.report(1, 6, 0.01)
    pace.tick(10.0)
    assert pace.rate == pytest.approx(0.1) and pace.left == pytest.approx(50)
