"""The epoch plan: which sample comes when, as a pure function of (plan, epoch). No buffer, no generator, no state.

    shards     [a a a][b b][c c c][d d]       the rows of the selection, grouped by the shard they lie in
    permute    [c c c][a a a][d d][b b]       shards, by a keyed hash of (seed, epoch, shard)
    window 2   [c c c a a a][d d b b]         `window` whole shards are open at a time
    permute    [a c a c c a][b d d b]         samples inside each window, by a keyed hash of (seed, epoch, row)

Global block s is order[s * B : (s + 1) * B]; ranks slice that block. Neither ranks nor workers are part of the order,
so that a run may resume anywhere with any number of them and still see the same global sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from sevenfold.storage.canonical import digest_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.training.draw import mix

Tail = Literal["drop", "pad", "wrap"]
TAILS: tuple[Tail, ...] = ("drop", "pad", "wrap")
PAD = -1
"""The row number of an empty slot: it is masked, has no weight and no label."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SHARDS, _SAMPLES = 1, 2  # the salts that keep the two permutations independent


@dataclass(frozen=True)
class EpochPlan:
    """Everything the order of an epoch depends on.

    Parameters
    ----------
    content_ids : the versions the rows come from.
    selection : digest over the selected ids in order, repeats included, with a short description of the choice; a mix
        of sources or a replay is a selection too: a list of rows, some of which may repeat.
    samples : how many rows the selection has.
    seed : of the permutations.
    window : whole shards that are shuffled together; more mixes better and keeps more files open.
    tail : what happens to the last, incomplete block: "drop" it, "pad" it with masked slots, or "wrap" around to the
        start of the same epoch's order.
    format : of this recipe; a change of the permutations gives it a new number.
    """

    content_ids: tuple[str, ...]
    selection: str
    samples: int
    seed: int
    window: int = 8
    tail: Tail = "pad"
    format: int = 1

    def __post_init__(self) -> None:
        if self.window < 1:
            raise SevenfoldError(f"the window is {self.window}", where="epoch plan", expected="at least one shard")
        if self.tail not in TAILS:
            raise SevenfoldError(f"the tail policy is {self.tail!r}", where="epoch plan", expected=", ".join(TAILS))

    @property
    def digest(self) -> str:
        """sha256 in hex of all fields."""
        return digest_json(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {**asdict(self), "content_ids": list(self.content_ids)}

    def order(self, groups: np.ndarray, epoch: int) -> np.ndarray:
        """int64 [samples]: positions in the selection, in the order of this epoch (see :func:`epoch_order`)."""
        if len(groups) != self.samples:
            raise SevenfoldError(
                f"{len(groups)} rows were given", where="epoch plan", expected=f"the {self.samples} of the selection"
            )
        return epoch_order(groups, self.seed, epoch, self.window)

    def steps(self, batch: int, consumed: int = 0) -> int:
        """Global blocks still to come in an epoch of which `consumed` samples are done: the same on every rank."""
        left = self.samples - consumed
        return max(left // batch if self.tail == "drop" else -(-left // batch), 0)

    def block(self, order: np.ndarray, consumed: int, batch: int) -> np.ndarray:
        """int64 [batch]: the global block that starts after `consumed` samples; PAD where nothing is left.

        Raises IndexError where the tail policy has no further block.
        """
        if not self.steps(batch, consumed):
            raise IndexError(f"no block after {consumed} of {self.samples} samples")
        block = order[consumed : consumed + batch]
        missing = batch - len(block)
        if missing and self.tail == "wrap":
            return np.concatenate([block, np.resize(order, missing)])
        return np.concatenate([block, np.full(missing, PAD, np.int64)])

    def advance(self, consumed: int, batch: int) -> int:
        """Samples consumed after one more block; filled slots of the tail do not count."""
        return min(consumed + batch, self.samples)


def epoch_order(groups: np.ndarray, seed: int, epoch: int, window: int) -> np.ndarray:
    """The permutation of one epoch.

    Parameters
    ----------
    groups : int64 [n], the shard number of each row (any numbers; equal means the same shard).
    seed, epoch : integers that key the hashes.
    window : whole shards shuffled together.

    Returns
    -------
    int64 [n]: each of 0 ... n-1 once.
    """
    shards, of_row = np.unique(np.asarray(groups, dtype=np.int64), return_inverse=True)
    place = np.empty(len(shards), dtype=np.int64)
    place[np.argsort(_keys(seed, epoch, _SHARDS, len(shards)), kind="stable")] = np.arange(len(shards))
    windows = place[of_row] // window
    return np.lexsort((_keys(seed, epoch, _SAMPLES, len(of_row)), windows)).astype(np.int64, copy=False)


def rank_slice(block: np.ndarray, rank: int, world: int) -> np.ndarray:
    """int64 [ceil(len(block) / world)]: one rank's part, contiguous, equally long on every rank (PAD fills up)."""
    share = -(-len(block) // world)
    part = block[rank * share : (rank + 1) * share]
    return np.concatenate([part, np.full(share - len(part), PAD, np.int64)])


def check_state(plan: EpochPlan, state: Mapping[str, Any]) -> tuple[int, int]:
    """(epoch, samples consumed) of a saved state; refuses the state of another plan and says what differs.

    A state is {"plan": the digest, "fields": the plan's fields, "epoch", "consumed"}.
    """
    if state["plan"] != plan.digest:
        mine, other = plan.to_dict(), dict(state.get("fields", {}))
        keys = [k for k in sorted(mine.keys() | other.keys()) if mine.get(k) != other.get(k)]
        found = "; ".join(f"{k} was {other.get(k)!r}, is {mine.get(k)!r}" for k in keys) or "its fields were edited"
        raise SevenfoldError(
            f"the state belongs to another plan: {found}",
            where="loader state",
            expected=f"plan {plan.digest[:12]}, found {str(state['plan'])[:12]}",
            do="resume with the configuration the run was started with, or start a new run",
        )
    epoch, consumed = int(state["epoch"]), int(state["consumed"])
    if epoch < 0 or not 0 <= consumed <= plan.samples:
        raise SevenfoldError(
            f"epoch {epoch}, {consumed} consumed", where="loader state", expected=f"0 ... {plan.samples} samples"
        )
    return epoch, consumed


def _keys(seed: int, epoch: int, salt: int, n: int) -> np.ndarray:
    """uint64 [n]: distinct keys, since each step is a bijection of the index (no ties to break)."""
    state = np.zeros(1, dtype=np.uint64)
    for word in (seed, epoch, salt):
        state = mix((state ^ np.uint64(word % 2**64)) + _GOLDEN)
    return mix(np.arange(n, dtype=np.uint64) * _GOLDEN + state[0])
