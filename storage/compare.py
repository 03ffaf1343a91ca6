"""Whole versions compared in DuckDB: what differs between two, and which ids one lacks; neither is held in memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage import redactions
from sevenfold.storage.diff import diff
from sevenfold.storage.index import BAKED, INDEX
from sevenfold.storage.keys import index_key, overlay_key
from sevenfold.storage.lens import UNASKED, Lens, quoted, version_sql
from sevenfold.storage.query import connected
from sevenfold.storage.records import Manifest
from sevenfold.storage.store import Store

_COLUMNS = ("label", "split", "weight")


def diff_versions(store: Store, before: Manifest, after: Manifest) -> dict[str, Any]:
    """What changed between two versions, as diff.diff says it of their samples; `rows` are in id order within a change.

    Index files that both versions share cancel out, except for the samples that an overlay names which the versions
    do not share: a new batch or a review costs its own size, not the dataset's.
    """
    return redactions.steadily(store, partial(_diff, store, before, after))


def _diff(store: Store, before: Manifest, after: Manifest, redacted: redactions.Redactions) -> dict[str, Any]:
    before, after = (redactions.opened(m, redacted) for m in (before, after))
    shared = {b["index"] for b in before.batches} & {b["index"] for b in after.batches}
    common = 0
    while before.overlays[: common + 1] == after.overlays[: common + 1] and common < len(before.overlays):
        common += 1
    edits = [*before.overlays[common:], *after.overlays[common:]]
    with connected(store.folder) as (connection, plain):
        lens = Lens(store, UNASKED, plain)
        keys = [index_key(b["index"]) for b in before.batches if b["index"] and b["index"] in shared]
        if edits and keys:
            edited = f"SELECT id FROM read_parquet({lens.files([overlay_key(d) for d in edits])})"
            # the other columns do not matter here, and reading them for every row would take most of the time
            chosen, by_name = ["id", "label", "split", "shard"], ", union_by_name = true" if redacted else ""
            if replace(before, batches=tuple(b for b in before.batches if b["index"] in shared)).baked:
                chosen, by_name = [*chosen, *BAKED.names], ", union_by_name = true"
            others = ", ".join(f"NULL AS {quoted(f.name)}" for f in (*INDEX, *BAKED) if f.name not in chosen)
            rows = f"read_parquet({lens.files(keys)}{by_name})"
            touched = f"SELECT {', '.join(chosen)} FROM {rows} SEMI JOIN ({edited}) USING (id)"
            connection.execute(f"CREATE TABLE touched AS SELECT *, {others} FROM ({touched})")
        for name, manifest in (("b", before), ("a", after)):
            own = replace(manifest, batches=tuple(x for x in manifest.batches if x["index"] not in shared))
            parts = [version_sql(lens, own)]
            if edits and keys:
                parts.append(version_sql(lens, manifest, stored="touched"))
            rows = " UNION ALL ".join(f"SELECT id, {', '.join(_COLUMNS)} FROM ({part})" for part in parts)
            connection.execute(f"CREATE VIEW {name} AS {rows}")
        differ = " OR ".join(f"b.{c} IS DISTINCT FROM a.{c}" for c in _COLUMNS)
        sides = ", ".join(f"{side}.{c} AS {side}_{c}" for side in "ba" for c in ("id", *_COLUMNS))
        changed = connection.sql(
            f"SELECT {sides} FROM b FULL JOIN a ON b.id = a.id WHERE b.id IS NULL OR a.id IS NULL OR {differ} "
            "ORDER BY coalesce(b.id, a.id)"
        ).to_arrow_table()
    return diff(*(_side(changed, side) for side in "ba"))


def _side(changed: pa.Table, side: str) -> pa.Table:
    names = ("id", *_COLUMNS)
    table = changed.select([f"{side}_{c}" for c in names]).rename_columns(list(names))
    return table.filter(pc.is_valid(table["id"]))


def missing_ids(store: Store, manifest: Manifest, ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """Those of `ids` that the version does not store, sorted; an excluded sample is stored."""
    return redactions.steadily(store, partial(_missing, store, manifest, pc.unique(ids).sort()))


def _missing(
    store: Store, manifest: Manifest, wanted: pa.Array, redacted: redactions.Redactions
) -> pa.ChunkedArray:  # fmt: skip
    manifest = redactions.opened(manifest, redacted)
    keys = [index_key(b["index"]) for b in manifest.batches if b["index"]]
    if not keys:
        return pa.chunked_array([wanted])
    with connected(store.folder) as (connection, plain):
        lens = Lens(store, UNASKED, plain)
        connection.register("wanted", pa.table({"id": wanted}))
        # in this direction DuckDB hashes the few and reads only the pages that may hold one of them
        uneven = ", union_by_name = true" if redacted else ""
        sql = f"SELECT id FROM read_parquet({lens.files(keys)}{uneven}) SEMI JOIN wanted USING (id)"
        there = connection.sql(sql).to_arrow_table()["id"].combine_chunks()
    return pa.chunked_array([wanted.filter(pc.invert(pc.is_in(wanted, value_set=there)))])
