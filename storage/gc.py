"""Garbage collection: find what nothing needs any more, and delete it only when told to.

Every version of every dataset is a root (reach.py). What is younger than the grace period stays, since a writer may be
about to name it; writers renew the age of what they find and take up again. Deleting is: list, read all roots again,
look at each file's age once more, delete.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sevenfold.storage import embeddings, files, leases, redactions
from sevenfold.storage.bucket import LOCK_SECONDS, BucketStore
from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.reach import of_content, reachable
from sevenfold.storage.room import is_held, remove
from sevenfold.storage.store import Entry, LocalStore, Store

GRACE = 7 * 86400.0
LEAST_GRACE = 3600.0
"""Seconds. A shorter grace period is for a lake that nobody else uses; see `alone`."""

_CONTENT = re.compile(
    r"(shards|index)/[0-9a-f]{2}/[0-9a-f]{64}\.(tar|parquet)|overlays/[0-9a-f]{64}\.parquet|manifests/[0-9a-f]{64}\.json"
    r"|variants/[0-9a-f]{64}/[^./][^/]*\.(json|parquet)"
)
_PART = re.compile(r"variants/[0-9a-f]{64}/\.part-[^/-]+(?=-)")
_LANDING = re.compile(r"batches/[^/]+/\.landing-[0-9a-f]+")
_LAUNCH = re.compile(r"runs/\.launches/[^/]+-[^/]+(?=/)")
_CLAIM = re.compile(r"models/[^/]+/[0-9]+(?=/)")
_SELECTION = re.compile(r"runs/\.selections/[^/]+\.json")
_UNITS = (_LAUNCH, _LANDING, _CLAIM, _PART)
_LOCK = re.compile(r"(.*/)?\.[^/]+\.lock")
_TEMPORARY = re.compile(r"(.*/)?\.(tmp|probe)-[0-9a-f]+(/.*)?")


@dataclass(frozen=True)
class Garbage:
    """One file that nothing needs: its size in bytes, its age in seconds, why it is none, and whether it is gone."""

    key: str
    bytes: int
    age: float
    reason: str
    deleted: bool = False


def gc(
    store: Store,
    *,
    grace: float = GRACE,
    delete: bool = False,
    alone: bool = False,
    clock: Callable[[], float] = time.time,
    progress: Progress | None = None,
) -> list[Garbage]:
    """Files that nothing needs and that are older than `grace` seconds, by key; deleted only with `delete`.

    `alone` promises that no other process writes to the lake: then `grace` may be under an hour. Raises
    SevenfoldError when it is and nobody promised, or when a root cannot be read: then nothing is deleted.
    """
    if delete and grace < LEAST_GRACE and not alone:
        raise SevenfoldError(
            f"a grace period of {grace:g} s would delete what a writer is about to use",
            expected="an hour or more",
            do="wait, or promise with --alone that no other process writes to this lake",
        )
    report = progress or silent
    kept = reachable(store, clock=clock)
    found = [g for g in _garbage(store, kept, clock) if g.age >= grace]
    if not delete:
        return found
    kept = reachable(store, clock=clock)  # whatever was committed since the list was made
    done = []
    for i, garbage in enumerate(found):
        report(i, len(found), "deleting")
        if garbage.key not in kept and _remove(store, garbage.key, grace, clock):
            done.append(Garbage(garbage.key, garbage.bytes, garbage.age, garbage.reason, deleted=True))
    return done


def _garbage(store: Store, kept: set[str], clock: Callable[[], float]) -> Iterator[Garbage]:
    now = clock()
    every = store.entries("", hidden=True)
    newest: dict[str, float] = {}
    for e in every:
        for pattern in _UNITS:
            if unit := pattern.match(e.key):
                newest[unit[0]] = max(newest.get(unit[0], 0.0), e.modified)
    ended = {x.key for x in leases.leases(store) if x.until <= now}
    selections = _selections(store, every)
    made = {e.key.rpartition("/")[0] for e in every if e.key.endswith("/model.json")}
    nameless = embeddings.orphans(every)
    for e in every:
        why, modified = _why(store, e, kept, ended, selections, made), e.modified
        if e.key in nameless:
            why = "embeddings of an encoder that is described no more"
        for pattern in _UNITS:  # such a group of files is in use as long as any of them is young
            if unit := pattern.match(e.key):
                modified = newest[unit[0]]
        if why:
            yield Garbage(e.key, e.bytes, now - modified, why)


def _why(store: Store, e: Entry, kept: set[str], ended: set[str], selections: set[str], models: set[str]) -> str | None:
    """Why a file is garbage; None when it is not."""
    if _CONTENT.fullmatch(e.key):
        return None if e.key in kept else f"no version, batch, review or lease needs this {_KINDS[e.key.split('/')[0]]}"
    if _TEMPORARY.fullmatch(e.key):
        return "a temporary file whose writer did not finish"
    if _LANDING.match(e.key):
        return "measurements of a landing that did not finish"
    if _PART.match(e.key):
        return "notes of a variant that was not finished"
    if launch := _LAUNCH.match(e.key):
        return None if _running(store, launch[0]) else "a launch of training that failed or was killed"
    if claim := _CLAIM.match(e.key):  # see training.registry: model.json comes last, and claims stay for ever
        stays = claim[0] in models or e.key == f"{claim[0]}/claim.json"
        return None if stays else "a registration of a model that did not finish"
    if _SELECTION.fullmatch(e.key):
        return None if e.key.rpartition("/")[2] in selections else "a list of samples that no run or model names"
    if _LOCK.fullmatch(e.key) and isinstance(store, BucketStore):  # on a disk the kernel keeps locks, the file stays
        return "a lock whose holder died"
    return "a lease that has ended" if e.key in ended else None


_KINDS = {"shards": "shard", "index": "index", "overlays": "overlay", "manifests": "manifest",
          "variants": "file of a variant"}  # fmt: skip


def _running(store: Store, folder: str) -> bool:
    """Whether the processes of a launch hold its lock still (see training.launch)."""
    if not isinstance(store, LocalStore):
        return False
    place, _, name = folder.rpartition("/")
    return files.is_locked(store.path(f"{place}/{name.partition('-')[0]}.lock"))


def _selections(store: Store, every: Sequence[Entry]) -> set[str]:
    """The selections that some run, launch or model names in its configuration."""
    naming = [e.key for e in every if re.fullmatch(r"(runs|models)/.*/(config|model|spec|result)\.json", e.key)]
    wanted = {e.key.rpartition("/")[2] for e in every if _SELECTION.fullmatch(e.key)}
    found: set[str] = set()
    for key in naming if wanted else ():
        try:
            text = store.read(key)
        except FileNotFoundError:
            continue
        found |= {name for name in wanted - found if name.encode() in text}
    return found


def _remove(store: Store, key: str, grace: float, clock: Callable[[], float]) -> bool:
    """Delete a file unless it has become young: a writer that found it renewed its age."""
    there = store.stat(key)
    if there is None or (clock() - there.modified < grace):
        return False
    if _LOCK.fullmatch(key):
        return _remove_lock(store, key)
    if not isinstance(store, LocalStore):
        return store.delete(key)
    path = store.path(key)
    aside = files.temporary_beside(path)
    try:
        path.rename(aside)  # who renews it from here on is told that it is gone, and writes it again
    except FileNotFoundError:
        return False
    if clock() - aside.stat().st_mtime < grace:
        files.publish(aside, path)
        return False
    aside.unlink()
    _remove_empty(path.parent, store.root)
    return True


def _remove_lock(store: Store, key: str) -> bool:
    """Take a dead holder's lock over, as any writer would, and let it go."""
    there = store.stat(key)
    if there is None or time.time() - there.modified <= LOCK_SECONDS:
        return False
    mine = canonical_json({"holder": "gc", "time": time.time()})
    return store.swap(key, store.read(key), mine) and store.delete(key)


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove a hidden folder that has become empty, a launch or a checkpoint that was being written."""
    hidden = any(p.startswith(".") for p in folder.relative_to(root).parts)
    if hidden and folder.name not in (".launches", ".selections"):
        with suppress(OSError):  # it is not empty yet
            folder.rmdir()


def evict(
    store: Store, most: int, *, delete: bool = False, clock: Callable[[], float] = time.time
) -> list[Garbage]:  # fmt: skip
    """Of a bucket's copies on this machine, the least recently used beyond `most` bytes; deleted on demand.

    Those stay that a lease names, that somebody holds (see Store.hold), and that are being fetched.
    """
    if not isinstance(store, BucketStore):
        raise SevenfoldError("a lake on a local disk has no cache", where=store.url, expected="s3://bucket/prefix")
    kept: set[str] = set()
    redacted = redactions.current(store)
    for lease in leases.active(store, clock=clock):
        kept.update(lease.keys)
        for content in lease.content_ids:
            kept |= of_content(store, content, redacted)
    copies = store.copies.room.copies(store.cache)
    over, now = sum(c.bytes for c in copies) - most, clock()
    found = []
    for copy in copies:
        if over <= 0:
            break
        key = copy.path.relative_to(store.cache).as_posix()
        if key in kept or not (remove(copy.path) if delete else not is_held(copy.path)):
            continue
        over -= copy.bytes
        found.append(Garbage(key, copy.bytes, now - copy.used, "the cache is full", deleted=delete))
    return found
