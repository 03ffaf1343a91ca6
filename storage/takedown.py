"""Takedown: erasing samples for good, so that what is left of them is a hash, a date and a reason (invariant 9).

    takedowns/pending/<digest>.json     what is being erased, until it is
    takedowns/<digest>.json             what was erased: ids, reason, time, versions and models that had it

A journal is written first and removed last; every step between may be done again. Killed at any instant, the lake
opens, `unfinished` says what was begun, and `finish` ends it.
"""

from __future__ import annotations

import time as clocks
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sevenfold.storage import erase, purge, redactions, tombstones, variants
from sevenfold.storage.canonical import canonical_json, digest_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.names import check_digest
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.records import FORMAT, Manifest, read_json, shaped
from sevenfold.storage.store import Store
from sevenfold.storage.traces import Traces, survey
from sevenfold.storage.whom import matching, named, twins_of

PENDING = "takedowns/pending"
PASSES = 5
"""How often the lake is looked through again because something of the samples was still, or again, there."""


@dataclass(frozen=True)
class Request:
    """Whom to take down: `key` (an id, the start of one, or a source path) or `where` (SQL), with or without twins."""

    key: str | None = None
    where: str | None = None
    twins: bool = False

    @property
    def digest(self) -> str:
        """What is kept of a request: a path must not stay in the lake."""
        return digest_json(asdict(self))


@dataclass(frozen=True)
class Takedown:
    """A takedown, begun or done. `versions` and `models` are those that had the samples when it began."""

    digest: str
    ids: tuple[str, ...]
    reason: str
    time: float
    asked: str
    versions: tuple[Mapping[str, Any], ...]
    models: tuple[Mapping[str, Any], ...]


def select(store: Store, request: Request) -> set[str]:
    """The ids that a request means; empty when nothing fits. Raises SevenfoldError for an ambiguous or broken one."""
    if (request.key is None) == (request.where is None):
        raise SevenfoldError(
            "whom to take down is not said", expected="an id or a path, or --where SQL: one of the two"
        )
    found = named(store, request.key) if request.key is not None else matching(store, str(request.where))
    return twins_of(store, found) if request.twins and found else found


def find(store: Store, request: Request) -> Traces | Takedown:
    """What a request would erase, or the takedown that answered it before and left nothing to do.

    Raises SevenfoldError when it means no sample of this lake.
    """
    ids = select(store, request)
    if ids:
        traces = survey(store, ids)
        stones = tombstones.read(store)
        if not traces.empty or not all(i in stones for i in ids):
            return traces
        return read(store, stones[min(ids)].takedown)
    for done in finished(store):
        if done.asked == request.digest:
            return done
    raise SevenfoldError(
        f"no sample of this lake fits {request.key or request.where!r}",
        where=store.url,
        expected="an id or its first 8 digits, a path as it was in its source, or a condition on samples_all",
        do='look for it: sevenfold query "select id, path from samples_all"',
    )


def carry_out(
    store: Store,
    request: Request,
    traces: Traces,
    reason: str,
    *,
    progress: Progress = silent,
    clock: Callable[[], float] = clocks.time,
) -> Takedown:
    """Erase what `find` found; takedowns that were begun before are ended first.

    Raises SevenfoldError without a reason, and for a shard that is damaged.
    """
    if not reason.strip():
        raise SevenfoldError("a takedown needs a reason", do="say why: --reason TEXT")
    finish(store, progress=progress)
    digest = digest_json({"ids": list(traces.ids)})
    takedown = Takedown(
        digest, traces.ids, reason.strip(), clock(), request.digest, tuple(traces.versions), tuple(traces.models)
    )
    places = [list(p) for p in traces.places]
    journal = {"format": FORMAT, **asdict(takedown), "places": places, "pixels": dict(traces.pixels)}
    store.create(f"{PENDING}/{digest}.json", canonical_json(journal))
    finish(store, progress=progress)
    return read(store, digest)


def unfinished(store: Store) -> list[str]:
    """Digests of the takedowns that were begun and not ended: one listing."""
    return store.stems(PENDING, ".json")


def finish(store: Store, *, progress: Progress = silent) -> list[Takedown]:
    """End every takedown that was begun; returns them."""
    return [_erase_all(store, digest, progress) for digest in unfinished(store)]


def finished(store: Store) -> list[Takedown]:
    """All takedowns that are done, oldest first."""
    return sorted((read(store, n) for n in store.stems("takedowns", ".json")), key=lambda t: (t.time, t.digest))


def read(store: Store, digest: str) -> Takedown:
    """A takedown's record. Raises SevenfoldError when there is none."""
    check_digest(digest, "takedown")
    key = f"takedowns/{digest}.json"
    key = key if store.exists(key) else f"{PENDING}/{digest}.json"
    return _plain(_read(store, key, digest))


def of_manifest(store: Store, manifest: Manifest) -> tuple[Takedown, ...]:
    """The takedowns that took samples out of a version, oldest first; none for nearly every one."""
    redacted = redactions.current(store)
    found = [read(store, d) for d in redacted.takedowns(manifest)] if redacted else []
    return tuple(sorted(found, key=lambda t: (t.time, t.digest)))


@dataclass(frozen=True)
class _Journal(Takedown):
    """A takedown that is not ended also says where the samples came from and their pixel digests."""

    places: tuple[tuple[str, ...], ...] = ()
    pixels: dict[str, str | None] = field(default_factory=dict)


def _read(store: Store, key: str, digest: str) -> _Journal:
    """The file of a takedown, begun or done. Raises SevenfoldError when it is absent or is not what it should be."""
    where = f"{store.url}/{key}"
    value = read_json(store, key, "takedown")
    value["places"] = [tuple(p) if isinstance(p, list) else p for p in value.get("places") or ()]
    found = shaped(_Journal, value, "takedown", where)
    for name in (found.digest, *found.ids):
        check_digest(name, "digest or id of a takedown")
    if found.digest != digest or any(len(p) != 2 for p in found.places):
        raise SevenfoldError(f"this is the takedown {found.digest}", where=where, do="restore it from a copy")
    return found


def _plain(found: _Journal) -> Takedown:
    return Takedown(**{f.name: getattr(found, f.name) for f in fields(Takedown)})


def _erase_all(store: Store, digest: str, progress: Progress) -> Takedown:
    with store.locked("takedowns/running"):
        key = f"{PENDING}/{digest}.json"
        if not store.exists(key):  # another process has ended it meanwhile
            return read(store, digest)
        journal = _read(store, key, digest)
        takedown, places = _plain(journal), {(s, p) for s, p in journal.places}
        for i in takedown.ids:
            pixels = journal.pixels.get(i)
            tombstones.write(store, tombstones.Tombstone(i, pixels, takedown.reason, takedown.time, digest))
        for _ in range(PASSES):
            traces = survey(store, takedown.ids, places)
            places |= set(traces.places)
            if traces.empty:
                break
            _erase(store, traces, places, takedown, progress)
        else:
            raise SevenfoldError(
                f"something of these samples was there again {PASSES} times",
                where=store.url,
                do="stop what writes to the lake, then: sevenfold takedown --finish",
            )
        _forget(store, digest)
        store.create(f"takedowns/{digest}.json", canonical_json({"format": FORMAT, **asdict(takedown)}))
        store.delete(key)
        store.forget(key)
        return takedown


def _erase(
    store: Store, traces: Traces, places: Collection[tuple[str, str]], takedown: Takedown, progress: Progress
) -> None:
    """One pass: new files, then what says that they stand for the old ones, then the old ones go."""
    ids = set(takedown.ids)
    kinds = (traces.variants, traces.shards, traces.indexes, traces.overlays, traces.batches, traces.tables)
    total = sum(map(len, kinds))
    done = 0

    def step(what: str) -> None:
        nonlocal done
        done += 1
        progress(done, total, what)

    for manifest, shards in traces.variants.items():
        variants.delete(store, manifest, shards)
        step("deleting variants")
    cuts: dict[str, erase.Cut] = {}
    old: list[tuple[str, str]] = []
    for shard in traces.shards:
        cut = erase.cut_shard(store, shard, ids)
        if cut is not None:
            if not _stands(store, "shards", shard, cut.to, takedown, samples=cut.samples, bytes=cut.bytes):
                return
            cuts[shard] = cut
            old.append(("shards", shard))
        step("rewriting shards")
    for index in traces.indexes:
        if _stands(store, "index", index, erase.mask_index(store, index, ids, cuts), takedown):
            old.append(("index", index))
        step("rewriting indexes")
    for overlay in traces.overlays:
        if _stands(store, "overlays", overlay, erase.strip_overlay(store, overlay, ids), takedown):
            old.append(("overlays", overlay))
        step("rewriting overlays")
    for kind, digest in sorted(old):  # indexes and overlays before the shards that they name
        _remove(store, redactions.KINDS[kind](digest))
    for batch in traces.batches:
        purge.purge_batch(store, batch["dataset"], batch["batch"], ids, places, takedown.digest)
        step("purging landings")
    for key in traces.tables:
        purge.drop_rows(store, key, ids)
        step("purging what is known of the samples")
    for key in traces.verdicts:
        purge.drop_said(store, key, ids, {path for _, path in places})
    for key in traces.caches:
        _remove(store, key)


def _stands(store: Store, kind: str, old: str, new: str | None, takedown: Takedown, **facts: Any) -> bool:
    """Say that `new` stands for `old`; False when another takedown was faster: the next pass goes on from its file."""
    redactions.record(store, kind, old, new, takedown.digest, takedown.time, **facts)
    there = read_json(store, redactions.redaction_key(kind, old), "redaction")["to"]
    if there != new and new is not None:
        store.delete(redactions.KINDS[kind](new))
    return bool(there == new)


def _remove(store: Store, key: str) -> None:
    store.delete(key)
    store.forget(key)


def _forget(store: Store, digest: str) -> None:
    """Remove this machine's copies of everything that the takedown replaced or changed."""
    redacted = redactions.current(store)
    for kind, old in redacted.known:
        if any(r["takedown"] == digest for r in redacted.chain(kind, old)):
            store.forget(redactions.KINDS[kind](old))
