"""kNN-Shapley is Shapley's value of the K-nearest-neighbour utility: checked against its definition on tiny sets."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.quality import shapley


def utility(of: tuple[int, ...], distances: np.ndarray, right: np.ndarray, k: int) -> float:
    """v(S): the mean share (of K) of right labels among the nearest of S."""
    found = 0.0
    for row, hits in zip(distances, right, strict=True):
        nearest = sorted(of, key=lambda i: row[i])[:k]
        found += sum(hits[i] for i in nearest) / k
    return found / len(distances)


def brute(distances: np.ndarray, right: np.ndarray, k: int) -> np.ndarray:
    """The definition: the mean gain of adding a sample to every set of the others."""
    n = distances.shape[1]
    values = np.zeros(n)
    for i in range(n):
        others = [j for j in range(n) if j != i]
        for size in range(n):
            for s in combinations(others, size):
                gain = utility((*s, i), distances, right, k) - utility(s, distances, right, k)
                values[i] += gain / comb(n - 1, size) / n
    return values


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 3), st.integers(1, 8), st.integers(1, 3))
def test_values_are_shapleys_and_sum_to_the_utility(seed: int, n: int, m: int, k: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    train, points = rng.normal(size=(n, 2)), rng.normal(size=(m, 2))
    labels, wanted = rng.integers(0, classes, n), rng.integers(0, classes, m)
    found = shapley.knn_shapley(train, labels, points, wanted, k)
    distances = np.linalg.norm(points[:, None] - train[None], axis=2)
    right = labels[None] == wanted[:, None]
    np.testing.assert_allclose(found, brute(distances, right, k), atol=1e-9)
    assert found.sum() == pytest.approx(utility(tuple(range(n)), distances, right, k))


def test_blocks_change_nothing() -> None:
    rng = np.random.default_rng(0)
    given = rng.normal(size=(50, 4)), rng.integers(0, 3, 50), rng.normal(size=(31, 4)), rng.integers(0, 3, 31)
    parts = list(shapley.point_values(*given, 5, block=170))
    assert [at for at, _ in parts][:2] == [slice(0, 3), slice(3, 6)]
    total = sum(values.sum(0) for _, values in parts) / 31
    np.testing.assert_allclose(total, shapley.knn_shapley(*given, 5), atol=1e-12)


def test_a_wrong_label_is_worth_less_than_nothing() -> None:
    rng = np.random.default_rng(1)
    true = rng.integers(0, 3, 600)
    vectors = np.eye(3)[true] * 4 + rng.normal(size=(600, 3))
    labels = true.copy()
    labels[:40] = (labels[:40] + 1) % 3
    groups = (np.arange(600) >= 40).astype(int)[:400]
    found = shapley.bootstrapped(
        vectors[:400], labels[:400], vectors[400:], true[400:], 5, groups=[groups], draws=50, confidence=0.95
    )
    assert (found.values[:40] < 0).mean() > 0.9 and (found.values[40:] < 0).mean() < 0.1
    assert found.certain[:40].mean() > 0.8 and found.certain[40:].mean() < 0.05
    low, high = np.quantile(found.draws[0], [0.025, 0.975], axis=0)
    means = [found.values[groups == g].mean() for g in (0, 1)]
    assert (low <= means).all() and (means <= high).all() and high[0] < 0 < low[1]
    assert found.utility == pytest.approx(found.values.sum())
    assert np.quantile(found.negative_draws, 0.025) <= (found.values < 0).mean() + 0.02


def test_nothing_to_value_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        shapley.knn_shapley(np.zeros((0, 2)), np.zeros(0), np.zeros((1, 2)), np.zeros(1), 5)
