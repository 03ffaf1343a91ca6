"""Leases: a running reader says in the lake what it reads, so that nothing deletes it under its feet.

A lease is `leases/<uuid>.json`, renewed every minute while its holder lives and gone when it ends; five minutes after
its holder has died it counts for nothing.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.records import FORMAT, read_json, shaped
from sevenfold.storage.store import Store

FOLDER = "leases"
RENEWED, LASTS = 60.0, 300.0
"""Seconds between renewals, and until a lease that is not renewed ends."""


@dataclass(frozen=True)
class Lease:
    """Who reads what: `content_ids` of whole versions and single `keys`, from `since` until `until` (unix seconds)."""

    id: str
    what: str
    host: str
    pid: int
    content_ids: tuple[str, ...]
    keys: tuple[str, ...]
    since: float
    until: float

    @property
    def key(self) -> str:
        """Where it lies."""
        return f"{FOLDER}/{self.id}.json"

    def to_json(self) -> bytes:
        """The lease's file bytes."""
        return canonical_json({"format": FORMAT, **dataclasses.asdict(self)})


@contextmanager
def lease(
    store: Store,
    what: str,
    *,
    content_ids: Sequence[str] = (),
    keys: Sequence[str] = (),
    clock: Callable[[], float] = time.time,
    renewed: float = RENEWED,
    lasts: float = LASTS,
) -> Iterator[Lease]:
    """Hold a lease for the length of the block. `what` says for people what is going on: `train`.

    A lake that cannot be written to is read all the same: the reader is warned that nothing protects what it reads.
    """
    now = clock()
    mine = Lease(uuid.uuid4().hex, what, socket.gethostname(), os.getpid(), tuple(content_ids), tuple(keys), now,
                 now + lasts)  # fmt: skip
    try:
        store.create(mine.key, mine.to_json())
    except (OSError, SevenfoldError) as e:
        told = f"no lease can be written ({e}): garbage collection will not know that {what} reads this lake"
        warnings.warn(told, RuntimeWarning, stacklevel=3)
        yield mine
        return
    over = threading.Event()

    def renew() -> None:
        while not over.wait(renewed):
            try:
                store.replace(mine.key, replace(mine, until=clock() + lasts).to_json())
            except Exception as e:  # whatever a store raises, reading goes on and the next renewal tries again
                warnings.warn(f"the lease {mine.key} could not be renewed: {e}", RuntimeWarning, stacklevel=1)

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield mine
    finally:
        over.set()
        thread.join()
        try:
            store.delete(mine.key)
        except OSError as e:  # it ends by itself
            warnings.warn(f"the lease {mine.key} could not be removed: {e}", RuntimeWarning, stacklevel=3)


def leases(store: Store) -> list[Lease]:
    """All leases, ended ones too, oldest first. Raises SevenfoldError for one that cannot be read."""
    found = []
    for name in store.names(FOLDER):
        if not name.endswith(".json"):
            continue
        where = f"{store.url}/{FOLDER}/{name}"
        try:
            one = shaped(Lease, read_json(store, f"{FOLDER}/{name}", "lease"), "lease", where)
            if one.key != f"{FOLDER}/{name}":
                raise SevenfoldError(f"this is the lease {one.id[:80]!r}", where=where, do="delete it if nobody reads")
            found.append(one)
        except SevenfoldError:
            if store.exists(f"{FOLDER}/{name}"):  # else its holder has just ended
                raise
    return sorted(found, key=lambda x: (x.since, x.id))


def active(store: Store, *, clock: Callable[[], float] = time.time) -> list[Lease]:
    """The leases that count now. Raises SevenfoldError for one that cannot be read."""
    now = clock()
    return [x for x in leases(store) if x.until > now]
