"""Atomic writes on a local disk: temporary name, fsync, publish by hard link; small refs move by compare-and-swap."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sevenfold.storage.errors import SevenfoldError


def temporary_beside(path: Path) -> Path:
    """A fresh hidden name in `path`'s own folder (created), so that a link or rename never crosses file systems."""
    make_folder(path.parent)
    return path.parent / f".tmp-{uuid.uuid4().hex}"


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; each new name survives a power cut."""
    if folder.exists():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    fsync_folder(folder.parent)


def fsync_folder(folder: Path) -> None:
    """Make names just created or renamed in `folder` survive a power cut."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_regular(path: Path) -> bytes:
    """The bytes of a file. Raises OSError for what is none: a pipe would wait for ever, a device may never end."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(fd, "rb") as f:
        check_regular(os.fstat(fd), path)
        return f.read()


def check_regular(status: os.stat_result, path: Path) -> None:
    """Raises OSError when this is the status of a folder, a pipe or a device."""
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def publish(temporary: Path, final: Path) -> bool:
    """Give a complete, fsynced temporary file its final name, only if that name is free.

    Returns True when this call created `final`, False when it already existed (the temporary is removed either way).
    A hard link is atomic and fails when the name exists, so of many writers exactly one wins.
    """
    try:
        os.link(temporary, final)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    fsync_folder(final.parent)
    return True


def create(path: Path, data: bytes) -> bool:
    """Write `data` to `path` only if absent, whole or not at all. True when this call created it."""
    if path.exists():
        return False
    temporary = temporary_beside(path)
    _write_synced(temporary, data, path)
    return publish(temporary, path)


def replace(path: Path, data: bytes) -> None:
    """Write or overwrite `path` atomically: readers see the old bytes or the new, never a mixture."""
    temporary = temporary_beside(path)
    _write_synced(temporary, data, path)
    overwrite(temporary, path)


def overwrite(temporary: Path, final: Path) -> None:
    """Give a complete, fsynced temporary file its final name, whether that is taken or not."""
    try:
        temporary.replace(final)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(final.parent)


def hand_out(path: Path, data: bytes) -> None:
    """Write a file of the user's, whole or not at all; through a link, the file that it leads to.

    What is no regular file (a pipe, /dev/stdout) is written into, never replaced; so is a file whose folder takes no
    new names (read-only, or the file itself is a mount).
    """
    there = path.exists()
    final = path.resolve()
    try:
        if there and not path.is_file():
            path.write_bytes(data)
            return
        try:
            replace(final, data)
        except OSError as error:
            if not there or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY):
                raise
            final.write_bytes(data)
    except OSError as error:
        error.filename = str(path)  # not the temporary name, and not none, as of a full disk
        raise


def compare_and_swap(path: Path, expected: bytes | None, data: bytes) -> None:
    """Replace `path` only while it still holds `expected` (None: while it is absent).

    Raises SevenfoldError when another writer moved it first.
    """
    with locked(path):
        current = read_regular(path) if path.exists() else None
        if current != expected:
            raise SevenfoldError(
                "another writer moved it meanwhile",
                where=str(path),
                expected=repr(expected),
                do="read the newest state and try again",
            )
        replace(path, data)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """An exclusive lock beside `path`, held across processes and threads, released by the kernel if the holder dies.

    Taking it twice in one thread waits for ever; Store.locked may be nested.
    """
    make_folder(path.parent)
    fd = os.open(path.parent / f".{path.name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def is_locked(lock: Path) -> bool:
    """Whether some process holds this lock file."""
    try:
        fd = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@contextmanager
def writing(temporary: Path, final: Path | None = None) -> Iterator[BinaryIO]:
    """A temporary file to write, synced at the end; one that cannot be finished (a full disk) is removed.

    An OSError that names no file names `final`, what the file was to become.
    """
    try:
        with open(temporary, "xb") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
    except OSError as e:
        temporary.unlink(missing_ok=True)
        if e.filename is None and e.errno is not None:
            e.filename = str(final or temporary)
        raise
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write_synced(temporary: Path, data: bytes, final: Path) -> None:
    with writing(temporary, final) as f:
        f.write(data)
