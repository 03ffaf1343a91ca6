"""The epoch order is a pure function of (plan, epoch); ranks, batch sizes and interruptions do not change it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.storage import SevenfoldError
from sevenfold.training.plan import PAD, EpochPlan, epoch_order, rank_slice
from sevenfold.training.sampler import PlannedBatchSampler

PINNED = [[7, 10, 9, 8, 4, 5, 6, 11, 2, 0, 1, 3], [9, 11, 5, 6, 8, 10, 7, 4, 1, 0, 3, 2]]
shard_sizes = st.lists(st.integers(0, 9), max_size=12)
seeds = st.integers(-(2**63), 2**64 - 1)
tails = st.sampled_from(["drop", "pad", "wrap"])


def groups_of(sizes: list[int]) -> np.ndarray:
    return np.repeat(np.arange(len(sizes)), sizes)


def plan_of(n: int, **fields: object) -> EpochPlan:
    return replace(EpochPlan(("c" * 64,), "all", n, seed=7), **fields)  # type: ignore[arg-type]


def blocks(plan: EpochPlan, groups: np.ndarray, batch: int, world: int, state: dict | None = None) -> list[list[int]]:
    """The global blocks of the rest of an epoch, put together from what each rank is given."""
    ranks = []
    for rank in range(world):
        sampler = PlannedBatchSampler(plan, np.arange(plan.samples), groups, batch, rank, world)
        if state is not None:
            sampler.load_state(state)
        ranks.append(list(sampler))
    assert len({len(r) for r in ranks}) == 1, "every rank takes the same number of steps"
    for parts in zip(*ranks, strict=True):
        assert len({len(p) for p in parts}) == 1, "every rank's slice is of the same length"
    return [[row for part in parts for row in part] for parts in zip(*ranks, strict=True)]


def flat(found: list[list[int]]) -> list[int]:
    return [row for block in found for row in block if row != PAD]


@given(shard_sizes, seeds, st.integers(0, 2**40), st.integers(1, 5))
def test_each_row_comes_exactly_once(sizes: list[int], seed: int, epoch: int, window: int) -> None:
    order = epoch_order(groups_of(sizes), seed, epoch, window)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(sum(sizes)))


@given(shard_sizes, seeds, st.integers(1, 5))
def test_no_more_than_window_shards_are_open_at_a_time(sizes: list[int], seed: int, window: int) -> None:
    groups = groups_of(sizes)
    seen: list[int] = groups[epoch_order(groups, seed, 0, window)].tolist()
    spans = [(seen.index(s), len(seen) - 1 - seen[::-1].index(s)) for s in sorted(set(seen))]
    for at in range(len(seen)):
        assert sum(first <= at <= last for first, last in spans) <= window


def test_the_order_is_pinned() -> None:
    """A change of the permutations must come with a new plan format; this fails when one slips in."""
    assert epoch_order(groups_of([4, 3, 5]), seed=1, epoch=0, window=2).tolist() == PINNED[0]
    assert epoch_order(groups_of([4, 3, 5]), seed=1, epoch=1, window=2).tolist() == PINNED[1]


def test_shard_numbers_are_only_names() -> None:
    sizes = [4, 3, 5]
    assert (epoch_order(groups_of(sizes), 3, 2, 2) == epoch_order(groups_of(sizes) * 10 + 5, 3, 2, 2)).all()


def test_epochs_and_seeds_differ_and_positions_are_uniform() -> None:
    groups = groups_of([50] * 8)
    orders = np.stack([epoch_order(groups, seed, epoch, 8) for seed in range(40) for epoch in range(10)])
    assert len({o.tobytes() for o in orders}) == 400
    places = np.argsort(orders, axis=1)[:, ::40]  # where ten of the rows land: mean 199.5, deviation 115.5 / sqrt(400)
    assert np.abs(places.mean(0) - 199.5).max() < 5 * 115.5 / 20


@given(shard_sizes, st.integers(1, 7), st.integers(1, 4), tails)
def test_tail_policies(sizes: list[int], batch: int, world: int, tail: str) -> None:
    n = sum(sizes)
    plan = plan_of(n, tail=tail)
    order = plan.order(groups_of(sizes), 0).tolist()
    found = flat(blocks(plan, groups_of(sizes), batch, world))
    if tail == "drop":
        assert found == order[: n // batch * batch]
    elif tail == "pad":
        assert found == order
    else:
        assert found == (order * (batch + 1))[: -(-n // batch) * batch]


@given(shard_sizes, st.integers(1, 7), st.integers(1, 4), st.integers(1, 4), tails, st.data())
def test_resume_anywhere_on_any_number_of_ranks(
    sizes: list[int], batch: int, world: int, other: int, tail: str, data: st.DataObject
) -> None:
    plan, groups = plan_of(sum(sizes), tail=tail), groups_of(sizes)
    whole = blocks(plan, groups, batch, world)
    at = data.draw(st.integers(0, max(len(whole) - 1, 0)))
    sampler = PlannedBatchSampler(plan, np.arange(plan.samples), groups, batch, 0, world)
    for _ in range(at):
        sampler.advance()
    rest = blocks(plan, groups, batch, other, sampler.state() if whole else None)
    assert [[r for r in b if r != PAD] for b in rest] == [[r for r in b if r != PAD] for b in whole[at:]]


@pytest.mark.parametrize("tail", ["drop", "pad", "wrap"])
@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_awkward_sizes(world: int, tail: str) -> None:
    for n in (0, world - 1, 101):
        plan, groups = plan_of(n, tail=tail), np.arange(n) // 10
        found = blocks(plan, groups, 4 * world, world)
        assert len(found) == plan.steps(4 * world)
        if tail == "pad":
            assert sorted(flat(found)) == list(range(n))


def test_the_state_moves_to_the_next_epoch() -> None:
    plan, groups = plan_of(10), np.zeros(10, np.int64)
    sampler = PlannedBatchSampler(plan, np.arange(10), groups, 4)
    first = list(sampler)
    for _ in first:
        sampler.advance()
    assert (sampler.epoch, sampler.consumed) == (1, 0)
    assert flat(list(sampler)) == plan.order(groups, 1).tolist() != flat(first)


def test_repeated_rows_each_have_their_turn() -> None:
    rows = np.array([5, 5, 5, 9])
    sampler = PlannedBatchSampler(plan_of(4), rows, np.array([0, 0, 0, 1]), 4)
    assert sorted(next(iter(sampler))) == [5, 5, 5, 9]


def test_another_plans_state_is_refused_and_the_difference_named() -> None:
    mine, other = plan_of(10), plan_of(10, seed=8, window=3)
    sampler = PlannedBatchSampler(mine, np.arange(10), np.zeros(10, np.int64), 4)
    theirs = PlannedBatchSampler(other, np.arange(10), np.zeros(10, np.int64), 4).state()
    with pytest.raises(SevenfoldError, match=r"seed was 8, is 7; window was 3, is 8"):
        sampler.load_state(theirs)
    with pytest.raises(SevenfoldError, match="99 consumed"):
        sampler.load_state({**sampler.state(), "consumed": 99})


@pytest.mark.parametrize("change", ["content_ids", "selection", "samples", "seed", "window", "tail", "format"])
def test_every_field_is_in_the_digest(change: str) -> None:
    values = {"content_ids": ("d" * 64,), "selection": "x", "samples": 9, "seed": 1, "window": 2, "tail": "drop"}
    assert plan_of(10).digest != plan_of(10, **{change: values.get(change, 2)}).digest


@given(st.integers(1, 30), st.integers(1, 9))
def test_slices_cover_a_block_in_order(n: int, world: int) -> None:
    block = np.arange(n)
    parts = np.concatenate([rank_slice(block, r, world) for r in range(world)])
    assert parts[parts != PAD].tolist() == list(range(n))
