"""Whom a takedown means: ids by an id or its start, by a path, by a condition in SQL, or by their pixels."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage import erase, redactions, tombstones, versions
from sevenfold.storage.commit import read_batches
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import ALIASES, QUARANTINE, SAMPLES, conform, read_parquet
from sevenfold.storage.keys import aliases_key, digest_in, landing_key, quarantine_key
from sevenfold.storage.records import Version
from sevenfold.storage.store import Store

_ID = re.compile(r"[0-9a-f]{64}")
_PREFIX = re.compile(r"[0-9a-f]{8,64}")


def named(store: Store, key: str) -> set[str]:
    """The ids that `key` means: an id, a start of one (8 digits or more) that no other has, or a path.

    Raises SevenfoldError when a start fits several ids. Empty when nothing fits.
    """
    if _PREFIX.fullmatch(key):
        ids = {i for table in _everything(store, ["id"]) for i in _starting(table["id"], key)}
        ids |= {i for i in tombstones.read(store) if i.startswith(key)}
        if len(ids) > 1:
            raise SevenfoldError(
                f"{len(ids)} samples have ids that start with {key}", expected="an id", do="give more of its digits"
            )
        if ids:
            return ids
    found: set[str] = set()
    for table in _everything(store, ["id", "path"]):
        found |= set(table.filter(pc.fill_null(pc.equal(table["path"], key), False))["id"].to_pylist())
    for batch in (b for d in store.names("batches") for b in read_batches(store, d)):
        aliases = read_parquet(store, aliases_key(batch.dataset, batch.batch), ALIASES)
        found |= set(aliases.filter(pc.equal(aliases["path"], key))["id"].to_pylist())
        aside = read_parquet(store, quarantine_key(batch.dataset, batch.batch), QUARANTINE)
        details = aside.filter(pc.equal(aside["path"], key))["detail"].to_pylist()
        found |= {x for detail in details for x in erase.ids_in(detail)}
    return found


def matching(store: Store, condition: str) -> set[str]:
    """The ids of every sample of any version, excluded or not, and of every landed one that a condition in SQL fits.

    The condition is over the columns of `samples_all`; excluded and landed samples are seen as they were landed.
    Raises SevenfoldError when it is none.
    """
    from sevenfold.storage import query

    found = set(query.run(store, f"select distinct id from samples_all where ({condition})")["id"].to_pylist())
    owner: dict[str, str] = {}
    redacted = redactions.current(store)
    for dataset, version in all_versions(store):
        manifest = redactions.opened(versions.read_manifest(store, version.content_id), redacted)
        owner |= {b["index"]: dataset for b in manifest.batches if b["index"]}
    columns = [f.name for f in SAMPLES if f.name != "weight"]
    for digest, table in stored(store, columns):
        found |= _fitting(table.filter(pc.is_valid(table["path"])), owner.get(digest, ""), condition)
    for dataset in store.names("batches"):
        for batch in read_batches(store, dataset):
            table = read_parquet(store, landing_key(dataset, batch.batch))
            found |= _fitting(conform(table, pa.schema([SAMPLES.field(c) for c in columns])), dataset, condition)
    wrong = [x for x in found if not _ID.fullmatch(x)]
    if wrong:
        raise SevenfoldError(f"this is no condition: it makes rows of its own, such as {wrong[0]!r}", where=condition)
    return found


def twins_of(store: Store, ids: Collection[str]) -> set[str]:
    """The ids of all samples whose pixels are those of one of these, themselves included."""
    wanted = pa.array(list(ids), pa.string())
    digests: set[str] = set()
    for table in _everything(store, ["id", "pixel_digest"]):
        digests |= set(table.filter(pc.is_in(table["id"], value_set=wanted))["pixel_digest"].drop_null().to_pylist())
    return set(ids) | with_pixels(store, digests)


def with_pixels(store: Store, digests: Collection[str]) -> set[str]:
    """The ids of all samples that have one of these pixel digests."""
    wanted = pa.array(list(digests), pa.string())
    found: set[str] = set()
    for table in _everything(store, ["id", "pixel_digest"]) if digests else ():
        found |= set(table.filter(pc.is_in(table["pixel_digest"], value_set=wanted))["id"].to_pylist())
    return found


def stored(store: Store, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """(digest, rows) of every index file, named by a manifest or not; columns it lacks are null."""
    schema = pa.schema([SAMPLES.field(c) for c in columns])
    for entry in store.entries("index"):
        path = store.local(entry.key)
        there = set(pq.read_schema(path).names)
        table = pq.read_table(path, columns=[c for c in columns if c in there])
        yield digest_in(entry.key), conform(table, schema)


def all_versions(store: Store) -> list[tuple[str, Version]]:
    """(dataset, version) of every version in the lake."""
    return [(d, v) for d in store.names("datasets") for v in versions.list_versions(store, d)]


def _everything(store: Store, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Rows of every index and of every landing."""
    for _, table in stored(store, columns):
        yield table
    for dataset in store.names("batches"):
        for batch in read_batches(store, dataset):
            yield read_parquet(store, landing_key(dataset, batch.batch), columns=list(columns))


def _starting(ids: pa.ChunkedArray, prefix: str) -> list[str]:
    return ids.filter(pc.starts_with(ids, prefix)).to_pylist()


def _fitting(rows: pa.Table, dataset: str, condition: str) -> set[str]:
    import duckdb

    rows = rows.append_column("weight", pa.repeat(pa.scalar(1.0), rows.num_rows))
    rows = rows.append_column("dataset", pa.repeat(pa.scalar(dataset), rows.num_rows))
    rows = rows.append_column("version", pa.nulls(rows.num_rows, pa.string()))
    connection = duckdb.connect(":memory:", config={"python_enable_replacements": "false"})
    try:
        connection.register("samples_all", rows)
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        answer = connection.sql(f"select distinct id from samples_all where ({condition})").to_arrow_table()
        return set(answer["id"].to_pylist())
    except duckdb.Error as e:
        raise SevenfoldError(
            str(e).strip(),
            where=condition,
            expected="a condition over the columns of samples_all alone",
            do="ask other views with `sevenfold query` and give the ids: --where \"id in ('...', '...')\"",
        ) from None
    finally:
        connection.close()
