import math

import numpy as np
import pytest

from sevenfold.quality import value
from sevenfold.quality.policy import Policy

VALUE = Policy().value


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
