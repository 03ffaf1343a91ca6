"""The columns of every table the lake keeps, and how a Parquet file of them is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from sevenfold.storage.store import Store

_MEASURED = [
    ("label", pa.string()),
    ("split", pa.string()),
    ("path", pa.string()),
    ("width", pa.int32()),
    ("height", pa.int32()),
    ("channels", pa.int32()),
    ("mode", pa.string()),
    ("format", pa.string()),
    ("pixel_digest", pa.string()),
    ("phash", pa.int64()),
]

LANDING = pa.schema([("id", pa.string()), ("ext", pa.string()), ("bytes", pa.int64()), *_MEASURED])
"""One row per landed sample, sorted by id. `bytes`: size of the image file."""

INDEX = pa.schema(
    [
        ("id", pa.string()),
        ("batch", pa.string()),
        ("shard", pa.string()),
        ("ext", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("components", pa.list_(pa.struct([("ext", pa.string()), ("offset", pa.int64()), ("size", pa.int64())]))),
        *_MEASURED,
    ]
)
"""The sample index, a row per stored sample. `offset`, `size`: its image within the shard; `components`: the rest."""

BAKED = pa.schema([("weight", pa.float64()), ("exclude", pa.bool_())])
"""Further columns of an index that compaction wrote: overlays baked in. Absent or null: weight 1, not excluded.

A row without a shard has no bytes any more: it was excluded before the compaction, or taken down.
"""

SLOT = pa.field("slot", pa.string())
"""A further column of an index that a takedown wrote: the shard in which a sample lay that has none any more."""

SAMPLES = pa.schema(
    [f for f in INDEX if f.name not in ("components", "label", "split")]
    + [pa.field("label", pa.string()), pa.field("split", pa.string()), pa.field("weight", pa.float64())]
)
"""A version's effective rows: the index with the overlays applied."""

VARIANT = pa.schema(
    [
        ("id", pa.string()),
        ("slot", pa.int32()),
        ("shard", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("channels", pa.int32()),
    ]
)
"""A variant's index, a row per sample of its version. `slot`: which of the variant's shards is the sample's place, also
where it is in none (all after it is null): it did not decode, or was taken down before the variant was made.
"""

ALIASES = pa.schema([("id", pa.string()), ("path", pa.string()), ("label", pa.string()), ("reason", pa.string())])
QUARANTINE = pa.schema(
    [
        ("path", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("label", pa.string()),
        ("split", pa.string()),
        ("source", pa.string()),
        ("bytes", pa.int64()),
    ]
)
OVERLAY = pa.schema(
    [
        ("id", pa.string()),
        ("exclude", pa.bool_()),
        ("label", pa.string()),
        ("split", pa.string()),
        ("weight", pa.float64()),
        ("reviewer", pa.string()),
        ("reason", pa.string()),
    ]
)
QUEUE = pa.schema(
    [
        ("id", pa.string()),
        ("kind", pa.string()),
        ("rank", pa.int32()),
        ("score", pa.float64()),
        ("inclusion_probability", pa.float64()),
        ("label", pa.string()),
        ("suggestion", pa.string()),
        ("content_id", pa.string()),
        ("producer", pa.string()),
    ]
)
PROPERTIES = ("brightness", "contrast", "sharpness", "entropy", "colorfulness", "aspect", "bytes_per_pixel")
"""The float signals that ingest measures of every image."""


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` with exactly `schema`'s columns, in its order; absent columns become null."""
    columns = [
        table[f.name].cast(f.type) if f.name in table.column_names else pa.nulls(table.num_rows, f.type) for f in schema
    ]
    return pa.table(columns, schema=schema)


def write_parquet(store: Store, key: str, groups: Iterable[pa.Table], schema: pa.Schema, *, overwrite: bool) -> bool:
    """Write some tables as one file (see `parquet_into`), synced and published whole; True when this call made it.

    With `overwrite` an older file is replaced atomically, else it is left as it is.
    """
    if not overwrite and store.renew(key):
        return False
    with store.writing(key, overwrite=overwrite) as draft:
        parquet_into(draft.file, groups, schema)
    return draft.made


def parquet_into(file: IO[bytes], groups: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Write Parquet to an open file: row groups of about ROW_GROUP rows, small tables together, with a page index.

    A query reads the footer of every file, and a footer grows with its row groups: one per shard would cost more than
    the answer. What they would be good for, finding an id by its range, the page index does for pages of about 1,000.
    """
    dictionary = [f.name for f in schema if f.name in _REPEATED]
    with pq.ParquetWriter(
        file, schema, compression="zstd", use_dictionary=dictionary, write_page_index=True, data_page_size=_PAGE
    ) as writer:
        waiting: list[pa.Table] = []
        for group in groups:
            waiting.append(group)
            if sum(t.num_rows for t in waiting) >= ROW_GROUP:
                writer.write_table(pa.concat_tables(waiting), row_group_size=ROW_GROUP)
                waiting = []
        if waiting:
            writer.write_table(pa.concat_tables(waiting), row_group_size=ROW_GROUP)


ROW_GROUP = 1 << 17
"""Rows of a row group: what DuckDB gives to one thread."""

_PAGE = 64 << 10


def read_parquet(
    store: Store, key: str, schema: pa.Schema | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """A table the lake keeps; raises FileNotFoundError."""
    path = store.local(key)
    if not path.exists():
        raise FileNotFoundError(f"{store.url}/{key}")
    return pq.read_table(path, schema=schema, columns=list(columns) if columns else None)


_REPEATED = {
    "batch", "shard", "ext", "label", "split", "mode", "format", "reason", "reviewer", "source", "name", "producer",
    "scope", "content_id", "kind", "suggestion", "predicted", "width", "height", "channels",
}  # fmt: skip
"""Columns of few different values: dictionary pages pay there and nowhere else."""
