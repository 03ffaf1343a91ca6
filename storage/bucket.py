"""A lake in an S3 bucket: conditional puts are the commit protocol, and files are read through a local cache."""

from __future__ import annotations

import errno
import glob
import hashlib
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from sevenfold.storage import files
from sevenfold.storage.cache import Answer, FileCache, Held, Wanted
from sevenfold.storage.canonical import canonical_json, digest_bytes
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.objects import LARGE, Objects
from sevenfold.storage.room import Room, cache_folder, cache_limit, naming_a_full_disk
from sevenfold.storage.store import CHANGES, Draft, Entry, Item, Result, Store, inside

_NAMED_BY_CONTENT = re.compile(r"(shards|index|manifests|overlays)/([0-9a-f]{2}/)?([0-9a-f]{64})\.([a-z]+)")

YOUNG = 900.0
"""Seconds: an object younger than this need not be renewed; well under the least grace period of gc."""

LOCK_SECONDS = 120.0
"""A lock older than this is taken over: its holder died. What is done under one takes seconds."""

TIMEOUT = 30.0
"""Seconds until a server that says nothing is given up."""

AT_ONCE = 16
"""Requests on the way at once where many small objects are read."""


class BucketStore(Store):
    """`s3://bucket/prefix`. Credentials, region and endpoint come from the AWS_... environment.

    Copies of what is read lie under SEVENFOLD_CACHE (default: ~/.cache/sevenfold), at most SEVENFOLD_CACHE_LIMIT (see
    storage.room). For `timeout` and errors see storage.objects; a lock that is older than `lock_seconds` by the
    server's clock is taken over.
    """

    def __init__(self, url: str, *, lock_seconds: float = LOCK_SECONDS, timeout: float = TIMEOUT) -> None:
        super().__init__()
        self.url = url.rstrip("/")
        self._lock_seconds, self._timeout = lock_seconds, timeout
        bucket, _, prefix = self.url.removeprefix("s3://").partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._objects = Objects(bucket, self.url, timeout)
        base = cache_folder()
        self.cache = base / digest_bytes(self.url.encode())[:16]
        self.copies = FileCache(self.cache, Room(base, cache_limit()))

    def __reduce__(self) -> tuple[Callable[..., BucketStore], tuple[str, float, float]]:
        return _again, (self.url, self._lock_seconds, self._timeout)

    @property
    def remote(self) -> bool:
        """See Store.remote."""
        return True

    @property
    def folder(self) -> Path:
        """See Store.folder: the cached copies."""
        return self.cache

    def read(self, key: str) -> bytes:
        """See Store.read."""
        return self._objects.get(self._prefix + key)[0]

    def stat(self, key: str) -> Entry | None:
        """See Store.stat."""
        try:
            return self._entry(self._objects.head(self._prefix + key))
        except FileNotFoundError:
            return None

    def entries(self, prefix: str, *, hidden: bool = False) -> list[Entry]:
        """See Store.entries."""
        found = self._objects.below(f"{self._prefix}{prefix}".rstrip("/"))
        seen = [self._entry(m) for m in found if m["path"].startswith(self._prefix)]
        return sorted((e for e in seen if hidden or not _is_hidden(e.key)), key=lambda e: e.key)

    def names(self, folder: str) -> list[str]:
        """See Store.names."""
        folders, objects = self._objects.children(f"{self._prefix}{folder}".rstrip("/"))
        paths = [*folders, *(m["path"] for m in objects)]
        names = {p.rstrip("/").rpartition("/")[2] for p in paths}
        return sorted(n for n in names if not n.startswith("."))

    def read_folder(self, folder: str, suffix: str) -> dict[str, bytes]:
        """See Store.read_folder: one request for every 1000 names, and one for each file that has changed."""

        def read(meta: dict[str, Any]) -> bytes | None:
            key = meta["path"].removeprefix(self._prefix)
            with naming_a_full_disk(self.cache), suppress(FileNotFoundError):
                return self._state(key, meta).read_bytes()
            try:
                data, tag = self._objects.get(meta["path"])
            except FileNotFoundError:
                return None
            with naming_a_full_disk(self.cache, len(data)):
                files.create(self._state(key, {"e_tag": tag, "size": len(data)}), data)
            return data

        _, objects = self._objects.children(f"{self._prefix}{folder}".rstrip("/"))
        named = {m["path"].rpartition("/")[2]: m for m in objects}
        names = sorted(n for n in named if n.endswith(suffix) and not n.startswith("."))
        found = self.together(lambda n: read(named[n]), names)
        return {n: data for n, data in zip(names, found, strict=True) if data is not None}

    def together(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """See Store.together."""
        todo = list(items)
        if len(todo) < 2:
            return [function(item) for item in todo]
        with ThreadPoolExecutor(min(AT_ONCE, len(todo))) as pool:
            return list(pool.map(function, todo))

    def create(self, key: str, data: bytes) -> bool:
        """See Store.create."""
        self._ready()
        return self._objects.create(self._prefix + key, data)

    def replace(self, key: str, data: bytes) -> None:
        """See Store.replace."""
        self._ready()
        self._objects.overwrite(self._prefix + key, data)

    def swap(self, key: str, expected: bytes | None, data: bytes) -> bool:
        """See Store.swap."""
        if expected is None:
            return self.create(key, data)
        self._ready()
        try:
            current, tag = self._objects.get(self._prefix + key)
        except FileNotFoundError:
            return False
        return current == expected and self._objects.change(self._prefix + key, data, tag)

    def update(self, key: str, change: Callable[[bytes | None], bytes]) -> bytes:
        """See Store.update: what is read is what the condition of the write is about."""
        self._ready()
        for _ in range(CHANGES):
            try:
                before, tag = self._objects.get(self._prefix + key)
            except FileNotFoundError:
                return super().update(key, change)
            after = change(before)
            if after == before or self._objects.change(self._prefix + key, after, tag):
                return after
        raise self._contended(key)

    def delete(self, key: str) -> bool:
        """See Store.delete. This machine's copy of a file that is named by its content goes too."""
        there = self.exists(key)
        if there:
            self._objects.delete(self._prefix + key)
        if _NAMED_BY_CONTENT.fullmatch(key):
            self.copies.forget(self.cache / key)
        return there

    def renew(self, key: str) -> bool:
        """See Store.renew: an old object is written again, since only that makes it young."""
        there = self.stat(key)
        if there is None:
            return False
        if time.time() - there.modified < YOUNG:
            return True
        data = self.read(key)
        return self.swap(key, data, data)

    def local(self, key: str) -> Path:
        """See Store.local. A copy named by content is taken without asking the bucket, others by their newest state."""
        with self.hold(key) as path:
            return path

    def hold(self, key: str) -> Held:
        """See Store.hold."""
        named = _NAMED_BY_CONTENT.fullmatch(inside(key))
        name, where = self._prefix + key, f"{self.url}/{key}"
        if named:
            digest = named[3] if named[1] in ("shards", "manifests") else None

            def ask(offset: int, tag: str) -> Answer:
                meta, pieces = self._objects.stream(name, offset, tag)
                return Answer(meta["size"], meta["e_tag"] or "", pieces)

            return self.copies.hold(key, Wanted(where, digest, ask))
        path = self._state(key, self._objects.head(name))
        while True:
            with naming_a_full_disk(self.cache):
                held = self.copies.taken(path)
            if held is not None:
                return held
            path = self._fetch_state(key, name, where)

    def _fetch_state(self, key: str, name: str, where: str) -> Path:
        """A copy of a changeable file as it is now, which may differ from what it was when asked for its state."""
        meta, pieces = self._objects.stream(name)
        path = self._state(key, meta)
        self.copies.room.make(meta["size"])
        with naming_a_full_disk(self.cache, meta["size"]):
            temporary = files.temporary_beside(path)
            with files.writing(temporary) as f:
                length = sum(f.write(piece) for piece in pieces)
                if length != meta["size"]:
                    raise OSError(errno.EIO, f"{length:,} of {meta['size']:,} bytes came", where)
            files.publish(temporary, path)
        return path

    def room(self) -> int:
        """See Store.room."""
        return self.copies.room.most()

    def forget(self, key: str) -> None:
        """See Store.forget."""
        self.copies.forget(self.cache / inside(key))
        for path in self.cache.glob(f"states/*/{glob.escape(key)}"):
            path.unlink(missing_ok=True)

    @contextmanager
    def writing(self, key: str, *, overwrite: bool = False) -> Iterator[Draft]:
        """See Store.writing."""
        self._ready()
        with tempfile.TemporaryFile() as f:
            draft = Draft(cast(BinaryIO, f), key)
            yield draft
            f.seek(0)
            data = f.read()
        if overwrite:
            self.replace(draft.key, data)
            draft.made = True
        else:
            known = len(data) >= LARGE and self.exists(draft.key)  # asked first where sending it in vain costs more
            draft.made = not known and self.create(draft.key, data)

    @contextmanager
    def _lock(self, key: str) -> Iterator[None]:
        """An object that says who holds the lock; whoever waits asks for its age by the server's own clock."""
        folder, _, name = key.rpartition("/")
        lock = f"{folder}/.{name}.lock".lstrip("/")
        mine = canonical_json({"holder": uuid.uuid4().hex})
        waiting, pause = time.monotonic(), 0.02
        ahead: float | None = None
        while not self.create(lock, mine):
            there = self.stat(lock)
            if there and time.monotonic() - waiting > min(2.0, self._lock_seconds):
                ahead = self._clock_ahead() if ahead is None else ahead
                if time.time() - ahead - there.modified > self._lock_seconds:
                    try:
                        if self.swap(lock, self.read(lock), mine):
                            break
                    except FileNotFoundError:
                        continue
            time.sleep(pause)
            pause = min(0.5, pause * 1.5)
        taken = time.monotonic()
        try:
            yield
        finally:
            if time.monotonic() - taken < self._lock_seconds / 2 or self._holds(lock, mine):
                self._objects.delete(self._prefix + lock)

    def probe(self) -> None:
        """See Store.probe."""
        name = f"{self._prefix}.probe-{uuid.uuid4().hex}"
        try:
            try:
                first = self._objects.create(name, b"1")
                again = self._objects.create(name, b"2")
                changed = self._objects.change(name, b"3", '"0123456789abcdef0123456789abcdef"')
            except OSError as e:
                if e.errno != errno.ENOTSUP:
                    raise
                first, again, changed = False, False, False
            if not first or again or changed:
                raise SevenfoldError(
                    "this store ignores preconditions, so two writers could overwrite each other's versions",
                    where=self.url,
                    expected="If-None-Match and If-Match on PUT, as S3 has",
                    do="use another store, or one writer on a local lake",
                )
        finally:
            self._objects.delete(name)

    def _holds(self, key: str, data: bytes) -> bool:
        try:
            return self.read(key) == data
        except FileNotFoundError:
            return False

    def _clock_ahead(self) -> float:
        """Seconds by which this machine's clock is ahead of the server's (which counts whole seconds)."""
        name = f"{self._prefix}.clock-{uuid.uuid4().hex}"
        self._objects.overwrite(name, b"")
        try:
            ahead: float = time.time() - self._objects.head(name)["last_modified"].timestamp()
            return ahead
        finally:
            self._objects.delete(name)

    def _state(self, key: str, meta: dict[str, Any]) -> Path:
        """Where the copy of a changeable file in one state lies; its own name stays: views read names out of it."""
        state = hashlib.sha256(f"{meta['e_tag'] or uuid.uuid4()} {meta['size']}".encode()).hexdigest()[:16]
        return self.cache / "states" / state / inside(key)

    def _entry(self, meta: dict[str, Any]) -> Entry:
        return Entry(meta["path"].removeprefix(self._prefix), meta["size"], meta["last_modified"].timestamp())


def _again(url: str, lock_seconds: float, timeout: float) -> BucketStore:
    return BucketStore(url, lock_seconds=lock_seconds, timeout=timeout)


def _is_hidden(key: str) -> bool:
    return key.startswith(".") or "/." in key
