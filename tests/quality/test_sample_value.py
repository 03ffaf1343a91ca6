"""What samples are worth and what training says of them: the checks value.sample_value and value.dynamics."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from sevenfold.quality.context import Context, Embeddings
from sevenfold.quality.learned import dynamics
from sevenfold.quality.policy import Policy
from sevenfold.quality.sample_value import sample_value
from sevenfold.quality.value import CHECKS
from sevenfold.quality.verdict import Verdict, from_table, to_table

VALUE = Policy().value
N, WRONG = 600, 30


@pytest.fixture
def table(rows: Callable[..., pa.Table]) -> pa.Table:
    """600 train samples, the first 30 with the label of another class, 200 val, 100 test; two batches."""
    split = ["train"] * N + ["val"] * 200 + ["test"] * 100
    names = ("boot", "coat", "shirt")
    label = [names[(i + (i < WRONG)) % 3] for i in range(N + 300)]
    return rows(N + 300, split=split, label=label, batch=["b1" if i < 500 else "b2" for i in range(N + 300)])


@pytest.fixture
def vectors() -> np.ndarray:
    """float32 [900, 6]: the true classes i % 3 are apart."""
    rng = np.random.default_rng(0)
    return (np.eye(6)[np.arange(N + 300) % 3] * 5 + rng.normal(size=(N + 300, 6))).astype(np.float32)


def judged(table: pa.Table, vectors: np.ndarray, **options: object) -> Verdict:
    policy = VALUE.model_copy(update=options)
    return sample_value(table, table["id"].combine_chunks(), vectors, subject="v1", policy=policy, producer="own-1")


def test_wrong_labels_are_worth_less_than_nothing_and_come_first(table: pa.Table, vectors: np.ndarray) -> None:
    v = judged(table, vectors)
    wrong = set(table["id"].to_pylist()[:WRONG])
    assert (v.v, v.check, v.n, v.result) == ("value", "sample_value", N, "pass")
    assert len(wrong & set(v.findings[:WRONG])) >= WRONG - 3 and len(v.findings) == round(v.statistic * N)
    assert v.interval[0] <= v.statistic <= v.interval[1]
    assert all("surely below 0" in note for note in v.notes[: WRONG - 5]) and v.notes[0].startswith("labelled ")
    assert v.data["bars"]["names"] == ["b1", "b2"], "the batch with the wrong labels is the worse"
    assert sum(v.data["histograms"][0]["now"]) == N
    assert judged(table, vectors) == v, "same input, same verdict"
    assert from_table(to_table([v])) == [v] and len(json.dumps(v.data)) < 20_000


def test_too_many_are_warned_of(table: pa.Table, vectors: np.ndarray) -> None:
    v = judged(table, vectors, max_negative_share=0.01)
    assert v.result == "warn" and "Look at the worst first" in v.remedy


def test_a_batch_that_harms_is_named(table: pa.Table, vectors: np.ndarray) -> None:
    names = ["poor" if i < WRONG else "good" for i in range(N + 300)]
    v = judged(table.set_column(table.schema.get_field_index("batch"), "batch", pa.array(names)), vectors)
    assert v.result == "warn" and v.findings[0] == "batch:poor" and "poor the worst" in v.message
    assert v.notes[0].startswith("a batch worth -") and len(v.notes) == len(v.findings)


def test_what_is_not_in_val_decides_nothing(table: pa.Table, vectors: np.ndarray) -> None:
    """Test samples take no part; without val there is no value, and the remedy says so."""
    shuffled = vectors.copy()
    shuffled[N + 200 :] = 0
    assert judged(table, vectors) == judged(table, shuffled)
    split = ["train"] * N + ["test"] * 300
    v = judged(table.set_column(table.schema.get_field_index("split"), "split", pa.array(split)), vectors)
    assert v.result == "not_measurable" and "in the split val" in v.remedy


def test_few_vectors_are_not_measurable_and_many_are_sampled(table: pa.Table, vectors: np.ndarray) -> None:
    ids = table["id"].combine_chunks()
    few = sample_value(table, ids[550:], vectors[550:], subject="v1", policy=VALUE, producer="own-1")
    assert (few.result, few.n) == ("not_measurable", 50) and "sevenfold embed v1" in few.remedy
    some = judged(table, vectors, sample_budget=250, max_points=100)
    assert some.n == 250 and "100 val samples" in some.message


def noted(table: pa.Table, **columns: object) -> pa.Table:
    rng = np.random.default_rng(1)
    given = {
        "id": table["id"].to_pylist()[:N],
        "el2n": rng.random(N),
        "forgetting": rng.integers(0, 3, N).astype(float),
        "aum": rng.normal(3, 1, N),
        "learned": np.clip(rng.normal(0.8, 0.1, N), 0.1, 1),
    }
    return pa.table(given | columns)


def test_what_was_never_learned_is_found_the_lowest_aum_first(table: pa.Table) -> None:
    learned, aum = np.ones(N), np.full(N, 2.0)
    learned[:180], aum[:180] = 0, -np.arange(180.0)
    v = dynamics(table, noted(table, learned=learned, aum=aum), subject="v1", policy=VALUE)
    assert (v.result, v.n, v.statistic) == ("warn", N, pytest.approx(0.3))
    assert v.interval[0] > VALUE.max_never_learned and v.findings == tuple(table["id"].to_pylist()[:180][::-1])
    assert v.notes[0].startswith("labelled ") and "AUM -179.0" in v.notes[0]
    assert [h["name"] for h in v.data["histograms"]] == ["EL2N", "AUM"]
    fine = dynamics(table, noted(table), subject="v1", policy=VALUE)
    assert (fine.result, fine.findings, fine.remedy) == ("pass", (), "")


def test_hard_is_not_wrong_and_predictions_tell_how_much(table: pa.Table) -> None:
    el2n = np.linspace(0, 1, N)[::-1].copy()  # the first 30 are the hardest, and wrong
    given = noted(table, el2n=el2n)
    assert "about 40 %" in dynamics(table, given, subject="v1", policy=VALUE).message
    true = [("boot", "coat", "shirt")[i % 3] for i in range(N + 300)]
    predictions = pa.table({"id": table["id"], "predicted": true})
    v = dynamics(table, given, subject="v1", policy=VALUE, predictions=predictions)
    assert "of the 5% with the highest, 100% have another label" in v.message


def test_dynamics_of_few_or_of_another_kind_say_so(table: pa.Table) -> None:
    few = dynamics(table, noted(table).slice(0, 50), subject="v1", policy=VALUE)
    assert few.result == "not_measurable" and "50 of 600" in few.message
    learned = np.r_[np.zeros(N // 2 + 1), np.ones(N - N // 2 - 1)]
    weak = dynamics(table, noted(table, learned=learned), subject="v1", policy=VALUE)
    assert (weak.result, weak.findings) == ("not_measurable", ()) and "too short or too weak" in weak.message
    odd = dynamics(table, noted(table).drop(["aum"]), subject="v1", policy=VALUE)
    assert odd.result == "not_measurable" and "no column aum" in odd.message


def test_the_checks_say_what_would_make_them_measurable(table: pa.Table, vectors: np.ndarray, properties) -> None:
    bare = Context("v3", "version", table, properties(table), now=0.0)
    found = {c.name: c.run(bare) for c in CHECKS}
    assert {v.result for v in found.values()} == {"not_measurable"}
    assert "sevenfold embed v3" in found["sample_value"].remedy and "sevenfold train v3" in found["dynamics"].remedy
    full = Context(
        "v3", "version", table, properties(table), now=0.0, dynamics=noted(table),
        embeddings=Embeddings(table["id"].combine_chunks(), vectors, "own-1"),
    )  # fmt: skip
    found = {c.name: c.run(full) for c in CHECKS}
    assert {k: v.result for k, v in found.items() if k != "selection_gain"} == {
        "sample_value": "pass",
        "dynamics": "pass",
    }
