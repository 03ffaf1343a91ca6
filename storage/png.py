"""Deterministic PNG writer: stored deflate blocks packed by hand, so the bytes depend on the pixels alone.

Compressors differ between libraries and releases, and a sample's id is the digest of its bytes. Array sources therefore
become PNGs that are not compressed at all: five bytes per 65,535, one filter byte per row and 63 bytes of frame more
than the raw pixels. Any PNG reader opens them.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from sevenfold.storage.errors import SevenfoldError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_STORED_MAX = 0xFFFF
_ZLIB_HEADER = b"\x78\x01"  # deflate, 32 KiB window, no dictionary, "fastest"; 0x7801 is a multiple of 31 as it must be
_MAX_CHUNK = 0x7FFFFFFF  # PNG's own limit on a chunk's length
_COLOUR_TYPES = {1: 0, 3: 2}  # channels -> greyscale, truecolour


def encode_png(pixels: np.ndarray) -> bytes:
    """Encode 8-bit pixels as a PNG whose bytes are a pure function of shape and values.

    Parameters
    ----------
    pixels : uint8 [h, w] (greyscale) or [h, w, 3] (RGB), any strides.

    Returns
    -------
    A complete PNG: IHDR, one IDAT of stored blocks (filter 0 on every row), IEND; no time, text or colour profile.

    Raises
    ------
    SevenfoldError : another dtype or shape, an empty image, or one over PNG's 2 GiB chunk.
    """
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise SevenfoldError(
            f"an array of {pixels.dtype} {list(pixels.shape)}",
            expected="uint8 [h, w] (grey) or [h, w, 3] (RGB)",
            do="convert to 8-bit grey or RGB first",
        )
    height, width = pixels.shape[:2]
    if not height or not width:
        raise SevenfoldError(
            f"an image without pixels: {list(pixels.shape)}",
            expected="at least 1 x 1",
            do="leave empty images out",
        )
    channels = 1 if pixels.ndim == 2 else 3
    size = height * (1 + width * channels)
    if size + 5 * (size // _STORED_MAX + 1) + 6 > _MAX_CHUNK:
        raise SevenfoldError(
            f"an image of {width:,} x {height:,} pixels",
            expected="at most 2 GiB of pixels",
            do="cut the image into tiles",
        )
    rows = np.zeros((height, 1 + width * channels), dtype=np.uint8)  # column 0 is the filter byte, 0 = none
    rows[:, 1:] = pixels.reshape(height, width * channels)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    return b"".join(
        (SIGNATURE, _chunk(b"IHDR", header), _chunk(b"IDAT", _stored_zlib(rows.tobytes())), _chunk(b"IEND", b""))
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    """Length, kind, data, CRC-32 of kind and data (PNG specification, 5.3)."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))


def _stored_zlib(data: bytes) -> bytes:
    """A zlib stream (RFC 1950) of stored blocks (RFC 1951, 3.2.4): final flag, length, its complement, the bytes."""
    parts = [_ZLIB_HEADER]
    for start in range(0, len(data), _STORED_MAX):
        block = data[start : start + _STORED_MAX]
        final = start + _STORED_MAX >= len(data)
        parts += (struct.pack("<BHH", final, len(block), len(block) ^ 0xFFFF), block)
    parts.append(struct.pack(">I", zlib.adler32(data)))
    return b"".join(parts)
