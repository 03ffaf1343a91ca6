"""One shard against its name, its size and the index, in one pass.

The bytes are hashed block by block, and while a block is in the processor's cache the headers that the index promises
in it are picked out; all of them are compared at once at the end. Only what does not fit is looked at closely
(damage.py).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage import tar
from sevenfold.storage.damage import Member

READ = 1 << 20
"""Bytes per read: a multiple of a tar's block, and small enough to stay in the cache while it is hashed."""

_ID, _NAME, _HEAD, _CONTENT = 64, 100, 160, 8
"""Bytes of an id; of a header that hold the name; that say all of a regular file; of a `.cls` that are compared."""


@dataclass(frozen=True)
class Members:
    """The members that the index promises of one shard, by offset.

    `names` uint8 [n, 100], `offsets` and `sizes` int64 [n], `numbers` int64 [n]: the class number that a `.cls`
    member should hold, -1 for the others, -2 for one that no label explains; `problems`: what cannot be in a shard.
    """

    names: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray
    numbers: np.ndarray
    problems: tuple[str, ...] = ()

    @staticmethod
    def of(rows: pa.Table, classes: Sequence[str]) -> Members:
        """From the index rows of one shard."""
        components = rows["components"].combine_chunks()
        parents = pc.list_parent_indices(components)
        parts = pc.list_flatten(components)
        exts = [rows["ext"].combine_chunks(), parts.field("ext")]
        ids = rows["id"].combine_chunks()
        offsets = np.concatenate([_ints(rows["offset"]), _ints(parts.field("offset"))])
        sizes = np.concatenate([_ints(rows["size"]), _ints(parts.field("size"))])
        number = pc.fill_null(pc.index_in(rows["label"].combine_chunks(), value_set=pa.array(classes, pa.string())), -2)
        labels = np.where(pc.equal(exts[1], "cls").fill_null(False).to_numpy(zero_copy_only=False),
                          number.take(parents).to_numpy(zero_copy_only=False), -1)  # fmt: skip
        numbers = np.concatenate([np.full(len(ids), -1), labels]).astype(np.int64)
        packed = _ids(ids)
        image_tails, other_tails = (_tails(e) for e in exts)
        if packed is None or image_tails is None or other_tails is None:
            problem = "not every id is 64 characters with a short extension: such a name fits no header"
            return Members(np.zeros((len(offsets), _NAME), np.uint8), offsets, sizes, numbers, (problem,))
        names = np.empty((len(offsets), _NAME), np.uint8)
        order = np.argsort(offsets, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        images, others = np.split(place, [len(ids)])
        for where, some, tail in (
            (images, packed, image_tails), (others, packed[parents.to_numpy()], other_tails),
        ):  # fmt: skip
            names[where, :_ID] = some
            names[where, _ID:] = tail
        return Members(names, offsets[order], sizes[order], numbers[order])

    def listed(self) -> list[Member]:
        """The same as objects, for a close look."""
        columns = (c.tolist() for c in (self.offsets, self.sizes, self.numbers))
        return [
            Member(name.tobytes().rstrip(b"\0"), offset, size, b"%d" % number if number >= 0 else None)
            for name, offset, size, number in zip(self.names, *columns, strict=True)
        ]

    def in_headers(self, heads: np.ndarray) -> bool:
        """Whether these are the first 160 bytes of every header, uint8 [n, 160]."""
        words, names = heads.view("<u4"), self.names.view("<u4")
        high, middle, low = self.sizes >> 21, (self.sizes >> 9) & 0o7777, self.sizes & 0o777
        four, three, two = _octal(4, b""), _octal(3, b"\0"), _octal(2, b"\0 ")
        sums = np.einsum("ij->i", self.names, dtype=np.int32) + _REST
        sums += four[1][high] + four[1][middle] + three[1][low]
        return (
            np.array_equal(words[:, :25], names)
            and np.array_equal(words[:, 31], four[0][high])
            and np.array_equal(words[:, 32], four[0][middle])
            and np.array_equal(words[:, 33], three[0][low])
            and np.array_equal(words[:, 37], four[0][sums >> 6])
            and np.array_equal(words[:, 38], two[0][sums & 0o77])
            and all(bool((words[:, part] == _TEMPLATE[part]).all()) for part in _FIXED)
        )

    def tile(self, length: int) -> bool:
        """Whether they lie one behind the other from the first byte to the end blocks of a file of this length."""
        if not len(self.offsets):
            return False
        starts = self.offsets - tar.BLOCK
        after = self.offsets + self.sizes + (-self.sizes % tar.BLOCK)
        return bool(
            starts[0] == 0 and (starts[1:] == after[:-1]).all() and after[-1] + len(tar.END) == length
            and (self.sizes >= 0).all() and (self.sizes <= tar.MAX_MEMBER).all()
        )  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """What one pass over a shard tells: the digest and number of its bytes, and whether the index describes them."""

    digest: str
    bytes: int
    fits: bool


def scan(file: BinaryIO, members: Members | None, classes: int) -> Seen:
    """Hash a shard and, with `members`, compare every header, every `.cls` and the end blocks with the index."""
    h = hashlib.sha256()
    buffer = bytearray(READ)
    view = memoryview(buffer)
    picks: list[_Pick] = []
    if members is not None:
        labels, blocks = members.numbers != -1, np.frombuffer(buffer, np.uint8).reshape(-1, tar.BLOCK)
        places = ((members.offsets - tar.BLOCK, _HEAD), (members.offsets[labels], _CONTENT))
        picks = [_Pick(p, width, blocks) for p, width in places]
    at, tail = 0, b""
    while n := _fill(file, view):
        h.update(view[:n])
        for pick in picks:
            pick.take(at // READ)
        tail = (tail + bytes(view[max(0, n - len(tar.END)) : n]))[-len(tar.END) :]
        at += n
    if members is None:
        return Seen(h.hexdigest(), at, False)
    heads, contents = picks
    fits = (
        not members.problems
        and members.tile(at)
        and tail == tar.END
        and members.in_headers(heads.taken)
        and _labels_fit(contents.taken, members.numbers[labels], members.sizes[labels], classes)
    )
    return Seen(h.hexdigest(), at, fits)


class _Pick:
    """Collects the first `width` bytes from each of some places (multiples of 512, ascending) as blocks go by."""

    def __init__(self, places: np.ndarray, width: int, blocks: np.ndarray) -> None:
        self.taken = np.zeros((len(places), width), np.uint8)
        self._blocks = blocks[:, :width]
        if (places % tar.BLOCK == 0).all() and (places >= 0).all():  # else the index lies, and the comparison fails
            read, within = np.divmod(places // tar.BLOCK, len(blocks))
            self._within = within
            numbers, starts = np.unique(read, return_index=True)
            ends = [*starts[1:].tolist(), len(places)][: len(starts)]
            self._spans = dict(zip(numbers.tolist(), zip(starts.tolist(), ends, strict=True), strict=True))
        else:
            self._spans = {}

    def take(self, read: int) -> None:
        """Pick from the buffer, which holds this read."""
        if span := self._spans.get(read):
            first, last = span
            self.taken[first:last] = self._blocks[self._within[first:last]]


def _labels_fit(found: np.ndarray, numbers: np.ndarray, sizes: np.ndarray, classes: int) -> bool:
    if not len(numbers):
        return True
    if numbers.min() < 0 or numbers.max() >= classes:
        return False
    texts = np.array([b"%d" % i for i in range(classes)], f"S{_CONTENT}")
    lengths = np.char.str_len(texts)
    return bool(np.array_equal(found, texts.view(np.uint8).reshape(-1, _CONTENT)[numbers])
                and np.array_equal(sizes, lengths[numbers]))  # fmt: skip


def _ids(ids: pa.Array) -> np.ndarray | None:
    """uint8 [n, 64], or None when one of them is of another length."""
    if ids.null_count or not pc.all(pc.equal(pc.binary_length(ids), _ID)).as_py():
        return None if len(ids) else np.zeros((0, _ID), np.uint8)
    _, offsets, data = ids.buffers()
    start = int(np.frombuffer(offsets, np.int32, 1, 4 * ids.offset)[0])
    return np.frombuffer(data, np.uint8, len(ids) * _ID, start).reshape(-1, _ID)


def _tails(exts: pa.Array) -> np.ndarray | None:
    """What follows the id in a header's name, uint8 [n, 36] of `.png` and zeros, or None when one does not fit."""
    encoded = exts.dictionary_encode()
    texts = [b"." + e.encode() for e in encoded.dictionary.to_pylist()]
    if exts.null_count or any(len(t) > _NAME - _ID for t in texts):
        return None
    table = np.array([*texts, b""], f"S{_NAME - _ID}").view(np.uint8).reshape(-1, _NAME - _ID)
    return table[encoded.indices.to_numpy()]


def _ints(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    return pc.fill_null(column, -1).to_numpy().astype(np.int64)


@functools.cache
def _octal(digits: int, after: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Of every number of so many octal digits: its ASCII and `after` as one uint32, and the sum of its digits' codes.

    A header is compared in words of four bytes, and its fields happen to begin and end on them.
    """
    numbers = range(8**digits)
    texts = np.frombuffer(b"".join(b"%0*o" % (digits, i) + after for i in numbers), "<u4")
    return texts, texts.view(np.uint8).reshape(-1, 4)[:, :digits].sum(1, dtype=np.int32)


_TEMPLATE = np.frombuffer(tar.header(b"", 0)[:_HEAD], "<u4")
_FIXED = (slice(25, 31), slice(34, 37), slice(39, 40))
"""The words of a header that are the same for every member: owner and mode; time; type and the signs behind it."""

_REST = sum(tar.header(b"", 0)[:124] + tar.header(b"", 0)[135:148] + tar.header(b"", 0)[156:]) + 8 * 0x20
"""What all but name and size adds to a header's checksum, whose own bytes count as spaces."""


def _fill(file: BinaryIO, view: memoryview) -> int:
    """Read until the buffer is full or the file ends: raw files may return less than is asked for."""
    n = 0
    while n < len(view):
        got = file.readinto(view[n:])  # type: ignore[attr-defined]  # every binary file has it
        if not got:
            break
        n += got
    return n
