"""Decoding: image bytes to a uint8 array of the size and channels the model wants, by the quickest reader there is."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from sevenfold.storage.resize import npy_pixels

_JPEG = b"\xff\xd8\xff"
_NPY = b"\x93NUMPY"
_MODES = {1: "L", 3: "RGB"}
BROKEN = (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError)
"""What a damaged or hostile image raises in :func:`decode`."""


def decode(data: bytes, size: int, channels: int) -> np.ndarray:
    """Decode one image.

    Parameters
    ----------
    data : the encoded file (JPEG, PNG, or anything Pillow reads).
    size : the side of the square it is resized to, if it is not of that size already.
    channels : 1 (grey) or 3 (RGB); other modes are converted. EXIF orientation is applied, once.

    Returns
    -------
    uint8 [size, size, channels]

    Raises
    ------
    One of BROKEN when the bytes are no image.
    """
    pixels = None
    if data[:3] == _JPEG:
        pixels = _decode_jpeg(data, channels)
    elif data[:6] == _NPY:  # a member of a raw variant
        pixels = npy_pixels(data)
        if pixels.shape[2] != channels:
            pixels = _pixels(Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels), channels)
    if pixels is None:
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        pixels = _pixels(image, channels)
    if pixels.shape[:2] != (size, size):
        flat = pixels[..., 0] if channels == 1 else pixels
        pixels = np.asarray(Image.fromarray(flat).resize((size, size), Image.Resampling.BILINEAR))
    return pixels.reshape(size, size, channels)


def _decode_jpeg(data: bytes, channels: int) -> np.ndarray | None:
    """simplejpeg, several times quicker than Pillow; None for what it does not do (EXIF orientation, CMYK)."""
    if b"Exif\x00" in data[:4096]:
        return None
    import simplejpeg

    try:
        return simplejpeg.decode_jpeg(data, colorspace="GRAY" if channels == 1 else "RGB")
    except ValueError:
        return None  # Pillow decides, and names the damage


def _pixels(image: Image.Image, channels: int) -> np.ndarray:
    if image.mode.startswith("I;16") or image.mode == "I":
        wide = np.asarray(image)
        image = Image.fromarray((np.clip(wide, 0, 65535) >> 8).astype(np.uint8))
    if image.mode != _MODES[channels]:
        image = image.convert(_MODES[channels])
    pixels = np.asarray(image)
    return pixels[..., None] if channels == 1 else pixels
