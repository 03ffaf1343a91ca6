"""Where samples are found in a lake: every file that shows something of them."""

from __future__ import annotations

import time as clocks
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage import erase, leases, redactions, tombstones, variants, versions
from sevenfold.storage.commit import read_batches
from sevenfold.storage.index import ALIASES, OVERLAY, QUARANTINE, conform, read_parquet
from sevenfold.storage.keys import aliases_key, digest_in, landing_key, lost_keys, quarantine_key, shard_key
from sevenfold.storage.lineage import cards_of
from sevenfold.storage.overlays import stored_rows
from sevenfold.storage.records import Batch
from sevenfold.storage.store import Store
from sevenfold.storage.whom import all_versions, stored, with_pixels

BY_ID = ("signals", "predictions", "queues", "embeddings", "descriptors", "metadata", "annotations")
"""Folders of Parquet files with a row per sample and an `id`: what is known of a sample is one of its rows."""

OF_RUNS = "/dynamics.parquet"
"""So it is with what a training run noted of each sample."""

LEFT_AFTER = 3600.0
"""Seconds after which a temporary file is what a killed writer left."""


@dataclass(frozen=True)
class Traces:
    """Everything a lake holds of some samples.

    Parameters
    ----------
    ids : of the samples.
    pixels : id -> pixel digest, None where it is no longer known.
    twins : ids of other samples with the same pixels.
    places : (source, path) under which they were landed.
    indexes, overlays : digest -> rows that show something.
    shards : digest -> bytes.
    variants : keys of manifests -> the shards that hold one of the samples; such a variant is deleted.
    batches : mappings of dataset, batch, status, samples, aliases, quarantined.
    tables : keys of signals, predictions, queues, embeddings, descriptors, metadata,
        annotations and dynamics of runs -> rows.
    verdicts : keys of verdicts that quote a path, or say something of one of the samples.
    caches : keys of hidden files that hold them, of what killed writers left, and of shards that repair set aside.
    versions : mappings of dataset, version, content_id, samples.
    models : mappings of model, content_id, trained (whether its run lists one of the ids; None: unknown).
    reports : pages that lie in the lake.
    readers : leases that are held.
    """

    ids: tuple[str, ...]
    pixels: Mapping[str, str | None]
    twins: tuple[str, ...]
    places: tuple[tuple[str, str], ...]
    indexes: Mapping[str, int]
    shards: Mapping[str, int]
    overlays: Mapping[str, int]
    variants: Mapping[str, tuple[str, ...]]
    batches: tuple[Mapping[str, Any], ...]
    tables: Mapping[str, int]
    verdicts: tuple[str, ...]
    caches: tuple[str, ...]
    versions: tuple[Mapping[str, Any], ...]
    models: tuple[Mapping[str, Any], ...]
    reports: tuple[str, ...]
    readers: int

    @property
    def empty(self) -> bool:
        """Whether nothing is left to erase."""
        files = (self.indexes, self.shards, self.overlays, self.variants, self.tables, self.verdicts, self.caches)
        return not any(files) and not self.batches


def survey(store: Store, ids: Collection[str], places: Collection[tuple[str, str]] = ()) -> Traces:
    """Look through the whole lake for some ids; `places` are (source, path) known of them from before."""
    wanted = pa.array(sorted(ids), pa.string())
    indexes: dict[str, int] = {}
    shards: set[str] = set()
    held: set[str] = set()  # shards that an index names
    rows_of: dict[str, int] = {}
    pixels: dict[str, str | None] = {s.id: s.pixel_digest for s in tombstones.read(store).values() if s.id in ids}
    for digest, table in stored(store, ["id", "shard", "path", "pixel_digest"]):
        held.update(pc.unique(table["shard"]).drop_null().to_pylist())
        table = table.filter(pc.is_in(table["id"], value_set=wanted))
        rows_of[digest] = table.num_rows
        shown = table.filter(erase.shows(table))
        if shown.num_rows:
            indexes[digest] = shown.num_rows
            shards.update(shown["shard"].drop_null().to_pylist())
            _note_pixels(pixels, shown)
    found_shards = {d: e.bytes for d in sorted(shards) if (e := store.stat(shard_key(d)))}
    holding, of_variants = variants.holding(store, ids)
    found_shards |= _unnamed_shards(store, held | of_variants, set(ids))
    touched, batches = set(places), []
    records = [b for d in store.names("batches") for b in read_batches(store, d)]
    for batch in records:
        landed = read_parquet(store, landing_key(batch.dataset, batch.batch), columns=["id", "path", "pixel_digest"])
        landed = landed.filter(pc.is_in(landed["id"], value_set=wanted))
        _note_pixels(pixels, landed)
        aliases = read_parquet(store, aliases_key(batch.dataset, batch.batch), ALIASES)
        aliases = aliases.filter(pc.is_in(aliases["id"], value_set=wanted))
        touched |= {(batch.source, path) for t in (landed, aliases) for path in t["path"].to_pylist()}
        batches.append({"samples": landed.num_rows, "aliases": aliases.num_rows})
    aside = [_aside(store, b, set(ids), touched) for b in records]
    touched |= {(row["source"], row["path"]) for table in aside for row in table.select(["source", "path"]).to_pylist()}
    shown_batches = [
        {"dataset": b.dataset, "batch": b.batch, "status": b.status, **n, "quarantined": q.num_rows}
        for b, n, q in zip(records, batches, aside, strict=True)
        if n["samples"] or n["aliases"] or q.num_rows
    ]
    held_by = _versions(store, rows_of)
    return Traces(
        ids=tuple(sorted(ids)),
        pixels={i: pixels.get(i) for i in sorted(ids)},
        twins=tuple(sorted(with_pixels(store, {p for p in pixels.values() if p}) - set(ids))),
        places=tuple(sorted(touched)),
        indexes=indexes,
        shards=found_shards,
        overlays=_overlays(store, wanted),
        variants={k: tuple(d for d in digests if d not in held) for k, digests in holding.items()},
        batches=tuple(shown_batches),
        tables=_tables(store, wanted),
        verdicts=_quoting(store, ids, {path for _, path in touched}),
        caches=(*_caches(store, [*ids, *(p for p in pixels.values() if p)]), *_set_aside(store, shards, set(ids))),
        versions=tuple(held_by),
        models=tuple(_models(store, {v["content_id"] for v in held_by}, wanted)),
        reports=tuple(e.key for e in store.entries("") if e.key.endswith(".html")),
        readers=len(leases.active(store)),
    )


def _note_pixels(pixels: dict[str, str | None], rows: pa.Table) -> None:
    for key, digest in _pairs(rows, "id", "pixel_digest"):
        pixels[key] = digest or pixels.get(key)


def _pairs(table: pa.Table, first: str, second: str) -> list[tuple[Any, Any]]:
    return list(zip(table[first].to_pylist(), table[second].to_pylist(), strict=True))


def _unnamed_shards(store: Store, named_ones: Collection[str], ids: Collection[str]) -> dict[str, int]:
    """Shards that no index names, such as a killed writer leaves, and that hold one of the samples."""
    found = {}
    for entry in store.entries("shards"):
        digest = digest_in(entry.key)
        if digest not in named_ones:
            with open(store.local(entry.key), "rb") as f:
                if any(member.id in ids for member in erase.members(f)):
                    found[digest] = entry.bytes
    return found


def orphans(store: Store, ids: Collection[str]) -> list[str]:
    """The shards that hold one of some samples and that no index and no variant names: a killed writer leaves such."""
    named_ones = {d for _, table in stored(store, ["shard"]) for d in pc.unique(table["shard"]).drop_null().to_pylist()}
    return sorted(_unnamed_shards(store, named_ones | variants.holding(store, ())[1], set(ids)))


def _set_aside(store: Store, shards: Collection[str], ids: set[str]) -> list[str]:
    """What verification kept of damaged shards that held one of the samples: their bytes, and what was lost of them."""
    found = []
    for entry in store.entries("quarantine/shards"):
        digest = entry.key.rpartition("/")[2].partition(".")[0]
        if entry.key not in lost_keys(digest):
            continue
        if entry.key.endswith(".tar"):
            data = store.read(entry.key)
            hit = digest in shards or any(i.encode() in data for i in ids)
        else:
            hit = any(erase.about(read_parquet(store, entry.key, QUARANTINE), ids, ()))
        if hit:
            found.append(entry.key)
    return found


def _aside(store: Store, batch: Batch, ids: set[str], places: Collection[tuple[str, str]]) -> pa.Table:
    """The rows of a batch's quarantine that are about these samples: by path, or by the id in their detail."""
    table = read_parquet(store, quarantine_key(batch.dataset, batch.batch), QUARANTINE)
    return table.filter(pa.array(erase.about(table, ids, places), pa.bool_()))


def _versions(store: Store, rows: Mapping[str, int]) -> list[dict[str, Any]]:
    redacted = redactions.current(store)
    found = []
    for dataset, version in all_versions(store):
        manifest = versions.read_manifest(store, version.content_id)
        indexes = {redacted.last("index", b["index"]) for b in manifest.batches if b["index"]}
        count = sum(rows.get(digest, 0) for digest in indexes)
        if count:
            found.append(
                {"dataset": dataset, "version": version.name, "content_id": version.content_id, "samples": count}
            )
    return found


def _overlays(store: Store, wanted: pa.Array) -> dict[str, int]:
    found = {}
    for entry in store.entries("overlays"):
        digest = digest_in(entry.key)
        table = conform(stored_rows(store, digest), OVERLAY)
        count = pc.sum(erase.says(table, wanted)).as_py()
        if count:
            found[digest] = count
    return found


def _tables(store: Store, wanted: pa.Array) -> dict[str, int]:
    found = {}
    keys = [e.key for folder in BY_ID for e in store.entries(folder) if e.key.endswith(".parquet")]
    keys += [e.key for e in store.entries("runs") if e.key.endswith(OF_RUNS)]
    for key in keys:
        ids = read_parquet(store, key, columns=["id"])["id"]
        count = pc.sum(pc.is_in(ids, value_set=wanted)).as_py()
        if count:
            found[key] = count
    return found


def _quoting(store: Store, ids: Collection[str], paths: Collection[str]) -> tuple[str, ...]:
    keys = [e.key for e in store.entries("checks") if e.key.endswith(".parquet")]
    return tuple(k for k in keys if erase.without_samples(read_parquet(store, k), ids, paths) is not None)


def _caches(store: Store, needles: Sequence[str]) -> tuple[str, ...]:
    """Hidden files: temporary ones that are old or hold an id, and a landing's interim results that hold one."""
    found = []
    now = clocks.time()
    for entry in store.entries("", hidden=True):
        name = entry.key.rpartition("/")[2]
        if not name.startswith((".tmp-", ".landing-")):
            continue
        if name.startswith(".tmp-") and now - entry.modified > LEFT_AFTER:
            found.append(entry.key)
            continue
        try:
            data = store.read(entry.key)
        except FileNotFoundError:  # its writer has ended
            continue
        if any(x.encode() in data for x in needles):
            found.append(entry.key)
    return tuple(found)


def _models(store: Store, content_ids: Collection[str], wanted: pa.Array) -> list[dict[str, Any]]:
    """Models that were trained on any of these versions, themselves or through a parent."""
    found = []
    for model in cards_of(store, content_ids):
        listed = f"runs/{model['run_id']}/trained.parquet"
        trained = None
        if store.exists(listed):
            ids = read_parquet(store, listed, columns=["id"])["id"]
            trained = bool(pc.any(pc.is_in(ids, value_set=wanted)).as_py())
        name = f"{model['name']}/{model['number']}"
        found.append({"model": name, "content_id": model["content_id"], "trained": trained})
    return found
