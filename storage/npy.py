"""Raw members: uint8 pixels as a `.npy` file with a header of 128 bytes, as numpy.save writes it.

They are read by hand, since `numpy.load` evaluates a header, which a stranger may have written.
"""

from __future__ import annotations

import re

import numpy as np
from PIL import Image

MAGIC = b"\x93NUMPY"

HEADER = 128
"""Bytes before the pixels: version 1.0, padded as numpy.save pads it."""

_START = MAGIC + b"\x01\x00" + (HEADER - 10).to_bytes(2, "little")
_SHAPE = re.compile(
    rb"\{'descr': '\|u1', 'fortran_order': False, 'shape': \(([1-9][0-9]{0,5}), ([1-9][0-9]{0,5}), ([13])\), \} *\n"
)


def npy_bytes(pixels: np.ndarray) -> bytes:
    """The file of uint8 [h, w, 1 or 3]."""
    described = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {pixels.shape}, }}"
    head = _START + described.ljust(HEADER - len(_START) - 1).encode() + b"\n"
    return head + np.ascontiguousarray(pixels, np.uint8).tobytes()


def npy_pixels(data: bytes | memoryview, channels: int) -> np.ndarray:
    """uint8 [h, w, channels] of a raw member, grey or RGB; without a copy where it has as many channels.

    Raises ValueError for bytes that are none.
    """
    found = _SHAPE.fullmatch(data, len(_START), HEADER) if data[: len(_START)] == _START else None
    if found is None:
        raise ValueError("this is no .npy file of uint8 [h, w, 1 or 3] in C order with a header of 128 bytes")
    height, width, depth = map(int, found.groups())
    if len(data) != HEADER + height * width * depth:
        raise ValueError(f".npy: {len(data)} bytes are not a header and {height} x {width} x {depth} pixels")
    pixels = np.frombuffer(data, np.uint8, offset=HEADER).reshape(height, width, depth)
    if depth == channels:
        return pixels
    if channels == 3:
        return np.repeat(pixels, 3, axis=2)
    return np.asarray(Image.fromarray(pixels).convert("L"))[..., None]
