"""Shuffle quality: a window of every shard is as good as a full shuffle; small windows cost less and mix less."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.training.config import TrainConfig
from sevenfold.training.order import layout
from sevenfold.training.plan import EpochPlan
from sevenfold.training.shuffle import Quality, measure, recommend, survey

SHARDS, PER, BATCH = 40, 50, 40
GROUPS = np.repeat(np.arange(SHARDS), PER)
LAYOUT = layout(np.arange(len(GROUPS)), GROUPS)
PLAN = EpochPlan(("c",), "all", len(GROUPS), seed=3)
SIZES = np.arange(SHARDS) * 1000


def quality(window: int, labels: np.ndarray) -> Quality:
    return measure(replace(PLAN, window=window), LAYOUT, SIZES, labels, BATCH)


def test_a_full_shuffle_measures_one_in_everything() -> None:
    q = quality(SHARDS, GROUPS // 4)
    assert q.neighbours == pytest.approx(1, abs=0.01)
    assert q.same_shard == pytest.approx(1, abs=0.05)
    assert q.classes is not None and q.classes_error is not None
    assert abs(q.classes - 1) < 4 * q.classes_error
    assert q.bytes == q.bytes_two == SIZES.sum()


def test_windows_trade_bytes_for_mixing() -> None:
    sorted_labels = GROUPS // 4  # ten classes, stored one after the other
    found = [quality(w, sorted_labels) for w in (1, 2, 4, 8, 16, 40)]
    assert [q.bytes for q in found] == [sum(range(40 - w, 40)) * 1000 for w in (1, 2, 4, 8, 16, 40)]
    assert found[0].bytes_two == found[1].bytes
    for name, sign in (("neighbours", 1), ("same_shard", -1), ("classes", -1)):
        values = [sign * getattr(q, name) for q in found]
        assert values == sorted(values), name
    chance = (PER - 1) / (SHARDS * PER - 1)
    assert found[0].same_shard == pytest.approx(0.7436 / chance, rel=0.01)  # of 5 batches, 2 lie in one shard
    mixed = np.random.default_rng(0).permutation(sorted_labels)
    assert quality(1, mixed).classes == pytest.approx(1, abs=0.1), "shards whose classes are mixed need no window"


def test_the_recommendation_says_why() -> None:
    sorted_labels = GROUPS // 4
    found = [quality(w, sorted_labels) for w in (1, 2, 4, 8, 16, 40)]
    assert recommend(found, SHARDS)[0] == 40 and "full shuffle" in recommend(found, SHARDS)[1]
    assert "none of these" in recommend(found[:2], SHARDS)[1]
    mixed = [quality(w, np.random.default_rng(0).permutation(sorted_labels)) for w in (1, 2, 4, 8, 16)]
    assert recommend(mixed, SHARDS)[0] in (4, 8)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_nearly_nothing_is_not_measurable_instead_of_wrong(n: int) -> None:
    laid = layout(np.arange(n), np.zeros(n, np.int64))
    q = measure(replace(PLAN, samples=n), laid, np.full(len(laid.sizes), 7), np.zeros(n, np.int64), BATCH)
    assert q.classes is None and q.same_shard is None
    assert (q.neighbours is None) == (n < 2)


def test_a_small_version_is_said_to_be_one(toy_lake: Lake) -> None:
    found = survey(toy_lake, TrainConfig(dataset="toy", batch_size=32), [4, 1, 4])
    assert [q["window"] for q in found["windows"]] == [1, 4]
    assert found["samples"] == 90 and found["windows"][0]["bytes"] > 90 * 100
    assert any("so few" in note for note in found["notes"]) and any("1 shard:" in note for note in found["notes"])
    assert found["recommended"] == 1
    with pytest.raises(SevenfoldError, match="no windows"):
        survey(toy_lake, TrainConfig(dataset="toy", steps=3, sampling="with_replacement"), [1])
