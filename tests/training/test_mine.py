"""Mining: honest inclusion probabilities, no in-sample judgement, no test rows, suspects as they were judged."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.storage.errors import SevenfoldError
from sevenfold.training import draw
from sevenfold.training.mine import QUEUE, hard_queue, random_queue, suspected_labels
from tests.conftest import world

CLASSES = ("cat", "dog", "frog", "ship")


def name(i: int | str) -> str:
    return hashlib.sha256(str(i).encode()).hexdigest()


def predictions(probs: np.ndarray, label: np.ndarray | None, **fixed: Any) -> pa.Table:
    n = len(probs)
    top = np.sort(probs, axis=1)
    columns = {
        "id": [name(i) for i in range(n)],
        "content_id": ["c" * 64] * n,
        "label": pa.array(
            [None if label is None else CLASSES[v] for v in (label if label is not None else [0] * n)], pa.string()
        ),
        "predicted": [CLASSES[v] for v in probs.argmax(1)],
        "margin": top[:, -1] - top[:, -2],
        "probs": pa.array(list(probs.astype(np.float32)), pa.list_(pa.float32())),
        "in_sample": [False] * n,
    }
    return pa.table({**columns, **fixed})


def samples(table: pa.Table, split: str | list[str]) -> pa.Table:
    splits = [split] * table.num_rows if isinstance(split, str) else split
    return pa.table({"id": table["id"], "split": splits, "label": table["label"]})


def shuffled(table: pa.Table) -> pa.Table:
    return table.take(pa.array(np.random.default_rng(5).permutation(table.num_rows)))


def judged(n: int = 2000, seed: int = 0) -> pa.Table:
    """A judgement of n labels: id, label, suggestion, wrong, score."""
    rng = np.random.default_rng(seed)
    wrong = rng.beta(0.2, 1.0, n)
    label = rng.integers(0, 4, n)
    return pa.table(
        {
            "id": [name(i) for i in range(n)],
            "label": [CLASSES[v] for v in label],
            "suggestion": [CLASSES[(v + 1) % 4] for v in label],
            "wrong": wrong,
            "score": np.log(wrong / (1 - wrong)),
        }
    )


def suspect(table: pa.Table, cut: int, known: pa.Table | None = None, **more: Any) -> pa.Table:
    known = samples(table, "train") if known is None else known
    return suspected_labels(table, cut, known, content_id="c" * 64, producer="run-1", **more)


def of_kind(queue: pa.Table, kind: str) -> list[str]:
    return [i for i, k in zip(queue["id"].to_pylist(), queue["kind"].to_pylist(), strict=True) if k == kind]


# ---- suspected labels


def test_suspects_come_ranked_with_suggestions_and_a_control_that_was_not_suspected() -> None:
    table = judged()
    queue = suspect(table, 150, random_share=0.2)
    assert queue.schema == QUEUE
    rows = queue.to_pylist()
    suspects = [r for r in rows if r["kind"] == "suspected_label"]
    control = [r for r in rows if r["kind"] == "random"]
    assert len(suspects) == 150 and len(control) == 30
    assert [r["rank"] for r in rows] == list(range(1, len(rows) + 1))
    assert all(r["suggestion"] not in (None, r["label"]) and r["inclusion_probability"] == 1 for r in suspects)
    assert [r["score"] for r in suspects] == sorted(table["wrong"].to_pylist(), reverse=True)[:150]
    assert all(r["suggestion"] is None for r in control)
    assert {r["inclusion_probability"] for r in control} == {30 / 1850}
    assert len({r["id"] for r in rows}) == len(rows) and {r["producer"] for r in rows} == {"run-1"}
    short = suspect(table, 150, limit=7)
    assert of_kind(short, "suspected_label") == [r["id"] for r in suspects[:7]]
    assert not set(of_kind(short, "random")) & {r["id"] for r in suspects}, "the control is of labels not suspected"
    assert of_kind(suspect(table, 0), "suspected_label") == []


def test_the_order_of_rows_does_not_matter() -> None:
    table = judged(500)
    assert suspect(table, 60).equals(suspect(shuffled(table), 60, shuffled(samples(table, "train"))))


def test_test_pool_stale_and_repeated_labels_are_refused() -> None:
    table = judged(90)
    for split, match in (("test", "never mined"), ("pool", "no labels")):
        with pytest.raises(SevenfoldError, match=match):
            suspect(table, 5, samples(table, [split if i == 4 else "train" for i in range(90)]))
    known = samples(table, "train")
    other = pa.array(
        [CLASSES[(CLASSES.index(v) + 2) % 4] if i == 7 else v for i, v in enumerate(known["label"].to_pylist())]
    )
    with pytest.raises(SevenfoldError, match="current"):
        suspect(table, 5, known.set_column(2, "label", other))
    with pytest.raises(SevenfoldError, match="current"):
        suspect(table, 5, known.slice(1))
    with pytest.raises(SevenfoldError, match="several"):
        suspect(pa.concat_tables([table, table]), 5, known)


# ---- the pool


def pool(n: int = 1000, seed: int = 0) -> tuple[pa.Table, pa.Table]:
    table = predictions(world(n, seed=seed)[0], None)
    return table, samples(table, "pool")


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.integers(0, 400), st.floats(0, 1), st.floats(0, 1), st.integers(-5, 2**40))
def test_a_queue_has_the_size_asked_for_and_real_probabilities(
    n: int, size: int, share: float, balance: float, seed: int
) -> None:
    table, known = pool(n)
    queue = hard_queue(table, known, size, producer="r", seed=seed, random_share=share, balance=balance)
    assert queue.schema == QUEUE and queue.num_rows == min(n, size)
    assert len(set(queue["id"].to_pylist())) == queue.num_rows
    p = queue["inclusion_probability"].to_numpy()
    assert (p > 0).all() and (p <= 1).all() and (p >= share * min(size, n) / n - 1e-9).all()
    assert queue.equals(
        hard_queue(shuffled(table), shuffled(known), size, producer="r", seed=seed, random_share=share, balance=balance)
    )


def test_weighting_by_the_stated_probabilities_recovers_the_pool() -> None:
    """Horvitz-Thompson over many seeds: totals of anything are unbiased, and so is the control's plain mean."""
    table, known = pool(500)
    margin = dict(zip(table["id"].to_pylist(), table["margin"].to_pylist(), strict=True))
    totals, sizes, plain, control = [], [], [], []
    for seed in range(300):
        q = hard_queue(table, known, 60, producer="r", seed=seed, random_share=0.3)
        p = q["inclusion_probability"].to_numpy()
        totals.append(sum(margin[i] / w for i, w in zip(q["id"].to_pylist(), p, strict=True)))
        sizes.append((1 / p).sum())
        plain.append(np.mean([margin[i] for i in q["id"].to_pylist()]))
        control.append(np.mean([margin[i] for i in of_kind(q, "random")]))
    truth = sum(margin.values())
    for values, target in ((totals, truth), (sizes, 500), (control, truth / 500)):
        assert abs(np.mean(values) - target) < 4 * np.std(values) / 300**0.5
    assert np.mean(plain) < 0.7 * truth / 500, "the queue itself is harder than the pool"


def test_every_pool_sample_becomes_a_control_equally_often() -> None:
    table, known = pool(50)
    counts: Counter[str] = Counter()
    for seed in range(600):
        counts.update(of_kind(hard_queue(table, known, 20, producer="r", seed=seed, random_share=0.5), "random"))
    expected = 600 * 0.5 * 20 / 50
    seen = np.array([counts[i] for i in table["id"].to_pylist()])
    assert abs(seen - expected).max() < 4.5 * (expected * 0.8) ** 0.5


def test_balance_spreads_the_queue_over_predicted_classes() -> None:
    probs = np.vstack([np.tile([0.4, 0.35, 0.15, 0.1], (900, 1)), np.tile([0.1, 0.1, 0.1, 0.7], (100, 1))])
    table = predictions(probs, None)
    known = samples(table, "pool")
    label = dict(zip(table["id"].to_pylist(), table["predicted"].to_pylist(), strict=True))
    got = {
        b: Counter(
            label[i] for i in hard_queue(table, known, 100, producer="r", balance=b, random_share=0)["id"].to_pylist()
        )
        for b in (0.0, 1.0)
    }
    assert got[0.0]["ship"] < 5 and got[1.0]["ship"] == 50


def test_only_the_unlabelled_pool_is_mined_and_exclusions_hold() -> None:
    table, known = pool(300)
    splits = ["pool" if i % 2 else "test" for i in range(300)]
    out = [name(i) for i in range(1, 300, 4)]
    allowed = {name(i) for i in range(1, 300, 2)} - set(out)
    for mine in (hard_queue, random_queue):
        queue = mine(table, samples(table, splits), 1000, producer="r", exclude_ids=out)
        assert set(queue["id"].to_pylist()) == allowed
        assert queue["inclusion_probability"].to_pylist() == pytest.approx([1.0] * len(allowed))
    labelled = known.set_column(2, "label", pa.array(["cat"] * 300))
    assert hard_queue(table, labelled, 10, producer="r").num_rows == 0
    inside = table.set_column(table.column_names.index("in_sample"), "in_sample", pa.array([True] * 300))
    with pytest.raises(SevenfoldError, match="in-sample"):
        hard_queue(inside, known, 10, producer="r")
    with pytest.raises(SevenfoldError, match="share"):
        hard_queue(table, known, 10, producer="r", random_share=1.5)


def test_the_random_queue_is_even_and_nested() -> None:
    table, known = pool(200)
    small, large = (random_queue(table, known, k, producer="r", seed=4) for k in (20, 60))
    assert large["id"].to_pylist()[:20] == small["id"].to_pylist()
    assert set(small["inclusion_probability"].to_pylist()) == {0.1}
    assert set(small["kind"].to_pylist()) == {"random"}
    counts: Counter[str] = Counter()
    for seed in range(500):
        counts.update(random_queue(table, known, 20, producer="r", seed=seed)["id"].to_pylist())
    assert len(counts) == 200 and max(abs(c - 50) for c in counts.values()) < 4.5 * 45**0.5


# ---- the draw itself


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.just(0.0) | st.floats(1e-3, 1e6), min_size=1, max_size=60),
    st.integers(0, 60),
    st.floats(0, 1, exclude_max=True),
)
def test_systematic_draws_have_fixed_size_and_hold_the_certain(weights: list[float], size: int, start: float) -> None:
    p = draw.capped(np.array(weights), size)
    assert (p >= 0).all() and (p <= 1).all()
    positive = sum(w > 0 for w in weights)
    assert p.sum() == pytest.approx(min(size, positive), abs=1e-6)
    got = draw.systematic(p, np.arange(len(p)), start)
    assert len(got) == min(size, positive) == len(set(got.tolist()))
    assert set(np.flatnonzero(p == 1).tolist()) <= set(got.tolist())


def test_hashes_need_hexadecimal_ids_and_purposes_differ() -> None:
    ids = [name(i) for i in range(2000)]
    a, b, c = draw.unit(draw.keys(ids, 1, "x")), draw.unit(draw.keys(ids, 1, "y")), draw.unit(draw.keys(ids, 2, "x"))
    for u in (a, b, c):
        assert abs(u.mean() - 0.5) < 0.03 and len(np.unique(u)) == 2000
    assert max(abs(np.corrcoef([a, b, c])[np.triu_indices(3, 1)])) < 0.08
    assert draw.keys(["0" * 64], 7, "golden").tolist() == [GOLDEN_KEY], "queues of the past must stay reproducible"
    for bad in (["not hex" * 10], ["ab"]):
        with pytest.raises(SevenfoldError):
            draw.keys(bad, 0, "x")


GOLDEN_KEY = 8526234327550776880
