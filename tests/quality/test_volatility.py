"""Drift: calibrated on no shift, powerful on a plain one, silent where there is too little."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sevenfold.quality import volatility
from sevenfold.quality.policy import Policy, Volatility
from sevenfold.quality.two_sample import (
    benjamini_hochberg,
    cliffs_delta,
    count_shift,
    ks_distance,
    ks_p,
    shifts,
    subsample,
)

LIMITS = Policy().volatility
TRIALS = 400


def bound(trials: int, alpha: float) -> int:
    """More alarms than this happen with probability 1 in 1,000 when the rate is alpha."""
    return int(stats.binom.ppf(0.999, trials, alpha))


def correlated(rng: np.random.Generator, n: int, k: int = 7) -> np.ndarray:
    """Properties as real ones are: correlated, skewed, one with ties."""
    x = rng.standard_normal((n, k)) + rng.standard_normal((n, 1))
    x[:, 0] = np.exp(x[:, 0])
    x[:, 1] = np.round(x[:, 1])
    return x


@pytest.mark.parametrize(("n", "m"), [(50, 50), (60, 1000), (500, 500)])
def test_no_shift_raises_no_more_alarms_than_alpha(n: int, m: int) -> None:
    rng = np.random.default_rng(n + m)
    alarms = 0
    for _ in range(TRIALS):
        x, y = correlated(rng, n), correlated(rng, m)
        found = shifts({str(i): x[:, i] for i in range(7)}, {str(i): y[:, i] for i in range(7)}, alpha=0.05)
        alarms += min(s.adjusted for s in found) <= 0.05
    assert alarms <= bound(TRIALS, 0.05)


def test_one_test_alone_is_near_its_nominal_level() -> None:
    rng = np.random.default_rng(3)
    p = [ks_p(ks_distance(rng.random(300), rng.random(400)), 300, 400) for _ in range(1000)]
    alarms = int((np.array(p) <= 0.05).sum())
    assert stats.binom.ppf(0.001, 1000, 0.025) <= alarms <= bound(1000, 0.05)


@pytest.mark.parametrize(("n", "m"), [(50, 60), (300, 2000)])
def test_no_label_shift_raises_no_more_alarms_than_alpha(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    p = np.array([0.4, 0.3, 0.15, 0.1, 0.04, 0.009, 0.001])
    tests = [count_shift(rng.multinomial(n, p), rng.multinomial(m, p), draws=200) for _ in range(TRIALS)]
    assert sum(t.p <= 0.05 for t in tests) <= bound(TRIALS, 0.05)
    assert np.mean([t.effect for t in tests]) < 0.03


def test_a_plain_shift_is_found_with_its_direction_and_samples(rows, properties) -> None:
    old, new = rows(1000), rows(300, prefix="t")
    moved = properties(new, seed=1, shift=-2.0)
    v = volatility.property_drift(moved, properties(old), subject="b2", reference="v1", policy=LIMITS)
    assert (v.result, v.blocking) == ("fail", False)
    assert v.effect > 0.5 and v.p < 0.001 and v.interval[0] < v.effect < v.interval[1]
    assert "brightness fell" in v.message and "1 of 7" in v.message
    dark = dict(zip(moved["id"].to_pylist(), moved["brightness"].to_pylist(), strict=True))
    assert v.findings[0] == min(dark, key=dark.get)
    assert 100 < len(v.findings) < 200


def test_power_at_small_n_and_none_of_it_below_the_minimum(rows, properties) -> None:
    old = rows(1000)
    fired = 0
    for i in range(20):
        new = rows(50, prefix=f"t{i}")
        v = volatility.property_drift(
            properties(new, seed=i, shift=1.2), properties(old), subject="b", reference="v1", policy=LIMITS
        )
        fired += v.result in ("warn", "fail")
    assert fired >= 19
    v = volatility.property_drift(
        properties(rows(20), shift=5), properties(old), subject="b", reference="v1", policy=LIMITS
    )
    assert (v.result, v.statistic, v.findings) == ("not_measurable", None, ())


def test_a_tiny_shift_at_large_n_is_significant_and_not_an_alarm(rows, properties) -> None:
    old, new = rows(6000), rows(6000, prefix="t")
    limits = Volatility(sample_budget=6000)
    v = volatility.property_drift(
        properties(new, seed=1, shift=0.12), properties(old), subject="b", reference="v1", policy=limits
    )
    assert v.p < 0.05 and v.result == "pass"


def test_label_shift_is_found_and_names_the_class(rows) -> None:
    new = rows(300, prefix="t", label=["boot"] * 200 + ["coat"] * 50 + ["shirt"] * 50)
    v = volatility.label_shift(new, rows(600), subject="b", reference="v1", policy=LIMITS)
    assert v.result == "fail" and not v.blocking and "boot 33.3% -> 66.7%" in v.message
    assert v.findings == tuple(new["id"].to_pylist()[:200])
    few = volatility.label_shift(new.slice(0, 20), rows(600), subject="b", reference="v1", policy=LIMITS)
    assert few.result == "not_measurable"


def test_output_drift_reads_softmax_outputs(classes) -> None:
    rng = np.random.default_rng(0)
    old, same = rng.dirichlet([1, 1, 1], 500), rng.dirichlet([1, 1, 1], 400)
    new = rng.dirichlet([4, 1, 1], 400)
    names = [f"i{i}" for i in range(500)]
    common = {"classes": classes, "subject": "v2", "reference": "v1", "policy": LIMITS}
    assert volatility.output_drift(same, names[:400], old, names, **common).result == "pass"
    v = volatility.output_drift(new, names[:400], old, names, **common)
    assert v.result == "fail" and "p(boot) rose" in v.message


def test_a_property_with_gaps_is_judged_on_what_there_is(rows, properties) -> None:
    old, new = properties(rows(200)), properties(rows(200, prefix="t"), seed=1)
    gaps = new.set_column(1, "brightness", pa.array([None] * 180 + [0.4] * 20, pa.float64()))
    v = volatility.property_drift(gaps, old, subject="b", reference="v1", policy=LIMITS)
    assert v.result == "pass" and " 6 moved" in v.message


def test_the_subsample_depends_on_the_ids_alone() -> None:
    ids = [f"id{i}" for i in range(1000)]
    chosen = {ids[i] for i in subsample(ids, 100)}
    backwards = ids[::-1]
    assert chosen == {backwards[i] for i in subsample(backwards, 100)} and len(chosen) == 100
    more = ids + [f"new{i}" for i in range(100)]
    assert len(chosen & {more[i] for i in subsample(more, 100)}) >= 75
    assert subsample(ids[:10], 100).tolist() == list(range(10))


values = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=30).map(np.array)


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@given(values, values)
def test_the_kernels_agree_with_scipy_under_ties(x: np.ndarray, y: np.ndarray) -> None:
    assert ks_distance(x, y) == pytest.approx(stats.ks_2samp(x, y, method="asymp").statistic)
    u = stats.mannwhitneyu(x, y, method="asymptotic").statistic if len(set(x) | set(y)) > 1 else len(x) * len(y) / 2
    assert cliffs_delta(x, y) == pytest.approx(2 * u / (len(x) * len(y)) - 1)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_benjamini_hochberg_agrees_with_scipy(p: list[float]) -> None:
    assert benjamini_hochberg(p) == pytest.approx(stats.false_discovery_control(p))
