"""Sampling with replacement: in proportion to the weights, any draw found at once, counted in draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.storage import SevenfoldError
from sevenfold.training.draws import DrawPlan, Draws, digest_of
from sevenfold.training.order import layout
from sevenfold.training.plan import PAD, EpochPlan
from sevenfold.training.sampler import PlannedBatchSampler

LAYOUT = layout(np.arange(8) * 10, np.repeat([0, 1, 2], [3, 3, 2]))
WEIGHTS = np.array([1, 0, 2, 1, 0, 4, 1, 0], float)


def plan_of(draws: int, seed: int = 1) -> DrawPlan:
    return DrawPlan(("c",), "all", digest_of(WEIGHTS), draws, seed)


def sampler_of(draws: int, batch: int, rank: int = 0, world: int = 1) -> PlannedBatchSampler:
    return PlannedBatchSampler(plan_of(draws), LAYOUT, batch, rank, world, weights=WEIGHTS)


def test_draws_follow_the_weights() -> None:
    n = 90_000
    positions, _ = Draws(plan_of(n), LAYOUT, WEIGHTS).take(0, n)
    counts, expected = np.bincount(positions, minlength=8), WEIGHTS / WEIGHTS.sum() * n
    assert not counts[WEIGHTS == 0].any()
    assert ((counts - expected) ** 2 / np.maximum(expected, 1)).sum() < 20.5  # chi-square, 4 degrees: 4e-4
    pairs = np.bincount(positions[:-1] * 8 + positions[1:], minlength=64).reshape(8, 8)
    together = np.outer(WEIGHTS, WEIGHTS) / WEIGHTS.sum() ** 2 * n
    assert ((pairs - together) ** 2 / np.maximum(together, 1)).sum() < 60, "a draw does not depend on the one before"


@given(st.integers(0, 50), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.integers(0, 12))
def test_any_number_of_ranks_and_interruptions_draw_the_same(
    draws: int, batch: int, world: int, other: int, used: int
) -> None:
    expected = (Draws(plan_of(draws), LAYOUT, WEIGHTS).take(0, draws)[0] * 10).tolist()

    def rest(ranks: int, state: dict) -> list[int]:
        parts = []
        for rank in range(ranks):
            sampler = sampler_of(draws, batch, rank, ranks)
            sampler.load_state(state)
            parts.append(list(sampler))
        assert len({len(p) for p in parts}) == 1
        return [r for block in zip(*parts, strict=True) for part in block for r in part if r != PAD]

    first = sampler_of(draws, batch)
    assert rest(world, first.state()) == expected
    for _ in range(used):
        first.advance()
    assert first.state()["drawn"] == min(used * batch, draws)
    assert rest(other, first.state()) == expected[used * batch :]


def test_the_state_counts_draws_and_never_says_epoch() -> None:
    state = sampler_of(20, 8).state()
    assert state["drawn"] == 0 and "epoch" not in str(state)
    stock = sampler_of(20, 8)
    assert len(list(stock)) == 3 and list(stock) == [], "draws end, they do not begin again"
    assert stock.state_dict()["drawn"] == 20


def test_each_draw_looks_different() -> None:
    sampler, seen = sampler_of(40, 8), []
    for block in list(sampler):
        seen += list(zip(block, sampler.occurrences().tolist(), strict=True))
        sampler.advance()
    assert len(set(seen)) == 40


def test_other_plans_and_weights_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SevenfoldError, match="seed was 2, is 1"):
        sampler_of(20, 8).load_state(plan_of(20, seed=2).state(3))
    epochs = PlannedBatchSampler(EpochPlan(("c",), "all", 8, seed=1), LAYOUT, 4)
    with pytest.raises(SevenfoldError, match="another plan"):
        sampler_of(20, 8).load_state(epochs.state())
    with pytest.raises(SevenfoldError, match="another plan"):
        epochs.load_state(sampler_of(20, 8).state())
    for drawn in ("3", 3.0, None, -1, 10**30, True):
        with pytest.raises(SevenfoldError, match=r"drawn is|draws were used"):
            sampler_of(20, 8).load_state({**plan_of(20).state(3), "drawn": drawn})
    for bad in (WEIGHTS[:5], -WEIGHTS, WEIGHTS * np.nan, WEIGHTS * 0):
        with pytest.raises(SevenfoldError):
            Draws(plan_of(20), LAYOUT, bad)
    with pytest.raises(SevenfoldError, match="no weights"):
        PlannedBatchSampler(plan_of(20), LAYOUT, 4)
