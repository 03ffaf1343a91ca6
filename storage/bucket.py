"""A lake in an S3 bucket: conditional puts are the commit protocol, and files are read through a local cache."""

from __future__ import annotations

import glob
import hashlib
import os
import random
import re
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from sevenfold.storage import files
from sevenfold.storage.canonical import canonical_json, digest_bytes
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.store import Draft, Entry, Store

_SHARD = re.compile(r"shards/[0-9a-f]{2}/([0-9a-f]{64})\.tar")
_NAMED_BY_CONTENT = re.compile(r"(shards|index|manifests|overlays)/([0-9a-f]{2}/)?[0-9a-f]{64}\.[a-z]+")
PAUSES = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Seconds between tries of a conditional put (times 0.5 to 1.5)."""

YOUNG = 900.0
"""Seconds: an object younger than this need not be renewed; well under the least grace period of gc."""

LOCK_SECONDS = 120.0
"""A lock older than this is taken over: its holder died. What is done under one takes seconds."""


class BucketStore(Store):
    """`s3://bucket/prefix` through obstore. Credentials, region and endpoint come from the AWS_... environment.

    Copies of what is read lie under SEVENFOLD_CACHE (default: ~/.cache/sevenfold).
    """

    def __init__(self, url: str) -> None:
        try:
            import obstore
            from obstore.store import S3Store
        except ImportError:
            raise SevenfoldError(
                "a lake in a bucket needs obstore", where=url, do="pip install 'sevenfold[s3]'"
            ) from None
        self.url = url.rstrip("/")
        self._obstore = obstore
        bucket, _, prefix = self.url.removeprefix("s3://").partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._store: Any = S3Store(bucket)
        self._once: Any = S3Store(bucket, retry_config={"max_retries": 0})
        base = Path(os.environ.get("SEVENFOLD_CACHE") or Path.home() / ".cache" / "sevenfold")
        self.cache = base / digest_bytes(self.url.encode())[:16]
        self._probed = False

    def __reduce__(self) -> tuple[type[BucketStore], tuple[str]]:
        return BucketStore, (self.url,)

    def read(self, key: str) -> bytes:
        """See Store.read."""
        return self._get(key)[0]

    def stat(self, key: str) -> Entry | None:
        """See Store.stat."""
        try:
            meta = self._obstore.head(self._store, self._prefix + key)
        except _missing():
            return None
        return self._entry(meta)

    def entries(self, prefix: str, *, hidden: bool = False) -> list[Entry]:
        """See Store.entries."""
        where = f"{self._prefix}{prefix}".rstrip("/")
        found = [self._entry(m) for chunk in self._obstore.list(self._store, where or None) for m in chunk]
        start = f"{prefix}/" if prefix else ""
        return sorted(
            (e for e in found if e.key.startswith(start) and (hidden or not _is_hidden(e.key))), key=lambda e: e.key
        )

    def names(self, folder: str) -> list[str]:
        """See Store.names."""
        found = self._obstore.list_with_delimiter(self._store, f"{self._prefix}{folder}")
        paths = [*found["common_prefixes"], *(m["path"] for m in found["objects"])]
        names = {p.rstrip("/").rpartition("/")[2] for p in paths}
        return sorted(n for n in names if not n.startswith("."))

    def create(self, key: str, data: bytes) -> bool:
        """See Store.create."""
        self._ready()
        return self._put(key, data, "create")

    def replace(self, key: str, data: bytes) -> None:
        """See Store.replace."""
        self._ready()
        self._obstore.put(self._store, self._prefix + key, data, use_multipart=False)

    def swap(self, key: str, expected: bytes | None, data: bytes) -> bool:
        """See Store.swap."""
        if expected is None:
            return self.create(key, data)
        self._ready()
        try:
            current, tag = self._get(key)
        except FileNotFoundError:
            return False
        return current == expected and self._put(key, data, {"e_tag": tag})

    def delete(self, key: str) -> bool:
        """See Store.delete."""
        there = self.exists(key)
        if there:
            self._obstore.delete(self._store, self._prefix + key)
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
        """See Store.local."""
        if _NAMED_BY_CONTENT.fullmatch(key):
            path = self.cache / key
            if path.exists():
                return path
            data = self._get(key)[0]
            shard = _SHARD.fullmatch(key)
            if shard and digest_bytes(data) != shard[1]:
                raise OSError(f"{self.url}/{key}: the bytes that came are not those of its name; run sevenfold verify")
        else:
            try:
                meta = self._obstore.head(self._store, self._prefix + key)
            except _missing():
                raise FileNotFoundError(f"{self.url}/{key}") from None
            state = hashlib.sha256(f"{meta['e_tag']} {meta['last_modified']} {meta['size']}".encode()).hexdigest()[:16]
            path = self.cache / "states" / state / key  # the file's own name stays: views read names out of it
            if path.exists():
                return path
            data = self._get(key)[0]
        files.create(path, data)
        return path

    def forget(self, key: str) -> None:
        """See Store.forget."""
        for path in (self.cache / key, *self.cache.glob(f"states/*/{glob.escape(key)}")):
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
            draft.made = not self.exists(draft.key) and self.create(draft.key, data)

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """See Store.locked: an object that says who holds it and since when."""
        folder, _, name = key.rpartition("/")
        lock = f"{folder}/.{name}.lock"
        mine = canonical_json({"holder": uuid.uuid4().hex, "time": time.time()})
        while not self.create(lock, mine):
            there = self.stat(lock)
            if there and time.time() - there.modified > LOCK_SECONDS:
                try:
                    if self.swap(lock, self.read(lock), mine):
                        break
                except FileNotFoundError:
                    continue
            time.sleep(0.2)
        try:
            yield
        finally:
            try:
                if self.read(lock) == mine:
                    self.delete(lock)
            except FileNotFoundError:
                pass

    def probe(self) -> None:
        """See Store.probe."""
        key = f".probe-{uuid.uuid4().hex}"
        try:
            first = self._put(key, b"1", "create")
            again = self._put(key, b"2", "create")
            changed = self._put(key, b"3", {"e_tag": '"0123456789abcdef0123456789abcdef"'})
            if not first or again or changed:
                raise SevenfoldError(
                    "this store ignores preconditions, so two writers could overwrite each other's versions",
                    where=self.url,
                    expected="If-None-Match and If-Match on PUT, as S3 has",
                    do="use another store, or one writer on a local lake",
                )
        finally:
            self.delete(key)

    def _get(self, key: str) -> tuple[bytes, str]:
        try:
            found = self._obstore.get(self._store, self._prefix + key)
            return bytes(found.bytes()), found.meta["e_tag"] or ""
        except _missing():
            raise FileNotFoundError(f"{self.url}/{key}") from None

    def _put(self, key: str, data: bytes, mode: Any) -> bool:
        """A conditional put; False when the condition does not hold.

        Tried again here and not by obstore: after a lost answer, "it exists" may mean that our own first try arrived.
        """
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        refused: tuple[type[Exception], ...] = (AlreadyExistsError, PreconditionError, *_missing())
        unsure = False
        for pause in (*PAUSES, None):
            try:
                self._obstore.put(self._once, self._prefix + key, data, mode=mode, use_multipart=False)
                return True
            except refused:
                return unsure and self._holds(key, data)
            except BaseError as e:
                if pause is None or isinstance(e, _final()):
                    raise OSError(f"{self.url}/{key}: {e}") from None
                unsure = True
                time.sleep(pause * (0.5 + random.random()))
        raise AssertionError("the last try raises")

    def _holds(self, key: str, data: bytes) -> bool:
        try:
            return self.read(key) == data
        except FileNotFoundError:
            return False

    def _entry(self, meta: Any) -> Entry:
        return Entry(meta["path"].removeprefix(self._prefix), meta["size"], meta["last_modified"].timestamp())

    def _ready(self) -> None:
        if not self._probed:
            self._probed = True
            self.probe()


def _missing() -> tuple[type[Exception], ...]:
    from obstore.exceptions import NotFoundError

    return (FileNotFoundError, NotFoundError)


def _final() -> tuple[type[Exception], ...]:
    from obstore.exceptions import InvalidPathError, PermissionDeniedError, UnauthenticatedError

    return (InvalidPathError, PermissionDeniedError, UnauthenticatedError)


def _is_hidden(key: str) -> bool:
    return key.startswith(".") or "/." in key
