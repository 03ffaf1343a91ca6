"""A lake as one query sees it: its files written in SQL, and the version that is asked about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from sevenfold.storage import redactions, versions
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import INDEX, SAMPLES
from sevenfold.storage.keys import index_key, overlay_key
from sevenfold.storage.records import Manifest, Version
from sevenfold.storage.store import Entry, Store


@dataclass(frozen=True)
class Asked:
    """What a query is about: dataset (None: the first), version, the views it names, the columns (None: all)."""

    dataset: str | None
    ref: str
    views: frozenset[str]
    columns: frozenset[str] | None


UNASKED = Asked(None, "main", frozenset(), None)
"""What a lens is about that only writes files and versions in SQL."""


@dataclass(frozen=True)
class Lens:
    """A lake seen by one query: its files as SQL, and the version that `samples` is."""

    store: Store
    asked: Asked
    plain: Callable[[Path], Path] = lambda p: p
    manifests: dict[str, Manifest] = field(default_factory=dict)

    def read(self, content_id: str) -> Manifest:
        """The manifest of a content id, each read once, with the digests of the files that stand for it now."""
        if content_id not in self.manifests:
            self.manifests[content_id] = versions.read_manifest(self.store, content_id)
        return redactions.opened(self.manifests[content_id], self.redacted)

    @cached_property
    def redacted(self) -> redactions.Redactions:
        """Which files stand for those of samples that were taken down."""
        return redactions.current(self.store)

    @cached_property
    def datasets(self) -> list[str]:
        """Datasets that have a version."""
        return self.store.names("datasets")

    @cached_property
    def version(self) -> Version | None:
        """The version that was asked for; None when there is no main yet and nothing else was asked for."""
        dataset = self.asked.dataset or next(iter(self.datasets), None)
        if self.asked.ref == "main" and (dataset is None or versions.head(self.store, dataset, "main") is None):
            return None
        if dataset is None:
            raise SevenfoldError(f"there is no version, so none is {self.asked.ref!r}", where=self.store.url)
        return versions.resolve(self.store, dataset, self.asked.ref)

    @cached_property
    def manifest(self) -> Manifest | None:
        """Its manifest."""
        return self.read(self.version.content_id) if self.version else None

    def found(self, pattern: str) -> list[Entry]:
        """The files of a pattern, a part of it per part of the key, by key; nothing hidden."""
        parts = pattern.split("/")
        fixed = next(i for i, p in enumerate(parts) if "*" in p)
        entries = self.store.entries("/".join(parts[:fixed]))
        return [
            e for e in entries
            if len(there := e.key.split("/")) == len(parts) and all(map(fnmatchcase, there, parts))
        ]  # fmt: skip

    def files(self, keys: Sequence[str]) -> str:
        """Files as a list in SQL."""
        return "[" + ", ".join(text(str(self.plain(self.store.local(k)))) for k in keys) + "]"

    def parquet(self, pattern: str, schema: pa.Schema, parts: Sequence[str] = (), *, but: str = "") -> str:
        """All files of a pattern (without those that end in `but`) as one SELECT.

        `parts` are columns taken from the last parts of each path; the last is the file's name, None stands for none.
        """
        keys = [e.key for e in self.found(pattern) if not but or not e.key.endswith(but)]
        if not keys:
            return empty(pa.schema([*((p, pa.string()) for p in parts if p), *schema]))
        suffix = pattern.rpartition("*")[2]
        taken = ""
        for i, name in enumerate(parts):
            at = f"parse_path(filename)[{i - len(parts)}]"
            if name:
                at = f"left({at}, -{len(suffix)})" if i == len(parts) - 1 else at
                taken += f"{at} AS {quoted(name)}, "
        rows = f"read_parquet({self.files(keys)}, union_by_name = true, filename = true)"
        return f"SELECT {taken}* EXCLUDE (filename) FROM {rows}"

    def json(self, pattern: str, schema: pa.Schema) -> str:
        """All JSON files of a pattern, a row each, as one SELECT."""
        keys = [e.key for e in self.found(pattern)]
        return f"SELECT * FROM read_json_auto({self.files(keys)}, union_by_name = true)" if keys else empty(schema)


def version_sql(lens: Lens, manifest: Manifest, *, stored: str | None = None) -> str:
    """A SELECT of a version's effective samples (index.SAMPLES), the SQL twin of overlays.apply.

    `stored`: a relation of index rows to apply the overlays to, instead of all that the version stores.
    """
    manifest = redactions.opened(manifest, lens.redacted)
    indexes = [index_key(b["index"]) for b in manifest.batches if b["index"]]
    if not indexes:
        return empty(SAMPLES)
    columns = ", ".join(f"r.{quoted(f.name)}" for f in INDEX if f.name not in ("components", "label", "split"))
    baked = manifest.baked
    uneven = baked or bool(lens.redacted)  # then there are further columns, and rows without bytes
    rows = stored or f"read_parquet({lens.files(indexes)}{', union_by_name = true' if uneven else ''})"
    stored_as = ", r.exclude" if baked else ""
    there = " AND r.shard IS NOT NULL" if uneven else ""
    weight = "coalesce(r.weight, 1.0)" if baked else "1.0::DOUBLE"
    if not manifest.overlays:
        return (
            f"SELECT {columns}, r.label, r.split, {weight} AS weight FROM {rows} r "
            f"WHERE NOT coalesce(NULL{stored_as}, false){there}"
        )
    last = ", ".join(
        f"arg_max({c}, file_index) FILTER ({c} IS NOT NULL) AS {c}" for c in ("exclude", "label", "split", "weight")
    )
    layers = f"read_parquet({lens.files([overlay_key(d) for d in manifest.overlays])})"
    return (
        f"SELECT {columns}, coalesce(o.label, r.label) AS label, coalesce(o.split, r.split) AS split, "
        f"coalesce(o.weight, {weight}) AS weight FROM {rows} r "
        f"LEFT JOIN (SELECT id, {last} FROM {layers} GROUP BY id) o ON o.id = r.id "
        f"WHERE NOT coalesce(o.exclude{stored_as}, false){there}"
    )


def samples_sql(lens: Lens) -> str:
    """A SELECT of the effective samples of the version that is asked about."""
    return version_sql(lens, lens.manifest) if lens.manifest else empty(SAMPLES)


def text(value: str) -> str:
    """A string in SQL."""
    return "'" + value.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


_SQL_TYPES: dict[str, str] = {
    "string": "VARCHAR", "int64": "BIGINT", "int32": "INTEGER", "double": "DOUBLE", "float": "FLOAT", "bool": "BOOLEAN",
}  # fmt: skip


def _sql_type(kind: pa.DataType) -> str:
    return _sql_type(kind.value_type) + "[]" if pa.types.is_list(kind) else _SQL_TYPES[str(kind)]


def empty(schema: pa.Schema) -> str:
    """A SELECT of no rows."""
    columns = ", ".join(f"NULL::{_sql_type(f.type)} AS {quoted(f.name)}" for f in schema)
    return f"SELECT {columns} WHERE false"
