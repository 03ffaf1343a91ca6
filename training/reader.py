"""Reading members of shards by offset: pread on a bounded set of open files, neighbours fetched in one call.

`pread` and not `mmap`, although slices of a map are twice as quick as calls (2.4 against 1.1 million a second, both
an order above decoding): a map of a file that was truncated, or that lies on a failing disk, kills the process with
SIGBUS, while `pread` says so for the one sample.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from sevenfold.storage.errors import SevenfoldError

OPEN_FILES = 256
"""Files one process keeps open: below the usual limit of 1,024, for a lake may have 10^5 shards."""
GAP = 4096
"""Bytes between two members that are cheaper to read than to skip: a tar header, padding and a label."""
_SPAN = 1 << 22


class ShardReader:
    """Reads members at indexed offsets; each process opens its own files when first needed, any thread may read.

    Parameters
    ----------
    paths : file of each shard, by shard number; "" where none is needed.
    limit : files kept open at once; the one least recently used is closed first.
    """

    def __init__(self, paths: Sequence[str], limit: int = OPEN_FILES) -> None:
        self.paths, self.limit = list(paths), limit
        self._start()

    def _start(self) -> None:
        self._files: OrderedDict[int, _File] = OrderedDict()
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def read(self, shards: np.ndarray, offsets: np.ndarray, sizes: np.ndarray) -> list[bytes | None]:
        """The members' bytes in the order asked for, None where the file is too short or the disk fails.

        Members that lie next to each other are read together, in the order of the file.

        Parameters
        ----------
        shards, offsets, sizes : int64 [n]

        Raises
        ------
        SevenfoldError when a shard's file is missing or may not be opened.
        """
        found: list[bytes | None] = [None] * len(shards)
        order = np.lexsort((offsets, shards)) if len(shards) > 1 else np.arange(len(shards))
        s, a, z = shards[order], offsets[order], sizes[order]
        same = s[1:] == s[:-1]
        near = same & (a[1:] - a[:-1] - z[:-1] <= GAP) & (a[1:] >= a[:-1])
        spread = near.mean() < 0.25 if len(near) else True
        places, starts, lengths = order.tolist(), a.tolist(), z.tolist()
        turns = [0, *(np.flatnonzero(~same) + 1).tolist(), len(places)] if len(places) else []
        for first, last in zip(turns[:-1], turns[1:], strict=True):
            with self._open(int(s[first])) as fd:
                if spread:
                    for i in range(first, last):
                        found[places[i]] = _pread(fd, lengths[i], starts[i])
                else:
                    _read_runs(fd, found, places, starts, lengths, near, first, last)
        return found

    def read_into(
        self, shards: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, data: memoryview, places: np.ndarray
    ) -> np.ndarray:
        """Read each member straight to `data[place : place + size]`; bool [n], false where that failed.

        The arrays are as in :meth:`read`, `places` int64 [n] in bytes.
        """
        good = np.ones(len(shards), bool)
        order = np.lexsort((offsets, shards))
        s = shards[order]
        turns = [0, *(np.flatnonzero(s[1:] != s[:-1]) + 1).tolist(), len(s)] if len(s) else []
        at, starts, lengths = places[order].tolist(), offsets[order].tolist(), sizes[order].tolist()
        for first, last in zip(turns[:-1], turns[1:], strict=True):
            with self._open(int(s[first])) as fd:
                for i in range(first, last):
                    to, size = at[i], lengths[i]
                    try:
                        whole = os.preadv(fd, [data[to : to + size]], starts[i]) == size
                    except OSError:
                        whole = False
                    if not whole:
                        good[order[i]] = False
        return good

    def reason(self, shard: int, offset: int, size: int) -> str | None:
        """Why a member cannot be read, None when it can."""
        with self._open(shard) as fd:
            try:
                found = len(os.pread(fd, size, offset))
            except OSError as error:
                return f"{self.paths[shard]}, offset {offset}: {error.strerror or error}"
        return None if found == size else f"{self.paths[shard]} ends early: {found} of {size} bytes at offset {offset}"

    @contextmanager
    def _open(self, shard: int) -> Iterator[int]:
        """The shard's descriptor, not closed while in use."""
        if self._pid != os.getpid():  # forked: the inherited descriptors belong to the parent
            self._start()
        with self._lock:
            file = self._files.get(shard)
            if file is None:
                file = self._files[shard] = _File(self.paths[shard])
            self._files.move_to_end(shard)
            file.readers += 1
        try:
            yield file.fd
        finally:
            with self._lock:
                file.readers -= 1
                if len(self._files) > self.limit:
                    self._close_idle()

    def _close_idle(self) -> None:
        """Close the longest unused files beyond the limit; one that is being read from stays."""
        for shard in [s for s, file in self._files.items() if not file.readers][: len(self._files) - self.limit]:
            os.close(self._files.pop(shard).fd)

    @property
    def open_files(self) -> int:
        """Files open now."""
        return len(self._files)

    def __getstate__(self) -> dict[str, Any]:
        return {"paths": self.paths, "limit": self.limit}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["paths"], state["limit"])  # type: ignore[misc]

    def __del__(self) -> None:
        if getattr(self, "_pid", None) == os.getpid():
            for file in self._files.values():
                os.close(file.fd)


class _File:
    """An open shard and how many threads are reading from it."""

    __slots__ = ("fd", "readers")

    def __init__(self, path: str) -> None:
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise SevenfoldError(
                f"the shard cannot be opened: {error.strerror or error}",
                where=path,
                expected="the file that the version's index names",
                do="run `sevenfold verify`; it says which versions miss what, and what can be repaired",
            ) from error
        self.readers = 0


def _pread(fd: int, size: int, offset: int) -> bytes | None:
    try:
        data = os.pread(fd, size, offset)
    except OSError:
        return None
    return data if len(data) == size else None


def _read_runs(
    fd: int,
    found: list[bytes | None],
    places: list[int],
    starts: list[int],
    lengths: list[int],
    near: np.ndarray,
    first: int,
    last: int,
) -> None:
    """Read members first .. last of one shard, sorted by offset, one call for each run of neighbours."""
    joined = near.tolist()
    while first < last:
        start = starts[first]
        end, stop = start + lengths[first], first + 1
        while stop < last and joined[stop - 1] and end - start < _SPAN:
            end = max(end, starts[stop] + lengths[stop])
            stop += 1
        try:
            block = os.pread(fd, end - start, start)
        except OSError:
            block = b""
        for i in range(first, stop):
            at, size = starts[i] - start, lengths[i]
            data = block[at : at + size]
            # a failed or short run says nothing of its other members: ask for each by itself
            found[places[i]] = data if len(data) == size else _pread(fd, size, starts[i])
        first = stop
