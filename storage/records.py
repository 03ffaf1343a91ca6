"""The lake's small JSON records: batch, manifest, version. Frozen; their JSON form is the file format."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sevenfold.storage.canonical import canonical_json, digest_bytes
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.keys import manifest_key
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
    except ValueError as e:
        raise SevenfoldError(f"this {what} is not JSON ({e})", where=where, do="restore it from a copy") from None
    if not isinstance(value, dict) or value.get("format", FORMAT) != FORMAT:
        raise SevenfoldError(
            f"this {what} has format {value.get('format') if isinstance(value, dict) else type(value).__name__}",
            where=where,
            expected=f"format {FORMAT}",
            do="use a Sevenfold release that knows it",
        )
    return value


@dataclass(frozen=True)
class Batch:
    """One landing. `digest` covers its landed rows and its quarantine; `packed` is what sharding made of it."""

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
    packed: dict[str, Any] | None = None

    def to_json(self) -> bytes:
        """The record's file bytes."""
        return canonical_json({"format": FORMAT, **dataclasses.asdict(self)})

    @staticmethod
    def read(store: Store, key: str) -> Batch:
        """Parse a record file."""
        return Batch._of(read_json(store, key, "batch record"))

    @staticmethod
    def parse(data: bytes, where: str = "") -> Batch:
        """A record from its file bytes."""
        return Batch._of(parse_json(data, "batch record", where))

    @staticmethod
    def _of(value: dict[str, Any]) -> Batch:
        value.pop("format")
        value["classes"], value["notes"] = tuple(value["classes"]), tuple(value["notes"])
        return Batch(**value)


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
        return tuple(x for b in self.batches for x in b.get("holds", [b["batch"]]))

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
        manifest = Manifest(
            classes=tuple(value["classes"]),
            batches=tuple(value["batches"]),
            overlays=tuple(value["overlays"]),
            schema=value["schema"],
        )
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
        return Version._of(read_json(store, key, "version"))

    @staticmethod
    def parse(data: bytes, where: str) -> Version:
        """A version from its file bytes."""
        return Version._of(parse_json(data, "version", where))

    @staticmethod
    def _of(value: dict[str, Any]) -> Version:
        value.pop("format")
        value["parents"] = tuple(value["parents"])
        return Version(**value)
