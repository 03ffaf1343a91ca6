"""Overlays: a version's edits on top of its shards. The last word on each field of each sample wins."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage.canonical import digest_table
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import OVERLAY, SAMPLES, conform, write_parquet
from sevenfold.storage.names import SPLITS
from sevenfold.storage.store import LocalStore


def overlay_path(root: Path, digest: str) -> Path:
    """Where the overlay of this digest lies."""
    return root / "overlays" / f"{digest}.parquet"


def checked(table: pa.Table) -> pa.Table:
    """The overlay in its stored form: columns of index.OVERLAY (absent ones null), sorted by id.

    Raises SevenfoldError for an unknown column, a missing id or one named twice, a split that does not exist, or a
    weight that is negative or no number.
    """
    unknown = [c for c in table.column_names if c not in OVERLAY.names]
    if unknown or "id" not in table.column_names:
        raise SevenfoldError(
            f"an overlay has the columns {', '.join(table.column_names) or 'none'}",
            expected=f"id and any of {', '.join(OVERLAY.names[1:])}",
            do=f"drop or rename {unknown[0]}" if unknown else "add the ids of the samples to edit",
        )
    table = conform(table, OVERLAY).sort_by("id")
    if table["id"].null_count:
        raise SevenfoldError("an overlay has rows without an id", expected="the id of a sample in every row")
    if len(pc.unique(table["id"])) != table.num_rows:
        raise SevenfoldError("an overlay names the same sample twice", expected="one row per id", do="merge the rows")
    wrong = [s for s in pc.unique(table["split"]).to_pylist() if s is not None and s not in SPLITS]
    if wrong:
        raise SevenfoldError(f"an overlay moves samples to the split {wrong[0]!r}", expected=", ".join(SPLITS))
    bad = [w for w in pc.unique(table["weight"]).to_pylist() if w is not None and not 0 <= w < math.inf]
    if bad:
        raise SevenfoldError(f"an overlay gives the weight {bad[0]}", expected="a number from 0 upwards")
    return table


def write_overlay(root: Path, table: pa.Table) -> str:
    """Store an overlay (see `checked`) and return its digest."""
    table = checked(table)
    digest = digest_table(table)
    write_parquet(LocalStore(overlay_path(root, digest).parent), f"{digest}.parquet", [table], OVERLAY, overwrite=False)
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
