"""Lineage: what a version came from (batches, decisions, versions) and what came of it (runs, models)."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage import overlays, redactions, reviews, variants, versions
from sevenfold.storage.keys import batch_key
from sevenfold.storage.records import Batch, Version, read_json
from sevenfold.storage.store import Store

Facts = dict[str, Any]


@dataclass(frozen=True)
class Lineage:
    """Everything the lake knows of where a version is from and where it went; plain values, as JSON has them.

    `ancestors`: the version itself and all that it was built on, newest first: version, content_id, parents, message,
    provenance (time, code, config, run, by as far as known). `batches`: source, kind, digest, landed (unix seconds),
    counts and the version that brought each in. `edits`: every overlay on the way, with its rows, reviewers, reviews,
    queues and the version that brought it in, also where a compaction has baked it in since. `refs`: names that point
    at the version. `variants`: other bytes of its samples (see `facts_of`). `models`, `runs`: what was trained on
    exactly its content (see `models_of`, `runs_of`).
    """

    dataset: str
    version: str
    content_id: str
    refs: tuple[str, ...]
    ancestors: tuple[Facts, ...]
    batches: tuple[Facts, ...]
    edits: tuple[Facts, ...]
    variants: tuple[Facts, ...]
    runs: tuple[Facts, ...]
    models: tuple[Facts, ...]


def lineage(store: Store, dataset: str, ref: str) -> Lineage:
    """The lineage of the version that `ref` names (see versions.resolve)."""
    version = versions.resolve(store, dataset, ref)
    line = list(versions.ancestors(store, version))
    batches: dict[str, str] = {}
    edits: dict[str, str] = {}
    for v in reversed(line):
        manifest = versions.read_manifest(store, v.content_id)
        for found, names in ((batches, manifest.batch_ids), (edits, manifest.overlays)):
            for name in names:
                found.setdefault(name, v.name)
    held = set(versions.read_manifest(store, version.content_id).batch_ids)
    decided: dict[str, list[reviews.Review]] = {}
    for review in reviews.list_reviews(store, dataset):
        decided.setdefault(review.overlay, []).append(review)
    refs = [
        name
        for kind in ("branches", "tags")
        for name, number in versions.read_refs(store, dataset, kind).items()
        if number == version.number
    ]
    redacted = redactions.current(store)
    return Lineage(
        dataset=dataset,
        version=version.name,
        content_id=version.content_id,
        refs=tuple(refs),
        ancestors=tuple(_ancestor(v) for v in line),
        batches=tuple(_batch(store, dataset, b, v) for b, v in batches.items() if b in held),
        edits=tuple(_edit(store, redacted, d, v, decided.get(d, [])) for d, v in edits.items()),
        variants=tuple(facts_of(v) for v in variants.list_variants(store, version.content_id)),
        runs=tuple(runs_of(store, {version.content_id})),
        models=tuple(models_of(store, {version.content_id})),
    )


def facts_of(variant: variants.Variant) -> Facts:
    """What to tell of a variant: name, recipe, shards (how many), counts, bytes, created."""
    told: Facts = {k: getattr(variant, k) for k in ("name", "recipe", "counts", "created")}
    return {**told, "shards": len(variant.shards), "bytes": variant.tar_bytes}


def models_of(store: Store, content_ids: Collection[str]) -> list[Facts]:
    """Models that saw any of these contents, by name and number: those trained on one, or grown from one that was.

    Each with name, number, content_id, run_id, `saw` (content ids), parent (`name/number` or None), created (unix
    seconds) and `metrics` (by slice, by metric). A lake without models has none.
    """
    return [
        {**card, "metrics": _metrics(store, f"models/{card['name']}/{card['number']}/metrics.parquet")}
        for card in cards_of(store, content_ids)
    ]


def cards_of(store: Store, content_ids: Collection[str]) -> Iterator[Facts]:
    """As `models_of`, without the metrics: no table is read."""
    for name in store.names("models"):
        for number in sorted(int(n) for n in store.names(f"models/{name}") if n.isdigit()):
            key = f"models/{name}/{number}/model.json"
            if not store.exists(key):
                continue
            card = read_json(store, key, "model")
            saw = [*card.get("saw", [])]
            if set(content_ids) & {card.get("content_id"), *saw}:
                known: Facts = {k: card.get(k) for k in ("content_id", "run_id", "parent", "created")}
                yield {"name": name, "number": number, **known, "saw": saw}


def runs_of(store: Store, content_ids: Collection[str]) -> list[Facts]:
    """Runs that trained on or scored one of these contents, by id: run_id, content_id, seed, code as far as known."""
    found: list[Facts] = []
    for name in store.names("runs"):
        key = f"runs/{name}/config.json"
        if store.exists(key):
            about = read_json(store, key, "run")
            if about.get("content_id") in content_ids:
                known: Facts = {k: about[k] for k in ("content_id", "seed", "code") if k in about}
                found.append({"run_id": about.get("run_id", name), **known})
    return found


def _ancestor(version: Version) -> Facts:
    return {
        "version": version.name,
        "content_id": version.content_id,
        "parents": [f"v{p}" for p in version.parents],
        "message": version.message,
        "provenance": version.provenance,
    }


def _batch(store: Store, dataset: str, name: str, version: str) -> Facts:
    """A batch's facts; of one whose record is gone, its name alone."""
    facts: Facts = {"batch": name, "version": version}
    key = batch_key(dataset, name)
    if store.exists(key):
        record = Batch.read(store, key)
        facts |= {k: getattr(record, k) for k in ("source", "kind", "digest", "counts")}
        facts["landed"] = record.times.get("landed")
    return facts


def _edit(
    store: Store, redacted: redactions.Redactions, digest: str, version: str, decided: list[reviews.Review]
) -> Facts:
    rows = overlays.stored_rows(store, redacted.last("overlays", digest))
    reviewers = {*pc.unique(rows["reviewer"]).to_pylist(), *(r.reviewer for r in decided)} - {None}
    return {
        "overlay": digest,
        "version": version,
        "rows": rows.num_rows,
        "reviewers": sorted(reviewers),
        "reviews": [r.name for r in decided],
        "queues": list(dict.fromkeys(q for r in decided for q in r.queues)),
    }


def _metrics(store: Store, key: str) -> dict[str, dict[str, float]]:
    """A model's metrics by slice; none when its table has another form than (metric, slice, value)."""
    if not store.exists(key):
        return {}
    table = pq.read_table(io.BytesIO(store.read(key)))
    found: dict[str, dict[str, float]] = {}
    if {"metric", "slice", "value"} <= set(table.column_names):
        for row in table.to_pylist():
            found.setdefault(row["slice"], {})[row["metric"]] = row["value"]
    return found
