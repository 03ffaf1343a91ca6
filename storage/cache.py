"""Copies of a bucket's files on this machine's disk: fetched once by whoever comes first, verified, held while read.

A copy is locked by the kernel, so that a process that dies holds nothing: exclusively while it comes, under a name of
its own, and shared while somebody reads it. The cache belongs on a local disk.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from sevenfold.storage import files
from sevenfold.storage.room import COMING, Room, is_there, naming_a_full_disk

TRIES = 6
"""How often an answer that brings nothing is asked for; each that brings something starts the count again."""

PAUSE = 0.1
LONGEST = 10.0
"""Seconds before the first try again, doubled each time up to the longest, times 0.5 to 1.5."""

_PARQUET = b"PAR1"


@dataclass(frozen=True)
class Answer:
    """What a store answers: the size of the whole file, the tag of its state, and its bytes from some offset on."""

    size: int
    tag: str
    pieces: Iterator[memoryview]


@dataclass(frozen=True)
class Wanted:
    """A file to have a copy of.

    Parameters
    ----------
    where : its name, for errors.
    digest : the sha256 of its bytes; None: a Parquet file, whose name is the digest of its rows.
    ask : (offset, tag) -> Answer; with a tag, only of that state. May raise any OSError: it has tried long enough.
    """

    where: str
    digest: str | None
    ask: Callable[[int, str], Answer]


class Held:
    """A copy that nobody evicts until it is released; a context manager that gives its path.

    Without a descriptor (a file of a local lake) there is nothing to release.
    """

    def __init__(self, path: Path, fd: int | None = None) -> None:
        self.path = path
        self._fd, self._pid = fd, os.getpid()

    def release(self) -> None:
        """Let it go; may be called again."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        if self._pid == os.getpid():  # a fork shares the lock, and must not open it for its parent
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


class FileCache:
    """The copies of one lake's files below `folder`, within the room that all lakes share.

    May be shared by threads. `tries` counts how often an answer that broke off was asked for again.
    """

    def __init__(self, folder: Path, room: Room, *, pause: Callable[[float], None] = time.sleep) -> None:
        self.folder, self.room = folder, room
        self.tries = 0
        self._pause = pause
        self._known: dict[Path, tuple[int, int]] = {}
        self._guard = threading.Lock()

    def hold(self, key: str, wanted: Wanted) -> Held:
        """The copy of a file, held; fetched unless it is there. Of all that want it, one fetches and the others wait.

        A copy that was there before is verified the first time; one that is damaged is fetched again, with a warning.

        Raises
        ------
        OSError
            the store's own, and EIO for bytes that are not those of the file's name.
        CacheFull
            when what is there is held and leaves no room, or the disk is full.
        """
        path = self.folder / key
        coming = _coming(path)
        while True:
            with naming_a_full_disk(self.folder):
                held = self.taken(path, wanted)
            if held is not None:
                return held
            with naming_a_full_disk(self.folder):
                files.make_folder(path.parent)
                fd = os.open(coming, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
                with open(fd, "r+b", buffering=0) as file:
                    self._come(file, path, coming, wanted)

    def _come(self, file: BinaryIO, path: Path, coming: Path, wanted: Wanted) -> None:
        """Fetch a file and give it its name, or wait until another has done so or has failed."""
        fd = file.fileno()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(fd, fcntl.LOCK_SH)
            fcntl.flock(fd, fcntl.LOCK_UN)
            time.sleep(random.uniform(0.0, 0.002))  # of those that waited, one must find it free
            return
        if not is_there(coming, fd):  # it was given its name, or given up, since it was opened
            return
        try:
            if path.exists():  # another fetched it since it was looked for
                return
            self._fetch(file, wanted)
            coming.replace(path)
            with self._guard:
                self._known[path] = _state(fd)
        finally:
            if is_there(coming, fd):  # else the name is another's
                coming.unlink()

    def taken(self, path: Path, wanted: Wanted | None = None) -> Held | None:
        """A copy that is there, held; None when it is not, or was damaged and is gone now."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        held = Held(path, fd)
        fcntl.flock(fd, fcntl.LOCK_SH)
        if not is_there(path, fd):
            held.release()
            return None
        if wanted is not None and not self._is_known(path, fd, wanted):
            warnings.warn(
                f"{path}: this copy is damaged; it is fetched again from {wanted.where}", RuntimeWarning, stacklevel=4
            )
            if is_there(path, fd):
                path.unlink(missing_ok=True)
            held.release()
            return None
        _touch(fd)
        return held

    def forget(self, path: Path) -> None:
        """Remove a copy, held or not: who has it open reads on. One that is being fetched is waited for."""
        with suppress(FileNotFoundError):
            fd = os.open(_coming(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_SH)
            finally:
                os.close(fd)
        path.unlink(missing_ok=True)
        with self._guard:
            self._known.pop(path, None)

    def _is_known(self, path: Path, fd: int, wanted: Wanted) -> bool:
        """Whether a copy is whole; asked of the disk once in a process."""
        state = _state(fd)
        with self._guard:
            if self._known.get(path) == state:
                return True
        with open(fd, "rb", buffering=0, closefd=False) as file:
            if wanted.digest is None:
                whole = _is_parquet(file)
            else:
                whole = hashlib.file_digest(file, "sha256").hexdigest() == wanted.digest
        if whole:
            with self._guard:
                self._known[path] = state
        return whole

    def _fetch(self, file: BinaryIO, wanted: Wanted) -> None:
        """Write the file's bytes, going on where an answer broke off; once more from the start when they are wrong."""
        for last in (False, True):
            digest = self._receive(file, wanted)
            if digest is not None and (digest == wanted.digest if wanted.digest else _is_parquet(file)):
                if wanted.digest is None:  # bytes that no digest will vouch for must survive a power cut
                    os.fsync(file.fileno())
                return
            if not last:
                self.tries += 1
                self._pause(_pause(0))
        raise OSError(errno.EIO, "the bytes that came are not those of its name; run `sevenfold verify`", wanted.where)

    def _receive(self, file: BinaryIO, wanted: Wanted) -> str | None:
        """Write all the bytes; returns their sha256, or None when they changed in between."""
        hashed, done, failed = hashlib.sha256(), 0, 0
        file.truncate(0)  # what a process that died had of it
        answer = wanted.ask(0, "")
        size, tag = answer.size, answer.tag
        self.room.make(size, file.fileno())
        file.seek(0)
        while True:
            broken: OSError | None = None
            before = done
            pieces = answer.pieces
            while done < size:
                try:
                    piece = next(pieces)
                except StopIteration:
                    broken = OSError(errno.EIO, f"the answer ends after {done:,} of {size:,} bytes", wanted.where)
                    break
                except OSError as e:
                    broken = e
                    break
                with naming_a_full_disk(self.folder, size):
                    _write(file, piece)
                hashed.update(piece)
                done += len(piece)
            if broken is None:
                return hashed.hexdigest()
            failed = 0 if done > before else failed + 1
            if failed >= TRIES or broken.errno != errno.EIO:
                raise broken
            self.tries += 1
            self._pause(_pause(failed))
            try:
                answer = wanted.ask(done, tag)
            except OSError as e:
                if e.errno != errno.ESTALE:
                    raise
                return None


def _coming(path: Path) -> Path:
    """What a copy is called while it comes."""
    return path.parent / f".{path.name}{COMING}"


def _touch(fd: int) -> None:
    """Note that a copy is used, in its time of access: DuckDB takes another time of change for another file."""
    try:
        os.utime(fd, ns=(time.time_ns(), os.fstat(fd).st_mtime_ns))
    except OSError as e:  # a colleague's copy is read all the same, and so is one that nobody can change
        if e.errno not in (errno.EPERM, errno.EACCES, errno.EROFS):
            raise


def _pause(failed: int) -> float:
    return min(LONGEST, PAUSE * 2**failed) * (0.5 + random.random())


def _write(file: BinaryIO, piece: memoryview) -> None:
    while piece:  # a disk that fills up takes a part of it first
        piece = piece[file.write(piece) :]


def _state(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_ino, status.st_size


def _is_parquet(file: BinaryIO) -> bool:
    """Whether a file begins and ends as Parquet does; its rows are for `sevenfold verify`."""
    size = os.fstat(file.fileno()).st_size
    ends = os.pread(file.fileno(), 4, 0), os.pread(file.fileno(), 4, max(size - 4, 0))
    return size >= 8 and ends == (_PARQUET, _PARQUET)
