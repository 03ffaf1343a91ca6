"""Purging what a lake knows of samples beside their shards: landings, quarantine, queues, signals, caches.

Every step may be done again: a batch's counts change first and carry the takedown's mark, its tables after them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage import erase
from sevenfold.storage.index import ALIASES, LANDING, QUARANTINE, read_parquet, write_parquet
from sevenfold.storage.keys import aliases_key, batch_key, landing_key, quarantine_key, relabels_key
from sevenfold.storage.pack import KNOWN, change
from sevenfold.storage.records import Batch
from sevenfold.storage.store import Store


def purge_batch(
    store: Store, dataset: str, batch: str, ids: Collection[str], places: Collection[tuple[str, str]], takedown: str
) -> None:
    """Remove samples from what a batch landed and set aside, and from its counts."""
    record = Batch.read(store, batch_key(dataset, batch))
    wanted = pa.array(list(ids), pa.string())
    keys = landing_key(dataset, batch), aliases_key(dataset, batch), quarantine_key(dataset, batch)
    landed, aliases, aside = (
        read_parquet(store, k, s) for k, s in zip(keys, (LANDING, ALIASES, QUARANTINE), strict=True)
    )
    gone = (
        pc.is_in(landed["id"], value_set=wanted),
        pc.is_in(aliases["id"], value_set=wanted),
        pa.chunked_array([pa.array(erase.about(aside, ids, places), pa.bool_())]),
    )
    relabels = 0
    if store.exists(relabels_key(dataset, batch)):
        relabels = _count(pc.is_in(read_parquet(store, relabels_key(dataset, batch))["id"], value_set=wanted))
    mark = f"takedown {takedown[:12]}: "

    def counted(now: Batch) -> Batch:
        if any(note.startswith(mark) for note in now.notes):
            return now
        twice = _count(pc.and_(gone[1], pc.equal(aliases["reason"], KNOWN)))
        twice += _count(pc.and_(gone[2], pc.equal(aside["reason"], "changed")))  # these have a landed row too
        removed = sum(map(_count, gone)) - twice
        counts = {
            **now.counts,
            "inputs": now.counts["inputs"] - removed,
            "aliases": now.counts["aliases"] - _count(gone[1]),
            "relabels": now.counts["relabels"] - relabels,
            "quarantined": now.counts["quarantined"] - _count(gone[2]),
        }
        counts["samples"] = counts["inputs"] - counts["aliases"] - counts["relabels"] - counts["quarantined"]
        reasons = dict(now.reasons)
        for reason in aside.filter(gone[2])["reason"].to_pylist():
            reasons[reason] -= 1
        notes = (*now.notes, f"{mark}{removed} of its inputs were removed")
        return replace(now, counts=counts, reasons={k: n for k, n in reasons.items() if n}, notes=notes)

    change(store, record, counted)
    for key, table, schema, hit in zip(
        keys, (landed, aliases, aside), (LANDING, ALIASES, QUARANTINE), gone, strict=True
    ):
        if _count(hit):
            _rewrite(store, key, table.filter(pc.invert(hit)), schema)


def drop_rows(store: Store, key: str, ids: Collection[str]) -> None:
    """Remove the rows of some ids from a Parquet file."""
    table = pq.read_table(store.local(key))
    kept = table.filter(pc.invert(pc.is_in(table["id"], value_set=pa.array(list(ids), pa.string()))))
    _rewrite(store, key, kept, table.schema)


def drop_said(store: Store, key: str, ids: Collection[str], paths: Collection[str]) -> None:
    """Take what a file of verdicts says of some samples, and the paths that it quotes."""
    table = erase.without_samples(read_parquet(store, key), ids, paths)
    if table is not None:
        _rewrite(store, key, table, table.schema)


def _rewrite(store: Store, key: str, table: pa.Table, schema: pa.Schema) -> None:
    store.forget(key)  # first, so that a kill in between leaves no copy that nobody remembers
    write_parquet(store, key, [table], schema, overwrite=True)


def _count(flags: pa.ChunkedArray) -> int:
    return pc.sum(flags).as_py() or 0
