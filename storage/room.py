"""How much the copies of a bucket's files may take on this machine: the limit, who may go, and who must stay.

Any number of processes share one folder, so the account is a file in it, read and changed under its own lock. A copy
goes when room is needed before a download, least recently used first, and never while somebody holds it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sevenfold.storage import files
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.sizes import bytes_of, said, setting

VARIABLE = "SEVENFOLD_CACHE_LIMIT"

MOST = 100 * 10**9
"""Bytes that copies take at most where nobody says otherwise; and at most this share of what the disk has for them:"""
SHARE = 0.8

RECENT = 5.0
"""Seconds: a shard's copy that was used since may be about to be opened by who asked for its path, so it stays."""

PATIENCE = 30.0
"""Seconds beyond that until who waits for such copies gives up: readers that are many use them again and again."""

GRACE = 600.0
"""Seconds: the same of all other files. Queries open them by path, again and again, as long as they run."""

SPARE = 0.01
"""Share of the limit that is freed beyond what is needed, of shards that nobody used within the grace: looking through
a large cache takes time, and so happens once in many fetches."""

COMING = ".coming"
"""How the name of a copy ends that is being fetched."""

_LAKE = re.compile(r"[0-9a-f]{16}")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BARRED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)


class CacheFull(SevenfoldError):
    """There is no room for a copy, since whatever is there is being read."""


@dataclass(frozen=True)
class Copy:
    """A file in the cache: its path, size in bytes, time of its last use (unix seconds), and whether it is a shard."""

    path: Path
    bytes: int
    used: float
    shard: bool


class Room:
    """The account of the copies below `folder`, one folder for each lake.

    Parameters
    ----------
    limit : bytes; None: the smaller of 100 GB and 80 % of what the disk has for them.
    recent, grace : see RECENT and GRACE.
    """

    def __init__(
        self, folder: Path, limit: int | None = None, *, recent: float = RECENT, grace: float = GRACE
    ) -> None:  # fmt: skip
        self.folder, self.limit = folder, limit
        self._recent, self._grace = recent, grace

    def most(self) -> int:
        """Bytes that copies may take now; a limit beyond the disk is the disk."""
        with self._account() as account:
            used = account.used
        return self._most(sum(c.bytes for c in self.copies()) if used is None else used)

    def _most(self, used: int) -> int:
        disk = os.statvfs(self.folder)
        available = used + disk.f_bavail * disk.f_frsize
        return min(MOST, int(SHARE * available)) if self.limit is None else min(self.limit, available)

    def make(self, need: int, coming: int | None = None) -> None:
        """Have room for `need` bytes, evicting what may go; the file `coming` (a descriptor) then takes them up.

        Waits for shards that were used a moment ago, and for what others fetch. Raises CacheFull when the rest is held
        or the disk is full.
        """
        until, pause = time.monotonic() + self._recent + PATIENCE, 0.02
        while True:
            with self._account() as account:
                used = account.used
                held = young = arriving = 0
                if used is None or used + need > self._most(used):
                    used, held, young, arriving = self._evict(need)
                most = self._most(used)
                fits = used + need <= most
                account.used = used + need if fits else used
                if fits:
                    if coming is not None:
                        with naming_a_full_disk(self.folder, need):
                            os.truncate(coming, need)  # whoever counts meanwhile counts it whole
                    return
            if arriving:  # it ends, and may go then
                until = time.monotonic() + self._recent + PATIENCE
            if need > most or not (arriving or young) or time.monotonic() > until:
                raise self._full(need, used if need <= most else 0, held + arriving, most)
            time.sleep(pause)
            pause = min(0.5, pause * 1.5)

    def copies(self, below: Path | None = None) -> list[Copy]:
        """Every copy in the cache (or below one lake's folder), whole or coming, the least recently used first."""
        found: list[Copy] = []
        for lake in [below] if below else [p for p in self.folder.glob("*") if _LAKE.fullmatch(p.name)]:
            shards = str(lake / "shards") + os.sep
            for place, _, names in os.walk(lake):
                for name in names:
                    path = Path(place, name)
                    with suppress(FileNotFoundError):
                        status = path.stat(follow_symlinks=False)
                        shard = str(path).startswith(shards) and not name.startswith(".")
                        found.append(Copy(path, status.st_size, _used(status), shard))
        return sorted(found, key=lambda c: (c.used, c.path))

    def _evict(self, need: int) -> tuple[int, int, int, int]:
        """Make room for `need` bytes as far as possible.

        Returns bytes: of all that stays, what is held, shards used just now, what is being fetched.
        """
        now, held, young, arriving = time.time(), 0, 0, 0
        copies = self.copies()
        used = sum(c.bytes for c in copies)
        most = self._most(used)
        for copy in sorted(copies, key=_turn):  # stable: by last use
            left, age = most - used - need, now - copy.used
            if need > most or (left >= 0 and not (copy.shard and age > self._grace and left < most * SPARE)):
                break
            if copy.path.name.endswith(COMING):
                if remove(copy.path):  # whoever fetched it died
                    used -= copy.bytes
                else:
                    arriving += copy.bytes
            elif age < (self._recent if copy.shard else self._grace) and not is_held(copy.path):
                young += copy.bytes * copy.shard
            elif remove(copy.path):
                used -= copy.bytes
            else:
                held += copy.bytes
        return used, held, young, arriving

    def _full(self, need: int, stays: int, held: int, most: int) -> CacheFull:
        wanted = stays + need
        disk = os.statvfs(self.folder)
        enough = wanted <= stays + disk.f_bavail * disk.f_frsize
        return CacheFull(
            f"no room for a file of {said(need)}: the limit is {said(most)}, and of the {said(stays)} that stay "
            f"{said(held)} are being read or fetched",
            where=str(self.folder),
            expected=f"a limit that is {said(wanted - most)} larger",
            do=f"set {VARIABLE} to {setting(wanted)} or more, or choose a smaller window"
            if enough
            else "free some disk, put SEVENFOLD_CACHE on a larger one, or choose a smaller window",
        )

    @contextmanager
    def _account(self) -> Iterator[_Account]:
        """The account, locked. What a process that died reserved stays in it until it is made up anew."""
        with naming_a_full_disk(self.folder):
            files.make_folder(self.folder)
            fd = os.open(self.folder / ".account", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield _Account(fd)
        finally:
            os.close(fd)


class _Account:
    """The bytes that copies take, as a number in a file; too many is safe, since it is made up before any eviction."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def used(self) -> int | None:
        text = os.pread(self._fd, 32, 0)
        return int(text) if re.fullmatch(rb"[0-9]{20}\n", text) else None

    @used.setter
    def used(self, value: int) -> None:
        os.pwrite(self._fd, b"%020d\n" % value, 0)


def _used(status: os.stat_result) -> float:
    """When a file was used last; a time that is yet to come says nothing: a clock was wrong, and such a copy is old."""
    soon = time.time() + 1.0
    return max((t for t in (status.st_atime, status.st_mtime) if t <= soon), default=0.0)


def _turn(copy: Copy) -> int:
    """What goes first: what never arrived, shards, then the small files that queries need."""
    return 0 if copy.path.name.endswith(COMING) else 1 if copy.shard else 2


def is_there(path: Path, fd: int) -> bool:
    """Whether `path` is still the file that `fd` has open."""
    try:
        there = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def is_held(path: Path) -> bool:
    """Whether somebody reads this copy, or fetches it."""
    return _alone(path, _nothing) is False


def remove(path: Path) -> bool:
    """Remove a copy unless it is held; True when it is gone."""
    return _alone(path, path.unlink) is not False


def _nothing() -> None:
    return None


def _alone(path: Path, act: Callable[[], None]) -> bool | None:
    """Do something to a copy that nobody holds: False when it is held, None when it is not there."""
    try:  # to be written, which NFS wants for such a lock
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except PermissionError:  # a colleague's
        return False
    except OSError as e:
        if e.errno not in (errno.ELOOP, errno.ENXIO, errno.EROFS):
            raise
        return False  # a link or a socket, which is none of ours
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_there(path, fd):
            return None
        act()
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


@contextmanager
def naming_a_full_disk(folder: Path, need: int | None = None) -> Iterator[None]:
    """Turns the kernel's answer of a full disk, a quota, a limit of file size or a barred folder into an error."""
    try:
        yield
    except OSError as e:
        if e.errno in _BARRED and e.filename is not None and "://" not in str(e.filename):  # else the store refuses
            raise SevenfoldError(
                f"the cache cannot be used: {os.strerror(e.errno or 0)}",
                where=e.filename if isinstance(e.filename, str) else str(folder),
                expected="a folder of one's own, and in it nothing but what Sevenfold has put there",
                do="remove what is in the way, or let SEVENFOLD_CACHE name another folder on a local disk",
            ) from None
        if e.errno not in _FULL:
            raise
        what = "another file" if need is None else f"a file of {said(need)}"
        raise CacheFull(
            f"the disk has no room for {what}: {os.strerror(e.errno)}",
            where=str(folder),
            do=f"free some disk, lower {VARIABLE}, or put SEVENFOLD_CACHE on another disk",
        ) from None


def cache_folder() -> Path:
    """Where this machine keeps what is a bucket's: SEVENFOLD_CACHE, else ~/.cache/sevenfold."""
    return Path(os.environ.get("SEVENFOLD_CACHE") or Path.home() / ".cache" / "sevenfold")


def cache_limit() -> int | None:
    """Bytes that SEVENFOLD_CACHE_LIMIT says; None when it is not set."""
    text = os.environ.get(VARIABLE)
    return bytes_of(text, VARIABLE, least=1) if text else None
