"""Label changes between versions, and accuracy on the newest samples."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sevenfold.intervals import wilson
from sevenfold.quality.ageing import CHECKS, accuracy_by_age, label_change, newcombe, two_proportions
from sevenfold.quality.context import Context
from sevenfold.quality.policy import Policy

LIMITS = Policy().volatility


def table(labels: list, prefix: str = "s") -> pa.Table:
    return pa.table({"id": [f"{prefix}{i}" for i in range(len(labels))], "label": pa.array(labels, pa.string())})


def change(now: list, before: list):
    return label_change(table(now), table(before), subject="v2", reference="v1", policy=LIMITS)


def test_changed_labels_are_counted_and_named_the_commonest_first() -> None:
    before = ["coat"] * 100 + ["boot"] * 100
    now = ["coat"] * 97 + ["boot"] * 3 + ["coat"] * 20 + ["boot"] * 80 + ["boot"] * 50  # 50 more: not in v1
    v = change(now, before)
    assert v.n == 200 and v.statistic == pytest.approx(23 / 200) and v.interval == wilson(23, 200)
    assert v.result == "warn" and not v.blocking
    assert len(v.findings) == 23 and v.notes == ("boot -> coat",) * 20 + ("coat -> boot",) * 3
    assert "boot -> coat (20), coat -> boot (3)" in v.message
    matrix = v.data["matrix"]
    assert matrix["values"][matrix["rows"].index("boot")][matrix["columns"].index("coat")] == 20


def test_a_label_given_or_taken_is_a_change_and_none_on_both_sides_is_not_counted() -> None:
    v = change(["a"] * 60 + [None] * 20 + ["a"], ["a"] * 59 + [None] + [None] * 20 + [None])
    assert v.n == 61 and set(v.notes) == {"(none) -> a"} and len(v.findings) == 2
    assert change(["a"] * 60, ["a"] * 60).result == "pass"
    assert change(["a"] * 20, ["b"] * 20).result == "not_measurable"


def test_few_changes_at_small_n_are_no_warning() -> None:
    before = ["a"] * 60
    assert change(["b"] * 3 + ["a"] * 57, before).result == "pass"  # 5 %, but surely more than 2 % it is not
    assert change(["b"] * 30 + ["a"] * 30, before).result == "fail"


def aged(shares: list[float], n: int = 300, seed: int = 0):
    rng = np.random.default_rng(seed)
    names = [f"b{i}" for i in range(len(shares))]
    batches = np.repeat(names, n)
    correct = np.concatenate([rng.random(n) < share for share in shares])
    order = rng.permutation(len(correct))
    return accuracy_by_age(
        correct[order],
        pa.array([f"s{i}" for i in order]),
        pa.array(batches[order]),
        {name: float(i) for i, name in enumerate(names)},
        subject="v2",
        policy=LIMITS,
    )


def test_a_fall_on_the_newest_batch_is_found_with_the_wrong_samples_of_it() -> None:
    v = aged([0.9, 0.9, 0.9, 0.7])
    assert v.result == "fail" and v.interval[0] < v.statistic < v.interval[1] < 0 and v.p < 0.001
    assert "300 newest samples (b3)" in v.message
    assert {int(f[1:]) // 300 for f in v.findings} == {3} and set(v.notes) == {"wrong, in b3"}
    assert [t for t, _ in v.data["series"]["points"]] == [0, 1, 2, 3]


def test_a_rise_and_the_same_accuracy_pass() -> None:
    assert aged([0.7, 0.9]).result == "pass"
    alarms = sum(aged([0.8, 0.8], seed=i).result != "pass" for i in range(100))
    assert alarms <= stats.binom.ppf(0.999, 100, 0.025)


def test_the_window_grows_to_enough_samples_and_one_batch_is_not_measurable() -> None:
    v = aged([0.9] * 10, n=20)
    assert "60 newest samples (b7, b8, b9)" in v.message
    assert aged([0.9]).result == "not_measurable" and aged([0.9, 0.9], n=20).result == "not_measurable"


def test_the_check_joins_predictions_batches_and_times_by_id() -> None:
    n = 200
    ids = [f"s{i}" for i in range(n)]
    rows = pa.table({"id": ids, "label": ["a"] * n, "batch": ["late"] * 100 + ["early"] * 100})
    predicted = pa.table({"id": ids[::-1], "predicted": ["a"] * 100 + ["b"] * 50 + ["a"] * 50})
    records = [{"batch": "early", "times": {"landed": 1.0}}, {"batch": "late", "times": {"landed": 2.0}}]
    context = Context("v1", "version", rows, rows.select(["id"]), 0.0, predictions=predicted, records=records)
    by_name = {c.name: c for c in CHECKS}
    v = by_name["accuracy_by_age"].run(context)
    assert v.statistic == pytest.approx(-0.5) and v.result == "fail" and len(v.findings) == 50
    assert by_name["label_change"].run(context).result == "not_measurable"


@given(st.integers(1, 40), st.integers(1, 40), st.data())
def test_newcombe_holds_the_difference(n: int, m: int, data: st.DataObject) -> None:
    k, j = data.draw(st.integers(0, n)), data.draw(st.integers(0, m))
    low, high = newcombe(k, n, j, m)
    assert -1 - 1e-9 <= low <= k / n - j / m <= high <= 1 + 1e-9
    assert 0 < two_proportions(k, n, j, m) <= 1


def test_newcombe_gives_the_published_example() -> None:
    """Newcombe 1998, table II: 56/70 - 48/80, method 10."""
    assert newcombe(56, 70, 48, 80) == pytest.approx((0.0524, 0.3339), abs=5e-4)
