"""The views of a lake: which files each reads, and its columns when there are none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from sevenfold.storage import versions
from sevenfold.storage.commit import read_batches
from sevenfold.storage.index import ALIASES, LANDING, OVERLAY, QUARANTINE, QUEUE, SAMPLES
from sevenfold.storage.keys import overlay_key
from sevenfold.storage.lens import Lens, empty, quoted, samples_sql, text, version_sql
from sevenfold.storage.metadata import ANNOTATIONS
from sevenfold.storage.records import Version
from sevenfold.storage.reviews import list_reviews
from sevenfold.storage.scored import scored_sql
from sevenfold.storage.signals import PREDICTION, SIGNAL

if TYPE_CHECKING:
    import duckdb

VIEWS = (
    "samples", "samples_all", "scored", "this_version", "versions", "shards", "batches", "landed", "aliases",
    "metadata", "annotations", "quarantine", "signals", "predictions", "verdicts", "findings", "queues", "reviews",
    "overlays", "tombstones", "runs", "steps", "models",
)  # fmt: skip


def create_views(connection: duckdb.DuckDBPyConnection, lens: Lens) -> None:
    """Define the views that the query names, and no other; no file of any other is opened."""
    if lens.asked.ref != "main":
        _ = lens.version  # says what is wrong with it, whatever the query reads
    for name in VIEWS:
        connection.execute(f"DROP VIEW IF EXISTS {name}")  # of the query before
        if name in lens.asked.views:
            made = _DEFINITIONS[name](lens)
            if isinstance(made, pa.Table):
                connection.register(name, made)
            else:
                connection.execute(f"CREATE VIEW {name} AS {made}")


def _samples_all(lens: Lens) -> str:
    every = [
        f"SELECT {text(v.dataset)} AS dataset, {text(v.name)} AS version, * FROM "
        f"({version_sql(lens, lens.read(v.content_id))})"
        for d in lens.datasets
        for v in versions.list_versions(lens.store, d)
    ]
    return " UNION ALL ".join(every) or empty(pa.schema([("dataset", pa.string()), ("version", pa.string()), *SAMPLES]))


_VERSION = pa.schema(
    [
        ("dataset", pa.string()), ("version", pa.string()), ("number", pa.int64()), ("content_id", pa.string()),
        ("parents", pa.list_(pa.string())), ("message", pa.string()), ("time", pa.float64()),
        ("refs", pa.list_(pa.string())),
    ]
)  # fmt: skip


def _rows_of(lens: Lens, found: Sequence[Version]) -> pa.Table:
    refs = {
        d: [*versions.read_refs(lens.store, d, "branches").items(), *versions.read_refs(lens.store, d, "tags").items()]
        for d in {v.dataset for v in found}
    }
    rows = [
        {
            "dataset": v.dataset, "version": v.name, "number": v.number, "content_id": v.content_id,
            "parents": [f"v{p}" for p in v.parents], "message": v.message, "time": v.provenance.get("time"),
            "refs": [name for name, number in refs[v.dataset] if number == v.number],
        }
        for v in found
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=_VERSION)


def _versions(lens: Lens) -> pa.Table:
    return _rows_of(lens, [v for d in lens.datasets for v in versions.list_versions(lens.store, d)])


def _this_version(lens: Lens) -> pa.Table:
    return _rows_of(lens, [lens.version] if lens.version else [])


_SHARDS = pa.schema(
    [
        ("dataset", pa.string()), ("version", pa.string()), ("batch", pa.string()), ("split", pa.string()),
        ("digest", pa.string()), ("samples", pa.int64()), ("bytes", pa.int64()), ("index", pa.string()),
    ]
)  # fmt: skip


def _shards(lens: Lens) -> pa.Table:
    tables = [_SHARDS.empty_table()]
    for d in lens.datasets:
        for v in versions.list_versions(lens.store, d):
            shards = lens.read(v.content_id).shards
            rows = [{**s, "dataset": d, "version": v.name} for s in shards]
            tables.append(pa.Table.from_pylist(rows, schema=_SHARDS))
    return pa.concat_tables(tables)


_COUNTS = ("inputs", "samples", "aliases", "relabels", "quarantined")
_TIMES = ("landed", "admitted", "rejected", "committed")
_BATCHES = pa.schema(
    [
        *((n, pa.string()) for n in ("dataset", "batch", "status", "source")), *((n, pa.int64()) for n in _COUNTS),
        *((n, pa.float64()) for n in (*_TIMES, "ingest_seconds")),
    ]
)  # fmt: skip


def _batches(lens: Lens) -> pa.Table:
    rows = [
        {
            "dataset": d, "batch": b.batch, "status": b.status, "source": b.source, **b.counts,
            **{t: b.times.get(t) for t in _TIMES}, "ingest_seconds": b.seconds.get("ingest"),
        }
        for d in lens.store.names("batches")
        for b in read_batches(lens.store, d)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=_BATCHES)


_VERDICTS = pa.schema(
    [
        *((n, pa.string()) for n in ("v", "check", "subject", "result")), ("blocking", pa.bool_()),
        ("statistic", pa.float64()), ("statistic_name", pa.string()), ("lower", pa.float64()), ("upper", pa.float64()),
        ("n", pa.int64()), ("effect", pa.float64()), ("p", pa.float64()),
        *((n, pa.string()) for n in ("thresholds", "reference", "message", "remedy")),
        ("findings", pa.list_(pa.string())), ("at", pa.float64()),
    ]
)  # fmt: skip


def _verdicts(lens: Lens) -> str:
    # who wrote them may have left a column out, or have one more
    every = empty(pa.schema([("dataset", pa.string()), *_VERDICTS]))
    return f"{every} UNION ALL BY NAME ({lens.parquet('checks/*/*/*.parquet', _VERDICTS, ('dataset', '', ''))})"


def _findings(lens: Lens) -> str:
    columns = 'dataset, subject, v, "check", result, "at"'
    return f"SELECT {columns}, unnest(findings) AS key FROM ({_verdicts(lens)})"


def _overlays(lens: Lens) -> str:
    """What people and rules said of the version's samples, in the order in which it applies."""
    digests = lens.manifest.overlays if lens.manifest else ()
    if not digests:
        return empty(pa.schema([("layer", pa.int64()), *OVERLAY]))
    files = lens.files([overlay_key(d) for d in digests])
    return f"SELECT file_index::BIGINT AS layer, {', '.join(map(quoted, OVERLAY.names))} FROM read_parquet({files})"


_REVIEW = [(n, pa.string()) for n in ("dataset", "review", "branch", "committed")] + [("time", pa.float64())]


def _reviews(lens: Lens) -> str:
    """Decisions, a row each: those that a version holds (`committed`) and those that wait."""
    found = [r for d in lens.store.names("reviews") for r in list_reviews(lens.store, d)]
    if not found:
        return empty(pa.schema([*_REVIEW, *OVERLAY]))
    columns = ", ".join(map(quoted, OVERLAY.names))
    return " UNION ALL ".join(
        f"SELECT {text(r.dataset)} AS dataset, {text(r.name)} AS review, {text(r.branch)} AS branch, "
        f"{text(r.committed) if r.committed else 'NULL::VARCHAR'} AS committed, {r.time!r}::DOUBLE AS time, {columns} "
        f"FROM read_parquet({lens.files([overlay_key(lens.redacted.last('overlays', r.overlay))])})"
        for r in found
    )


def _tombstones(lens: Lens) -> str:
    schema = pa.schema([(n, pa.string()) for n in ("id", "pixel_digest", "reason")])
    if lens.found("tombstones/*/*.json"):
        return lens.json("tombstones/*/*.json", schema)
    return lens.parquet("tombstones/*/*.parquet", schema, ("dataset", ""))


_RUN = pa.schema([(n, pa.string()) for n in ("run_id", "dataset", "content_id")])
_MODEL = pa.schema([(n, pa.string()) for n in ("name", "run_id", "dataset", "version", "content_id")])
_STEP = pa.schema(
    [
        ("run_id", pa.string()), *((n, pa.int64()) for n in ("rank", "epoch", "step", "samples")),
        *((n, pa.float64()) for n in ("data", "forward", "backward", "optimizer", "total", "loss", "lr")),
    ]
)  # fmt: skip

_DEFINITIONS: dict[str, Callable[[Lens], str | pa.Table]] = {
    "samples": samples_sql,
    "samples_all": _samples_all,
    "scored": scored_sql,
    "this_version": _this_version,
    "versions": _versions,
    "shards": _shards,
    "batches": _batches,
    "landed": lambda x: x.parquet("batches/*/*.parquet", LANDING, ("dataset", "batch"), but=".aliases.parquet"),
    "aliases": lambda x: x.parquet("batches/*/*.aliases.parquet", ALIASES, ("dataset", "batch")),
    "metadata": lambda x: x.parquet("metadata/*/*.parquet", pa.schema([("id", pa.string())]), ("dataset", "batch")),
    "annotations": lambda x: x.parquet("annotations/*/*.parquet", ANNOTATIONS, ("dataset", "batch")),
    "quarantine": lambda x: x.parquet("quarantine/*/*.parquet", QUARANTINE, ("dataset", "batch")),
    "signals": lambda x: x.parquet("signals/*/*/*.parquet", SIGNAL),
    "predictions": lambda x: x.parquet("predictions/*.parquet", PREDICTION),
    "verdicts": _verdicts,
    "findings": _findings,
    "queues": lambda x: x.parquet("queues/*/*.parquet", QUEUE, ("dataset", "queue")),
    "reviews": _reviews,
    "overlays": _overlays,
    "tombstones": _tombstones,
    "runs": lambda x: x.json("runs/*/config.json", _RUN),
    "steps": lambda x: x.parquet("runs/*/steps/*.parquet", _STEP),
    "models": lambda x: x.json("models/*/*/model.json", _MODEL),
}
