"""Variants' pixels: an image file to a square uint8 array as training decodes it, and that array as a JPEG again.

What `squashed` gives is what training gets from the original at the same size with `decode = "exact"`: bit for bit
where nothing is resized, else within one level of 255 (Pillow's filter here, torch's there). The encoder of JPEG is
simplejpeg; its bytes may differ between releases.
"""

from __future__ import annotations

import numpy as np
import simplejpeg
from PIL import Image

from sevenfold.storage.decode import EVERYTHING, decode
from sevenfold.storage.npy import MAGIC, npy_pixels
from sevenfold.storage.sources import InputError

SUBSAMPLING = "420"
"""Of the colour in a JPEG variant: what cameras and most data sets use."""


def squashed(data: bytes, size: int, channels: int) -> np.ndarray:
    """Decode an image file upright and resize it to a square, without keeping its aspect.

    Parameters
    ----------
    data : an encoded file, or a member of a raw variant.
    size : the side in pixels; an image of that size is left as it is, any other is resized with Pillow's BILINEAR.
    channels : 1 (grey) or 3 (RGB).

    Returns uint8 [size, size, channels]. Raises InputError for what is damaged or no image.
    """
    if data[: len(MAGIC)] == MAGIC:
        try:
            pixels = npy_pixels(data, channels)
        except ValueError as e:
            raise InputError("unreadable", str(e)) from None
    else:
        pixels = decode(data, "", channels, EVERYTHING).pixels
    if pixels.shape[:2] != (size, size):
        flat = pixels.reshape(pixels.shape[:2]) if channels == 1 else pixels
        pixels = np.asarray(Image.fromarray(flat).resize((size, size), Image.Resampling.BILINEAR))
    return pixels.reshape(size, size, channels)


def jpeg_bytes(pixels: np.ndarray, quality: int) -> bytes:
    """The JPEG file of uint8 [h, w, c]."""
    grey = pixels.shape[2] == 1
    return bytes(
        simplejpeg.encode_jpeg(
            np.ascontiguousarray(pixels), quality, colorspace="GRAY" if grey else "RGB",
            colorsubsampling="Gray" if grey else SUBSAMPLING,
        )
    )  # fmt: skip
