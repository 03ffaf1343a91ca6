"""Sharding: re-read a batch's inputs, prove that they are still the bytes that were measured, write tars and the index.

A pure function of (batch, what the version already holds, class order, shard size): shards are per split, samples in
id order, so that the classes are mixed and any machine writes the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage import redactions
from sevenfold.storage.canonical import digest_bytes, digest_json, digest_table
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import ALIASES, INDEX, LANDING, QUARANTINE, QUEUE, read_parquet, write_parquet
from sevenfold.storage.keys import (
    aliases_key,
    batch_key,
    index_key,
    landing_key,
    quarantine_key,
    relabels_key,
    shard_key,
)
from sevenfold.storage.names import SPLITS
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.records import Batch
from sevenfold.storage.shards import Sample, cuts, index_rows, write_shards
from sevenfold.storage.sources import InputError, Source, in_blocks
from sevenfold.storage.store import Store


@dataclass(frozen=True)
class Known:
    """The ids that are taken already, with the label each has: what a new batch is compared with."""

    ids: pa.Array
    labels: pa.Array


def pack(
    store: Store,
    batch: Batch,
    source: Source | None,
    known: Known,
    classes: Mapping[str, int],
    *,
    shard_bytes: int,
    progress: Progress | None = None,
) -> Batch:
    """Write the batch's shards and index; returns its record with `packed` filled in (already saved).

    `packed`: key (what the shards depend on), against (digest of the known ids among the landed, with their labels),
    index (digest or None), samples, shards. Known ids become aliases;
    known ids with another label become proposed relabels in the queue `relabels-<batch>`; an input whose bytes have
    changed since landing is quarantined as `changed`. `source` may be None when the result is known to exist.
    """
    landed = read_parquet(store, landing_key(batch.dataset, batch.batch), LANDING)
    place = pc.index_in(landed["id"], value_set=known.ids)
    fresh = landed.filter(pc.is_null(place))
    old = landed.filter(pc.is_valid(place))
    labels = sorted({x for x in fresh["label"].to_pylist() if x is not None})
    key = digest_json(
        {
            "batch": batch.digest,
            "known": digest_table(old.select(["id"])),
            "classes": {label: classes[label] for label in labels},
            "shard_bytes": shard_bytes,
        }
    )
    old_labels = pc.take(known.labels, place.drop_null())
    against = digest_table(pa.table({"id": old["id"], "label": old_labels}))
    if batch.packed and batch.packed["key"] == key and _all_there(store, batch.packed):
        if batch.packed["against"] == against:
            return batch
        packed, changed, took = batch.packed, batch.reasons.get("changed", 0), batch.seconds
    else:
        if source is None:
            raise ValueError("packing needs the source")
        started = time.perf_counter()
        written = _Writer(store, source, classes, batch, shard_bytes, progress or silent).write(fresh)
        _note_changed(store, batch, written.changed)
        changed, index = len(written.changed), None
        if written.groups:
            index = digest_table(pa.concat_tables(written.groups))
            write_parquet(store, index_key(index), written.groups, INDEX, overwrite=False)
        kept = sum(t.num_rows for t in written.groups)
        packed = {"key": key, "index": index, "samples": kept, "shards": written.shards}
        took = {**batch.seconds, "shard": time.perf_counter() - started}
    relabelled = _known_again(store, batch, old, old_labels)
    quarantined = landing_quarantined(batch) + changed
    kept = redactions.current(store).entry(packed)["samples"]  # of the landed; `packed` counts slots
    counts = {
        "inputs": batch.counts["inputs"],
        "samples": kept,
        "aliases": batch.counts["inputs"] - kept - relabelled - quarantined,
        "relabels": relabelled,
        "quarantined": quarantined,
    }
    reasons = {k: v for k, v in batch.reasons.items() if k != "changed"} | ({"changed": changed} if changed else {})
    packed, reasons = {**packed, "against": against}, dict(sorted(reasons.items()))
    return change(store, batch, lambda now: replace(now, packed=packed, counts=counts, reasons=reasons, seconds=took))


def change(store: Store, batch: Batch, how: Callable[[Batch], Batch]) -> Batch:
    """Change a batch's record, whatever others change of it meanwhile; returns what it is then."""

    def changed(before: bytes | None) -> bytes:
        if before is None:
            raise SevenfoldError(f"the batch {batch.batch} is gone", where=store.url, do="land it again")
        return how(Batch.parse(before)).to_json()

    return Batch.parse(store.update(batch_key(batch.dataset, batch.batch), changed))


def landing_quarantined(batch: Batch) -> int:
    """Inputs set aside when the batch landed, before sharding found any that had changed."""
    return batch.counts["quarantined"] - batch.reasons.get("changed", 0)


def _all_there(store: Store, packed: Mapping[str, Any]) -> bool:
    packed = redactions.current(store).entry(packed)
    index = packed["index"]
    return all(store.renew(shard_key(s["digest"])) for s in packed["shards"]) and (
        index is None or store.renew(index_key(index))
    )


class _Writer:
    """Reads and checks shard after shard while the one before is written."""

    def __init__(
        self,
        store: Store,
        source: Source,
        classes: Mapping[str, int],
        batch: Batch,
        shard_bytes: int,
        progress: Progress,
    ) -> None:
        self.store, self.source, self.classes, self.batch = store, source, classes, batch
        self.shard_bytes, self.progress = shard_bytes, progress
        self.groups: list[pa.Table] = []
        self.shards: list[dict[str, Any]] = []
        self.changed: list[dict[str, Any]] = []

    def write(self, rows: pa.Table) -> _Writer:
        parts = [(s, g) for s in SPLITS for g in self._groups(rows.filter(pc.equal(rows["split"], s)))]
        kept: list[list[int]] = [[] for _ in parts]
        shards = write_shards(self.store, (self._samples(*part, keep) for part, keep in zip(parts, kept, strict=True)))
        done = 0
        for (split, group), keep, shard in zip(parts, kept, shards, strict=True):
            if shard:
                self.groups.append(index_rows(group.take(keep), self.batch.batch, shard))
                self.shards.append(
                    {"digest": shard.digest, "samples": shard.samples, "bytes": shard.bytes, "split": split}
                )
            done += group.num_rows
            self.progress(done, rows.num_rows, "writing shards")
        return self

    def _groups(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Cut rows (in id order) into shards."""
        return (rows.slice(*cut) for cut in cuts(rows["bytes"].to_pylist(), self.shard_bytes))

    def _samples(self, split: str, rows: pa.Table, keep: list[int]) -> Iterator[Sample]:
        """What is still as it was measured; `keep` collects which rows that is."""
        columns = [rows[c].to_pylist() for c in ("id", "ext", "path", "label")]
        contents = in_blocks(self.source, columns[2])
        for i, (key, ext, path, label, data) in enumerate(zip(*columns, contents, strict=True)):
            if isinstance(data, InputError):
                self._set_aside(path, label, split, f"it can no longer be read: {data}")
                continue
            if digest_bytes(data) != key:
                self._set_aside(path, label, split, "its bytes are not those that were measured when it landed")
                continue
            keep.append(i)
            image = (ext, data)
            yield key, (image,) if label is None else (image, ("cls", b"%d" % self.classes[label]))

    def _set_aside(self, path: str, label: str | None, split: str, detail: str) -> None:
        self.changed.append(
            {"path": path, "reason": "changed", "detail": detail, "label": label, "split": split,
             "source": self.batch.source, "bytes": 0}
        )  # fmt: skip


def _known_again(store: Store, batch: Batch, old: pa.Table, known_labels: pa.Array) -> int:
    """Known ids: same label (or none) is one more path of it, another label is a proposal for people to decide."""
    key = aliases_key(batch.dataset, batch.batch)
    aliases = read_parquet(store, key, ALIASES)
    aliases = aliases.filter(pc.not_equal(aliases["reason"], KNOWN))
    again: list[dict[str, Any]] = []
    proposals: list[dict[str, Any]] = []
    for row, label in zip(old.select(["id", "path", "label"]).to_pylist(), known_labels.to_pylist(), strict=True):
        if row["label"] is None or row["label"] == label:
            again.append({**row, "reason": KNOWN})
        else:
            rank = len(proposals) + 1
            proposals.append(
                {"id": row["id"], "rank": rank, "kind": "relabel", "label": label, "suggestion": row["label"]}
            )
    table = pa.concat_tables([aliases, pa.Table.from_pylist(again, schema=ALIASES)])
    write_parquet(store, key, [table], ALIASES, overwrite=True)
    queue = relabels_key(batch.dataset, batch.batch)
    if proposals or store.exists(queue):
        write_parquet(store, queue, [pa.Table.from_pylist(proposals, schema=QUEUE)], QUEUE, overwrite=True)
    return len(proposals)


KNOWN = "known already"
"""Why an input is an alias of a sample that a version had before its batch."""


def _note_changed(store: Store, batch: Batch, changed: list[dict[str, Any]]) -> None:
    key = quarantine_key(batch.dataset, batch.batch)
    table = read_parquet(store, key, QUARANTINE)
    before = table.filter(pc.not_equal(table["reason"], "changed"))
    if changed or before.num_rows != table.num_rows:
        table = pa.concat_tables([before, pa.Table.from_pylist(changed, schema=QUARANTINE)])
        write_parquet(store, key, [table], QUARANTINE, overwrite=True)
