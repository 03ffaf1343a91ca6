"""Reader of idx files (the MNIST family's format), plain or gzipped, that trusts nothing the file says about itself.

An idx file is two zero bytes, a type byte, the number of dimensions, each dimension as a big-endian uint32, and then
the values in C order. Ten thousand labels and three images of 2 x 2::

    00 00 08 01 | 00 00 27 10                         | 10,000 bytes
    00 00 08 03 | 00 00 00 03  00 00 00 02  00 00 00 02 | 12 bytes
"""

from __future__ import annotations

import gzip
import math
import os
import stat
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from sevenfold.storage.errors import SevenfoldError

DEFAULT_MAX_BYTES = 1 << 30
"""The largest declared size read without being asked to (the 60,000 images of MNIST are 47 MB)."""

_GZIP_MAGIC = b"\x1f\x8b"
_UINT8 = 0x08
_TYPE_NAMES = {0x08: "uint8", 0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}
_MAX_DIMENSIONS = 4
# Deflate cannot do better than 258 bytes for 2 bits, so a gzip that declares more than this many times its size lies.
_MAX_DEFLATE_RATIO = 1032
_CHUNK = 1 << 20


def read_idx(path: str | os.PathLike[str], *, max_bytes: int = DEFAULT_MAX_BYTES) -> np.ndarray:
    """Read an idx file of unsigned bytes; gzip is recognised by its magic bytes, not by the suffix.

    The declared size is checked against `max_bytes` and against the file's own size before memory is asked for, and
    no more than one byte past the declared size is ever unpacked.

    Returns
    -------
    uint8 array in C order, owned and writable: [n] for labels, [n, h, w] or [n, h, w, c] for images.

    Raises
    ------
    SevenfoldError : not a regular file, not idx, another value type, more than 4 dimensions, a damaged gzip, fewer or
        more bytes than declared, or a declared size over `max_bytes`.
    OSError : the file cannot be opened.
    """
    path = Path(path)
    where = str(path)
    # Before opening: a named pipe that nobody writes to would hang.
    if not stat.S_ISREG(path.stat().st_mode):
        raise SevenfoldError("not a regular file", where=where, expected="an idx file", do="name the file itself")
    with open(path, "rb") as raw:
        size = os.fstat(raw.fileno()).st_size
        zipped = raw.read(2) == _GZIP_MAGIC
        raw.seek(0)
        limit = size * (_MAX_DEFLATE_RATIO if zipped else 1)
        if not zipped:
            return _parse(raw, where, limit, max_bytes)
        with gzip.GzipFile(fileobj=raw, mode="rb") as stream:
            try:
                return _parse(stream, where, limit, max_bytes)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise SevenfoldError(
                    f"the gzip stream is damaged or cut short ({error})",
                    where=where,
                    expected="a complete gzip file",
                    do="copy or download the file again and compare its digest",
                ) from error


def _parse(stream: BinaryIO | gzip.GzipFile, where: str, limit: int, max_bytes: int) -> np.ndarray:
    """Header, size checks, values; `limit` is the most bytes a file of this size can hold, header included."""
    shape = _read_shape(stream, where)
    declared = math.prod(shape)
    says = f"the header declares {_times(shape)} = {declared:,} bytes"
    if math.prod(max(d, 1) for d in shape) > max_bytes:
        raise SevenfoldError(
            says,
            where=where,
            expected=f"at most {max_bytes:,} bytes",
            do="if the file comes from someone you trust, raise the limit (read_idx(..., max_bytes=))",
        )
    if declared + 4 + 4 * len(shape) > limit:
        raise SevenfoldError(
            f"{says}, more than a file of this size can hold",
            where=where,
            expected="as many bytes of values as the header declares",
            do="the file is cut short or its header is wrong: copy or download it again and compare its digest",
        )
    values = np.empty(declared, dtype=np.uint8)
    view = values.data
    filled = 0
    while filled < declared:
        got = stream.readinto(view[filled : filled + _CHUNK])  # type: ignore[union-attr]
        if not got:
            raise SevenfoldError(
                f"{says} but only {filled:,} follow",
                where=where,
                expected="as many bytes of values as the header declares",
                do="the file is cut short: copy or download it again and compare its digest",
            )
        filled += got
    # At the end a gzip stream also checks its own checksum and length.
    if stream.read(1):
        raise SevenfoldError(
            f"{says} but more follow",
            where=where,
            expected="the end of the file after the last value",
            do="the header is wrong or another file was appended: get the file from its origin again",
        )
    return values.reshape(shape)


def _read_shape(stream: BinaryIO | gzip.GzipFile, where: str) -> tuple[int, ...]:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPE_NAMES or not magic[3]:
        raise SevenfoldError(
            f"the first bytes are {magic.hex(' ') or 'missing (the file is empty)'}",
            where=where,
            expected="an idx file: 00 00, a type byte (08 for unsigned bytes), the number of dimensions",
            do="check that this is the idx file itself, not a web page or an archive that holds it",
        )
    if magic[2] != _UINT8:
        raise SevenfoldError(
            f"the values are {_TYPE_NAMES[magic[2]]} (type byte {magic[2]:02x})",
            where=where,
            expected="uint8 (type byte 08): pixels or class numbers",
            do="write the values as unsigned bytes",
        )
    if magic[3] > _MAX_DIMENSIONS:
        raise SevenfoldError(
            f"the header declares {magic[3]} dimensions",
            where=where,
            expected="1 (labels), 3 (grey images) or 4 (colour images)",
            do="split the file into images of [h, w] or [h, w, channels]",
        )
    raw = stream.read(4 * magic[3])
    if len(raw) < 4 * magic[3]:
        raise SevenfoldError(
            f"the header ends after {4 + len(raw)} bytes",
            where=where,
            expected=f"{4 + 4 * magic[3]} bytes for {magic[3]} dimension(s)",
            do="the file is cut short: copy or download it again and compare its digest",
        )
    shape = tuple(int.from_bytes(raw[i : i + 4], "big") for i in range(0, len(raw), 4))
    if 0 in shape[1:]:  # a count of items that are nothing: billions of them would fit in any limit on bytes
        raise SevenfoldError(
            f"the header declares {_times(shape)} values: items without any content",
            where=where,
            expected="every dimension after the first at least 1",
            do="get the file from its origin again",
        )
    return shape


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{d:,}" for d in shape)
