"""Mixing: each source's share in every prefix, every sample evenly, found by seek, a function of (plan, epoch)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.storage import SevenfoldError
from sevenfold.training.mix import Order, slots
from sevenfold.training.order import Layout, layout

shards = st.lists(st.integers(1, 7), min_size=1, max_size=5)
sources = st.lists(st.tuples(shards, st.integers(0, 40)), min_size=1, max_size=5)


def layout_of(drawn: list[tuple[list[int], int]]) -> Layout:
    """One source per entry, of shards of the sizes given."""
    sizes = [s for part, _ in drawn for s in part]
    parts = np.repeat(np.arange(len(drawn)), [sum(part) for part, _ in drawn])
    return layout(np.arange(sum(sizes)), np.repeat(np.arange(len(sizes)), sizes), parts)


def order_of(drawn: list[tuple[list[int], int]], epoch: int = 0, window: int = 2) -> Order:
    return Order(layout_of(drawn), [n for _, n in drawn], seed=5, window=window, epoch=epoch)


@given(sources)
def test_slots_are_merged_by_time_and_every_prefix_holds_each_share(drawn: list[tuple[list[int], int]]) -> None:
    order, counts = order_of(drawn), [n for _, n in drawn]
    begins = [source[0] for source in order.layout.sources]
    found = (np.searchsorted(begins, order.take(0, order.samples)[0], side="right") - 1).tolist()
    # exact: times are compared as fractions over the common denominator
    common = int(np.lcm.reduce([n for n in counts if n] or [1]))
    times = sorted(((2 * j + 1) * (common // n), i) for i, n in enumerate(counts) for j in range(n))
    assert found == [i for _, i in times]
    for k in range(order.samples + 1):
        for i, n in enumerate(counts):
            share = k * n / order.samples if order.samples else 0
            bound = 0.5 + len([c for c in counts if c]) / 2 * n / max(order.samples, 1)
            assert abs(found[:k].count(i) - share) <= bound + 1e-9


@given(sources, st.integers(0, 6), st.data())
def test_any_part_is_found_without_what_lies_before(
    drawn: list[tuple[list[int], int]], epoch: int, data: st.DataObject
) -> None:
    whole = order_of(drawn, epoch)
    start = data.draw(st.integers(0, whole.samples))
    stop = data.draw(st.integers(start, whole.samples))
    expected = [a[start:stop].tolist() for a in whole.take(0, whole.samples)]
    assert [a.tolist() for a in order_of(drawn, epoch).take(start, stop)] == expected


@given(sources, st.integers(1, 8))
def test_samples_of_a_source_come_evenly_over_any_number_of_epochs(
    drawn: list[tuple[list[int], int]], epochs: int
) -> None:
    laid = layout_of(drawn)
    taken = [order_of(drawn, e).take(0, sum(n for _, n in drawn)) for e in range(epochs)]
    positions, passes = (np.concatenate(c) for c in zip(*taken, strict=True))
    counts = np.bincount(positions, minlength=laid.positions)
    for (first, length, _, _), (_, n) in zip(laid.sources, drawn, strict=True):
        own = counts[first : first + length]
        assert set(own.tolist()) <= {epochs * n // length, -(-epochs * n // length)}, "floor or ceil times"
        inside = (positions >= first) & (positions < first + length)
        pairs = set(zip(positions[inside].tolist(), passes[inside].tolist(), strict=True))
        assert len(pairs) == inside.sum(), "a pass holds each sample once"


@given(sources, st.integers(0, 3), st.data())
def test_windows_name_every_shard_that_is_read(
    drawn: list[tuple[list[int], int]], epoch: int, data: st.DataObject
) -> None:
    order = order_of(drawn, epoch)
    start = data.draw(st.integers(0, order.samples))
    stop = data.draw(st.integers(start, order.samples))
    laid = order.layout
    of = np.repeat(laid.shards, laid.sizes)
    windows = list(order.windows(start, stop))
    assert [first for first, _ in windows] == sorted({first for first, _ in windows})
    assert [first for first, _ in windows][:1] == [start][: stop - start]
    positions, _ = order.take(start, stop)
    for (first, shards), (end, _) in pairwise([*windows, (stop, [])]):
        assert {int(of[p]) for p in positions[first - start : end - start]} <= set(shards)
        assert len(shards) <= 2 * len(drawn)


def test_sources_are_permuted_apart() -> None:
    same = [([10, 10], 20), ([10, 10], 20)]
    positions, _ = order_of(same).take(0, 40)
    a, b = (positions[(positions >= low) & (positions < low + 20)] - low for low in (0, 20))
    assert sorted(a) == sorted(b) and a.tolist() != b.tolist()


def test_slots_follow_the_ratios() -> None:
    assert slots(100, [0.5, 2]) == (100, 50, 200)
    assert slots(100, [0.5, 1.5], size=300) == (100, 50, 150)
    assert slots(10, [], size=25) == (25,)
    with pytest.raises(SevenfoldError, match="2147483647"):
        slots(2**20, [1e6])
    with pytest.raises(SevenfoldError, match="not negative"):
        slots(10, [-1.0])
    with pytest.raises(SevenfoldError, match=r"source 1 .* no sample"):
        Order(Layout(None, np.array([3]), np.array([0]), ((0, 3, 0, 1), (3, 0, 1, 0))), [3, 2], 0, 1, 0)
