"""Variants' pixels: an image file to a square uint8 array as training decodes it, and that array as a file again.

What `squashed` gives is what training gets from the original at the same size with `decode = "exact"`: bit for bit
where nothing is resized, else within one level of 255 (Pillow's filter here, torch's there). The encoder of JPEG is
simplejpeg; its bytes may differ between releases.
"""

from __future__ import annotations

import io
import re

import numpy as np
import simplejpeg
from PIL import Image, ImageOps, UnidentifiedImageError

BROKEN = (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError)
"""What a damaged image raises in `squashed`."""

NPY_HEADER = 128
"""Bytes before the pixels of a raw member: a .npy header, version 1.0, padded as numpy.save pads it."""

SUBSAMPLING = "420"
"""Of the colour in a JPEG variant: what cameras and most data sets use."""

_MODES = {1: "L", 3: "RGB"}
_NPY = b"\x93NUMPY\x01\x00"
_SHAPE = re.compile(
    rb"\{'descr': '\|u1', 'fortran_order': False, 'shape': \(([0-9]{1,6}), ([0-9]{1,6}), ([0-9]{1,6})\), \} *\n"
)


def squashed(data: bytes, size: int, channels: int) -> np.ndarray:
    """Decode an image file upright and resize it to a square, without keeping its aspect.

    Parameters
    ----------
    data : an encoded file, or a member of a raw variant.
    size : the side in pixels; an image of that size is left as it is, any other is resized with Pillow's BILINEAR.
    channels : 1 (grey) or 3 (RGB).

    Returns uint8 [size, size, channels]. Raises one of BROKEN.
    """
    if data[:6] == _NPY[:6]:
        pixels = npy_pixels(data)
        if pixels.shape[2] != channels:
            pixels = _converted(Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels), channels)
    else:
        plain = _plain_jpeg(data, channels)
        pixels = plain if plain is not None else _with_pillow(data, channels)
    if pixels.shape[:2] != (size, size):
        flat = pixels[..., 0] if channels == 1 else pixels
        pixels = np.asarray(Image.fromarray(flat).resize((size, size), Image.Resampling.BILINEAR))
    return pixels.reshape(size, size, channels)


def _plain_jpeg(data: bytes, channels: int) -> np.ndarray | None:
    """A JPEG without EXIF, by the quicker decoder; None for anything else."""
    if data[:3] != b"\xff\xd8\xff" or b"Exif\x00" in data[:4096]:
        return None
    try:
        return simplejpeg.decode_jpeg(data, colorspace="GRAY" if channels == 1 else "RGB")
    except ValueError:
        return None  # Pillow decides, and names the damage


def _with_pillow(data: bytes, channels: int) -> np.ndarray:
    image = Image.open(io.BytesIO(data))
    if channels == 1 and image.format == "JPEG" and image.mode == "RGB":
        image.draft("L", image.size)  # the grey that is in the file, as of a JPEG without EXIF
    return _converted(ImageOps.exif_transpose(image), channels)


def _converted(image: Image.Image, channels: int) -> np.ndarray:
    if image.mode.startswith("I;16") or image.mode == "I":
        image = Image.fromarray((np.clip(np.asarray(image), 0, 65535) >> 8).astype(np.uint8))
    if image.mode != _MODES[channels]:
        image = image.convert(_MODES[channels])
    pixels = np.asarray(image)
    return pixels[..., None] if channels == 1 else pixels


def npy_bytes(pixels: np.ndarray) -> bytes:
    """The .npy file of uint8 [h, w, c]: the bytes that numpy.save writes."""
    described = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {pixels.shape}, }}"
    length = NPY_HEADER - len(_NPY) - 2
    head = _NPY + length.to_bytes(2, "little") + described.ljust(length - 1).encode() + b"\n"
    return head + np.ascontiguousarray(pixels, np.uint8).tobytes()


def npy_pixels(data: bytes) -> np.ndarray:
    """uint8 [h, w, c] of a raw member, without a copy. Raises ValueError for bytes that are none."""
    found = _SHAPE.fullmatch(data, len(_NPY) + 2, NPY_HEADER) if data.startswith(_NPY) else None
    if found is None:
        raise ValueError("this is no .npy file of uint8 [h, w, c] with a header of 128 bytes")
    height, width, channels = map(int, found.groups())
    if len(data) != NPY_HEADER + height * width * channels or channels not in _MODES:
        raise ValueError(f"{len(data)} bytes are not a header and {height} x {width} x {channels} bytes")
    return np.frombuffer(data, np.uint8, offset=NPY_HEADER).reshape(height, width, channels)


def jpeg_bytes(pixels: np.ndarray, quality: int) -> bytes:
    """The JPEG file of uint8 [h, w, c]."""
    grey = pixels.shape[2] == 1
    return bytes(
        simplejpeg.encode_jpeg(
            np.ascontiguousarray(pixels), quality, colorspace="GRAY" if grey else "RGB",
            colorsubsampling="Gray" if grey else SUBSAMPLING,
        )
    )  # fmt: skip
