"""Two-sample statistics: right under ties, calibrated over dependent variables, effects free of chance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sevenfold.quality.two_sample import (
    Shift,
    cliffs_delta,
    counts_under,
    g_statistic,
    ks_distance,
    ks_under,
    permutations,
    shifts,
    step_down,
    variation_interval,
)

TRIALS = 200


def bound(trials: int, alpha: float) -> int:
    """More alarms than this happen with probability 1 in 1,000 when the rate is alpha."""
    return int(stats.binom.ppf(0.999, trials, alpha))


def correlated(rng: np.random.Generator, n: int, k: int = 7) -> np.ndarray:
    """Properties as real ones are: correlated, skewed, one with ties, one that says nothing."""
    x = rng.standard_normal((n, k)) + rng.standard_normal((n, 1))
    x[:, 0] = np.exp(x[:, 0])
    x[:, 1] = np.round(x[:, 1])
    x[:, 2] = 1.0
    return x


def named(x: np.ndarray) -> dict[str, np.ndarray]:
    return {str(i): x[:, i] for i in range(x.shape[1])}


@pytest.mark.parametrize(("n", "m"), [(50, 50), (60, 300)])
def test_no_shift_raises_as_many_alarms_as_alpha_and_no_more(n: int, m: int) -> None:
    rng = np.random.default_rng(n + m)
    alarms = 0
    for seed in range(TRIALS):
        found = shifts(named(correlated(rng, n)), named(correlated(rng, m)), draws=99, seed=seed)
        alarms += min(s.adjusted for s in found) <= 0.05
    assert stats.binom.ppf(0.001, TRIALS, 0.03) <= alarms <= bound(TRIALS, 0.05)


def test_no_shift_of_categories_raises_no_more_alarms_than_alpha_and_shows_no_effect() -> None:
    rng = np.random.default_rng(0)
    p = [0.4, 0.3, 0.15, 0.1, 0.04, 0.009, 0.001]
    draw = lambda n: {"label": rng.choice(list("abcdefg"), n, p=p).astype(object)}  # noqa: E731
    found = [shifts(draw(60), draw(300), draws=99, seed=i)[0] for i in range(TRIALS)]
    assert sum(s.p <= 0.05 for s in found) <= bound(TRIALS, 0.05)
    assert np.median([s.effect for s in found]) < 0.05


def test_the_effect_does_not_grow_as_n_shrinks() -> None:
    """The same move measured at 60 and at 1,000 samples: chance is taken off, the raw distance is not free of it."""
    rng = np.random.default_rng(1)
    means = {}
    for n in (60, 1000):
        found = [
            shifts({"x": rng.normal(0.3, 1, n)}, {"x": rng.normal(0, 1, n)}, draws=99, seed=i)[0] for i in range(30)
        ]
        means[n] = (np.mean([s.effect for s in found]), np.mean([s.distance for s in found]))
    assert means[60][0] < means[1000][0] + 0.02
    assert means[60][1] > means[1000][1] + 0.02


def test_one_moved_variable_among_many_is_named_and_the_others_are_not() -> None:
    rng = np.random.default_rng(2)
    x, y = correlated(rng, 300), correlated(rng, 500)
    x[:, 4] += 1.0
    found = shifts(named(x), named(y), draws=199)
    assert found[0].name == "4" and found[0].delta > 0.2
    assert [s.name for s in found if s.adjusted <= 0.05] == ["4"]
    assert found[0].interval[0] < found[0].distance < found[0].interval[1]


def test_unknown_values_are_left_out_and_an_infinite_one_is_unknown() -> None:
    x = np.array([1.0, 2.0, np.nan, np.inf, -np.inf, 3.0])
    y = np.array([2.0, np.nan, 4.0])
    assert ks_distance(x, y) == pytest.approx(stats.ks_2samp([1, 2, 3], [2, 4]).statistic)
    assert ks_distance(np.array([np.nan]), y) == 0.0


def test_a_missing_category_is_a_category() -> None:
    now = {"x": np.array(["a", None] * 100, dtype=object)}
    old = {"x": np.array(["a", "a"] * 100, dtype=object)}
    found = shifts(now, old, draws=99)[0]
    assert found.p == 0.01 and found.distance == pytest.approx(0.5)


def test_permutations_keep_the_sizes_and_start_with_what_was_observed() -> None:
    sides = permutations(7, 5, 50, seed=0)
    assert sides[:, 0].tolist() == [1] * 7 + [0] * 5 and set(sides.sum(axis=0)) == {7}
    assert len({tuple(column) for column in sides.T}) > 30


values = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=30).map(np.array)


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@given(values, values)
def test_the_kernels_agree_with_scipy_under_ties(x: np.ndarray, y: np.ndarray) -> None:
    assert ks_distance(x, y) == pytest.approx(stats.ks_2samp(x, y, method="asymp").statistic)
    u = stats.mannwhitneyu(x, y, method="asymptotic").statistic if len(set(x) | set(y)) > 1 else len(x) * len(y) / 2
    assert cliffs_delta(x, y) == pytest.approx(2 * u / (len(x) * len(y)) - 1)


@given(st.lists(st.integers(0, 4), min_size=2, max_size=30), st.data())
def test_counts_and_g_agree_with_counting_and_scipy(codes: list[int], data: st.DataObject) -> None:
    n = data.draw(st.integers(1, len(codes) - 1))
    sides = permutations(n, len(codes) - n, 5, seed=n)
    counts = counts_under(np.array(codes), 5, sides)
    for column in range(sides.shape[1]):
        chosen = np.array(codes)[sides[:, column] == 1]
        assert counts[:, column].tolist() == np.bincount(chosen, minlength=5).tolist()
    total = np.bincount(codes, minlength=5)
    there = total > 0
    if there.sum() > 1:
        table = [counts[there, 0], total[there] - counts[there, 0]]
        expected = stats.chi2_contingency(table, correction=False, lambda_="log-likelihood").statistic
        assert g_statistic(counts, total)[0] == pytest.approx(expected, abs=1e-9)


@settings(max_examples=30)
@given(st.integers(1, 6), st.integers(0, 1000))
def test_adjusted_p_values_are_never_below_the_p_alone_and_keep_its_order(k: int, seed: int) -> None:
    alone, adjusted = step_down(np.random.default_rng(seed).random((k, 100)))
    assert (adjusted >= alone - 1e-12).all() and (adjusted <= 1).all() and (alone >= 0.01).all()


def test_ks_of_every_permutation_agrees_with_scipy() -> None:
    pooled = np.random.default_rng(0).integers(0, 9, 40).astype(float)
    sides = permutations(15, 25, 20, seed=1)
    expected = [stats.ks_2samp(pooled[s == 1], pooled[s == 0]).statistic for s in sides.T]
    assert ks_under(pooled, sides) == pytest.approx(expected)


def test_the_interval_of_a_total_variation_holds_the_truth() -> None:
    rng = np.random.default_rng(0)
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.3, 0.4, 0.3])
    inside = 0
    for seed in range(100):
        low, high = variation_interval(rng.multinomial(200, p), rng.multinomial(300, q), alpha=0.05, seed=seed)
        inside += low <= 0.2 <= high
    assert inside >= 88


def test_same_input_same_answer() -> None:
    rng = np.random.default_rng(0)
    x, y = named(correlated(rng, 60)), named(correlated(rng, 60))
    once: list[Shift] = shifts(x, y, draws=99)
    assert once == shifts(x, y, draws=99)
