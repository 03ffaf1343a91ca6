"""A process for tests to measure or to starve: `write_shards.py peak|full FOLDER ...` (see the bottom)."""

from __future__ import annotations

import json
import resource
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sevenfold.storage.shards import Sample, write_shards
from sevenfold.storage.store import LocalStore


def samples(n: int, size: int) -> Iterator[Sample]:
    """`n` samples that nobody holds but the writer."""
    random = np.random.default_rng(0)
    for i in range(n):
        yield f"{i:064x}", (("jpg", random.bytes(size)), ("cls", b"7"))


def peak(folder: str, n: str, size: str) -> None:
    """Write one shard; tells its bytes and the most that Python held meanwhile."""
    store = LocalStore(Path(folder))
    next(write_shards(store, [samples(1, 1)]))  # what is imported on the way stays
    tracemalloc.start()
    shard = next(write_shards(store, [samples(int(n), int(size))]))
    assert shard is not None
    print(json.dumps({"bytes": shard.bytes, "peak": tracemalloc.get_traced_memory()[1]}))


def full(folder: str, limit: str) -> None:
    """Write a shard where no file may grow past `limit` bytes; tells the error."""
    store = LocalStore(Path(folder))
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    try:
        next(write_shards(store, [samples(200, 100_000)]))
    except OSError as e:
        print(json.dumps({"errno": e.errno, "text": str(e)}))


if __name__ == "__main__":
    {"peak": peak, "full": full}[sys.argv[1]](*sys.argv[2:])
