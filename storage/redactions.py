"""Redactions: what replaced the files of samples that were taken down, looked up when a manifest is opened.

Manifests never change, so that content ids keep their meaning; `redactions/<kind>/<old digest>.json` names the file
that took an old one's place. Chains are followed: a shard may lose a second sample later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.keys import index_key, overlay_key, shard_key
from sevenfold.storage.names import check_digest
from sevenfold.storage.records import FORMAT, Manifest, read_json, shaped
from sevenfold.storage.store import Store

Result = TypeVar("Result")

KINDS = {"shards": shard_key, "index": index_key, "overlays": overlay_key}
"""Kinds of files that are replaced, and where each lies."""


@dataclass(frozen=True)
class _Record:
    """A redaction's file; of a shard it also says how many samples and bytes the new one has."""

    kind: str
    to: str | None
    takedown: str
    time: float
    samples: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Redactions:
    """The redactions of a lake as they were listed; a record is read when it is first followed."""

    store: Store
    known: frozenset[tuple[str, str]]
    _records: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict, compare=False, repr=False)

    def __bool__(self) -> bool:
        return bool(self.known)

    def chain(self, kind: str, digest: str) -> Iterator[dict[str, Any]]:
        """The records that lead from a digest to what lies there now: to (None: nothing was left), takedown, time."""
        at: str | None = digest
        passed: set[str] = set()
        while at is not None and (kind, at) in self.known:
            if at in passed:
                raise SevenfoldError(
                    "these redactions lead back to where they start",
                    where=f"{self.store.url}/{redaction_key(kind, at)}",
                    do="restore them from a copy",
                )
            passed.add(at)
            if (kind, at) not in self._records:
                self._records[kind, at] = _read(self.store, kind, at)
            record = self._records[kind, at]
            yield record
            at = record["to"]

    def follow(self, kind: str, digest: str) -> str | None:
        """The digest of the file that now stands for this one; None when nothing was left of it."""
        for record in self.chain(kind, digest):
            if record["to"] is None:
                return None
            digest = record["to"]
        return digest

    def last(self, kind: str, digest: str) -> str:
        """As `follow`, but the last name of a file of which nothing was left: equal for all that lay in one."""
        for record in self.chain(kind, digest):
            digest = record["to"] or digest
        return digest

    def entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """A manifest's entry (or a batch's `packed`) with the digests, counts and bytes of today's files."""
        shards = []
        for shard in entry["shards"]:
            now: dict[str, Any] | None = dict(shard)
            for record in self.chain("shards", shard["digest"]):
                now = None if record["to"] is None else {
                    **shard, "digest": record["to"], "samples": record["samples"], "bytes": record["bytes"]
                }  # fmt: skip
            if now is not None:
                shards.append(now)
        gone = sum(s["samples"] for s in entry["shards"]) - sum(s["samples"] for s in shards)
        index = entry["index"] and self.follow("index", entry["index"])
        return {**entry, "index": index, "shards": shards, "samples": entry["samples"] - gone}

    def takedowns(self, manifest: Manifest) -> tuple[str, ...]:
        """Digests of the takedowns that changed files of a version, in no particular order."""
        found = {r["takedown"] for b in manifest.batches if b["index"] for r in self.chain("index", b["index"])}
        found |= {r["takedown"] for d in manifest.overlays for r in self.chain("overlays", d)}
        return tuple(sorted(found))


def current(store: Store) -> Redactions:
    """What is redacted in a lake: one listing, of nothing in nearly every lake."""
    kinds = store.names("redactions")
    known = ((kind, digest) for kind in kinds for digest in store.stems(f"redactions/{kind}", ".json"))
    return Redactions(store, frozenset(known))


def steadily(store: Store, act: Callable[[Redactions], Result]) -> Result:
    """What `act` gives with today's redactions, asked again when a takedown replaced files under its hands."""
    while True:
        redacted = current(store)
        try:
            return act(redacted)
        except (FileNotFoundError, SevenfoldError):
            if current(store).known == redacted.known:
                raise


def opened(manifest: Manifest, redacted: Redactions) -> Manifest:
    """The manifest with today's digests in place of its own, to find files by.

    Its content id is another one: ask the manifest itself for that.
    """
    if not redacted:
        return manifest
    return replace(
        manifest,
        batches=tuple(redacted.entry(b) for b in manifest.batches),
        overlays=tuple(redacted.last("overlays", d) for d in manifest.overlays),
    )


def redaction_key(kind: str, digest: str) -> str:
    """Where the record lies that says what replaced a file."""
    return f"redactions/{kind}/{digest}.json"


def record(store: Store, kind: str, old: str, new: str | None, takedown: str, time: float, **facts: Any) -> None:
    """Say that `new` (None: nothing) stands for `old` from here on; `new` must be there already."""
    value = {"format": FORMAT, "kind": kind, "from": old, "to": new, "takedown": takedown, "time": time, **facts}
    store.create(redaction_key(kind, old), canonical_json(value))


def _read(store: Store, kind: str, digest: str) -> dict[str, Any]:
    key = redaction_key(kind, digest)
    value = read_json(store, key, "redaction")
    at = value.pop("from", None)
    found = shaped(_Record, value, "redaction", f"{store.url}/{key}")
    if at != digest or found.kind != kind:
        raise SevenfoldError(
            f"this redaction is of {found.kind}/{at}", where=f"{store.url}/{key}", expected=f"{kind}/{digest}"
        )
    if found.to is not None:
        check_digest(found.to, "digest")
    check_digest(found.takedown, "takedown")
    return vars(found)
