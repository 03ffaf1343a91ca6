import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.quality.context import Embeddings
from sevenfold.quality.coverage import chosen, cluster_coverage, foreign_samples, vendi
from sevenfold.quality.neighbours import foreign, nearest_rows, reach
from sevenfold.quality.policy import Policy
from sevenfold.quality.vendi import unit, vendi_score

LIMITS = Policy().variety


def ids(n: int, prefix: str = "s") -> pa.Array:
    return pa.array([hashlib.sha256(f"{prefix}{i}".encode()).hexdigest() for i in range(n)])


def cloud(n: int, seed: int, *, clusters: int = 12, dims: int = 16, centres: int | None = None) -> np.ndarray:
    """A mixture of Gaussians around fixed centres; `centres`: only so many of them."""
    middle = np.random.default_rng(99).normal(0, 1, (clusters, dims))
    rng = np.random.default_rng(seed)
    return (middle[rng.integers(0, centres or clusters, n)] + rng.normal(0, 0.25, (n, dims))).astype(np.float32)


def points(vectors: np.ndarray, prefix: str = "s"):
    return chosen(Embeddings(ids(len(vectors), prefix), vectors, "e"), 10_000)


@given(n=st.integers(2, 40))
def test_vendi_is_n_for_orthogonal_vectors_and_1_for_equal_ones(n: int) -> None:
    assert vendi_score(np.eye(n) * 3)[0] == pytest.approx(n)
    score, (low, high), error = vendi_score(np.ones((n, 5)))
    assert score == pytest.approx(1) and low == pytest.approx(1) and high == pytest.approx(1)
    assert error == pytest.approx(0, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(2, 30), d=st.integers(1, 30), seed=st.integers(0, 99))
def test_the_dual_form_gives_what_the_kernel_matrix_gives(n: int, d: int, seed: int) -> None:
    x = unit(np.random.default_rng(seed).normal(size=(n, d)))
    values = np.linalg.eigvalsh(x @ x.T / n)
    values = values[values > 1e-12]
    score, (low, high), _ = vendi_score(x)
    assert score == pytest.approx(np.exp(-(values * np.log(values)).sum()), rel=1e-6)
    assert 1 - 1e-9 <= low <= score <= high <= min(n, d) + 1e-6


@given(k=st.integers(1, 8), copies=st.integers(2, 20))
def test_copies_add_nothing_to_vendi(k: int, copies: int) -> None:
    assert vendi_score(np.repeat(np.eye(8)[:k], copies, axis=0))[0] == pytest.approx(k)


def test_the_interval_of_vendi_covers_that_of_many_samples() -> None:
    truth = vendi_score(cloud(60_000, 0))[0]
    spans = [vendi_score(cloud(1500, seed))[1] for seed in range(1, 121)]
    assert 0.88 <= np.mean([low <= truth <= high for low, high in spans]) <= 0.995


def test_a_version_of_fewer_kinds_falls_and_one_of_the_same_kind_does_not() -> None:
    before = points(cloud(3000, 0), "r")
    same = vendi(points(cloud(3000, 1)), before, subject="v2", policy=LIMITS, reference="v1")
    assert same.result == "pass" and abs(same.effect) < 0.02
    poor = vendi(points(cloud(3000, 1, centres=5)), before, subject="v2", policy=LIMITS, reference="v1")
    assert poor.result == "warn" and poor.effect > 0.3
    small = vendi(points(cloud(400, 1)), before, subject="v2", policy=LIMITS, reference="v1")
    assert (small.result, small.n) == ("pass", 400), "compared on as many samples"
    assert vendi(points(cloud(50, 1)), None, subject="v1", policy=LIMITS).result == "not_measurable"
    assert vendi(points(cloud(500, 1)), None, subject="v1", policy=LIMITS).result == "pass"


def test_lost_clusters_warn_with_an_example_of_each() -> None:
    before = points(cloud(3000, 0), "r")
    v = cluster_coverage(points(cloud(1000, 1, centres=8)), before, subject="v2", policy=LIMITS, reference="v1")
    assert v.result == "warn" and v.p < 0.01 and v.effect > 0.1
    assert len(v.findings) == len(v.notes) == len(v.data["examples"]["reference"])
    assert set(v.data["examples"]["reference"]) <= set(ids(3000, "r").to_pylist())
    assert cluster_coverage(points(cloud(1000, 1)), None, subject="v2", policy=LIMITS).result == "not_measurable"


def test_coverage_raises_no_more_false_alarms_than_its_level() -> None:
    alarms = sum(reach(unit(cloud(1000, 2 * s)), unit(cloud(m, 2 * s + 1)), 12).p < 0.05
                 for s in range(50) for m in (30, 300))  # fmt: skip
    assert alarms <= 13  # binomial(100, .05) exceeds 13 with probability .0005


def test_foreign_counts_are_calibrated_on_the_references_own_kind() -> None:
    """200 draws of the same distribution: p below .05 no more often than that, though the limit itself is a sample's."""
    alarms, beyond = 0, 0
    for s in range(200):
        found = foreign(unit(cloud(600, 2 * s)), unit(cloud(200, 2 * s + 1)), 0.02)
        alarms += found.p < 0.05
        beyond += int((found.distances > found.limit).sum())
    assert alarms <= 20  # binomial(200, .05) exceeds 20 with probability .001
    assert beyond / (200 * 200) == pytest.approx(7 / 301, rel=0.25)  # rank 7 of 300 calibration samples


def test_foreign_samples_are_named_the_farthest_first() -> None:
    before, usual = points(cloud(3000, 0), "r"), cloud(960, 1)
    strange = np.concatenate([usual, -3 * cloud(40, 2)])
    now = chosen(Embeddings(ids(1000), strange, "e"), 10_000)
    v = foreign_samples(now, before, subject="b2", policy=LIMITS, reference="v1")
    planted = set(ids(1000).to_pylist()[960:])
    assert v.result == "warn" and v.statistic == pytest.approx(0.04, abs=0.01)
    assert len(planted & set(v.findings[: len(planted)])) >= 38
    assert foreign_samples(points(usual), before, subject="b2", policy=LIMITS, reference="v1").result == "pass"
    assert foreign_samples(points(usual[:50]), before, subject="b2", policy=LIMITS).result == "not_measurable"


def test_the_blocked_neighbours_are_the_nearest() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(50, 4)), rng.normal(size=(80, 4))
    apart = np.linalg.norm(a[:, None] - b[None], axis=2)
    rows, far = nearest_rows(a, b, 3)
    assert (rows == apart.argmin(1)).all()
    assert far == pytest.approx(np.sort(apart, axis=1)[:, 2])


def test_the_same_samples_are_chosen_whatever_their_order() -> None:
    vectors, names = cloud(400, 0), ids(400)
    one = chosen(Embeddings(names, vectors, "e"), 100)
    order = np.random.default_rng(1).permutation(400)
    other = chosen(Embeddings(names.take(pa.array(order)), vectors[order], "e"), 100)
    assert one.ids.equals(other.ids) and (one.vectors == other.vectors).all()
