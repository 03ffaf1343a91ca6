"""Embeddings: MMD and the classifier find a move of mean or of spread, name the samples, and are calm otherwise."""

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from sevenfold.quality.classifier_test import classifier_test, held_out, ridge
from sevenfold.quality.context import Embeddings
from sevenfold.quality.embedding_drift import embedding_classifier, embedding_mmd, goes_with
from sevenfold.quality.mmd import mmd, squared_distances, witness_of
from sevenfold.quality.policy import Policy
from sevenfold.storage.errors import SevenfoldError

LIMITS = Policy().volatility
BOTH = (embedding_mmd, embedding_classifier)
COMMON = {"subject": "b1", "reference": "v1", "policy": LIMITS}


def vectors(n: int, seed: int, *, mean: float = 0.0, scale: float = 1.0, d: int = 16) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mix = np.random.default_rng(99).standard_normal((d, d))
    return ((rng.standard_normal((n, d)) * scale + mean) @ mix).astype(np.float32)


def embeddings(x: np.ndarray, prefix: str, producer: str = "small") -> Embeddings:
    return Embeddings(pa.array([f"{prefix}{i}" for i in range(len(x))]), x, producer)


@pytest.mark.parametrize("test", [mmd, classifier_test])
def test_no_shift_raises_as_many_alarms_as_alpha_and_no_more(test) -> None:
    alarms = sum(test(vectors(40, i), vectors(80, i + 10_000), draws=99, seed=i).p <= 0.05 for i in range(100))
    assert stats.binom.ppf(0.001, 100, 0.05) <= alarms <= stats.binom.ppf(0.999, 100, 0.05)


@pytest.mark.parametrize("check", BOTH)
@pytest.mark.parametrize("move", [{"mean": 0.5}, {"scale": 1.4}])
def test_a_move_is_found_with_its_samples_and_pictures(check, move) -> None:
    x = vectors(300, 1)
    x[:150] = vectors(150, 2, **{"mean": 3 * move["mean"]} if "mean" in move else {"scale": 3})
    v = check(embeddings(x, "new"), embeddings(vectors(500, 3), "old"), **COMMON)
    assert v.result in ("warn", "fail") and not v.blocking and v.p <= 0.05
    assert v.interval[0] <= v.statistic <= v.interval[1]
    top = [int(f.removeprefix("new")) for f in v.findings[:20]]
    assert len(v.notes) == len(v.findings) and np.mean(np.array(top) < 150) > 0.9
    assert v.data["examples"]["now"][0] == v.findings[0] and v.data["examples"]["reference"][0].startswith("old")
    shown = v.data["histograms"][0]
    assert sum(shown["now"]) >= 300 and sum(shown["reference"]) == 500


@pytest.mark.parametrize("check", BOTH)
def test_the_same_distribution_passes_without_findings(check) -> None:
    v = check(embeddings(vectors(200, 5), "new"), embeddings(vectors(300, 6), "old"), **COMMON)
    assert (v.result, v.findings) == ("pass", ()) and v.p > 0.05


@pytest.mark.parametrize("check", BOTH)
def test_too_few_are_not_measurable_and_encoders_are_not_mixed(check) -> None:
    few = check(embeddings(vectors(20, 5, mean=9), "new"), embeddings(vectors(300, 6), "old"), **COMMON)
    assert few.result == "not_measurable" and "50 on both sides" in few.message
    with pytest.raises(SevenfoldError, match="other"):
        check(embeddings(vectors(60, 5), "a", "other"), embeddings(vectors(60, 6), "b"), **COMMON)
    broken = vectors(60, 5)
    broken[3, 2] = np.nan
    with pytest.raises(SevenfoldError, match="not finite"):
        check(embeddings(broken, "a"), embeddings(vectors(60, 6), "b"), **COMMON)


def test_identical_and_constant_embeddings_say_nothing() -> None:
    same = np.ones((60, 4), np.float32)
    assert mmd(same, same, draws=49).p == 1.0
    assert classifier_test(same, same, draws=49).effect < 0.3


def test_findings_of_the_classifier_cover_the_samples_that_were_not_compared() -> None:
    limits = LIMITS.model_copy(update={"embedding_budget": 100})
    x = vectors(600, 1)
    x[:300] += 8
    v = embedding_classifier(embeddings(x, "new"), embeddings(vectors(400, 2), "old"), **COMMON | {"policy": limits})
    found = {int(f.removeprefix("new")) for f in v.findings}
    assert v.n == 100 and len(found & set(range(300))) > 280


@pytest.mark.parametrize("check", BOTH)
def test_the_property_that_the_move_goes_with_is_told(check) -> None:
    x, y = vectors(200, 1, mean=1), vectors(300, 2)
    rng = np.random.default_rng(0)

    def properties(prefix: str, n: int, sharpness: float) -> pa.Table:
        ids = [f"{prefix}{i}" for i in range(n)][::-1]
        values = {"brightness": rng.random(n), "sharpness": rng.normal(sharpness, 1, n)}
        return pa.table({"id": ids, **values, "aspect": np.ones(n)})

    both = properties("new", 200, -3), properties("old", 300, 0)
    v = check(embeddings(x, "new"), embeddings(y, "old"), properties=both, **COMMON)
    assert "It goes with lower sharpness (rank correlation -0." in v.message
    assert goes_with(rng.random(100), {"brightness": rng.random(100), "aspect": np.ones(100)}) == ""


def test_mmd_agrees_with_its_definition() -> None:
    x, y = vectors(30, 1).astype(float), vectors(20, 2, mean=1).astype(float)
    found = mmd(x, y, draws=19)
    gamma = 1 / (2 * found.width**2)

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(-gamma * ((a[:, None] - b[None]) ** 2).sum(-1))

    pooled = np.concatenate([x, y])
    off = lambda k: (k.sum() - np.trace(k)) / (len(k) * (len(k) - 1))  # noqa: E731
    expected = off(kernel(x, x)) + off(kernel(y, y)) - 2 * kernel(x, y).mean()
    assert found.effect == pytest.approx(np.sqrt(expected / (4 * (1 - off(kernel(pooled, pooled))))), rel=1e-3)
    outsider = vectors(5, 8)
    both = kernel(outsider, x).mean(1) - kernel(outsider, y).mean(1)
    assert witness_of(outsider, x, y, found.width) == pytest.approx(both, abs=1e-4)
    assert squared_distances(x.astype(np.float32))[0, 1] == pytest.approx(((x[0] - x[1]) ** 2).sum(), rel=1e-3)


def test_held_out_scores_do_not_know_their_own_label() -> None:
    z, y = vectors(50, 1), np.random.default_rng(0).random((50, 1)).astype(np.float32)
    before = held_out(z, y, seed=0)
    changed = y.copy()
    changed[7] += 100
    after = held_out(z, changed, seed=0)
    assert after[7] == pytest.approx(before[7]) and not np.allclose(after, before)


def test_both_forms_of_ridge_agree() -> None:
    wide = np.random.default_rng(0).standard_normal((20, 21))
    y = np.random.default_rng(1).standard_normal((20, 2))
    narrow = np.vstack([wide.T, np.zeros((0, 20))])[:20].T  # 20 x 20: primal
    dual = np.concatenate([narrow, np.zeros((20, 5))], axis=1)  # the same with empty columns: dual
    assert ridge(narrow, y) == pytest.approx(ridge(dual, y)[:20], rel=1e-3, abs=1e-4)
