"""What others say of a lake's contents and storage only keeps: verdicts on batches and versions, review queues."""

from __future__ import annotations

import pyarrow as pa

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import QUEUE, conform, read_parquet, write_parquet
from sevenfold.storage.keys import queue_key
from sevenfold.storage.names import check_name
from sevenfold.storage.store import Store


def append_verdicts(store: Store, dataset: str, subject: str, table: pa.Table) -> str:
    """Store a check run's verdicts beside those before it; returns its key. The name counts up: the newest is last."""
    folder = f"checks/{check_name(dataset, 'dataset name')}/{check_name(subject, 'subject')}"
    number = len(store.names(folder))
    while not write_parquet(store, f"{folder}/{number:06d}.parquet", [table], table.schema, overwrite=False):
        number += 1
    return f"{folder}/{number:06d}.parquet"


def read_verdicts(store: Store, dataset: str, subject: str | None) -> pa.Table | None:
    """All verdicts about a subject (or every subject), oldest first; None when there is none."""
    folder = f"checks/{check_name(dataset, 'dataset name')}"
    if subject is not None:
        folder += f"/{check_name(subject, 'subject')}"
    keys = [e.key for e in store.entries(folder) if e.key.endswith(".parquet")]
    return pa.concat_tables([read_parquet(store, k) for k in keys], promote_options="default") if keys else None


def write_queue(store: Store, dataset: str, name: str, table: pa.Table) -> str:
    """Store a review queue (index.QUEUE); returns its key."""
    key = queue_key(dataset, name)
    write_parquet(store, key, [conform(table, QUEUE)], QUEUE, overwrite=True)
    return key


def queue_names(store: Store, dataset: str) -> list[str]:
    """The review queues of a dataset."""
    return store.stems(f"queues/{check_name(dataset, 'dataset name')}", ".parquet")


def read_queue(store: Store, dataset: str, name: str) -> pa.Table:
    """A review queue. Raises SevenfoldError naming those that exist."""
    try:
        return read_parquet(store, queue_key(dataset, name), QUEUE)
    except FileNotFoundError:
        there = ", ".join(queue_names(store, dataset)) or "none"
        raise SevenfoldError(f"there is no queue {name!r}", where=store.url, expected=f"one of: {there}") from None
