"""What a variant saves: bytes per sample, and how many samples per second are read and decoded, before and after.

One thread, the same samples, taken in turn, so that a busy machine slows both alike; files are in memory by then.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage.keys import shard_key
from sevenfold.storage.resize import squashed
from sevenfold.storage.sources import InputError
from sevenfold.storage.store import Store
from sevenfold.storage.variants import Variant

PROBED = 256
"""Samples that are read and decoded, at most: the first in their shards' order, so that few shards are fetched."""

ROUNDS = 5
SECONDS = 2.0
"""Rounds over them, and the time after which no further one is begun."""


@dataclass(frozen=True)
class Lever:
    """One row of the table: mean bytes of a sample's file, and samples read and decoded per second on one core."""

    what: str
    bytes_each: float
    rate: float


def measure(store: Store, variant: Variant, original: pa.Table, derived: pa.Table) -> list[Lever]:
    """The original and the variant, decoded to the variant's size.

    `original`, `derived` : the version's samples (index.SAMPLES) and the same rows in the variant.
    """
    there = pc.is_valid(derived["offset"])
    tables = [original.filter(there), derived.filter(there)]
    few = [t.slice(0, PROBED) for t in tables]
    shape = variant.recipe["size"], variant.recipe["channels"]
    times: list[list[float]] = [[], []]
    began = time.perf_counter()
    for _ in range(ROUNDS):
        for i, rows in enumerate(few):
            times[i].append(_round(store, rows, *shape))
        if time.perf_counter() - began > SECONDS:
            break
    names = ("original", variant.name)
    return [
        Lever(name, pc.mean(table["size"]).as_py(), rows.num_rows / statistics.median(taken))
        for name, table, rows, taken in zip(names, tables, few, times, strict=True)
    ]


def _round(store: Store, rows: pa.Table, size: int, channels: int) -> float:
    """Seconds to read some rows and decode them into one array, as a batch is made."""
    batch = np.empty((rows.num_rows, size, size, channels), np.uint8)
    places = [rows[c].to_pylist() for c in ("shard", "offset", "size")]
    with ExitStack() as stack:
        files = {shard: stack.enter_context(store.local(shard_key(shard)).open("rb")) for shard in set(places[0])}
        began = time.perf_counter()
        for i, (shard, offset, length) in enumerate(zip(*places, strict=True)):
            with suppress(InputError):  # counted elsewhere; its time is the time that it took
                batch[i] = squashed(os.pread(files[shard].fileno(), length, offset), size, channels)
        return time.perf_counter() - began
