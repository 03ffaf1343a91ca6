"""Overlays: a version's edits on top of its shards. The last word on each field of each sample wins."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage.canonical import digest_table
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import OVERLAY, SAMPLES, conform, write_parquet
from sevenfold.storage.names import SPLITS


def overlay_path(root: Path, digest: str) -> Path:
    """Where the overlay of this digest lies."""
    return root / "overlays" / f"{digest}.parquet"


def write_overlay(root: Path, table: pa.Table) -> str:
    """Store an overlay (columns of index.OVERLAY; absent ones are null) and return its digest.

    Raises SevenfoldError for an id named twice or a split that does not exist.
    """
    table = conform(table, OVERLAY).sort_by("id")
    if len(pc.unique(table["id"])) != table.num_rows:
        raise SevenfoldError("an overlay names the same sample twice", expected="one row per id", do="merge the rows")
    wrong = [s for s in pc.unique(table["split"]).to_pylist() if s is not None and s not in SPLITS]
    if wrong:
        raise SevenfoldError(f"an overlay moves samples to the split {wrong[0]!r}", expected=", ".join(SPLITS))
    digest = digest_table(table)
    write_parquet(overlay_path(root, digest), [table], OVERLAY, overwrite=False)
    return digest


def read_overlay(root: Path, digest: str) -> pa.Table:
    """The overlay's rows, columns of index.OVERLAY."""
    return pq.read_table(overlay_path(root, digest), schema=OVERLAY)


def apply(rows: pa.Table, overlays: list[pa.Table]) -> pa.Table:
    """Effective samples (index.SAMPLES) of index rows: later overlays win field by field; excluded rows go last."""
    table = rows
    if "weight" not in table.column_names:
        table = table.append_column("weight", pa.array([1.0] * rows.num_rows, pa.float64()))
    excluded = pa.chunked_array([pa.array([False] * rows.num_rows, pa.bool_())])
    for overlay in overlays:
        place = pc.index_in(table["id"], value_set=overlay["id"].combine_chunks())
        excluded = pc.coalesce(pc.take(overlay["exclude"], place), excluded)
        for name in ("label", "split", "weight"):
            column = pc.coalesce(pc.take(overlay[name], place), table[name])
            table = table.set_column(table.column_names.index(name), name, column)
    return conform(table.filter(pc.invert(excluded)), SAMPLES)
