"""USTAR members packed by hand: the same samples give the same bytes on every machine and Python release.

Source: POSIX.1-1988 ustar interchange format. Time, owner and mode are fixed; keys are sample ids, so a name never
needs PAX headers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BLOCK = 512
END = bytes(2 * BLOCK)
MAX_MEMBER = 8**11 - 1
"""Bytes: the largest size an 11-digit octal field can say."""


def header(name: bytes, size: int) -> bytes:
    """The 512-byte header of a regular file; raises ValueError for a name over 100 bytes or a size over 8 GiB."""
    return heads([name], np.array([size], np.int64))[0] + TAIL


def heads(names: Sequence[bytes], sizes: np.ndarray) -> list[bytes]:
    """What differs between headers of regular files: their first 156 bytes, TAIL follows; `sizes` int64 [n] in bytes.

    Raises ValueError for a name over 100 bytes or a size over 8 GiB.
    """
    n = len(names)
    if n and (max(map(len, names)) > _NAME or sizes.min() < 0 or sizes.max() > MAX_MEMBER):
        bad = next(i for i in range(n) if len(names[i]) > _NAME or not 0 <= sizes[i] <= MAX_MEMBER)
        raise ValueError(f"member {names[bad]!r} of {sizes[bad]} bytes does not fit a USTAR header")
    made = np.empty((n, len(_BLANK)), np.uint8)
    made[:] = _BLANK
    made[:, :_NAME] = np.array(names, f"S{_NAME}").view(np.uint8).reshape(n, _NAME)
    made[:, _SIZE : _SIZE + 11] = _octal(sizes, 11)
    sums = np.einsum("ij->i", made, dtype=np.int64) + sum(TAIL)
    made[:, _SUM : _SUM + 6] = _octal(sums, 6)
    made[:, _SUM + 6] = 0
    return made.view(f"S{len(_BLANK)}").ravel().tolist()  # each ends with a space, so that numpy drops nothing


def _octal(values: np.ndarray, digits: int) -> np.ndarray:
    """ASCII octal digits, uint8 [n, digits], of int64 [n]."""
    return ((values[:, None] >> np.arange(3 * digits - 3, -1, -3)) & 7).astype(np.uint8) + ord("0")


_NAME, _SIZE, _SUM = 100, 124, 148
"""Length of the name; places of the size and of the checksum, which counts its own eight bytes as spaces."""

_BLANK = np.frombuffer(
    bytes(_NAME) + b"0000644\0" + b"0000000\0" * 2 + b"00000000000\0" * 2 + b" " * 8, np.uint8
)  # fmt: skip
"""No name and no size yet: mode 644, owner 0, time 0."""

TAIL = b"0" + bytes(100) + b"ustar\0" + b"00" + bytes(32 + 32 + 8 + 8 + 155 + 12)
"""A regular file, no link, version 00; no owner names, devices or prefix."""


def padding(size: int) -> bytes:
    """Zeros that fill `size` bytes of data up to the next block."""
    return bytes(-size % BLOCK)


def member_length(size: int) -> int:
    """Bytes that a member of `size` bytes occupies, header and padding included."""
    return BLOCK + size + (-size % BLOCK)
