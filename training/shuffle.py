"""How good a shuffle is against the bytes it must keep at hand, for a choice of windows, on a version's own layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.training.config import TrainConfig
from sevenfold.training.order import Layout
from sevenfold.training.plan import EpochPlan

_SLOTS = 200_000
"""Slots that are measured for each window: whole epochs of a small version, a part of one of a large one."""
_EPOCHS = 20
_NEIGHBOURS, _CLASSES = 0.8, 1.1
TINY = 20
"""Blocks in an epoch below which measures of batches say little."""


@dataclass(frozen=True)
class Quality:
    """What one window costs and gives.

    Parameters
    ----------
    window : whole shards (of each source) shuffled together.
    bytes : of the largest window there can be.
    bytes_two : of the largest two that can follow each other: the one in use and the next, fetched ahead.
    neighbours : mean distance in storage of samples that follow each other, relative to a full shuffle, which has 1;
        stored order has about 0. None for fewer than two samples.
    same_shard : how often two samples of a batch lie in one shard, relative to chance. None where chance has it never.
    classes : how uneven the classes of a batch are (mean chi-square of its class counts), relative to random batches,
        which have 1. None without two classes or a batch smaller than the selection.
    classes_error : standard error of `classes` were the batches random.
    """

    window: int
    bytes: int
    bytes_two: int
    neighbours: float | None
    same_shard: float | None
    classes: float | None
    classes_error: float | None


def measure(plan: EpochPlan, laid: Layout, sizes: np.ndarray, labels: np.ndarray, batch: int) -> Quality:
    """Measure one plan.

    Parameters
    ----------
    plan, laid : the plan and the layout of its selection.
    sizes : int64 [shards of the layout], bytes of each shard's file.
    labels : int64 [positions], class numbers.
    batch : slots of a global block.
    """
    total = plan.samples
    part = min(total, _SLOTS)
    epochs = range(min(_EPOCHS, max(1, _SLOTS // max(part, 1))))
    of = np.repeat(np.arange(len(laid.sizes)), laid.sizes)
    shares = np.array(plan.slots, float) / np.maximum([source[1] for source in laid.sources], 1)
    weight = np.repeat(shares, [source[1] for source in laid.sources])  # how often a position comes in an epoch
    distances, pairs, spread, blocks = [], [], [], 0
    for epoch in epochs:
        taken = plan.order(laid, epoch).take(0, part)[0]
        distances.append(np.abs(np.diff(taken)))
        whole = len(taken) // batch
        blocks += whole
        inside = taken[: whole * batch]
        pairs.append(_same(of[inside], batch))
        spread.append(_uneven(labels, inside, batch, weight))
    bytes_one, bytes_two = (_largest(laid, sizes, plan.window * k) for k in (1, 2))
    classes = len(np.unique(labels)) if len(labels) else 0
    uneven = np.concatenate(spread) if spread else np.zeros(0)
    random = (classes - 1) * (total - batch) / max(total - 1, 1)
    return Quality(
        window=plan.window,
        bytes=bytes_one,
        bytes_two=bytes_two,
        neighbours=_ratio(np.concatenate(distances), _full_distance(laid, weight)),
        same_shard=_ratio(np.concatenate(pairs), _chance(of, weight)),
        classes=_ratio(uneven, random),
        classes_error=float(np.sqrt(2 / ((classes - 1) * blocks))) if random > 0 and blocks else None,
    )


def _ratio(values: np.ndarray, expected: float) -> float | None:
    return float(values.mean() / expected) if len(values) and expected > 0 else None


def _full_distance(laid: Layout, weight: np.ndarray) -> float:
    """Mean distance of two positions drawn apart, each as often as it comes in an epoch."""
    n = laid.positions
    if n < 2:
        return 0.0
    share = np.cumsum(weight) / weight.sum()
    return float(2 * (share * (1 - share)).sum()) * n / (n - 1)  # drawn apart: never the same position twice


def _chance(of: np.ndarray, weight: np.ndarray) -> float:
    """The chance that two samples drawn apart lie in one shard."""
    mass = np.bincount(of, weight)
    total = mass.sum()
    return float((mass * (mass - 1)).sum() / (total * (total - 1))) if total > 1 else 0.0


def _same(of: np.ndarray, batch: int) -> np.ndarray:
    """float64 [blocks]: the share of a block's pairs that lie in one shard."""
    blocks = len(of) // batch
    if batch < 2 or not blocks:
        return np.zeros(0)
    found, counts = np.unique(np.repeat(np.arange(blocks), batch) * (of.max() + 1) + of, return_counts=True)
    same = np.bincount(found // (of.max() + 1), counts * (counts - 1), minlength=blocks)
    return same / (batch * (batch - 1))


def _uneven(labels: np.ndarray, inside: np.ndarray, batch: int, weight: np.ndarray) -> np.ndarray:
    """float64 [blocks]: chi-square of each block's class counts against those of an epoch."""
    blocks = len(inside) // batch
    if not blocks:
        return np.zeros(0)
    names, number = np.unique(labels, return_inverse=True)
    expected = np.bincount(number, weight) / weight.sum() * batch
    at = np.repeat(np.arange(blocks), batch) * len(names) + number[inside]
    counts = np.bincount(at, minlength=blocks * len(names)).reshape(blocks, len(names))
    return ((counts - expected) ** 2 / np.maximum(expected, 1e-12)).sum(1)


def _largest(laid: Layout, sizes: np.ndarray, count: int) -> int:
    """Bytes of the `count` largest shards of each source; a shard that several sources read lies in the cache once."""
    chosen: dict[int, int] = {}
    for _, _, first, shards in laid.sources:
        at = first + np.argsort(-sizes[first : first + shards], kind="stable")[:count]
        chosen |= dict(zip(laid.shards[at].tolist(), sizes[at].tolist(), strict=True))
    return sum(chosen.values())


def recommend(found: Sequence[Quality], shards: int) -> tuple[int, str]:
    """(the window to take, why in plain words).

    The smallest whose neighbours lie at least 80 % as far apart as in a full shuffle and whose batches are no more
    than 10 % more uneven in their classes than random ones (and twice the error of that measure).
    """
    for q in sorted(found, key=lambda q: q.window):
        far = q.neighbours is None or q.neighbours >= _NEIGHBOURS
        even = q.classes is None or q.classes <= _CLASSES + 2 * (q.classes_error or 0.0)
        if q.window >= shards:
            return q.window, f"it holds {_all_of(shards)}: a full shuffle"
        if far and even:
            return q.window, "the smallest that is close to a full shuffle"
    best = max(found, key=lambda q: q.window)
    return best.window, "none of these is close to a full shuffle: try larger ones, or smaller shards"


def survey(lake: Lake, config: TrainConfig, windows: Sequence[int]) -> dict[str, Any]:
    """Measure the plans that a configuration would have with each of these windows.

    Returns {dataset, content_id, samples, shards, batch_size, windows: [Quality as a dict, ...], recommended, why,
    notes}; `shards` are those of the largest source.

    Raises SevenfoldError for draws with replacement, which have no windows, and for a window below 1.
    """
    from sevenfold.training.task import Task, resolve

    if config.sampling == "with_replacement":
        raise SevenfoldError("draws with replacement have no windows", where="sampling", do="leave sampling out")
    task = Task.of(lake, resolve(lake, config))
    laid = task.layout
    sizes = task.shard_bytes[laid.shards]
    labels = task.dataset.labels[laid.rows_of(np.arange(laid.positions))]
    plan = task.plan(config.seeds[0])
    assert isinstance(plan, EpochPlan)
    batch = config.batch_size
    found = [measure(replace(plan, window=w), laid, sizes, labels, batch) for w in sorted(set(windows))]
    shards = max((source[3] for source in laid.sources), default=0)
    window, why = recommend(found, shards)
    return {
        "dataset": config.dataset, "content_id": task.config.content_id, "samples": plan.samples, "shards": shards,
        "batch_size": batch, "windows": [asdict(q) for q in found], "recommended": window, "why": why,
        "notes": _notes(plan, batch, shards, len(np.unique(labels)), int(sizes.sum())),
    }  # fmt: skip


def _all_of(shards: int) -> str:
    return f"all {shards} shards" if shards > 1 else "the only shard"


def _notes(plan: EpochPlan, batch: int, shards: int, classes: int, size: int) -> list[str]:
    """What keeps the measures from saying much."""
    notes = []
    if plan.samples < TINY * batch:
        found = f"{plan.samples:,} samples make {plan.samples / batch:.1f} batches of {batch}"
        notes.append(f"{found}: so few that measures of batches are rough")
    if shards < 4:
        notes.append(f"the samples lie in {shards} shard{'s' * (shards != 1)}: the window hardly matters")
    if classes < 2:
        notes.append("the samples have fewer than two classes: how even classes are in a batch cannot be measured")
    if size < 1 << 30:
        notes.append(f"all of it is {size / 1e6:,.1f} MB: a window of {_all_of(shards)} costs little")
    return notes
