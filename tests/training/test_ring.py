"""Shared memory that goes round: never written over while held, used again when not, sound after lost deliveries."""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.training.ring import Borrower, Lender, Lent

step = st.tuples(
    st.integers(0, 1),  # which worker
    st.integers(1, 40_000),  # bytes
    st.integers(0, 3),  # batches that the consumer holds from now on
    st.integers(0, 2),  # deliveries that stay under way
    st.sampled_from([False] * 9 + [True]),  # whether the iteration is left early here
)


@given(st.lists(step, max_size=60))
@settings(max_examples=60, deadline=None)
def test_what_is_held_is_never_written_over(steps: list[tuple[int, int, int, int, bool]]) -> None:
    borrower, lenders = Borrower(), [Lender(i, pieces=3) for i in range(2)]
    under_way: deque[tuple[Lent, int]] = deque()
    held: deque[tuple[torch.Tensor, int]] = deque()
    for number, (worker, size, holds, late, left) in enumerate(steps):
        lent, place = lenders[worker].lend(size, borrower.returned())
        assert len(place) == size
        place[:] = number % 251
        under_way.append((lent, number % 251))
        del place
        if left:
            under_way.clear()
            borrower.restart()
        while len(under_way) > late:
            lent, value = under_way.popleft()
            held.append((torch.from_numpy(borrower.receive(lent))[: size // 2 + 1], value))
        while len(held) > holds:
            held.popleft()
        assert all(bool((tensor == value).all()) for tensor, value in held)


def test_memory_is_delivered_once_and_then_goes_round() -> None:
    borrower, lender = Borrower(), Lender(0, pieces=2)
    sent = []
    for _ in range(20):
        lent, _ = lender.lend(5000, borrower.returned())
        sent.append(lent.memory is not None)
        held = borrower.receive(lent)  # noqa: F841 - held until the next is there
    assert sum(sent) <= 2 and not any(sent[2:])


def test_one_that_keeps_everything_is_given_memory_of_its_own() -> None:
    borrower, lender = Borrower(), Lender(0, pieces=2)
    kept = []
    for i in range(6):
        lent, place = lender.lend(100, borrower.returned())
        place[:] = i
        kept.append(borrower.receive(lent))
    assert [int(np.unique(k)[0]) for k in kept] == list(range(6))
    assert lent.piece is None
