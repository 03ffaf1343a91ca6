"""DuckDB as the lens: views over the lake's Parquet and JSON, read-only and unable to reach any other file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sevenfold.storage import redactions, versions
from sevenfold.storage.commit import read_batches
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import ALIASES, INDEX, QUARANTINE, QUEUE, SAMPLES
from sevenfold.storage.keys import index_key, overlay_key
from sevenfold.storage.records import Manifest
from sevenfold.storage.signals import PREDICTION, SIGNAL
from sevenfold.storage.store import Store

if TYPE_CHECKING:
    import duckdb

VIEWS = (
    "samples", "samples_all", "aliases", "batches", "versions", "shards", "signals", "predictions", "verdicts",
    "quarantine", "queues", "runs", "steps", "models",
)  # fmt: skip


def run(store: Store, query: str, dataset: str | None = None) -> pa.Table:
    """Answer one SELECT over the lake's views (VIEWS) as an Arrow table.

    `samples` is the newest version of `dataset`'s main branch (of the only dataset, or the first by name).
    Raises SevenfoldError for anything that is not one SELECT, and for whatever DuckDB refuses.
    """
    import duckdb

    connection = duckdb.connect(":memory:", config={
        "autoinstall_known_extensions": "false", "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
    })  # fmt: skip
    try:
        statements = connection.extract_statements(query)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise SevenfoldError("this is not one SELECT", where=query.strip()[:80], expected="a single SELECT query")
        create_views(connection, store, dataset, query)
        connection.execute(f"SET allowed_directories = [{_text(str(store.local('')))}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        table = connection.sql(query).to_arrow_table()
        return table.rename_columns(_distinct(table.column_names))
    except duckdb.Error as e:
        names = ", ".join(VIEWS)
        raise SevenfoldError(str(e).strip(), expected=f"SQL over the views {names}") from None
    finally:
        connection.close()


def create_views(connection: duckdb.DuckDBPyConnection, store: Store, dataset: str | None, query: str = "") -> None:
    """Define every view; those over one version each only when `query` could name them (empty: all)."""
    root, names = store.local(""), store.names("datasets")
    default = dataset or (names[0] if names else None)
    every: list[str] = []
    version_rows, shard_rows = [], []
    newest: str | None = None
    redacted = redactions.current(store)
    for name in names:
        branches, tags = versions.read_refs(store, name, "branches"), versions.read_refs(store, name, "tags")
        for version in versions.list_versions(store, name):
            pointing = [k for k, v in {**branches, **tags}.items() if v == version.number]
            version_rows.append(
                {
                    "dataset": name, "version": version.name, "number": version.number,
                    "content_id": version.content_id, "parents": [f"v{p}" for p in version.parents],
                    "message": version.message, "time": version.provenance.get("time"), "refs": pointing,
                }
            )  # fmt: skip
            manifest = redactions.opened(versions.read_manifest(store, version.content_id), redacted)
            shard_rows += [{"dataset": name, "version": version.name, **s} for s in manifest.shards]
            select = version_sql(store, manifest)
            if not query or "samples_all" in query.lower():
                every.append(f"SELECT {_text(name)} AS dataset, {_text(version.name)} AS version, * FROM ({select})")
            if name == default and branches.get("main") == version.number:
                newest = select
    _view(connection, "samples", newest or _empty(SAMPLES))
    empty_all = pa.schema([pa.field("dataset", pa.string()), pa.field("version", pa.string()), *SAMPLES])
    _view(connection, "samples_all", " UNION ALL ".join(every) or _empty(empty_all))
    _table(connection, "versions", version_rows, _VERSIONS)
    _table(connection, "shards", shard_rows, _SHARDS)
    _table(connection, "batches", _batch_rows(store), _BATCHES)
    _parquet(connection, root, "aliases", "batches/*/*.aliases.parquet", ALIASES, ("dataset", "batch"))
    _parquet(connection, root, "quarantine", "quarantine/*/*.parquet", QUARANTINE, ("dataset", "batch"))
    _parquet(connection, root, "queues", "queues/*/*.parquet", QUEUE, ("dataset", "queue"))
    _parquet(connection, root, "signals", "signals/*/*/*.parquet", SIGNAL, ())
    _parquet(connection, root, "predictions", "predictions/*.parquet", PREDICTION, ())
    _parquet(connection, root, "verdicts", "checks/*/*/*.parquet", _VERDICTS, ())
    _parquet(connection, root, "steps", "runs/*/steps/*.parquet", pa.schema([("run_id", pa.string())]), ())
    _json(connection, root, "runs", "runs/*/config.json", pa.schema([("run_id", pa.string())]))
    _json(connection, root, "models", "models/*/*/model.json", pa.schema([("name", pa.string())]))


def version_sql(store: Store, manifest: Manifest) -> str:
    """A SELECT of the version's effective samples (index.SAMPLES), the SQL twin of overlays.apply."""
    manifest = redactions.opened(manifest, redactions.current(store))
    indexes = [str(store.local(index_key(b["index"]))) for b in manifest.batches if b["index"]]
    if not indexes:
        return _empty(SAMPLES)
    columns = [f.name for f in INDEX if f.name not in ("components", "label", "split")]
    rows = f"read_parquet([{', '.join(map(_text, indexes))}], union_by_name = true)"
    if not manifest.overlays:
        taken = f"{', '.join(map(_quoted, columns))}, label, split, 1.0::DOUBLE AS weight"
        return f"SELECT {taken} FROM {rows} WHERE shard IS NOT NULL"
    layers = " UNION ALL ".join(
        f"SELECT *, {i} AS layer FROM read_parquet({_text(str(store.local(overlay_key(d))))})"
        for i, d in enumerate(manifest.overlays)
    )
    last = ", ".join(
        f"arg_max({c}, layer) FILTER ({c} IS NOT NULL) AS {c}" for c in ("exclude", "label", "split", "weight")
    )
    return (
        f"SELECT {', '.join('r.' + _quoted(c) for c in columns)}, coalesce(o.label, r.label) AS label, "
        f"coalesce(o.split, r.split) AS split, coalesce(o.weight, 1.0) AS weight FROM {rows} r "
        f"LEFT JOIN (SELECT id, {last} FROM ({layers}) GROUP BY id) o ON o.id = r.id "
        "WHERE NOT coalesce(o.exclude, false) AND r.shard IS NOT NULL"
    )


_VERSIONS = pa.schema(
    [
        ("dataset", pa.string()), ("version", pa.string()), ("number", pa.int64()), ("content_id", pa.string()),
        ("parents", pa.list_(pa.string())), ("message", pa.string()), ("time", pa.float64()),
        ("refs", pa.list_(pa.string())),
    ]
)  # fmt: skip
_SHARDS = pa.schema(
    [
        ("dataset", pa.string()), ("version", pa.string()), ("batch", pa.string()), ("split", pa.string()),
        ("digest", pa.string()), ("samples", pa.int64()), ("bytes", pa.int64()), ("index", pa.string()),
    ]
)  # fmt: skip
_BATCHES = pa.schema(
    [
        ("dataset", pa.string()), ("batch", pa.string()), ("status", pa.string()), ("source", pa.string()),
        ("inputs", pa.int64()), ("samples", pa.int64()), ("aliases", pa.int64()), ("relabels", pa.int64()),
        ("quarantined", pa.int64()), ("landed", pa.float64()), ("ingest_seconds", pa.float64()),
    ]
)  # fmt: skip
_VERDICTS = pa.schema([("v", pa.string()), ("check", pa.string()), ("subject", pa.string()), ("result", pa.string())])


def _batch_rows(store: Store) -> list[dict[str, Any]]:
    return [
        {
            "dataset": d, "batch": b.batch, "status": b.status, "source": b.source, **b.counts,
            "landed": b.times["landed"], "ingest_seconds": b.seconds.get("ingest"),
        }
        for d in store.names("batches")
        for b in read_batches(store, d)
    ]  # fmt: skip


def _distinct(names: list[str]) -> list[str]:
    """Names that all differ, so that rows as mappings lose no column: a, a_1, as DuckDB itself names them in a view."""
    found: list[str] = []
    for name in names:
        new, number = name, 0
        while new in found or (number and new in names):
            number += 1
            new = f"{name}_{number}"
        found.append(new)
    return found


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return f'"{name}"'


def _view(connection: duckdb.DuckDBPyConnection, name: str, select: str) -> None:
    connection.execute(f"CREATE VIEW {name} AS {select}")


_SQL_TYPES = {"string": "VARCHAR", "int64": "BIGINT", "int32": "INTEGER", "double": "DOUBLE", "bool": "BOOLEAN"}


def _sql_type(kind: pa.DataType) -> str:
    return _sql_type(kind.value_type) + "[]" if pa.types.is_list(kind) else _SQL_TYPES.get(str(kind), "FLOAT")


def _empty(schema: pa.Schema) -> str:
    columns = ", ".join(f'NULL::{_sql_type(f.type)} AS "{f.name}"' for f in schema)
    return f"SELECT {columns} WHERE false"


def _table(connection: duckdb.DuckDBPyConnection, name: str, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    connection.register(name, pa.Table.from_pylist(rows, schema=schema))


def _visible(root: Path, pattern: str) -> list[str]:
    """The files of a pattern, sorted; nothing hidden, so that no temporary file is ever read."""
    paths = sorted(root.glob(pattern))
    return [str(p) for p in paths if not any(part.startswith(".") for part in p.relative_to(root).parts)]


def _parquet(
    connection: duckdb.DuckDBPyConnection,
    root: Path,
    name: str,
    pattern: str,
    schema: pa.Schema,
    parts: tuple[str, ...],
) -> None:
    """A view over all files of a pattern; `parts` = (folder column, file column) taken from each path."""
    suffix = pattern.rpartition("*")[2]
    found = _visible(root, pattern)
    if not found:
        extra = [pa.field(p, pa.string()) for p in parts]
        _view(connection, name, _empty(pa.schema([*extra, *schema])))
        return
    taken = ""
    if parts:
        file = f"split_part(parse_filename(filename), {_text(suffix)}, 1)"
        taken = f"parse_path(filename)[-2] AS {_quoted(parts[0])}, {file} AS {_quoted(parts[1])}, "
    listed = ", ".join(map(_text, found))
    _view(
        connection,
        name,
        f"SELECT {taken}* EXCLUDE (filename) FROM read_parquet([{listed}], union_by_name = true, filename = true)",
    )


def _json(connection: duckdb.DuckDBPyConnection, root: Path, name: str, pattern: str, schema: pa.Schema) -> None:
    found = _visible(root, pattern)
    if not found:
        _view(connection, name, _empty(schema))
        return
    listed = ", ".join(map(_text, found))
    _view(connection, name, f"SELECT * FROM read_json_auto([{listed}], union_by_name = true)")
