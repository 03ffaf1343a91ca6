"""USTAR members packed by hand: the same samples give the same bytes on every machine and Python release.

Source: POSIX.1-1988 ustar interchange format. Time, owner and mode are fixed; keys are sample ids, so a name never
needs PAX headers.
"""

from __future__ import annotations

import functools

BLOCK = 512
END = bytes(2 * BLOCK)
MAX_MEMBER = 8**11 - 1
"""Bytes: the largest size an 11-digit octal field can say."""


_REST = b"0" + bytes(100) + b"ustar\0" + b"00" + bytes(32 + 32 + 8 + 8 + 155 + 12)
"""A regular file, no link, version 00; no owner names, devices or prefix."""


@functools.cache
def _template(name_length: int) -> tuple[bytes, bytes, int]:
    """(bytes after the name up to the size, bytes after the size up to the checksum's place, their checksum share)."""
    before = bytes(100 - name_length) + b"0000644\0" + b"0000000\0" * 2
    after_size = b"00000000000\0"  # mtime 0
    share = sum(before) + sum(after_size) + 8 * 0x20 + sum(_REST)
    return before, after_size, share


def header(name: bytes, size: int) -> bytes:
    """The 512-byte header of a regular file; raises ValueError for a name over 100 bytes or a size over 8 GiB."""
    if len(name) > 100 or not 0 <= size <= MAX_MEMBER:
        raise ValueError(f"member {name!r} of {size} bytes does not fit a USTAR header")
    before, after_size, share = _template(len(name))
    octal = b"%011o\0" % size
    checksum = share + sum(name) + sum(octal)
    return name + before + octal + after_size + b"%06o\0 " % checksum + _REST


def padding(size: int) -> bytes:
    """Zeros that fill `size` bytes of data up to the next block."""
    return bytes(-size % BLOCK)


def member_length(size: int) -> int:
    """Bytes that a member of `size` bytes occupies, header and padding included."""
    return BLOCK + size + (-size % BLOCK)
