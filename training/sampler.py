"""The stateful batch sampler: hands each rank its slice of the plan's global blocks, and remembers how far it came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sevenfold.storage.errors import SevenfoldError
from sevenfold.training.plan import PAD, EpochPlan, check_state, rank_slice


class PlannedBatchSampler:
    """A batch sampler for `torch.utils.data.DataLoader`: iterating yields what is left of the current epoch.

    A DataLoader with workers asks ahead of time, so iterating moves nothing: the trainer calls :meth:`advance` once it
    has used a block, and only that counts as consumed.

    Parameters
    ----------
    plan : the epoch plan.
    rows : int64 [plan.samples], the dataset row of each position of the selection (repeats allowed).
    groups : int64 [plan.samples], the shard number of each position.
    batch_size : of the global block, over all ranks.
    rank, world : which slice of each block this process takes.
    """

    def __init__(
        self,
        plan: EpochPlan,
        rows: np.ndarray,
        groups: np.ndarray,
        batch_size: int,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if batch_size < 1 or not 0 <= rank < world:
            raise SevenfoldError(
                f"batch size {batch_size}, rank {rank} of {world}",
                where="batch sampler",
                expected="a batch of at least 1 and a rank below the number of ranks",
            )
        self.plan, self.batch_size, self.rank, self.world = plan, batch_size, rank, world
        self.rows = np.asarray(rows, dtype=np.int64)
        self.groups = np.asarray(groups, dtype=np.int64)
        self.epoch = 0
        self.consumed = 0

    @property
    def share(self) -> int:
        """Slots of one rank in each block."""
        return -(-self.batch_size // self.world)

    def __len__(self) -> int:
        """Blocks left in the current epoch: the same on every rank."""
        return self.plan.steps(self.batch_size, self.consumed)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's dataset rows, block by block, PAD (-1) in empty slots."""
        order = self.plan.order(self.groups, self.epoch)
        consumed = self.consumed
        for _ in range(len(self)):
            part = rank_slice(self.plan.block(order, consumed, self.batch_size), self.rank, self.world)
            yield np.where(part == PAD, PAD, self.rows[part]).tolist()
            consumed = self.plan.advance(consumed, self.batch_size)

    def positions(self) -> np.ndarray:
        """int64 [share]: the places in the epoch of this rank's slots of the next block; they key the augmentation."""
        return self.consumed + self.rank * self.share + np.arange(self.share)

    def advance(self) -> None:
        """Count the next block as used; after the last one the next epoch begins."""
        self.consumed = self.plan.advance(self.consumed, self.batch_size)
        if not len(self):
            self.epoch, self.consumed = self.epoch + 1, 0

    def state(self) -> dict[str, Any]:
        """{plan digest, its fields, epoch, samples consumed}: JSON, free of ranks and workers."""
        return {
            "plan": self.plan.digest,
            "fields": self.plan.to_dict(),
            "epoch": self.epoch,
            "consumed": self.consumed,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state. Raises SevenfoldError when it belongs to another plan, saying what differs."""
        self.epoch, self.consumed = check_state(self.plan, state)
