"""The epoch plan: which sample comes when, as a pure function of (plan, epoch). No buffer, no generator, no state.

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
from sevenfold.training.mix import Order
from sevenfold.training.order import Layout

Tail = Literal["drop", "pad", "wrap"]
TAILS: tuple[Tail, ...] = ("drop", "pad", "wrap")
PAD = -1
"""The row number of an empty slot: it is masked, has no weight and no label."""
_LAST_EPOCH = 2**31 - 1
"""Passes and copies of a state's epoch fit into 64 bits; nobody trains as many."""


@dataclass(frozen=True)
class EpochPlan:
    """Everything the order of an epoch depends on.

    Parameters
    ----------
    content_ids : the versions the rows come from.
    selection : digest over the selected ids in order, repeats included, with a short description of the choice.
    samples : slots of one epoch, over all sources.
    seed : of the permutations; any integer.
    window : whole shards (of each source) that are shuffled together; more mixes better and keeps more files open.
    tail : what happens to the last, incomplete block: "drop" it, "pad" it with masked slots, or "wrap" around to the
        start of the same epoch's order.
    mix : per source (name, digest of its selection, slots in an epoch); () is one source of `samples` slots.
    format : of this recipe; a change of the permutations gives it a new number.
    """

    content_ids: tuple[str, ...]
    selection: str
    samples: int
    seed: int
    window: int = 8
    tail: Tail = "pad"
    mix: tuple[tuple[str, str, int], ...] = ()
    format: int = 2

    def __post_init__(self) -> None:
        for name in ("samples", "seed", "window"):
            if not is_whole(getattr(self, name)):
                raise SevenfoldError(
                    f"{name} is {getattr(self, name)!r}", where="epoch plan", expected="a whole number"
                )
        if self.window < 1:
            raise SevenfoldError(f"the window is {self.window}", where="epoch plan", expected="at least one shard")
        if self.tail not in TAILS:
            raise SevenfoldError(f"the tail policy is {self.tail!r}", where="epoch plan", expected=", ".join(TAILS))
        if sum(self.slots) != self.samples or min(self.slots) < 0:
            raise SevenfoldError(
                f"the sources have {self.slots} slots", where="epoch plan", expected=f"{self.samples} in all"
            )

    @property
    def slots(self) -> tuple[int, ...]:
        """Slots of each source in an epoch."""
        return tuple(source[2] for source in self.mix) if self.mix else (self.samples,)

    @property
    def digest(self) -> str:
        """sha256 in hex of all fields."""
        return digest_json(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {**asdict(self), "content_ids": list(self.content_ids), "mix": [list(source) for source in self.mix]}

    def order(self, layout: Layout, epoch: int) -> Order:
        """The order of an epoch over positions of the layout, computed as it is asked for.

        Raises SevenfoldError when the layout is not that of this plan's selection.
        """
        if len(layout.sources) != len(self.slots) or (not self.mix and layout.positions != self.samples):
            raise SevenfoldError(
                f"the layout has {layout.positions} positions in {len(layout.sources)} sources",
                where="epoch plan",
                expected=f"{self.samples} slots of {len(self.slots)} sources",
            )
        return Order(layout, self.slots, self.seed, self.window, epoch)

    def steps(self, batch: int, consumed: int = 0) -> int:
        """Global blocks still to come in an epoch of which `consumed` samples are done: the same on every rank."""
        left = self.samples - consumed
        return max(left // batch if self.tail == "drop" else -(-left // batch), 0)

    def slice(self, consumed: int, batch: int, rank: int, world: int) -> np.ndarray:
        """int64 [ceil(batch / world)]: a rank's slots of the global block that starts after `consumed` samples.

        PAD where the slice or the epoch has no further slot; with the tail "wrap" slots count on past the last, and
        slot % samples is the one that is used again. Every rank's slice is equally long.

        Raises IndexError where the tail policy has no further block.
        """
        if not self.steps(batch, consumed):
            raise IndexError(f"no block after {consumed} of {self.samples} samples")
        end = consumed + batch
        return rank_slots(consumed, batch, end if self.tail == "wrap" else min(end, self.samples), rank, world)

    def after(self, epoch: int, consumed: int, batch: int) -> tuple[int, int]:
        """(epoch, consumed) after one more block; after the last one the next epoch begins."""
        return self.normal(epoch, min(consumed + batch, self.samples), batch)

    def normal(self, epoch: int, consumed: int, batch: int) -> tuple[int, int]:
        """The same place, or the next epoch's start when this epoch has no block left for this batch size."""
        return (epoch, consumed) if self.steps(batch, consumed) or not consumed else (epoch + 1, 0)

    def state(self, epoch: int, consumed: int) -> dict[str, Any]:
        """{plan digest, its fields, epoch, samples consumed}: JSON, free of ranks and workers."""
        return {"plan": self.digest, "fields": self.to_dict(), "epoch": epoch, "consumed": consumed}

    def restore(self, state: Mapping[str, Any]) -> tuple[int, int]:
        """(epoch, samples consumed) of a saved state (see :func:`check_state`)."""
        check_state(self.digest, self.to_dict(), state)
        epoch, consumed = count_of(state, "epoch"), count_of(state, "consumed")
        if epoch > _LAST_EPOCH or consumed > self.samples:
            raise SevenfoldError(
                f"epoch {epoch}, {consumed} consumed", where="loader state",
                expected=f"epoch 0 ... {_LAST_EPOCH}, 0 ... {self.samples} samples",
            )  # fmt: skip
        return epoch, consumed


def rank_slots(first: int, batch: int, end: int, rank: int, world: int) -> np.ndarray:
    """int64 [ceil(batch / world)]: a rank's slots of the block from `first` on, PAD from `end` on."""
    share = -(-batch // world)
    slots = first + rank * share + np.arange(share)
    return np.where(slots < end, slots, PAD)


def rank_slice(block: np.ndarray, rank: int, world: int) -> np.ndarray:
    """int64 [ceil(len(block) / world)]: one rank's part, contiguous, equally long on every rank (PAD fills up)."""
    slots = rank_slots(0, len(block), len(block), rank, world)
    return np.where(slots == PAD, PAD, block[slots])


def check_state(digest: str, fields: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Refuse the state of another plan and say what differs.

    A state is {"plan": the digest, "fields": the plan's fields, ... how far it came}.
    """
    if not isinstance(state, Mapping) or "plan" not in state:
        raise SevenfoldError("this is no loader's state: it names no plan", where="loader state")
    if state["plan"] != digest:
        told = state.get("fields")
        other = dict(told) if isinstance(told, Mapping) else {}
        keys = [k for k in sorted(fields.keys() | other.keys()) if fields.get(k) != other.get(k)]
        found = "; ".join(f"{k} was {other.get(k)!r}, is {fields.get(k)!r}" for k in keys) or "its fields were edited"
        raise SevenfoldError(
            f"the state belongs to another plan: {found}",
            where="loader state",
            expected=f"plan {digest[:12]}, found {str(state['plan'])[:12]}",
            do="resume with the configuration the run was started with, or start a new run",
        )


def is_whole(value: object) -> bool:
    """Whether a value is a whole number: no float, no text, no bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def count_of(state: Mapping[str, Any], name: str) -> int:
    """A count that a state holds. Raises SevenfoldError when it is no whole number from 0, or missing."""
    value = state.get(name)
    if not is_whole(value) or int(value) < 0:  # type: ignore[arg-type]
        found = f"{name} is {value!r}" if name in state else f"it has no {name}"
        raise SevenfoldError(found, where="loader state", expected="a whole number from 0", do="take an unedited state")
    return int(value)  # type: ignore[arg-type]
