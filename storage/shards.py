"""Writes deterministic tars as a stream: hashing, writing and syncing overlap, and a few blocks are in memory.

The digest names the file, so the name comes last. Where each sample came to lie is told a column at a time.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from sevenfold.storage import tar
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import INDEX, conform
from sevenfold.storage.keys import shard_key
from sevenfold.storage.store import Store

BLOCK_BYTES = 1 << 20
"""What is hashed or written in one call: large enough that waiting for the interpreter's lock is rare."""

AHEAD = 4
"""Blocks that may wait for the slower of hashing and writing."""

SYNC_BYTES = 16 << 20
"""How much is written before the disk is told to begin, so that the last sync has little to do."""

RESERVE_BYTES = 64 << 20
"""How far ahead of the writing a file's room is reserved, at most."""

Sample = tuple[str, Sequence[tuple[str, bytes]]]
"""A key without dots or slashes and its members in order, (extension, bytes) each, the primary component first."""


@dataclass(frozen=True)
class Written:
    """One shard as it lies in the store.

    `bytes`: length of the tar; `offsets`, `sizes`: int64 [samples], the primary component of each within the tar;
    `components`: the others, as INDEX's column has them.
    """

    digest: str
    samples: int
    bytes: int
    offsets: np.ndarray
    sizes: np.ndarray
    components: pa.ListArray


def cuts(sizes: Sequence[int], shard_bytes: int) -> Iterator[tuple[int, int]]:
    """(first, count) of the samples of each shard: as many as fit in shard_bytes beside a `.cls`, one at least.

    `sizes`: bytes of each sample's image, in order.
    """
    start, length = 0, 0
    for i, size in enumerate(sizes):
        need = tar.member_length(size) + tar.member_length(8)
        if length and length + need > shard_bytes:
            yield start, i - start
            start, length = i, 0
        length += need
    if start < len(sizes):
        yield start, len(sizes) - start


def write_shards(store: Store, shards: Iterable[Iterable[Sample]]) -> Iterator[Written | None]:
    """Write one tar per group of samples, synced and named by its sha256; None for a group without samples (no file).

    Samples are taken as fast as they are written. A shard's last sync overlaps with the next shard, so a shard is told
    of when the next one has been taken. Memory holds 2 (AHEAD + 2) blocks of BLOCK_BYTES (of one sample where that is
    larger) and the places of two shards' samples. A shard that exists is left as it is.

    Raises ValueError for a sample without members, a name over 100 bytes or a member over 8 GiB, and OSError when the
    disk is full or fails: that shard has no file then, neither has one whose samples raise.
    """
    with ThreadPoolExecutor(1) as finisher:
        last: Future[Written | None] | None = None
        for samples in shards:
            now = finisher.submit(_fill(store, samples))
            if last:
                yield last.result()
            last = now
        if last:
            yield last.result()


def index_rows(rows: pa.Table, batch: str, shard: Written) -> pa.Table:
    """INDEX rows of a shard's samples: `rows` (LANDING columns, in the order of the samples) and where each lies."""
    columns = {
        "batch": pa.repeat(pa.scalar(batch), shard.samples),
        "shard": pa.repeat(pa.scalar(shard.digest), shard.samples),
        "offset": pa.array(shard.offsets),
        "size": pa.array(shard.sizes),
        "components": shard.components,
    }
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    return conform(rows, INDEX)


def _fill(store: Store, samples: Iterable[Sample]) -> Callable[[], Written | None]:
    """Hand a shard's blocks to hashing and writing; returns what waits for the rest and gives the file its name."""
    layout, hashed = _Layout(), hashlib.sha256()
    blocks = _blocks(samples, layout)
    first = next(blocks, None)
    if first is None:
        return lambda: None
    with ExitStack() as stack:
        draft = stack.enter_context(store.writing("shards/unnamed.tar"))
        stream = stack.enter_context(_Stream(draft.file, f"{store.url}/shards"))
        lanes = stack.enter_context(_Lanes(hashed.update, stream.write))
        for block in chain([first], blocks, [tar.END]):
            lanes.put(block)
        opened = stack.pop_all()

    def finish() -> Written:
        with opened:
            lanes.wait()
            stream.finish()
            draft.key = shard_key(hashed.hexdigest())
        if not draft.made and not store.renew(draft.key):  # an old file took its place, and was garbage
            raise SevenfoldError(
                "garbage collection took this shard away in the moment it was found", where=f"{store.url}/{draft.key}",
                do="run the same command again: it writes the shard anew",
            )  # fmt: skip
        return layout.written(hashed.hexdigest())

    return finish


class _Layout:
    """Where each member came to lie, collected block by block."""

    def __init__(self) -> None:
        self.end = 0
        self.counts: list[int] = []
        self.extensions: list[str] = []
        self.offsets: list[np.ndarray] = []
        self.sizes: list[np.ndarray] = []

    def written(self, digest: str) -> Written:
        """Primary components apart from the others."""
        counts = np.array(self.counts, np.int64)
        offsets, sizes = np.concatenate(self.offsets), np.concatenate(self.sizes)
        starts = np.cumsum(counts) - counts
        other = np.ones(len(sizes), bool)
        other[starts] = False
        kind = INDEX.field("components").type
        others = pa.StructArray.from_arrays(
            [
                pa.array(self.extensions, pa.string()).filter(pa.array(other)),
                pa.array(offsets[other]),
                pa.array(sizes[other]),
            ],
            fields=list(kind.value_type),
        )
        ends = np.concatenate(([0], np.cumsum(counts - 1))).astype(np.int32)
        components = pa.ListArray.from_arrays(pa.array(ends), others, type=kind)
        return Written(digest, len(counts), self.end + len(tar.END), offsets[starts], sizes[starts], components)


def _blocks(samples: Iterable[Sample], layout: _Layout) -> Iterator[bytes]:
    """The tar up to its end mark, in pieces of about BLOCK_BYTES that end with a sample."""
    names: list[str] = []
    contents: list[bytes] = []
    length, counts, extensions = 0, layout.counts, layout.extensions
    for key, members in samples:
        if not members:
            raise ValueError(f"sample {key!r} has no members")
        counts.append(len(members))
        for ext, data in members:
            names.append(f"{key}.{ext}")
            extensions.append(ext)
            contents.append(data)
            length += len(data) + tar.BLOCK
        if length >= BLOCK_BYTES:
            yield _block(names, contents, layout)
            names, contents, length = [], [], 0
    if names:
        yield _block(names, contents, layout)


def _block(names: Sequence[str], contents: Sequence[bytes], layout: _Layout) -> bytes:
    sizes = np.fromiter(map(len, contents), np.int64, len(contents))
    heads = tar.heads([n.encode() for n in names], sizes)
    pads = -sizes % tar.BLOCK
    ends = layout.end + np.cumsum(tar.BLOCK + sizes + pads)
    layout.offsets.append(ends - pads - sizes)
    layout.sizes.append(sizes)
    layout.end = int(ends[-1])
    pieces = [tar.TAIL] * (4 * len(contents))
    pieces[0::4] = heads
    pieces[2::4] = contents
    pieces[3::4] = map(_PADDINGS.__getitem__, pads.tolist())
    return b"".join(pieces)


_PADDINGS = tuple(bytes(n) for n in range(tar.BLOCK))


class _Lanes:
    """Every call takes every block in order, each on a thread of its own: hashing and writing release the GIL."""

    def __init__(self, *calls: Callable[[bytes], Any]) -> None:
        self.lanes = [(ThreadPoolExecutor(1), call) for call in calls]
        self.waiting: deque[list[Future[Any]]] = deque()

    def __enter__(self) -> _Lanes:
        return self

    def __exit__(self, *_: object) -> None:
        for thread, _call in self.lanes:
            thread.shutdown(cancel_futures=True)

    def put(self, block: bytes) -> None:
        """Hand over a block, once fewer than AHEAD are under way; raises what a call has raised."""
        self.wait(AHEAD - 1)
        self.waiting.append([thread.submit(call, block) for thread, call in self.lanes])

    def wait(self, left: int = 0) -> None:
        """Return when at most `left` blocks are under way; raises what a call has raised."""
        while len(self.waiting) > left:
            for future in self.waiting.popleft():
                future.result()


class _Stream:
    """A file written front to back: room is reserved ahead of the writing, and syncing follows it.

    Without reserved room every sync would wait for the file system's journal, which costs more than it saves.
    """

    def __init__(self, file: BinaryIO, where: str) -> None:
        self.file, self.where = file, where
        self.end = self.room = self.handed = 0
        self.syncer = ThreadPoolExecutor(1)
        self.syncing: Future[None] | None = None

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.syncer.shutdown()

    def write(self, block: bytes) -> None:
        """Append a block."""
        if self.end + len(block) > self.room:
            self.room = self.end + max(len(block), min(self.end, RESERVE_BYTES))
            if hasattr(os, "posix_fallocate"):
                with suppress(OSError):  # no room for this much, or not on this file system: writing will tell
                    os.posix_fallocate(self.file.fileno(), self.end, self.room - self.end)
        rest = memoryview(block)
        with self._named():
            while rest:  # past the file's own buffer: what is left there when the disk is full would fail once more
                rest = rest[os.write(self.file.fileno(), rest) :]
        self.end += len(block)
        if self.end - self.handed >= SYNC_BYTES and (self.syncing is None or self.syncing.done()):
            self._check()
            self.syncing = self.syncer.submit(os.fsync, self.file.fileno())
            self.handed = self.end

    def finish(self) -> None:
        """Give back the room that was not needed."""
        self.syncer.shutdown()
        self._check()
        os.ftruncate(self.file.fileno(), self.end)

    def _check(self) -> None:
        if self.syncing:
            with self._named():
                self.syncing.result()  # the kernel tells of a failed write-back once: no later sync would repeat it

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Calls on an open file do not say which one failed."""
        try:
            yield
        except OSError as e:
            raise OSError(e.errno, e.strerror, self.where) from e
