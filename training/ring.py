"""Shared memory that goes round between a worker process and the consumer: each piece is mapped once and used again.

Fresh shared memory costs a page fault every 4 KB in both processes, ten times what reading or copying the bytes does.

    worker     takes a piece that was returned, fills it, delivers (worker, slot, use); its memory goes along once
    consumer   makes tensors over it; once the last of them is gone, the piece counts as returned
    request    each says which uses of which pieces were returned until then: a state, not an event, so that nothing
               depends on one that is lost. An iteration left early loses deliveries: both sides then begin a new ring.

A consumer that keeps its batches keeps their pieces, and is given fresh memory.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import torch

_FREE = 2
"""References to a piece that only its ring holds: the dict's and the argument of `sys.getrefcount`."""

Piece = tuple[int, int]
"""(worker, slot)"""


@dataclass(frozen=True)
class Returned:
    """What a request tells the worker: the ring's number, and the use that each piece has come back from."""

    ring: int
    uses: dict[Piece, int]


@dataclass(frozen=True)
class Lent:
    """What a delivery tells the consumer: a use of a piece, None for memory of its own; `memory` when it is new."""

    size: int
    piece: Piece | None
    use: int
    memory: torch.Tensor | None


class Borrower:
    """The side that reads."""

    def __init__(self) -> None:
        self.ring = 0
        self._pieces: dict[Piece, np.ndarray] = {}
        self._uses: dict[Piece, int] = {}

    def restart(self) -> None:
        """Begin a new ring: deliveries of the old one may have been lost. Batches of it stay valid."""
        self.ring += 1
        self._pieces.clear()
        self._uses.clear()

    def receive(self, lent: Lent) -> np.ndarray:
        """uint8 [size], the memory that was delivered; it is in use as long as an array or a tensor over it is."""
        if lent.piece is None:
            assert lent.memory is not None
            return lent.memory.numpy()[: lent.size]
        if lent.memory is not None:
            self._pieces[lent.piece] = lent.memory.numpy()
        self._uses[lent.piece] = lent.use
        return self._pieces[lent.piece][: lent.size]

    def returned(self) -> Returned:
        """What nobody holds any more."""
        pieces = self._pieces
        return Returned(self.ring, {p: self._uses[p] for p in pieces if sys.getrefcount(pieces[p]) == _FREE})


class Lender:
    """The side that writes.

    Parameters
    ----------
    number : of the worker process.
    pieces : memory that goes round at most.
    """

    def __init__(self, number: int, pieces: int) -> None:
        self.number, self.pieces = number, pieces
        self._ring = -1
        self._memory: list[torch.Tensor] = []
        self._uses: list[int] = []

    def lend(self, size: int, returned: Returned) -> tuple[Lent, np.ndarray]:
        """(what to deliver, uint8 [size] to fill before), from a piece that is back or from fresh memory."""
        if returned.ring != self._ring:
            self._ring = returned.ring
            self._memory.clear()
            self._uses.clear()
        back = [i for i, use in enumerate(self._uses) if returned.uses.get((self.number, i)) == use]
        fits = [i for i in back if size <= len(self._memory[i]) <= 4 * size + 4096]
        if fits:
            return self._lent(fits[0], size, None)
        fresh = _shared(size + size // 8)  # a little room to spare, since files differ in size and so do batches
        if back:  # of a size that is not wanted any more
            self._memory[back[0]] = fresh
            return self._lent(back[0], size, fresh)
        if len(self._memory) < self.pieces:
            self._memory.append(fresh)
            self._uses.append(0)
            return self._lent(len(self._memory) - 1, size, fresh)
        return Lent(size, None, 0, fresh), fresh.numpy()[:size]

    def _lent(self, slot: int, size: int, memory: torch.Tensor | None) -> tuple[Lent, np.ndarray]:
        self._uses[slot] += 1
        return Lent(size, (self.number, slot), self._uses[slot], memory), self._memory[slot].numpy()[:size]


def _shared(size: int) -> torch.Tensor:
    """uint8 [size] in shared memory without a name: as torch's `default_collate` makes it, and without a copy."""
    return torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage._new_shared(size))
