"""Which rows repeat a text that an earlier row has, with 8 bytes a row where the texts are digests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NO_DIGIT = 255
_STEP = 1 << 20


def repeated(values: pa.ChunkedArray) -> np.ndarray:
    """bool [n]: whether an earlier row holds the same text.

    sha256 digests are compared by their first 64 bits, and those that agree there by all of them.
    """
    numbers = hex_prefix(values)
    if numbers is None:
        return _repeated_exactly(values)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    same = np.flatnonzero(ordered[1:] == ordered[:-1])
    again = np.zeros(len(numbers), bool)
    if len(same):
        alike = np.unique(order[np.concatenate([same, same + 1])])
        again[alike] = _repeated_exactly(values.take(pa.array(alike)))
    return again


def hex_prefix(values: pa.ChunkedArray) -> np.ndarray | None:
    """uint64 [n], the first 16 of 64 hex digits of each text; None where some text is no such digest."""
    if not pa.types.is_string(values.type) or values.null_count:
        return None
    found = np.zeros(len(values), np.uint64)
    done = 0
    for chunk in values.chunks:
        for start in range(0, len(chunk), _STEP):
            part = chunk.slice(start, _STEP)
            numbers = _prefix(part)
            if numbers is None:
                return None
            found[done : done + len(part)] = numbers
            done += len(part)
    return found


def _prefix(part: pa.Array) -> np.ndarray | None:
    _, offsets, data = part.buffers()
    at = np.frombuffer(offsets, np.int32, len(part) + 1, 4 * part.offset)
    if not (np.diff(at) == 64).all():
        return None
    digits = _digits()[np.frombuffer(data, np.uint8, 64 * len(part), int(at[0])).reshape(-1, 64)[:, :16]]
    if (digits == _NO_DIGIT).any():
        return None
    pairs = (digits[:, 0::2] << 4) | digits[:, 1::2]
    return np.ascontiguousarray(pairs).view(">u8").ravel().astype(np.uint64)


def _digits() -> np.ndarray:
    """uint8 [256]: the value of each character as a lower-case hex digit."""
    table = np.full(256, _NO_DIGIT, np.uint8)
    for value, character in enumerate(b"0123456789abcdef"):
        table[character] = value
    return table


def _repeated_exactly(values: pa.ChunkedArray) -> np.ndarray:
    numbers = pc.dictionary_encode(values.combine_chunks()).indices.to_numpy(zero_copy_only=False)
    again = np.ones(len(numbers), bool)
    again[np.unique(numbers, return_index=True)[1]] = False
    return again
