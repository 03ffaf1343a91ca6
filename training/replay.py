"""Replay: which old samples to train on beside new ones, so that a model adapted to new data keeps the old.

Chosen once per round from the old version's table, as a pure function; nothing is buffered while training runs. A list
chosen here is a source of a mix (`mix: [{ids: FILE, ratio: old per new}]`), which keeps its share in every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pyarrow as pa

from sevenfold.storage.errors import SevenfoldError
from sevenfold.training import draw


def replay_selection(
    new_ids: Collection[str],
    old_samples: pa.Table,
    *,
    ratio: float | None = None,
    size: int | None = None,
    seed: int = 0,
    strategy: str = "balanced",
) -> tuple[str, ...]:
    """Ids of old training samples to mix with the new ones, the most wanted first.

    Candidates are the labelled rows of `old_samples` in split train that are not new. The result depends on their ids,
    labels and batches, on `seed` and `strategy`, never on the order of rows; for one seed, a smaller selection is
    the beginning of a larger one, so growing the replay set keeps what was there.

    Strategies:
      balanced : each class in turn, and within a class each landing batch in turn (hash order within a batch), so that
        at any size class counts differ by at most one until a class runs out (as GDumb's greedy sampler, Prabhu et
        al. 2020), and old batches are not drowned by a large one.
      uniform : hash order over all: proportional to what is there in expectation (as reservoir replay, "ER").

    Parameters
    ----------
    old_samples : the SAMPLES table of the version before (id, label, split, batch are used).
    ratio, size : exactly one: old samples per new one (rounded), or their number.

    Returns fewer ids than asked for when there are fewer candidates: compare lengths.

    Raises
    ------
    SevenfoldError : neither or both of ratio and size, a negative one, or an unknown strategy.
    """
    wanted = ratio if ratio is not None else size
    if wanted is None or (ratio is not None and size is not None) or wanted < 0:
        raise SevenfoldError(
            f"ratio {ratio} and size {size}", where="replay", expected="exactly one of them, not negative"
        )
    if strategy not in STRATEGIES:
        raise SevenfoldError(
            f"there is no strategy {strategy!r}", where="replay", expected=" or ".join(sorted(STRATEGIES))
        )
    new = set(new_ids)
    columns = (old_samples[name].to_pylist() for name in ("id", "label", "split", "batch"))
    rows = sorted(
        (i, label, batch)
        for i, label, split, batch in zip(*columns, strict=True)
        if split == "train" and label is not None and i not in new
    )
    ids = [row[0] for row in rows]
    order = STRATEGIES[strategy](ids, [row[1] for row in rows], [row[2] for row in rows], seed)
    count = round(ratio * len(new)) if ratio is not None else size
    return tuple(ids[i] for i in order[:count])


def _uniform(ids: Sequence[str], labels: Sequence[str], batches: Sequence[str], seed: int) -> np.ndarray:
    return draw.uniform(ids, len(ids), seed, "replay")


def _balanced(ids: Sequence[str], labels: Sequence[str], batches: Sequence[str], seed: int) -> np.ndarray:
    hashed = draw.keys(ids, seed, "replay")
    cell = [*zip(labels, batches, strict=True)]
    order = _in_turn(np.argsort(hashed, kind="stable"), cell, labels)  # per class: its batches in turn
    return _in_turn(order, labels, [""] * len(ids))  # all: the classes in turn


def _in_turn(order: np.ndarray, inner: Sequence[object], outer: Sequence[object]) -> np.ndarray:
    """Re-order `order` so that within each `outer` group the `inner` groups alternate, each in its present order.

    A stable sort by (how many of the row's own inner group came before it), ties as they stand in `order`.
    """
    seen: dict[tuple[object, object], int] = {}
    turn = np.zeros(len(order), dtype=np.int64)
    for position, row in enumerate(order):
        group = (outer[row], inner[row])
        turn[position] = seen.get(group, 0)
        seen[group] = int(turn[position]) + 1
    return order[np.argsort(turn, kind="stable")]


STRATEGIES: dict[str, Callable[[Sequence[str], Sequence[str], Sequence[str], int], np.ndarray]] = {
    "balanced": _balanced,
    "uniform": _uniform,
}
