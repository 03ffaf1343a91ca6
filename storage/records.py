"""The lake's small JSON records: batch, manifest, version. Frozen; their JSON form is the file format."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, TypeVar, cast

from sevenfold.storage.canonical import canonical_json, digest_bytes
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.keys import manifest_key
from sevenfold.storage.names import check_digest
from sevenfold.storage.store import Store

FORMAT = 1
"""Of manifests, records and the lake itself; a reader refuses a number it does not know."""


STATUSES = ("landed", "admitted", "rejected", "committed")
"""Of a batch, in the order in which it may pass through them; rejected ends it, until somebody admits it."""


def read_json(store: Store, key: str, what: str) -> dict[str, Any]:
    """Parse a JSON object file; SevenfoldError when it is absent, damaged or of an unknown format."""
    where = f"{store.url}/{key}"
    try:
        return parse_json(store.read(key), what, where)
    except FileNotFoundError:
        raise SevenfoldError(f"there is no such {what}", where=where) from None


def parse_json(data: bytes, what: str, where: str) -> dict[str, Any]:
    """Parse the bytes of a JSON object file; SevenfoldError when they are damaged or of an unknown format."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise SevenfoldError(f"this {what} is not JSON ({e})", where=where, do="restore it from a copy") from None
    if not isinstance(value, dict) or value.get("format", FORMAT) != FORMAT:
        raise SevenfoldError(
            f"this {what} has format {value.get('format') if isinstance(value, dict) else type(value).__name__}",
            where=where,
            expected=f"format {FORMAT}",
            do="use a Sevenfold release that knows it",
        )
    return value


Record = TypeVar("Record")


def shaped(kind: type[Record], value: dict[str, Any], what: str, where: str) -> Record:
    """The dataclass `kind` of a JSON object; SevenfoldError when a field is missing, unknown or of another type."""
    hints = _hints(cast(Any, kind))
    given = {k: tuple(v) if isinstance(v, list) and k in hints else v for k, v in value.items() if k != "format"}
    wrong = [k for k, v in given.items() if k not in hints or not _fits(v, hints[k])]
    try:
        if not wrong:
            return kind(**given)
        found = f"this {what} cannot be read: its {wrong[0]!r} is {json.dumps(value[wrong[0]])[:80]}"
    except TypeError as e:  # one is missing
        found = f"this {what} cannot be read: {e}"
    raise SevenfoldError(found, where=where, do="restore it from a copy") from None


def check_entry(entry: dict[str, Any], what: str, where: str) -> None:
    """Raises SevenfoldError unless a manifest's entry (or a batch's `packed`) names its files by digests."""
    try:
        shards = [check_digest(s["digest"], "shard digest") for s in entry["shards"]]
        numbers = [entry["samples"], *(s[k] for s in entry["shards"] for k in ("samples", "bytes"))]
        if entry["index"] is not None:
            check_digest(entry["index"], "index digest")
        sound = all(_fits(n, int) and n >= 0 for n in numbers) and len(set(shards)) == len(shards)
    except (KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise SevenfoldError(f"this {what} does not say what was packed", where=where, do="restore it from a copy")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; of a float any finite number, of a dict text -> what it holds."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin is types.UnionType:
        return any(_fits(value, one) for one in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(x, inner[0]) for x in value)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(_fits(x, inner[1]) for x in value.values())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LATEST
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


_LATEST = 1e11
"""No time in seconds is beyond this: the year 5138."""


@dataclass(frozen=True)
class Batch:
    """One landing. `digest` covers its landed rows and its quarantine; `packed` is what sharding made of it.

    `tables`: where tables beside the source lie (see sources.beside); `accepts`: what of decode.Accepts is not default.
    """

    dataset: str
    batch: str
    source: str
    kind: str
    fingerprint: str
    digest: str
    status: str
    counts: dict[str, int]
    reasons: dict[str, int]
    times: dict[str, float]
    seconds: dict[str, float]
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tables: dict[str, str] = field(default_factory=dict)
    accepts: dict[str, bool | int] = field(default_factory=dict)
    packed: dict[str, Any] | None = None

    def to_json(self) -> bytes:
        """The record's file bytes."""
        return canonical_json({"format": FORMAT, **dataclasses.asdict(self)})

    @staticmethod
    def read(store: Store, key: str) -> Batch:
        """Parse a record file."""
        return Batch._of(read_json(store, key, "batch record"), f"{store.url}/{key}")

    @staticmethod
    def parse(data: bytes, where: str = "") -> Batch:
        """A record from its file bytes."""
        return Batch._of(parse_json(data, "batch record", where), where)

    @staticmethod
    def _of(value: dict[str, Any], where: str) -> Batch:
        batch = shaped(Batch, value, "batch record", where)
        wrong = {"inputs", "samples", "aliases", "relabels", "quarantined"} - batch.counts.keys()
        if wrong or batch.status not in STATUSES:
            found = f"no count of {min(wrong)}" if wrong else f"the status {batch.status!r}"
            raise SevenfoldError(f"this batch record has {found}", where=where, do="restore it from a copy")
        if batch.packed is not None:
            check_entry(batch.packed, "batch record", where)
        return batch


def held(entry: Mapping[str, Any]) -> Sequence[str]:
    """The batches that a manifest's entry is made of: its own, or those that compaction put together."""
    return entry.get("holds", [entry["batch"]])


@dataclass(frozen=True)
class Manifest:
    """What a version is made of; its canonical JSON's digest is the content id.

    `batches`: one mapping per batch in commit order: batch, digest, index (digest or None), samples, and shards
    (mappings of digest, samples, bytes, split); one that compaction made also `holds` the ids of batches.
    `overlays`: digests in the order in which they apply.
    """

    classes: tuple[str, ...]
    batches: tuple[dict[str, Any], ...]
    overlays: tuple[str, ...]
    schema: dict[str, str]

    def to_json(self) -> bytes:
        """The manifest's file bytes."""
        return canonical_json({"format": FORMAT, **{f.name: getattr(self, f.name) for f in dataclasses.fields(self)}})

    @cached_property
    def content_id(self) -> str:
        """sha256 of the canonical JSON."""
        return digest_bytes(self.to_json())

    @property
    def shards(self) -> tuple[dict[str, Any], ...]:
        """All shards in order, each with its batch and index digest."""
        return tuple({**s, "batch": b["batch"], "index": b["index"]} for b in self.batches for s in b["shards"])

    @property
    def batch_ids(self) -> tuple[str, ...]:
        """Every batch whose samples are in the version; a compacted entry `holds` several."""
        return tuple(x for b in self.batches for x in held(b))

    @property
    def baked(self) -> bool:
        """Whether a compaction wrote some of the version's indexes, which then have the columns of index.BAKED."""
        return any("holds" in b for b in self.batches)

    @property
    def stored(self) -> int:
        """Samples in the shards, before overlays exclude any."""
        return sum(b["samples"] for b in self.batches)

    @staticmethod
    def read(store: Store, content_id: str) -> Manifest:
        """Parse a manifest file and check that its name is its digest."""
        key = manifest_key(content_id)
        try:
            data = store.read(key)
        except FileNotFoundError:
            raise SevenfoldError("there is no such manifest", where=f"{store.url}/{key}") from None
        value = parse_json(data, "manifest", f"{store.url}/{key}")
        if digest_bytes(data) != content_id:
            raise SevenfoldError(
                f"this manifest's digest is {digest_bytes(data)}",
                where=f"{store.url}/{key}",
                expected="the digest in its file name",
                do="restore it from a copy: its bytes have changed",
            )
        manifest = shaped(Manifest, value, "manifest", f"{store.url}/{key}")
        for entry in manifest.batches:
            check_entry(entry, "manifest", f"{store.url}/{key}")
        for overlay in manifest.overlays:
            check_digest(overlay, "digest of an overlay")
        vars(manifest)["content_id"] = content_id  # known: the canonical JSON need not be made again
        return manifest


@dataclass(frozen=True)
class Version:
    """A commit: content id, parents, message and provenance. Numbered per dataset, never changed."""

    dataset: str
    number: int
    content_id: str
    parents: tuple[int, ...]
    message: str
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`v7`."""
        return f"v{self.number}"

    def to_json(self) -> bytes:
        """The version's file bytes."""
        return canonical_json({"format": FORMAT, **dataclasses.asdict(self)})

    @staticmethod
    def read(store: Store, key: str) -> Version:
        """Parse a version file."""
        return Version._of(read_json(store, key, "version"), f"{store.url}/{key}")

    @staticmethod
    def parse(data: bytes, where: str) -> Version:
        """A version from its file bytes."""
        return Version._of(parse_json(data, "version", where), where)

    @staticmethod
    def _of(value: dict[str, Any], where: str) -> Version:
        version = shaped(Version, value, "version", where)
        check_digest(version.content_id, "content id")
        if any(not 0 < p < version.number for p in version.parents):
            raise SevenfoldError(
                f"the parents of v{version.number} are {version.parents}", where=where, expected="older versions"
            )
        if not _fits(version.provenance.get("time", 0.0), float):
            raise SevenfoldError(f"v{version.number} has no time in seconds", where=where, do="restore it from a copy")
        return version
