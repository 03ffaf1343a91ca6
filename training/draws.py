"""Sampling with replacement by weight: independent draws, which make no epoch and never call themselves one.

Draw t is the position at which the cumulative weight passes a number in [0, 1) that is a keyed hash of (seed, t). So
any draw is found at once, and the state is the number of draws that were used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sevenfold.storage.canonical import digest_bytes, digest_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.training.draw import key, numbered, unit
from sevenfold.training.order import Layout
from sevenfold.training.plan import check_state, count_of, rank_slots

_DRAWS = 5  # keeps the draws independent of the permutations


@dataclass(frozen=True)
class DrawPlan:
    """Everything a sequence of draws depends on.

    Parameters
    ----------
    content_ids : the versions the rows come from.
    selection : digest over the selected ids in order, with a short description of the choice.
    weights : digest over their weights (:func:`digest_of`).
    draws : how many in all; a plan has no other end.
    seed : of the draws; any integer.
    mode, format : what this recipe is called.
    """

    content_ids: tuple[str, ...]
    selection: str
    weights: str
    draws: int
    seed: int
    mode: str = "with_replacement"
    format: int = 2

    @property
    def digest(self) -> str:
        """sha256 in hex of all fields."""
        return digest_json(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {**asdict(self), "content_ids": list(self.content_ids)}

    def steps(self, batch: int, drawn: int = 0) -> int:
        """Global blocks still to come; the last one may be padded."""
        return max(-(-(self.draws - drawn) // batch), 0)

    def slice(self, drawn: int, batch: int, rank: int, world: int) -> np.ndarray:
        """int64 [ceil(batch / world)]: the numbers of a rank's draws in the next global block, PAD past the last."""
        if not self.steps(batch, drawn):
            raise IndexError(f"no block after {drawn} of {self.draws} draws")
        return rank_slots(drawn, batch, min(drawn + batch, self.draws), rank, world)

    def state(self, drawn: int) -> dict[str, Any]:
        """{plan digest, its fields, drawn}: JSON, free of ranks and workers."""
        return {"plan": self.digest, "fields": self.to_dict(), "drawn": drawn}

    def restore(self, state: Mapping[str, Any]) -> int:
        """The draws that were used. Raises SevenfoldError for the state of another plan, saying what differs."""
        check_state(self.digest, self.to_dict(), state)
        drawn = count_of(state, "drawn")
        if drawn > self.draws:
            raise SevenfoldError(f"{drawn} draws were used", where="loader state", expected=f"0 ... {self.draws}")
        return drawn


class Draws:
    """The draws of a plan over the positions of a layout.

    Parameters
    ----------
    plan : of the draws.
    layout : of the selection.
    weights : float64 [n], of each position; how often one is drawn is in proportion to its weight.
    """

    def __init__(self, plan: DrawPlan, layout: Layout, weights: np.ndarray) -> None:
        weights = np.asarray(weights, np.float64)
        if len(weights) != layout.positions or not np.isfinite(weights).all() or (weights < 0).any():
            raise SevenfoldError(
                f"{len(weights)} weights for {layout.positions} samples", where="sampling with replacement",
                expected="one finite weight each, none below 0",
            )  # fmt: skip
        self._ends = np.cumsum(weights)
        if plan.draws and (not len(weights) or not self._ends[-1] > 0):
            raise SevenfoldError("no sample has a weight", where="sampling with replacement")
        self._salt = key(plan.seed, _DRAWS)
        self._last = int(np.flatnonzero(weights)[-1]) if plan.draws else 0
        self.plan = plan

    def take(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """(positions int64 [k], numbers int64 [k]) of the draws start ... stop - 1."""
        if not 0 <= start <= stop <= self.plan.draws:
            raise IndexError(f"draws {start} ... {stop} of {self.plan.draws}")
        numbers = np.arange(start, stop)
        if not len(numbers):
            return numbers, numbers
        points = unit(numbered(numbers, self._salt)) * self._ends[-1]
        positions = np.searchsorted(self._ends, points, side="right")
        return np.minimum(positions, self._last), numbers  # rounding may land on the very end


def digest_of(weights: np.ndarray) -> str:
    """sha256 in hex over float64 weights, in order."""
    return digest_bytes(np.ascontiguousarray(weights, "<f8").tobytes())
