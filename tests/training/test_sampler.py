"""Samplers: interrupted anywhere, resumed on any number of ranks, the global sequence is the same."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset

from sevenfold.training.order import Layout, layout
from sevenfold.training.plan import PAD, EpochPlan
from sevenfold.training.sampler import PlannedBatchSampler

worlds = st.tuples(st.integers(1, 2), st.integers(1, 7))
tails = st.sampled_from(["drop", "pad", "wrap"])


def setting(sizes: list[int], tail: str = "pad", second: list[int] | None = None, slots: int = 0) -> tuple:
    """(plan, layout) of one source, or of two."""
    n, other = sum(sizes), sum(second or [])
    groups = np.repeat(np.arange(len(sizes) + len(second or [])), [*sizes, *(second or [])])
    mix = (("a", "1", n), ("b", "2", slots)) if second else ()
    plan = EpochPlan(("c",), "all", n + (slots if second else 0), seed=3, window=2, tail=tail, mix=mix)  # type: ignore[arg-type]
    return plan, layout(np.arange(n + other), groups, np.repeat([0, 1], [n, other]) if second else None)


def run(plan: EpochPlan, laid: Layout, legs: list[tuple[int, int]], batch: int) -> tuple[list[int], list[int], dict]:
    """Use blocks in legs of (ranks, blocks), each started from the state of the one before, as JSON.

    Returns the rows in global order, their occurrences, and the last state.
    """
    state, rows, uses = None, [], []
    for world, count in legs:
        ranks = [PlannedBatchSampler(plan, laid, batch, r, world) for r in range(world)]
        for sampler in ranks:
            if state is not None:
                sampler.load_state(json.loads(json.dumps(state)))
        iterators = [iter(s) for s in ranks]
        for _ in range(count):
            if not len(ranks[0]):
                break
            parts = []
            for i, sampler in enumerate(ranks):
                part = next(iterators[i], None)
                if part is None:  # the epoch ended
                    iterators[i] = iter(sampler)
                    part = next(iterators[i])
                parts.append(part)
            rows += [r for part in parts for r in part if r != PAD]
            uses += [u for s in ranks for u in s.occurrences().tolist() if u != PAD]
            for sampler in ranks:
                sampler.advance()
        assert len({json.dumps(s.state()) for s in ranks}) == 1, "the state is the same on every rank"
        state = ranks[0].state()
    assert state is not None
    return rows, uses, state


legs_of = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 12)), min_size=1, max_size=6)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), tails, st.integers(1, 9), legs_of)
def test_interruptions_and_other_worlds_change_nothing(
    sizes: list[int], tail: str, batch: int, legs: list[tuple[int, int]]
) -> None:
    plan, laid = setting(sizes, tail)
    alone = run(plan, laid, [(1, sum(count for _, count in legs))], batch)
    assert run(plan, laid, legs, batch) == alone
    if tail == "pad" and plan.samples:
        rows = alone[0]
        for begin in range(0, len(rows) - plan.samples + 1, plan.samples):
            assert sorted(rows[begin : begin + plan.samples]) == list(range(plan.samples)), "each once in an epoch"


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6), st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.integers(1, 60), st.integers(1, 9), legs_of,
)  # fmt: skip
def test_a_mix_survives_the_same(
    sizes: list[int], second: list[int], slots: int, batch: int, legs: list[tuple[int, int]]
) -> None:
    plan, laid = setting(sizes, "pad", second, slots)
    alone = run(plan, laid, [(1, sum(count for _, count in legs))], batch)
    assert run(plan, laid, legs, batch) == alone
    rows, n, other = np.array(alone[0], np.int64), sum(sizes), sum(second)
    for end in range(plan.samples, len(rows) + 1, plan.samples):
        epochs, counts = end // plan.samples, np.bincount(rows[:end], minlength=n + other)
        assert (counts[:n] == epochs).all()
        assert set(counts[n:].tolist()) <= {epochs * slots // other, -(-epochs * slots // other)}, "floor or ceil times"


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6), tails, st.integers(1, 9), st.integers(1, 9), st.integers(0, 9)
)
def test_another_batch_size_goes_on_where_the_first_stopped(
    sizes: list[int], tail: str, batch: int, other: int, used: int
) -> None:
    plan, laid = setting(sizes, tail)
    first = PlannedBatchSampler(plan, laid, batch)
    for _ in range(used):
        if len(first):
            first.advance()
    second = PlannedBatchSampler(plan, laid, other)
    second.load_state(first.state())
    assert len(second) or not plan.steps(other), "a state with no block left begins the next epoch"
    if second.epoch == first.epoch:
        assert second.consumed == first.consumed
    else:
        assert (second.epoch, second.consumed) == (first.epoch + 1, 0)


def test_after_the_last_batch_the_next_epoch_begins_whole() -> None:
    plan, laid = setting([4, 6])
    sampler = PlannedBatchSampler(plan, laid, 4)
    first = list(sampler)
    for _ in first:
        sampler.advance()
    assert (sampler.epoch, sampler.consumed) == (1, 0)
    again = PlannedBatchSampler(plan, laid, 4)
    again.load_state(sampler.state())
    assert [r for b in again for r in b if r != PAD] == plan.order(laid, 1).take(0, 10)[0].tolist()
    again.load_state({**sampler.state(), "epoch": 0, "consumed": 10})
    assert (again.epoch, again.consumed, len(again)) == (1, 0, 3)


def test_a_dropped_tail_that_another_batch_size_leaves_is_no_endless_loop() -> None:
    plan, laid = setting([10], "drop")
    sampler = PlannedBatchSampler(plan, laid, 4)
    sampler.load_state({**sampler.state(), "consumed": 7})  # as a run with blocks of 7 left it
    assert (sampler.epoch, sampler.consumed, len(sampler)) == (1, 0, 2)


def test_repeated_rows_each_have_their_turn_and_look_different() -> None:
    laid = layout(np.array([5, 5, 5, 9]), np.array([0, 0, 0, 1]))
    plan = EpochPlan(("c",), "all", 4, seed=1)
    sampler = PlannedBatchSampler(plan, laid, 4)
    seen = []
    for _ in range(3):
        rows = next(iter(sampler))
        assert sorted(rows) == [5, 5, 5, 9]
        seen += list(zip(rows, sampler.occurrences().tolist(), strict=True))
        sampler.advance()
    assert len(set(seen)) == len(seen) == 12


def test_a_wrapped_tail_uses_samples_again_as_other_occurrences() -> None:
    plan, laid = setting([3], "wrap")
    sampler = PlannedBatchSampler(plan, laid, 8)
    rows, uses = next(iter(sampler)), sampler.occurrences().tolist()
    assert len(set(zip(rows, uses, strict=True))) == 8 and set(rows) == {0, 1, 2}


@pytest.fixture
def stateful() -> Any:
    """torchdata's loader, where it is installed."""
    return pytest.importorskip("torchdata.stateful_dataloader", reason="pip install torchdata").StatefulDataLoader


class Rows(Dataset):
    """A dataset that hands back the row numbers it is asked for."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitems__(self, rows: list[int]) -> list[int]:
        return rows


def as_it_is(batch: Any) -> Any:
    return batch


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_loop_over_a_stock_loader_gets_one_epoch_after_the_other(workers: int) -> None:
    plan, laid = setting([7, 5, 8])
    loader = DataLoader(
        Rows(20), batch_sampler=PlannedBatchSampler(plan, laid, 4), num_workers=workers, collate_fn=as_it_is
    )
    for epoch in range(3):
        assert [r for batch in loader for r in batch] == plan.order(laid, epoch).take(0, 20)[0].tolist()


def test_a_stock_loop_may_set_the_epoch_itself() -> None:
    plan, laid = setting([7, 5, 8])
    sampler = PlannedBatchSampler(plan, laid, 4)
    loader = DataLoader(Rows(20), batch_sampler=sampler, collate_fn=as_it_is)
    for epoch in (0, 0, 5, 6, 2):
        sampler.set_epoch(epoch)
        assert [r for batch in loader for r in batch] == plan.order(laid, epoch).take(0, 20)[0].tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_dataloader_counts_what_it_handed_out_not_what_it_fetched(workers: int, stateful: Any) -> None:
    plan, laid = setting([7, 5, 8])
    expected = [plan.order(laid, e).take(s, s + 4)[0].tolist() for e in range(5) for s in range(0, 20, 4)]

    def make() -> Any:
        sampler = PlannedBatchSampler(plan, laid, 4)
        return stateful(Rows(20), batch_sampler=sampler, num_workers=workers, collate_fn=as_it_is)

    for stop in (1, 3, 5, 7) if workers else range(11):
        loader, used = make(), 0
        while used < stop:
            for batch in loader:
                assert batch == expected[used]
                used += 1
                if used == stop:
                    break
        state = json.loads(json.dumps(loader.state_dict()))
        other = make()
        other.load_state_dict(state)
        rest = [batch for _ in range(2) for batch in other]
        assert rest == expected[stop : stop + len(rest)] and len(rest) >= 6


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(2, 9), st.lists(worlds, min_size=2, max_size=3))
def test_real_workers_see_the_same_sequence_through_interruptions(
    sizes: list[int], batch: int, legs: list[tuple[int, int]]
) -> None:
    """Each leg is a number of ranks, each with a DataLoader of two workers, stopped in the middle of its prefetch."""
    plan, laid = setting(sizes)
    state, found = None, []
    for world, count in legs:
        ranks = [PlannedBatchSampler(plan, laid, batch, r, world) for r in range(world)]
        for sampler in ranks:
            if state is not None:
                sampler.load_state(state)
        loaders = [DataLoader(Rows(plan.samples), batch_sampler=s, num_workers=2, collate_fn=as_it_is) for s in ranks]
        used = 0
        while used < count:
            for parts in zip(*loaders, strict=True):
                found += [r for part in parts for r in part if r != PAD]
                for sampler in ranks:
                    sampler.advance()
                used += 1
                if used == count:
                    break
        state = ranks[0].state()
    expected = [r for e in range(40) for r in plan.order(laid, e).take(0, plan.samples)[0].tolist()]
    assert found == expected[: len(found)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_saved_after_the_loop_begins_the_next_epoch(workers: int, stateful: Any) -> None:
    plan, laid = setting([7, 5, 8])
    loader, other = (
        stateful(Rows(20), batch_sampler=PlannedBatchSampler(plan, laid, 4), num_workers=workers, collate_fn=as_it_is)
        for _ in range(2)
    )
    list(loader)
    other.load_state_dict(loader.state_dict())
    assert [r for b in other for r in b] == plan.order(laid, 1).take(0, 20)[0].tolist()


@pytest.mark.slow
def test_lightning_trains_on_the_planned_order() -> None:
    """Lightning's Trainer takes the batch sampler as it is, epoch after epoch."""
    import torch

    lightning = pytest.importorskip("lightning", reason="pip install lightning to test that it takes the sampler")
    plan, laid = setting([7, 5, 8])
    seen: list[int] = []

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: list[int], _: int) -> Any:
            seen.extend(batch)
            return self.layer(torch.ones(1, 1)).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    loader = DataLoader(Rows(20), batch_sampler=PlannedBatchSampler(plan, laid, 4), collate_fn=as_it_is)
    quiet = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
    lightning.Trainer(max_epochs=3, accelerator="cpu", devices=1, **quiet).fit(Module(), loader)
    assert seen == [r for e in range(3) for r in plan.order(laid, e).take(0, 20)[0].tolist()]
