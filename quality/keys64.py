"""Long text keys (ids, digests) as 64-bit numbers, so that 10^7 of them are compared in a second and 80 MB.

Two different keys may share a number (for digests: one pair in 10^5 tables of 10^7), so whoever finds equal numbers
compares the few keys themselves. See `repeated` for how.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: its multiples are spread evenly (Knuth, volume 3, 6.4)."""

_WORDS = 4
"""Of eight characters each, from both ends of a key: 128 bits of a hex digest."""


def numbers(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """uint64 [n]: equal keys have equal numbers; a null is 0.

    Digests, which are all of one length, are read where they lie; other keys are numbered in order of appearance, so
    that numbers of two columns compare only when both hold keys of one length.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    width = one_width(column)
    if not width:
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        codes = whole.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return (codes.astype(np.int64) + 1).astype(np.uint64)
    parts = [_of_digests(chunk, width) for chunk in chunks if len(chunk)]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def one_width(column: pa.ChunkedArray | pa.Array) -> int:
    """The length in bytes of every key when all have the same of at least 32 and none is null; else 0."""
    if not len(column) or not pa.types.is_string(column.type) or column.null_count:
        return 0
    least, most = pc.min_max(pc.binary_length(column)).as_py().values()
    return int(least) if least == most and least >= 8 * _WORDS else 0


def repeated(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """bool [n]: the key is there more than once; a null is not."""
    n = len(column)
    found = np.zeros(n, bool)
    if not n:
        return found
    keys = numbers(column)
    ordered = np.sort(keys)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    del ordered
    twice = twice[twice > 0] if column.null_count else twice
    if not len(twice):
        return found
    places = np.flatnonzero(member(keys, twice))
    codes = pc.take(pa.chunked_array([column]) if isinstance(column, pa.Array) else column, pa.array(places))
    codes = codes.combine_chunks().dictionary_encode().indices.to_numpy()
    found[places] = np.bincount(codes)[codes] > 1
    return found


def member(keys: np.ndarray, among: np.ndarray) -> np.ndarray:
    """bool [n]: whether each key (uint64 [n]) is among some others, which are sorted."""
    if not len(among):
        return np.zeros(len(keys), bool)
    out = np.empty(len(keys), bool)
    for start in range(0, len(keys), _STEP):
        part = keys[start : start + _STEP]
        order = np.argsort(part)  # looking up in order stays within the cache
        part = part[order]
        place = np.minimum(np.searchsorted(among, part), len(among) - 1)
        out[start + order] = among[place] == part
    return out


def among(column: pa.ChunkedArray, others: pa.ChunkedArray) -> np.ndarray:
    """bool [n]: whether each key is among some others; a null is not.

    Digests are compared by their numbers alone: of 10^7 keys beside 10^7 others one is mistaken once in 10^5 times.
    """
    width = one_width(column)
    if not width or width != one_width(others):
        there = pc.and_(pc.is_valid(column), pc.is_in(column, value_set=others.combine_chunks()))
        return np.asarray(there.to_numpy(zero_copy_only=False))
    known = numbers(others)
    known.sort()
    return member(numbers(column), known)


def places(column: pa.ChunkedArray, others: pa.ChunkedArray) -> np.ndarray:
    """int64 [n]: the place of each key among some others, each of which is there once; -1 for none. As `among`."""
    width = one_width(column)
    if not width or width != one_width(others):
        there = pc.index_in(column, value_set=others.combine_chunks(), skip_nulls=True)
        return np.asarray(pc.fill_null(there, -1).to_numpy().astype(np.int64))
    known = numbers(others)
    order = np.argsort(known)
    known = known[order]
    keys = numbers(column)
    out = np.empty(len(keys), np.int64)
    for start in range(0, len(keys), _STEP):
        part = keys[start : start + _STEP]
        sort = np.argsort(part)  # as in `member`
        part = part[sort]
        place = np.minimum(np.searchsorted(known, part), len(known) - 1)
        out[start + sort] = np.where(known[place] == part, order[place], -1)
    return out


_STEP = 1 << 20
"""Keys looked up at once."""


def _of_digests(chunk: pa.Array, width: int) -> np.ndarray:
    _, offsets, data = chunk.buffers()
    first = int(np.frombuffer(offsets, np.int32, 1, chunk.offset * 4)[0])
    text = np.frombuffer(data, np.uint8, len(chunk) * width, first).reshape(-1, width)
    out = np.empty(len(chunk), np.uint64)
    for start in range(0, len(chunk), _STEP):
        part = text[start : start + _STEP]
        mixed = np.zeros(len(part), np.uint64)
        for at in (0, 8, width - 16, width - 8):
            word = np.ascontiguousarray(part[:, at : at + 8]).view(np.uint64).ravel()
            mixed = (mixed ^ word) * _SPREAD
            mixed ^= mixed >> np.uint64(29)
        out[start : start + _STEP] = np.maximum(mixed, 1)
    return out
