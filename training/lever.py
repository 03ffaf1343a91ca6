"""What a variant saves: bytes per sample, and how many samples per second the loader delivers of it and the original.

One thread, the same samples, taken in turn, so that a busy machine slows both alike; files are in memory by then.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from time import perf_counter

import pyarrow as pa
import pyarrow.compute as pc
import torch

from sevenfold.storage import Lake
from sevenfold.storage.variants import Variant
from sevenfold.training.feed import Feed
from sevenfold.training.loader import SampleDataset, make_loader

PROBED = 256
"""Samples that are read and decoded, at most: the first in their shards' order, so that few shards are fetched."""

BATCH = 32

ROUNDS = 5
SECONDS = 2.0
"""Rounds over them, and the time after which no further one is begun."""


@dataclass(frozen=True)
class Lever:
    """One row of the table: mean bytes of a sample's file, and samples read and decoded per second on one core."""

    what: str
    bytes_each: float
    rate: float


def measure(lake: Lake, variant: Variant, original: pa.Table, derived: pa.Table) -> list[Lever]:
    """The original and the variant, delivered at the variant's size.

    `original`, `derived` : the version's samples (index.SAMPLES) and the same rows in the variant.
    """
    there = pc.is_valid(derived["offset"])
    tables = {"original": original.filter(there), variant.name: derived.filter(there)}
    shape = variant.recipe["size"], variant.recipe["channels"]
    count = min(PROBED, pc.sum(there).as_py() or 0)
    blocks = [list(range(i, min(i + BATCH, count))) for i in range(0, count, BATCH)]
    feeds = [
        make_loader(SampleDataset(lake.shard_path, table.slice(0, count), (), *shape), blocks, threads=0)
        for table in tables.values()
    ]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        times = _alternate(feeds)
    finally:
        torch.set_num_threads(threads)
    return [
        Lever(name, pc.mean(table["size"]).as_py(), count / statistics.median(taken))
        for (name, table), taken in zip(tables.items(), times, strict=True)
    ]


def _alternate(feeds: list[Feed]) -> list[list[float]]:
    """Seconds of some rounds through each; before the first, shards are fetched and opened."""
    for feed in feeds:
        _round(feed)
    times: list[list[float]] = [[] for _ in feeds]
    began = perf_counter()
    for _ in range(ROUNDS):
        for feed, taken in zip(feeds, times, strict=True):
            taken.append(_round(feed))
        if perf_counter() - began > SECONDS:
            break
    return times


def _round(feed: Feed) -> float:
    began = perf_counter()
    for _batch in feed:
        pass
    return perf_counter() - began
