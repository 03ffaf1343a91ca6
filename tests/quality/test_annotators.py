"""Annotators: agreement as published, confusions and labels recovered, a likelihood that rises."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.quality import annotators as an

ANSWERS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=80)


def simulated(n: int, confusion: np.ndarray, shares: np.ndarray, seed: int, chance: float = 1.0):
    """(truth [n], items, annotators, labels): each annotator answers each sample with probability `chance`."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(len(shares), n, p=shares)
    items, who = (x.ravel() for x in np.meshgrid(np.arange(n), np.arange(len(confusion)), indexing="ij"))
    kept = rng.random(len(items)) < chance
    items, who = items[kept], who[kept]
    p = confusion[who, truth[items]]
    return truth, items, who, (p.cumsum(1) > rng.random((len(items), 1))).argmax(1)


def skilled(rights: list[float], k: int, seed: int = 0) -> np.ndarray:
    """float64 [a, k, k]: annotators right with these probabilities, their errors spread unevenly."""
    rng = np.random.default_rng(seed)
    found = np.zeros((len(rights), k, k))
    for a, right in enumerate(rights):
        off = rng.dirichlet(np.ones(k), k)
        np.fill_diagonal(off, 0)
        found[a] = (1 - right) * off / off.sum(1, keepdims=True) + right * np.eye(k)
    return found


def fit(items, who, labels, n, a, k, **more) -> an.DawidSkene:
    return an.dawid_skene(items, who, labels, n, number_of_annotators=a, k=k, **more)


def test_alpha_is_that_of_the_published_example() -> None:
    """Krippendorff 2011, 'Computing Krippendorff's alpha-reliability': four coders, twelve units, nominal: .743."""
    coders = (
        "1 2 3 3 2 1 4 1 2 . . .",
        "1 2 3 3 2 2 4 1 2 5 . 3",
        ". 3 3 3 2 3 4 2 2 5 1 .",
        "1 2 3 3 2 4 4 1 2 5 1 .",
    )
    cells = [(u, int(x)) for coder in coders for u, x in enumerate(coder.split()) if x != "."]
    items, labels = np.array(cells).T
    got = an.agreement(items, labels, 12)
    assert got.alpha == pytest.approx(0.743, abs=5e-4)
    assert (got.items, got.answers) == (11, 40)
    assert got.interval[0] < 0.743 < got.interval[1]
    assert np.isnan(got.per_item[11]) and got.per_item[0] == 1 and got.per_item[5] == 0


@given(ANSWERS)
def test_alpha_and_pairs_equal_a_count_of_all_pairs(answers) -> None:
    items, _, labels = np.array(answers).T
    got = an.agreement(items, labels, 10)
    units = {u: labels[items == u].tolist() for u in set(items.tolist()) if (items == u).sum() > 1}
    values = list(itertools.chain(*units.values()))
    if not values:
        assert got.items == 0 and got.interval == (-1, 1)
        return
    observed = sum(sum(x != y for x, y in itertools.permutations(v, 2)) / (len(v) - 1) for v in units.values())
    expected = sum(x != y for x, y in itertools.permutations(values, 2)) / (len(values) - 1)
    assert got.alpha == pytest.approx(1 - observed / expected if expected else 1)
    pairs = [x == y for v in units.values() for x, y in itertools.permutations(v, 2)]
    assert got.pairs == pytest.approx(np.mean(pairs))
    assert got.interval[0] <= got.alpha <= got.interval[1]


def test_the_interval_of_alpha_covers_and_chance_is_zero() -> None:
    confusion, shares = skilled([0.9, 0.8, 0.7], 4), np.full(4, 0.25)
    _, items, _, labels = simulated(200_000, confusion, shares, 99)
    truth = an.agreement(items, labels, 200_000).alpha
    covered = 0
    for seed in range(60):
        _, items, _, labels = simulated(200, confusion, shares, seed)
        low, high = an.agreement(items, labels, 200).interval
        covered += low <= truth <= high
    assert covered >= 52  # 57 expected; fewer than 52 has chance < .03
    rng = np.random.default_rng(0)
    low, high = an.agreement(np.repeat(np.arange(3000), 3), rng.integers(0, 5, 9000), 3000).interval
    assert low < 0 < high and high - low < 0.06


@pytest.mark.parametrize("chance", [1.0, 0.5])
def test_known_confusions_and_labels_are_recovered(chance: float) -> None:
    shares = np.array([0.5, 0.3, 0.2])
    confusion = skilled([0.9, 0.85, 0.6, 0.4, 0.95], 3, 1)
    truth, items, who, labels = simulated(4000, confusion, shares, 2, chance)
    got = fit(items, who, labels, 4000, 5, 3)
    assert got.converged and np.abs(got.confusion - confusion).max() < 0.09
    assert np.abs(got.shares - shares).max() < 0.03
    votes = np.bincount(items * 3 + labels, minlength=12000).reshape(-1, 3).argmax(1)
    answered = np.bincount(items, minlength=4000) > 0
    right = (got.posterior.argmax(1) == truth)[answered].mean()
    assert right > (votes == truth)[answered].mean() + 0.005
    surest = got.posterior.max(1)
    assert surest[answered].mean() == pytest.approx(right, abs=0.02), "the posterior is calibrated"


@settings(max_examples=60, deadline=None)
@given(ANSWERS)
def test_the_objective_never_falls_and_everything_is_a_distribution(answers) -> None:
    items, who, labels = np.array(answers).T
    got = fit(items, who, labels, 10, 5, 4)
    assert (np.diff(got.objective) > -1e-8).all()
    assert np.allclose(got.confusion.sum(2), 1) and np.allclose(got.posterior.sum(1), 1)
    assert got.shares.sum() == pytest.approx(1) and (got.confusion > 0).all()


@settings(max_examples=30, deadline=None)
@given(ANSWERS, st.integers(0, 1000))
def test_the_order_of_answers_does_not_matter(answers, seed: int) -> None:
    items, who, labels = np.array(answers).T
    order = np.random.default_rng(seed).permutation(len(items))
    a, b = fit(items, who, labels, 10, 5, 4), fit(items[order], who[order], labels[order], 10, 5, 4)
    assert np.allclose(a.posterior, b.posterior) and np.allclose(a.confusion, b.confusion)
    assert an.agreement(items, labels, 10).alpha == pytest.approx(an.agreement(items[order], labels[order], 10).alpha)


def test_a_fit_on_a_part_of_the_items_judges_all() -> None:
    truth, items, who, labels = simulated(20_000, skilled([0.9, 0.8, 0.7], 3), np.full(3, 1 / 3), 0)
    got = fit(items, who, labels, 20_000, 3, 3, most_items=2000)
    assert got.posterior.shape == (20_000, 3) and (got.posterior.argmax(1) == truth).mean() > 0.9


def test_only_the_careless_are_far_from_the_rest_and_few_answers_condemn_nobody() -> None:
    confusion = skilled([0.9, 0.88, 0.92, 0.91, 0.5, 0.9], 4, 3)
    _, items, who, labels = simulated(600, confusion, np.full(4, 0.25), 5)
    kept = (who != 5) | (items < 3)
    table = pa.table(
        {
            "id": [f"i{i}" for i in items[kept]],
            "annotator": [f"w{a}" for a in who[kept]],
            "label": [f"c{v}" for v in labels[kept]],
        }
    )
    answers = an.read_answers(table)
    model = fit(answers.items, answers.annotators, answers.labels, len(answers.ids), 6, 4)
    found = an.skills(answers, model, margin=0.1)
    assert [s.name for s in found if s.far] == ["w4"]
    assert found[0].right == pytest.approx(0.5, abs=0.08)
    assert {s.name: s.answers for s in found}["w5"] == 3


def test_equal_annotators_are_accused_as_rarely_as_declared() -> None:
    accused = 0
    for seed in range(40):
        _, items, who, labels = simulated(150, skilled([0.8] * 5, 3, seed), np.full(3, 1 / 3), seed)
        answers = an.Answers(items, who, labels, pa.array(range(150)), tuple("abcde"), tuple("xyz"))
        accused += any(s.far for s in an.skills(answers, fit(items, who, labels, 150, 5, 3), margin=0.0))
    assert accused <= 6  # binomial(40, .05) exceeds 6 with chance .003


def test_reading_leaves_out_nulls_and_keeps_the_order_of_the_classes() -> None:
    table = pa.table({"id": ["a", "b", None], "annotator": [1, None, 2], "label": ["zebra", "ant", "ant"]})
    got = an.read_answers(table, ("zebra", "cat"))
    assert got.ids.to_pylist() == ["a"] and got.names == ("1",) and got.classes == ("zebra", "cat")
    assert got.labels.tolist() == [0]
    assert an.read_answers(table.slice(0, 0)).classes == ()
