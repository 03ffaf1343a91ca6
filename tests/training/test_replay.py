"""Replay: deterministic, never a test or a new sample, even over classes and fair to batches."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.storage.errors import SevenfoldError
from sevenfold.training.replay import STRATEGIES, replay_selection


def name(i: int) -> str:
    return hashlib.sha256(str(i).encode()).hexdigest()


def table(rows: list[tuple[str | None, str, str]]) -> pa.Table:
    """Rows of (label, batch, split), with ids by position."""
    return pa.table(
        {
            "id": pa.array([name(i) for i in range(len(rows))], pa.string()),
            "label": pa.array([r[0] for r in rows], pa.string()),
            "batch": pa.array([r[1] for r in rows], pa.string()),
            "split": pa.array([r[2] for r in rows], pa.string()),
        }
    )


rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from(["b1", "b2"]),
        st.sampled_from(["train", "test", "pool"]),
    ),
    max_size=60,
)
strategies = st.sampled_from(sorted(STRATEGIES))


@given(rows, st.integers(0, 70), st.integers(0, 9), strategies, st.integers(0, 20))
def test_selection_is_what_it_promises(
    drawn: list[tuple[str | None, str, str]], size: int, seed: int, strategy: str, new: int
) -> None:
    old, new_ids = table(drawn), [name(i) for i in range(new)]
    got = replay_selection(new_ids, old, size=size, seed=seed, strategy=strategy)
    allowed = {name(i) for i, r in enumerate(drawn) if r[0] is not None and r[2] == "train"} - set(new_ids)
    assert len(got) == len(set(got)) == min(size, len(allowed)) and set(got) <= allowed
    order = pa.array(np.random.default_rng(seed).permutation(len(drawn)), pa.int64())
    assert got == replay_selection(set(new_ids), old.take(order), size=size, seed=seed, strategy=strategy)
    assert got == replay_selection(new_ids, old, size=size + 5, seed=seed, strategy=strategy)[: len(got)]


@given(rows, st.integers(0, 60))
def test_balanced_means_even_until_a_class_runs_out(drawn: list[tuple[str | None, str, str]], size: int) -> None:
    old = table(drawn)
    stock = Counter(r[0] for r in drawn if r[0] is not None and r[2] == "train")
    label = dict(zip(old["id"].to_pylist(), old["label"].to_pylist(), strict=True))
    got = Counter(label[i] for i in replay_selection([], old, size=size))
    level = max(got.values(), default=0)
    for k in stock:
        assert got[k] >= min(stock[k], level - 1)


def test_a_large_batch_does_not_drown_a_small_one() -> None:
    old = table([("a", "large", "train")] * 900 + [("a", "small", "train")] * 30 + [("b", "large", "train")] * 900)
    got = set(replay_selection([], old, size=100))
    small = {name(i) for i in range(900, 930)}
    assert len(got & small) == 25
    assert len(set(replay_selection([], old, size=100, strategy="uniform")) & small) < 8


def test_ratio_counts_per_new_sample_and_seeds_differ() -> None:
    old = table([("a", "b1", "train")] * 200)
    new = [name(1000 + i) for i in range(40)]
    assert len(replay_selection(new, old, ratio=1.5)) == 60
    assert set(replay_selection(new, old, ratio=1)) != set(replay_selection(new, old, ratio=1, seed=1))


@pytest.mark.parametrize(
    "wrong", [{}, {"ratio": 1.0, "size": 3}, {"size": -1}, {"ratio": -0.5}, {"size": 1, "strategy": "balancd"}]
)
def test_what_makes_no_sense_is_refused(wrong: dict) -> None:
    with pytest.raises(SevenfoldError):
        replay_selection([], table([]), **wrong)
