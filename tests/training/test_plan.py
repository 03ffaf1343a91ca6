"""The epoch order is a pure function of (plan, epoch); ranks, batch sizes and interruptions do not change it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.storage import SevenfoldError
from sevenfold.training.order import Layout, layout
from sevenfold.training.plan import PAD, EpochPlan, rank_slice
from sevenfold.training.sampler import PlannedBatchSampler

PINNED = [[9, 10, 8, 7, 11, 6, 4, 5, 1, 3, 0, 2], [11, 7, 8, 1, 0, 3, 10, 2, 9, 5, 4, 6]]
shard_sizes = st.lists(st.integers(0, 9), max_size=12)
seeds = st.integers(-(2**63), 2**64 - 1)
tails = st.sampled_from(["drop", "pad", "wrap"])
worlds = st.integers(1, 5)


def layout_of(sizes: list[int]) -> Layout:
    return layout(np.arange(sum(sizes)), np.repeat(np.arange(len(sizes)), sizes))


def plan_of(n: int, **fields: object) -> EpochPlan:
    return replace(EpochPlan(("c" * 64,), "all", n, seed=7), **fields)  # type: ignore[arg-type]


def whole(plan: EpochPlan, laid: Layout, epoch: int = 0) -> list[int]:
    return plan.order(laid, epoch).take(0, plan.samples)[0].tolist()


def blocks(plan: EpochPlan, laid: Layout, batch: int, world: int, state: dict | None = None) -> list[list[int]]:
    """The global blocks of the rest of an epoch, put together from what each rank is given."""
    ranks = []
    for rank in range(world):
        sampler = PlannedBatchSampler(plan, laid, batch, rank, world)
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
    plan = plan_of(sum(sizes), seed=seed, window=window)
    positions, passes = plan.order(layout_of(sizes), epoch).take(0, plan.samples)
    assert positions.dtype == passes.dtype == np.int64
    assert sorted(positions.tolist()) == list(range(sum(sizes)))
    assert set(passes.tolist()) <= {epoch}


@given(shard_sizes, seeds, st.integers(1, 5), st.data())
def test_any_part_is_found_without_what_lies_before(
    sizes: list[int], seed: int, window: int, data: st.DataObject
) -> None:
    plan = plan_of(sum(sizes), seed=seed, window=window)
    start = data.draw(st.integers(0, plan.samples))
    stop = data.draw(st.integers(start, plan.samples))
    part = plan.order(layout_of(sizes), 3).take(start, stop)[0]
    assert part.tolist() == whole(plan, layout_of(sizes), 3)[start:stop]


@given(shard_sizes, seeds, st.integers(1, 5), st.data())
def test_no_more_than_window_shards_are_open_and_windows_name_them(
    sizes: list[int], seed: int, window: int, data: st.DataObject
) -> None:
    laid, plan = layout_of(sizes), plan_of(sum(sizes), seed=seed, window=window)
    of = np.repeat(np.arange(len(sizes)), sizes)
    start = data.draw(st.integers(0, plan.samples))
    windows = list(plan.order(laid, 0).windows(start, plan.samples))
    order = whole(plan, laid)
    assert [first for first, _ in windows][:1] == [start][: plan.samples - start]
    for (first, shards), (end, _) in pairwise([*windows, (plan.samples, [])]):
        assert first < end and len(shards) <= window
        assert {int(of[p]) for p in order[first:end]} <= set(shards)


def test_the_order_is_pinned() -> None:
    """A change of the permutations must come with a new plan format; this fails when one slips in."""
    plan = plan_of(12, seed=1, window=2)
    assert [whole(plan, layout_of([4, 3, 5]), epoch) for epoch in (0, 1)] == PINNED
    assert plan.format == 2


def test_shard_numbers_are_only_names() -> None:
    of = np.repeat(np.arange(3), [4, 3, 5])
    assert whole(plan_of(12), layout(np.arange(12), of)) == whole(plan_of(12), layout(np.arange(12), of * 10 + 5))


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=40))
def test_a_layout_sorts_by_source_and_shard_and_numbers_copies(drawn: list[tuple[int, int, int]]) -> None:
    rows, groups, parts = (np.array(c) for c in zip(*drawn, strict=True))
    parts = np.unique(parts, return_inverse=True)[1]  # sources without a gap
    laid = layout(rows, groups, parts)
    order = sorted(range(len(rows)), key=lambda i: (parts[i], groups[i]))
    assert laid.rows is not None and laid.rows.tolist() == rows[order].tolist()
    assert np.repeat(laid.shards, laid.sizes).tolist() == groups[order].tolist()
    spans = [np.arange(first, first + n) for first, n, _, _ in laid.sources]
    assert np.concatenate(spans).tolist() == list(range(len(rows))) and (laid.sizes > 0).all()
    assert [len(s) for s in spans] == np.bincount(parts).tolist()
    assert sum(n for _, _, _, n in laid.sources) == len(laid.sizes)
    copies = laid.copies_of(np.arange(len(rows))).tolist()
    seen: dict[int, int] = {}
    for row, copy in zip(laid.rows.tolist(), copies, strict=True):
        assert copy == seen.get(row, 0)
        seen[row] = copy + 1
    assert laid.most == max(seen.values())


def test_epochs_and_seeds_differ_and_positions_are_uniform() -> None:
    laid = layout_of([50] * 8)
    orders = np.stack([whole(plan_of(400, seed=s, window=8), laid, e) for s in range(40) for e in range(10)])
    assert len({o.tobytes() for o in orders}) == 400
    places = np.argsort(orders, axis=1)[:, ::40]  # where ten of the rows land: mean 199.5, deviation 115.5 / sqrt(400)
    assert np.abs(places.mean(0) - 199.5).max() < 5 * 115.5 / 20


@given(shard_sizes, st.integers(1, 7), worlds, tails)
def test_tail_policies(sizes: list[int], batch: int, world: int, tail: str) -> None:
    n, laid = sum(sizes), layout_of(sizes)
    plan = plan_of(n, tail=tail)
    order = whole(plan, laid)
    found = flat(blocks(plan, laid, batch, world))
    if tail == "drop":
        assert found == order[: n // batch * batch]
    elif tail == "pad":
        assert found == order
    else:
        assert found == (order * (batch + 1))[: -(-n // batch) * batch]


@pytest.mark.parametrize("tail", ["drop", "pad", "wrap"])
@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_awkward_sizes(world: int, tail: str) -> None:
    for n in (0, 1, world - 1, 101):
        plan, laid = plan_of(n, tail=tail), layout(np.arange(n), np.arange(n) // 10)
        for batch in (1, world, 4 * world, 200):
            found = blocks(plan, laid, batch, world)
            assert len(found) == plan.steps(batch)
            if tail == "pad":
                assert sorted(flat(found)) == list(range(n))


def test_another_plans_state_is_refused_and_the_difference_named() -> None:
    mine, other = plan_of(10), plan_of(10, seed=8, window=3)
    sampler = PlannedBatchSampler(mine, layout_of([10]), 4)
    theirs = PlannedBatchSampler(other, layout_of([10]), 4).state()
    with pytest.raises(SevenfoldError, match=r"seed was 8, is 7; window was 3, is 8"):
        sampler.load_state(theirs)
    with pytest.raises(SevenfoldError, match="99 consumed"):
        sampler.load_state({**sampler.state(), "consumed": 99})
    with pytest.raises(SevenfoldError, match="names no plan"):
        sampler.load_state({"epoch": 1})


@pytest.mark.parametrize("name", ["epoch", "consumed"])
@pytest.mark.parametrize("value", [1.5, 2.0, "2", "x", None, True, -1, 2**63, 10**30, float("nan"), float("inf"), [1]])
def test_an_edited_state_is_refused_and_the_number_named(name: str, value: object) -> None:
    sampler = PlannedBatchSampler(plan_of(10), layout_of([10]), 4)
    state = sampler.state()
    for load in (sampler.load_state, sampler.load_state_dict, iter(sampler).load_state_dict):
        with pytest.raises(SevenfoldError, match=f"{name} |{value} consumed"):
            load({**state, name: value})
        with pytest.raises(SevenfoldError, match=f"has no {name}"):
            load({k: v for k, v in state.items() if k != name})
    assert sampler.state() == state, "what is refused changes nothing"
    for broken in ({**state, "plan": "x", "fields": [1, 2]}, {"plan": None, "fields": None}, None, [1], 3):
        with pytest.raises(SevenfoldError, match=r"another plan|names no plan"):
            sampler.load_state(broken)  # type: ignore[arg-type]


@pytest.mark.parametrize("fields", [{"seed": 1.5}, {"seed": "a"}, {"window": 2.5}, {"window": True}, {"samples": 10.0}])
def test_a_plan_takes_whole_numbers(fields: dict[str, object]) -> None:
    with pytest.raises(SevenfoldError, match=f"{next(iter(fields))} is "):
        EpochPlan(**{**plan_of(10).to_dict(), **fields})  # type: ignore[arg-type]
    for numbers in ({"batch_size": 1.5}, {"batch_size": "4"}, {"world": None}, {"rank": 0.0}, {"rank": 1}):
        with pytest.raises(SevenfoldError, match="batch size"):
            PlannedBatchSampler(plan_of(10), layout_of([10]), **{"batch_size": 4, **numbers})  # type: ignore[arg-type]


@pytest.mark.parametrize("window", [3, 10**12, 10**30])
def test_a_window_beyond_all_shards_is_a_full_shuffle(window: int) -> None:
    laid = layout_of([4, 5, 6])
    assert whole(plan_of(15, window=window), laid) == whole(plan_of(15, window=3), laid)


FIELDS = {
    "content_ids": ("d" * 64,), "selection": "x", "seed": 1, "window": 2, "tail": "drop", "format": 3,
    "samples": 9, "mix": (("a", "1", 4), ("b", "2", 6)),
}  # fmt: skip


@pytest.mark.parametrize("change", FIELDS)
def test_every_field_is_in_the_digest(change: str) -> None:
    assert plan_of(10).digest != plan_of(10, **{change: FIELDS[change]}).digest


def test_a_layout_of_another_selection_is_refused() -> None:
    with pytest.raises(SevenfoldError, match="9 positions"):
        plan_of(10).order(layout_of([9]), 0)
    with pytest.raises(SevenfoldError, match="slots"):
        plan_of(10, mix=(("a", "1", 4), ("b", "2", 5)))


@given(st.integers(1, 30), st.integers(1, 9))
def test_slices_cover_a_block_in_order(n: int, world: int) -> None:
    block = np.arange(n)
    parts = np.concatenate([rank_slice(block, r, world) for r in range(world)])
    assert parts[parts != PAD].tolist() == list(range(n))
    plan = plan_of(n)
    assert np.concatenate([plan.slice(0, n, r, world) for r in range(world)]).tolist() == parts.tolist()
