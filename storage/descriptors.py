"""Descriptors: a few hundred bytes that say what a picture looks like, kept per batch, computed once per sample.

`descriptors/<producer>/<dataset>@<batch>.parquet` holds id and what the producer made of each picture, of whatever
columns. They are derived: a file that is lost or damaged is made again. A takedown drops the rows of its samples.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage import tombstones
from sevenfold.storage.index import read_parquet, write_parquet
from sevenfold.storage.names import check_batch, check_name
from sevenfold.storage.signals import PART_SEPARATOR
from sevenfold.storage.store import Store


def descriptors_key(producer: str, dataset: str, batch: str) -> str:
    """Where the descriptors of a batch's samples lie."""
    part = f"{check_name(dataset, 'dataset name')}{PART_SEPARATOR}{check_batch(batch)}"
    return f"descriptors/{check_name(producer, 'producer')}/{part}.parquet"


def add_descriptors(store: Store, producer: str, dataset: str, batch: str, table: pa.Table) -> None:
    """Keep descriptors beside those that a batch has; `table` has id and the producer's columns.

    Of two processes that add at once none loses rows; a row that is there already stays, and none is of a sample that
    was taken down meanwhile.
    """
    key = descriptors_key(producer, dataset, batch)
    with store.locked(key):
        gone = pa.array([s.id for s in tombstones.read(store).values()], pa.string())
        table = table.filter(pc.invert(pc.is_in(table["id"], value_set=gone)))
        old = read_whole(store, key, table.schema)
        if old is not None:
            fresh = table.filter(pc.invert(pc.is_in(table["id"], value_set=old["id"].combine_chunks())))
            table = pa.concat_tables([old, fresh])
        store.forget(key)
        write_parquet(store, key, [table], table.schema, overwrite=True)


def read_descriptors(store: Store, producer: str, dataset: str, schema: pa.Schema) -> Iterator[pa.Table]:
    """What is kept of a dataset's samples, batch by batch in the order of their names; damaged files are left out."""
    folder = f"descriptors/{check_name(producer, 'producer')}"
    for entry in sorted(store.entries(folder), key=lambda e: e.key):
        if entry.key.rpartition("/")[2].startswith(f"{dataset}{PART_SEPARATOR}"):
            table = read_whole(store, entry.key, schema)
            if table is not None:
                yield table


def read_whole(store: Store, key: str, schema: pa.Schema) -> pa.Table | None:
    """A file of descriptors; None when it is not there, or is not what it should be."""
    try:
        table = read_parquet(store, key)
    except (OSError, pa.ArrowException):
        return None
    return table if table.schema.equals(schema) else None
