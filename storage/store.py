"""Where a lake's files lie: a local disk here, a bucket in bucket.py. Commits rest on three of its promises.

`create` writes only if absent and tells who won; `swap` replaces only what it expects; a file appears whole or not at
all. Keys are relative POSIX paths. A part with a leading dot is hidden: temporary files, locks, leases.
"""

from __future__ import annotations

import errno
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeVar

from sevenfold.storage import files
from sevenfold.storage.cache import Held
from sevenfold.storage.errors import SevenfoldError

Item = TypeVar("Item")
Result = TypeVar("Result")

CHANGES = 64
"""How often a read-modify-write is tried again when others change the same record."""


@dataclass(frozen=True)
class Entry:
    """One stored file: its key, size in bytes and time of the last change (unix seconds)."""

    key: str
    bytes: int
    modified: float


class Store(ABC):
    """A flat space of keys. Every method may raise OSError for a failing disk or network.

    May be shared by threads and sent to other processes.
    """

    url = ""

    def __init__(self) -> None:
        self._probed = False
        self._held = threading.local()

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The folder on this machine below which every path lies that `local` gives."""

    @property
    def remote(self) -> bool:
        """Whether `local` gives copies, which have to be fetched and may be evicted, and not the files themselves."""
        return False

    def room(self) -> int | None:
        """Bytes that this machine's copies may take together; None where there are none."""
        return None

    @abstractmethod
    def read(self, key: str) -> bytes:
        """The bytes under `key`; raises FileNotFoundError."""

    @abstractmethod
    def stat(self, key: str) -> Entry | None:
        """Size and time of one file; None when it is absent."""

    @abstractmethod
    def entries(self, prefix: str, *, hidden: bool = False) -> list[Entry]:
        """Every file below the folder `prefix` ("": everything), by key; hidden ones only when asked for."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Names of the files and folders directly in `folder`, sorted, without the hidden ones."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> bool:
        """Write a file only if its name is free; True when this call made it."""

    @abstractmethod
    def replace(self, key: str, data: bytes) -> None:
        """Write a file whether it is there or not; readers see the old bytes or the new."""

    @abstractmethod
    def swap(self, key: str, expected: bytes | None, data: bytes) -> bool:
        """Replace the file only while it holds `expected` (None: while it is absent); False when it does not."""

    @abstractmethod
    def delete(self, key: str) -> bool:
        """Remove a file; False when it was not there."""

    def renew(self, key: str) -> bool:
        """Make a file young, so that garbage collection leaves it to whoever is about to name it; False when absent."""
        try:
            data = self.read(key)
        except FileNotFoundError:
            return False
        return self.swap(key, data, data)

    @abstractmethod
    def local(self, key: str) -> Path:
        """A path on this machine to read the file from: itself, or a copy kept by name and state.

        Raises FileNotFoundError. Content-addressed files are checked against their digest when they are fetched.
        A copy may be evicted later, so open it at once (what is open stays readable), or ask again, or `hold` it.
        """

    def hold(self, key: str) -> Held:
        """What `local` gives, kept from eviction until it is released: a context manager of the path.

        Any number of readers may hold one file. A process that dies releases all it held.
        """
        return Held(self.local(key))

    def forget(self, key: str) -> None:  # noqa: B027 - a disk keeps no copies: its files are the files themselves
        """Remove this machine's copies of a file, if it keeps any."""

    @abstractmethod
    def writing(self, key: str, *, overwrite: bool = False) -> AbstractContextManager[Draft]:
        """A draft of the file: write to `draft.file`; when the block ends it is synced and published whole.

        `draft.made` then says whether this call made the file; without `overwrite` an older one is left as it is. The
        key may be decided late: set `draft.key`.
        """

    @abstractmethod
    def _lock(self, key: str) -> AbstractContextManager[None]:
        """What `locked` does when the thread does not hold the lock yet."""

    @abstractmethod
    def probe(self) -> None:
        """Raises SevenfoldError when the store does not honour `create` and `swap`.

        Asked by every process before its first write, Lake.create's included; reading needs no such promise.
        """

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Exclude other writers of `key`, in all threads, processes and machines, for seconds rather than minutes.

        May be nested: a thread that holds a lock gets it again at once. Two locks are to be taken in one order.
        """
        held: set[str] = self._held.__dict__.setdefault("keys", set())
        if key in held:
            yield
            return
        with self._lock(key):
            held.add(key)
            try:
                yield
            finally:
                held.discard(key)

    def together(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """`function` of every item, in order; a store that is far away answers several at once, in threads."""
        return [function(item) for item in items]

    def stems(self, folder: str, suffix: str) -> list[str]:
        """The visible `names` in a folder that end in `suffix`, sorted, without it."""
        return [n.removesuffix(suffix) for n in self.names(folder) if n.endswith(suffix)]

    def read_folder(self, folder: str, suffix: str) -> dict[str, bytes]:
        """Name -> bytes of the visible files directly in `folder` that end in `suffix`, by name.

        In a bucket one listing tells which of them this machine has read before. Files that vanish are left out.
        """
        found = {}
        for name in self.names(folder):
            if name.endswith(suffix):
                try:
                    found[name] = self.read(f"{folder}/{name}")
                except FileNotFoundError:
                    continue
        return found

    def _ready(self) -> None:
        if not self._probed:
            self.probe()
            self._probed = True

    def exists(self, key: str) -> bool:
        """Whether there is a file of this name."""
        return self.stat(key) is not None

    def update(self, key: str, change: Callable[[bytes | None], bytes]) -> bytes:
        """Read, change, write back, again when somebody else wrote meanwhile. Returns what is there afterwards."""
        for _ in range(CHANGES):
            try:
                before = self.read(key)
            except FileNotFoundError:
                before = None
            after = change(before)
            if after == before or self.swap(key, before, after):
                return after
        raise self._contended(key)

    def _contended(self, key: str) -> SevenfoldError:
        return SevenfoldError("others change this record all the time", where=f"{self.url}/{key}", do="try again")


@dataclass
class Draft:
    """A file being written: `file` takes the bytes, `key` is its name when done, `made` whether this call made it."""

    file: BinaryIO
    key: str
    made: bool = False


def inside(key: str) -> str:
    """The key itself; SevenfoldError for one that leads out of the lake, as a stranger's manifest may name it."""
    if key.startswith("/") or ".." in key.split("/") or "\0" in key:
        raise SevenfoldError(
            "this key leads out of the lake", where=key, do="do not trust this lake: no release writes such a key"
        )
    return key


class LocalStore(Store):
    """A folder on a local disk with hard links."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.url = str(root)

    def __reduce__(self) -> tuple[type[LocalStore], tuple[Path]]:
        return LocalStore, (self.root,)

    @property
    def folder(self) -> Path:
        """See Store.folder: the lake's own."""
        return self.root

    def path(self, key: str) -> Path:
        """The file of a key."""
        return self.root / inside(key)

    def _place(self, key: str) -> Path:
        """The file of a key, to be written or removed: not through a link inside the lake to another place.

        The folders at the top may be links, to another disk.
        """
        path = self.path(key)
        for folder in PurePosixPath(key).parents:
            if len(folder.parts) > 1 and (self.root / folder).is_symlink():
                raise SevenfoldError(
                    "this folder is a link, and nothing is written through it",
                    where=str(self.root / folder),
                    do="put the folder itself there",
                )
        return path

    def read(self, key: str) -> bytes:
        """See Store.read."""
        return files.read_regular(self.path(key))

    def stat(self, key: str) -> Entry | None:
        """See Store.stat."""
        try:
            status = self.path(key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Entry(key, status.st_size, status.st_mtime)

    def entries(self, prefix: str, *, hidden: bool = False) -> list[Entry]:
        """See Store.entries."""
        found: list[Entry] = []
        _walk(self.path(prefix), f"{prefix}/" if prefix else "", hidden, found)
        return sorted(found, key=lambda e: e.key)

    def names(self, folder: str) -> list[str]:
        """See Store.names."""
        try:
            return sorted(p.name for p in self.path(folder).iterdir() if not p.name.startswith("."))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def create(self, key: str, data: bytes) -> bool:
        """See Store.create."""
        self._ready()
        return files.create(self._place(key), data)

    def replace(self, key: str, data: bytes) -> None:
        """See Store.replace."""
        self._ready()
        files.replace(self._place(key), data)

    def swap(self, key: str, expected: bytes | None, data: bytes) -> bool:
        """See Store.swap."""
        self._ready()
        path = self._place(key)
        with files.locked(path):
            if (files.read_regular(path) if path.exists() else None) != expected:
                return False
            files.replace(path, data)
        return True

    def delete(self, key: str) -> bool:
        """See Store.delete."""
        try:
            self._place(key).unlink()
        except FileNotFoundError:
            return False
        files.fsync_folder(self.path(key).parent)
        return True

    def renew(self, key: str) -> bool:
        """See Store.renew."""
        try:
            os.utime(self._place(key))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError:  # a colleague's file: there all the same
            return self.exists(key)
        return True

    def local(self, key: str) -> Path:
        """See Store.local."""
        path = self.path(key)
        if not path.exists():
            raise FileNotFoundError(errno.ENOENT, "there is no such file", str(path))
        files.check_regular(path.stat(), path)
        return path

    @contextmanager
    def writing(self, key: str, *, overwrite: bool = False) -> Iterator[Draft]:
        """See Store.writing."""
        self._ready()
        temporary = files.temporary_beside(self._place(key))
        with files.writing(temporary, self.path(key)) as f:
            draft = Draft(f, key)
            yield draft
        try:
            path = self._place(draft.key)
            files.make_folder(path.parent)
        except (OSError, SevenfoldError):
            temporary.unlink(missing_ok=True)
            raise
        if overwrite:
            files.overwrite(temporary, path)
            draft.made = True
        else:
            draft.made = files.publish(temporary, path)

    def _lock(self, key: str) -> AbstractContextManager[None]:
        """A lock of the kernel (flock), released when its holder dies."""
        return files.locked(self._place(key))

    def probe(self) -> None:
        """See Store.probe."""
        first, second = (files.temporary_beside(self.path(".probe")) for _ in range(2))
        try:
            first.write_bytes(b"1")
            try:
                os.link(first, second)
            except OSError as e:
                if e.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
                    raise
                raise SevenfoldError(
                    "this file system has no hard links, so two writers could overwrite each other",
                    where=self.url,
                    do="put the lake on a local disk or in a bucket",
                ) from None
            if files.publish(first, second):
                raise SevenfoldError("this file system replaces a file that exists by a hard link", where=self.url)
        finally:
            first.unlink(missing_ok=True)
            second.unlink(missing_ok=True)


def _walk(folder: Path, prefix: str, hidden: bool, found: list[Entry]) -> None:
    try:
        with os.scandir(folder) as listing:
            for item in listing:
                if item.name.startswith(".") and not hidden:
                    continue
                if item.is_dir(follow_symlinks=False):
                    _walk(Path(item.path), f"{prefix}{item.name}/", hidden, found)
                    continue
                try:
                    status = item.stat()
                except FileNotFoundError:  # gone since it was listed
                    continue
                found.append(Entry(f"{prefix}{item.name}", status.st_size, status.st_mtime))
    except (FileNotFoundError, NotADirectoryError):
        return


def absolute(url: str | os.PathLike[str], folder: Path) -> str:
    """A lake's URL as it is, or its folder made absolute from `folder`."""
    text = os.fspath(url)
    return text if "://" in text else str((folder / text).absolute())


def open_store(url: str | os.PathLike[str]) -> Store:
    """The store of a folder or of `s3://bucket/prefix` (credentials and endpoint from the environment, AWS_...).

    Raises SevenfoldError for another scheme.
    """
    text = os.fspath(url)
    scheme, separator, _ = text.partition("://")
    if not separator:
        return LocalStore(Path(text).absolute())
    if scheme != "s3":
        raise SevenfoldError(
            f"the scheme {scheme!r} is not known", where=text, expected="a folder or s3://bucket/prefix"
        )
    from sevenfold.storage.bucket import BucketStore

    return BucketStore(text)
