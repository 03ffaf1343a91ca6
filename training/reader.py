"""Reading members of shards by offset: pread on a bounded set of open files, small files from shards held in memory.

`pread` and not `mmap`, although slices of a map are twice as quick as calls (2.4 against 1.1 million a second, both
an order above decoding): a map of a file that was truncated, or that lies on a failing disk, kills the process with
SIGBUS, while `pread` says so for the one sample.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np

from sevenfold.storage.errors import SevenfoldError
from sevenfold.training.held import MEMORY, HeldShards

OPEN_FILES = 256
"""Files one process keeps open: below the usual limit of 1,024, for a lake may have 10^5 shards."""
GAP = 4096
"""Bytes between two members that are cheaper to read than to skip: a tar header, padding and a label."""
_RUN = 256
"""Members read in one call: the system takes 1,024 buffers, two for each."""
_SHARD_BITS = 40
"""A shard is below a terabyte, and there are fewer than 2^23 of them: one int64 sorts by both."""


class ShardReader:
    """Reads members at indexed offsets; each process opens its own files when first needed, any thread may read.

    Parameters
    ----------
    find : finds a shard's file by its number, when it is opened: a bucket's shard is then fetched, if it is not here.
    limit : files kept open at once; the one least recently used is closed first.
    lengths : int64 [shards], how much of each shard may be held in memory (see held.py); None for nothing.
    memory : bytes held at most.
    """

    def __init__(
        self,
        find: Callable[[int], Path],
        limit: int = OPEN_FILES,
        lengths: np.ndarray | None = None,
        memory: int = MEMORY,
    ) -> None:
        self.find, self.limit, self.lengths, self.memory = find, limit, lengths, memory
        self._start()

    def _start(self) -> None:
        self._held = None if self.lengths is None else HeldShards(self.lengths, self.memory)
        self._files: OrderedDict[int, _File] = OrderedDict()
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def read_into(
        self, shards: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, places: Sequence[memoryview]
    ) -> np.ndarray:
        """Read each member to its place, straight from the system's cache and without an object for it.

        Members are read in the order of their shards, neighbours in one call.

        Parameters
        ----------
        shards, offsets, sizes : int64 [n]
        places : [n] writable bytes, each of its member's size.

        Returns
        -------
        bool [n], false where the file is too short or the disk fails; what is in its place then is undefined.

        Raises
        ------
        SevenfoldError when a shard's file is missing or may not be opened.
        """
        good = np.ones(len(shards), bool)
        order = np.argsort((shards << _SHARD_BITS) + offsets, kind="stable")
        s, a, z = shards[order], offsets[order], sizes[order]
        gaps = a[1:] - a[:-1] - z[:-1]
        near = (s[1:] == s[:-1]) & (gaps >= 0) & (gaps <= GAP)
        read = _read_runs if 4 * np.count_nonzero(near) > len(near) else _read_each
        numbers, starts, lengths = order.tolist(), a.tolist(), z.tolist()
        to = [places[i] for i in numbers]
        turns = [0, *(np.flatnonzero(s[1:] != s[:-1]) + 1).tolist(), len(s)] if len(s) else [0]
        for i, j in pairwise(turns):
            with self._open(int(s[i])) as fd:
                for bad in read(fd, starts[i:j], lengths[i:j], to[i:j]):
                    good[numbers[i + bad]] = False
        return good

    def slices(self, shards: np.ndarray, offsets: np.ndarray, sizes: np.ndarray) -> list[memoryview] | None:
        """The members as slices of shards in memory, None unless all of these shards are; shorter where a file ends.

        Parameters and errors as of :meth:`read_into`.
        """
        if self._held is None:
            return None
        numbers = shards.tolist()
        held = self._held.of(numbers, self._load)
        if len(held) < len(set(numbers)):
            return None
        places = zip(numbers, offsets.tolist(), (offsets + sizes).tolist(), strict=True)
        return [held[number][start:end] for number, start, end in places]

    def _load(self, shard: int, length: int) -> memoryview | None:
        """The first bytes of a shard, None when the disk fails."""
        data = np.empty(length, np.uint8).data
        at = 0
        with self._open(shard) as fd:
            while at < length and (found := _bytes_read(fd, at, (data[at:],))):
                if found < 0:
                    return None
                at += found
        return data[:at]

    def reason(self, shard: int, offset: int, size: int) -> str | None:
        """Why a member cannot be read, None when it can."""
        with self._open(shard) as fd:
            try:
                found = len(os.pread(fd, size, offset))
            except OSError as error:
                return f"{self.find(shard)}, offset {offset}: {error.strerror or error}"
        return None if found == size else f"{self.find(shard)} ends early: {found} of {size} bytes at offset {offset}"

    @contextmanager
    def _open(self, shard: int) -> Iterator[int]:
        """The shard's descriptor, not closed while in use."""
        if self._pid != os.getpid():  # forked: the inherited descriptors belong to the parent
            self._start()
        with self._lock:
            file = self._files.get(shard)
            if file is None:
                self._close_evicted()
                file = self._files[shard] = _opened(self.find, shard)
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

    def _close_evicted(self) -> None:
        """Close copies that a cache has evicted: while they are open, they take their disk on."""
        for shard in [s for s, f in self._files.items() if not f.readers and not os.fstat(f.fd).st_nlink]:
            os.close(self._files.pop(shard).fd)

    @property
    def held_bytes(self) -> int:
        """Bytes of shards in memory now."""
        return self._held.nbytes if self._held is not None else 0

    @property
    def open_files(self) -> int:
        """Files open now."""
        return len(self._files)

    def share_memory(self, among: int) -> None:
        """Hold only this process's part, and begin with nothing."""
        self.memory //= among
        self._held = None if self.lengths is None else HeldShards(self.lengths, self.memory)

    def __getstate__(self) -> dict[str, Any]:
        return {"find": self.find, "limit": self.limit, "lengths": self.lengths, "memory": self.memory}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def close(self) -> None:
        """Close every file; reading opens them again."""
        with self._lock:
            while self._files:
                os.close(self._files.popitem()[1].fd)

    def __del__(self) -> None:
        if getattr(self, "_pid", None) == os.getpid():
            self.close()


class _File:
    """An open shard and how many threads are reading from it."""

    __slots__ = ("fd", "readers")

    def __init__(self, path: Path) -> None:
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise cannot_open(error, str(path)) from error
        self.readers = 0


def _opened(find: Callable[[int], Path], shard: int) -> _File:
    """The shard's file. A copy may be evicted between being found and being opened: then it is found once more."""
    try:
        return _File(_found(find, shard))
    except SevenfoldError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
    return _File(_found(find, shard))


def _found(find: Callable[[int], Path], shard: int) -> Path:
    try:
        return find(shard)
    except OSError as error:  # a store's: the shard is not in it, or it does not answer
        raise cannot_open(error, str(error.filename or f"shard {shard}")) from error


def cannot_open(error: OSError, where: str) -> SevenfoldError:
    """What to tell the user: the file is gone, or nothing says so and it may be there the next time."""
    gone = isinstance(error, FileNotFoundError) or "://" not in where
    return SevenfoldError(
        f"the shard cannot be opened: {error.strerror or error}",
        where=where,
        expected="the file that the version's index names",
        do="start again if somebody took samples down meanwhile; else run `sevenfold verify`, which says what can be "
        "repaired"
        if gone
        else "start again when the store answers: a run goes on from its last checkpoint",
    )


def _read_each(fd: int, starts: list[int], lengths: list[int], places: list[memoryview]) -> list[int]:
    """Read the members of one shard; returns those that failed."""
    try:
        found = list(map(os.preadv, repeat(fd), zip(places), starts))  # no loop in Python: it costs as much as a read
    except OSError:
        found = [_bytes_read(fd, start, (place,)) for start, place in zip(starts, places, strict=True)]
    return [] if found == lengths else [i for i, size in enumerate(lengths) if found[i] != size]


def _bytes_read(fd: int, start: int, places: Sequence[memoryview]) -> int:
    try:
        return os.preadv(fd, places, start)
    except OSError:
        return -1


def _read_runs(fd: int, starts: list[int], lengths: list[int], places: list[memoryview]) -> list[int]:
    """The same with one call for each run of neighbours; what lies between two of them goes nowhere."""
    bad: list[int] = []
    between = memoryview(bytearray(GAP))
    first = 0
    while first < len(starts):
        at = starts[first]
        parts: list[memoryview] = []
        last = first
        while last < len(starts) and last < first + _RUN and 0 <= starts[last] - at <= GAP:
            parts += (between[: starts[last] - at], places[last])
            at = starts[last] + lengths[last]
            last += 1
        if _bytes_read(fd, starts[first], parts) != at - starts[first]:  # that says nothing of each of them
            bad += [first + i for i in _read_each(fd, starts[first:last], lengths[first:last], places[first:last])]
        first = last
    return bad
