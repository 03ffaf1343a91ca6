"""Metadata: the further columns that a source has about its images, kept by sample id, a Parquet file for each batch.

    metadata/<dataset>/<batch>.parquet       id, and the columns as they were named: int64, float64, bool or text
    annotations/<dataset>/<batch>.parquet    id, annotator, label: what several people said of a sample

They belong to the landing: written once, covered by the batch's digest, never rewritten but by a takedown. Versions
hold batches, so commits, merges and compaction leave them alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage.keys import annotations_key, metadata_key
from sevenfold.storage.sources.further import Further
from sevenfold.storage.store import Store


def of_samples(rows: pa.Table, aliases: pa.Table, said: Further | None) -> tuple[pa.Table | None, tuple[str, ...]]:
    """(id and the columns of the samples of which the source says something, notes); None: it says nothing.

    Parameters
    ----------
    rows, aliases : of the landing (index.LANDING, index.ALIASES).

    Of an image that is there under several paths, what is said under the sample's own path is kept; of a path that
    has several rows, the first is.
    """
    if said is None:
        return None, ()
    table, notes = said.table, [*said.notes]
    if table.num_columns < 2:
        return None, tuple(notes)
    known = table["path"].combine_chunks()
    place = pc.index_in(rows["path"], value_set=known)
    kept = table.take(place.filter(pc.is_valid(place))).drop_columns(["path"])
    kept = kept.add_column(0, "id", rows["id"].filter(pc.is_valid(place)))
    names = table.column_names[1:]
    shown = f"{', '.join(names[:10])}{f' and {len(names) - 10} more' if len(names) > 10 else ''}"
    notes.insert(0, f"metadata of {kept.num_rows:,} of {rows.num_rows:,} samples: {shown}")
    others = pc.sum(pc.is_in(aliases["path"], value_set=known)).as_py() or 0
    if others:
        notes.append(f"the metadata of {others:,} aliases is not kept: that of the sample's own path is")
    return kept, tuple(notes)


def of_annotators(
    rows: pa.Table, aliases: pa.Table, said: tuple[pa.Table, tuple[str, ...]] | None
) -> tuple[pa.Table | None, tuple[str, ...]]:
    """(ANNOTATIONS of the samples, in a fixed order; notes); None: nobody was asked. Aliases count as their sample."""
    if said is None:
        return None, ()
    table, notes = said
    paths = pa.chunked_array([*rows["path"].chunks, *aliases["path"].chunks], pa.string()).combine_chunks()
    ids = pa.chunked_array([*rows["id"].chunks, *aliases["id"].chunks], pa.string())
    found = pc.take(ids, pc.index_in(table["path"], value_set=paths))
    kept = table.drop_columns(["path"]).add_column(0, "id", found)
    lost = found.null_count
    if lost:
        kept = kept.filter(pc.is_valid(kept["id"]))
        notes = (*notes, f"{lost:,} annotations are of inputs that were set aside")
    return kept.cast(ANNOTATIONS).sort_by([(name, "ascending") for name in ANNOTATIONS.names]), notes


ANNOTATIONS = pa.schema([("id", pa.string()), ("annotator", pa.string()), ("label", pa.string())])
"""A row per answer."""


def read_annotations(store: Store, dataset: str, batches: Iterable[str]) -> pa.Table | None:
    """The annotations of some batches; None when none has any."""
    keys = [annotations_key(dataset, batch) for batch in batches]
    tables = [pq.read_table(store.local(key), schema=ANNOTATIONS) for key in keys if store.exists(key)]
    return pa.concat_tables(tables) if tables else None


def read(store: Store, dataset: str, batches: Iterable[str]) -> pa.Table | None:
    """The metadata of some batches in their order; None when none has any. A column's type is one that holds all."""
    tables = []
    for batch in batches:
        if store.exists(metadata_key(dataset, batch)):
            tables.append(pq.read_table(store.local(metadata_key(dataset, batch))))
    return united(tables) if tables else None


def united(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables below one another: whole numbers beside others become float64, all other mixtures become text."""
    kinds: dict[str, pa.DataType] = {}
    for table in tables:
        for field in table.schema:
            old = kinds.setdefault(field.name, field.type)
            if old != field.type:
                both = {old, field.type} == {pa.int64(), pa.float64()}
                kinds[field.name] = pa.float64() if both else pa.string()
    schema = pa.schema(list(kinds.items()))
    pieces = [
        pa.table(
            [t[f.name].cast(f.type) if f.name in t.column_names else pa.nulls(t.num_rows, f.type) for f in schema],
            schema=schema,
        )
        for t in tables
    ]
    return pa.concat_tables(pieces)


def of_ids(table: pa.Table | None, ids: pa.ChunkedArray) -> pa.Table | None:
    """The rows of some ids, in their order; null where nothing is known. The first row of an id counts."""
    if table is None:
        return None
    place = pc.index_in(ids, value_set=table["id"].combine_chunks())
    rows = table.drop_columns(["id"]).take(place)
    return rows.add_column(0, "id", ids)
