"""The stateful batch sampler: hands each rank its slice of the plan's global blocks, and remembers how far it came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sevenfold.storage.errors import SevenfoldError
from sevenfold.training.draws import DrawPlan, Draws
from sevenfold.training.mix import Order
from sevenfold.training.order import Layout
from sevenfold.training.plan import PAD, EpochPlan, is_whole

_ROUND = 2**40
"""Sets the uses of a sample that a wrapped tail takes again apart from those of the epoch itself."""


class PlannedBatchSampler:
    """A batch sampler for `torch.utils.data.DataLoader`: iterating yields what is left of the current epoch.

    A DataLoader with workers asks ahead of time, so iterating moves nothing: the trainer calls :meth:`advance` once it
    has used a block, and only that counts as consumed. A consumer that never calls it (a plain loop, torchdata's
    StatefulDataLoader) finds the next epoch after an iteration that ran to its end; the iterator has a state of its
    own, which counts the blocks that were handed out.

    Parameters
    ----------
    plan : an epoch plan, or a plan of draws.
    layout : of its selection.
    batch_size : of the global block, over all ranks.
    rank, world : which slice of each block this process takes.
    weights : float64 [positions], for draws only: how likely each is.
    """

    def __init__(
        self, plan: EpochPlan | DrawPlan, layout: Layout, batch_size: int, rank: int = 0, world: int = 1,
        *, weights: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        sound = all(map(is_whole, (batch_size, rank, world)))
        if not sound or batch_size < 1 or not 0 <= rank < world:
            raise SevenfoldError(
                f"batch size {batch_size!r}, rank {rank!r} of {world!r}",
                where="batch sampler",
                expected="a batch of at least 1 and a rank below the number of ranks",
            )
        self.plan, self.layout, self.batch_size, self.rank, self.world = plan, layout, batch_size, rank, world
        self.epoch = 0
        self.consumed = 0
        self._driven = self._finished = False
        self.weights = weights
        self._order = self.order(0)

    @property
    def share(self) -> int:
        """Slots of one rank in each block."""
        return -(-self.batch_size // self.world)

    def __len__(self) -> int:
        """Blocks left in the current epoch, or of all draws: the same on every rank."""
        return self.plan.steps(self.batch_size, self.consumed)

    def __iter__(self) -> Blocks:
        """This rank's dataset rows, block by block, PAD (-1) in empty slots."""
        self.epoch, self.consumed = self._upcoming()
        self._finished = False
        return Blocks(self)

    def order(self, epoch: int) -> Order | Draws:
        """The order of an epoch, or of the draws, whatever the epoch."""
        if isinstance(self.plan, EpochPlan):
            return self.plan.order(self.layout, epoch)
        if self.weights is None:
            raise SevenfoldError("no weights were given", where="batch sampler", expected="one for each position")
        return Draws(self.plan, self.layout, self.weights)

    def block(self, order: Order | Draws, consumed: int) -> tuple[np.ndarray, np.ndarray]:
        """(rows, occurrences), int64 [share] each, of this rank's slots of the block after `consumed`; PAD if empty."""
        slots = self.plan.slice(consumed, self.batch_size, self.rank, self.world)
        rows, uses = np.full(len(slots), PAD, np.int64), np.full(len(slots), PAD, np.int64)
        filled = int(np.count_nonzero(slots != PAD))  # empty slots come last
        at = 0
        while at < filled:  # once, but for a wrapped tail
            again, start = divmod(int(slots[at]), self._end)
            stop = min(start + filled - at, self._end)
            positions, passes = order.take(start, stop)
            to = at + stop - start
            rows[at:to] = self.layout.rows_of(positions)
            uses[at:to] = passes * self.layout.most + self.layout.copies_of(positions) + again * _ROUND
            at = to
        return rows, uses

    def occurrences(self) -> np.ndarray:
        """int64 [share]: which use of its sample each slot of the next block is, PAD in empty slots.

        With the sample's id it keys the augmentation. It is the pass over the source and the number of the copy in
        one number: the epoch, where every sample occurs once; for draws it tells the draws apart.
        """
        if isinstance(self._order, Order) and self._order.epoch != self.epoch:
            self._order = self.order(self.epoch)
        return self.block(self._order, self.consumed)[1]

    def advance(self) -> None:
        """Count the next block as used; after the last one the next epoch begins (draws just end)."""
        self._driven = True  # what an iterator ran ahead to means nothing from now on
        self.epoch, self.consumed = self.after(self.epoch, self.consumed)

    def after(self, epoch: int, consumed: int) -> tuple[int, int]:
        """(epoch, consumed) one block further."""
        if isinstance(self.plan, DrawPlan):
            return 0, min(consumed + self.batch_size, self._end)
        return self.plan.after(epoch, consumed, self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, as consumers of torch's DistributedSampler ask for; the present one stays where it is."""
        self._finished = False
        if isinstance(self.plan, EpochPlan) and epoch != self.epoch:
            self.epoch, self.consumed = epoch, 0

    def state(self) -> dict[str, Any]:
        """Where :meth:`advance` came to: {plan digest, its fields, epoch, consumed}, or drawn; no ranks, no workers."""
        return self.state_at(self.epoch, self.consumed)

    def state_at(self, epoch: int, consumed: int) -> dict[str, Any]:
        """The state of a place."""
        plan = self.plan
        return plan.state(consumed) if isinstance(plan, DrawPlan) else plan.state(epoch, consumed)

    def place_of(self, state: Mapping[str, Any]) -> tuple[int, int]:
        """(epoch, consumed) of a state; the next epoch's start where no block is left for this batch size."""
        if isinstance(self.plan, DrawPlan):
            return 0, self.plan.restore(state)
        return self.plan.normal(*self.plan.restore(state), self.batch_size)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state. Raises SevenfoldError when it belongs to another plan, saying what differs."""
        self.epoch, self.consumed = self.place_of(state)
        self._finished = False

    def state_dict(self) -> dict[str, Any]:
        """:meth:`state`, by the name that stock consumers call; without :meth:`advance`, what the next iteration takes.

        In the middle of an epoch only the iterator's own state counts what was handed out.
        """
        return self.state_at(*self._upcoming())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """:meth:`load_state`, by the name that stock consumers call."""
        self.load_state(state)

    @property
    def _end(self) -> int:
        return self.plan.draws if isinstance(self.plan, DrawPlan) else self.plan.samples

    def _upcoming(self) -> tuple[int, int]:
        """Where the next iteration begins: behind the epoch that one ran through, unless somebody counts for us."""
        if self._driven or not self._finished:
            return self.epoch, self.consumed
        return (self.epoch + 1, 0) if isinstance(self.plan, EpochPlan) else (0, self._end)

    def ended(self, epoch: int) -> None:
        """Called by an iterator that has no further block; a loader's workers may still be at work on the last ones."""
        self._finished = epoch == self.epoch


class Blocks(Iterator[list[int]]):
    """One iteration over what is left of an epoch; its state counts what it handed out, used or not.

    StatefulDataLoader keeps a copy of this state with each batch that is under way and returns the one of the batch
    that was handed to the loop last, so that what workers fetched ahead is never counted.
    """

    _epoch: int
    _consumed: int
    _left: int
    _order: Order | Draws

    def __init__(self, sampler: PlannedBatchSampler) -> None:
        self._sampler = sampler
        self._begin(sampler.epoch, sampler.consumed)

    def __next__(self) -> list[int]:
        if not self._left:
            self._sampler.ended(self._epoch)
            raise StopIteration
        rows, _ = self._sampler.block(self._order, self._consumed)
        self._left -= 1
        if not self._left:  # now, since some consumers count to len() and never ask for one more
            self._sampler.ended(self._epoch)
        self._consumed = min(self._consumed + self._sampler.batch_size, self._sampler._end)
        return rows.tolist()

    def state_dict(self) -> dict[str, Any]:
        """The state after the blocks that were handed out (see PlannedBatchSampler.state)."""
        return self._sampler.state_at(self._epoch, self._consumed)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the blocks that this state counts; after the last one, with the next epoch."""
        epoch, consumed = self._sampler.place_of(state)
        if epoch != self._sampler.epoch:
            self._sampler.set_epoch(epoch)
        self._begin(epoch, consumed)

    def _begin(self, epoch: int, consumed: int) -> None:
        self._epoch, self._consumed = epoch, consumed
        self._order = self._sampler.order(epoch)  # its own: a loader may iterate in a thread
        self._left = self._sampler.plan.steps(self._sampler.batch_size, consumed)
