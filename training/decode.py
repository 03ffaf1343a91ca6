"""Decoding: image bytes to a uint8 array of the size and channels the model wants, by the quickest reader there is."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
import simplejpeg
import torch
import torch.nn.functional as F
from PIL import Image

from sevenfold.storage.decode import MAX_PIXELS

Scaling = Literal["scaled", "exact"]
"""`scaled`: a JPEG at least twice too large in both directions after halving comes out of libjpeg smaller (1/2, 3/8,
1/4, 1/8 by its inverse DCT) before it is resized. `exact`: it is decoded whole."""
REDUCING_GAP = 2
"""How much larger than wanted a scaled JPEG still is: Pillow's own choice in `Image.thumbnail`."""

_JPEG = b"\xff\xd8\xff"
_APP1 = b"\xff\xe1"
"""Begins EXIF and XMP segments. It cannot occur in a JPEG's compressed data, where no 0xFF stands before 0xE1."""
_NUMPY = b"\x93NUMPY"
_NUMPY_HEADER = re.compile(rb"\{'descr': '\|u1', 'fortran_order': False, 'shape': \((\d+), (\d+)(?:, (\d+))?\), \} *\n")
_MODES = {1: "L", 3: "RGB"}
_COLOURS = {1: "GRAY", 3: "RGB"}
_ORIENTATION = 0x0112
_UPRIGHT = {
    2: lambda p: p[:, ::-1],
    3: lambda p: p[::-1, ::-1],
    4: lambda p: p[::-1],
    5: lambda p: p.swapaxes(0, 1),
    6: lambda p: p.swapaxes(0, 1)[:, ::-1],
    7: lambda p: p.swapaxes(0, 1)[::-1, ::-1],
    8: lambda p: p.swapaxes(0, 1)[::-1],
}
"""From pixels as stored to pixels as seen, by EXIF orientation."""


class Undecodable(ValueError):
    """The bytes are no image that can be decoded; the message says why."""


def decode(data: bytes, size: int, channels: int, scaling: Scaling = "scaled") -> np.ndarray:
    """Decode one image.

    Parameters
    ----------
    data : the encoded file: JPEG, PNG or anything else Pillow reads, or a `.npy` file of uint8 [h, w] or [h, w, c].
    size : the side of the square it is resized to (bilinear, antialiased), if it is not of that size already.
    channels : 1 (grey) or 3 (RGB); other modes are converted. EXIF orientation is applied, once.
    scaling : see :data:`Scaling`.

    Returns
    -------
    uint8 [size, size, channels]

    Raises
    ------
    Undecodable when the bytes are damaged, hostile or no image.
    """
    if data.startswith(_JPEG):
        turn = _orientation(data) if _APP1 in data else 1
        pixels = _decode_jpeg(data, size, channels, scaling)
    else:
        turn, pixels = 1, _decode_numpy(data, channels) if data.startswith(_NUMPY) else None
    if pixels is None:
        turn, pixels = _decode_pillow(data, channels)
    if pixels.shape[:2] != (size, size):
        pixels = resize(pixels, size)
    # turned last: a square stays one, and this is the smallest it gets
    return np.ascontiguousarray(_UPRIGHT[turn](pixels)) if turn != 1 else pixels


def decode_into(
    images: np.ndarray, slots: Sequence[int], files: Sequence[bytes | None], scaling: Scaling = "scaled"
) -> list[int]:
    """Decode files into `images[slots]`; the slots where that failed are returned, their pixels are undefined.

    An upright JPEG of the batch's own size goes straight to its place: libjpeg refuses one that is larger than the
    place, so that no header has to be read before.

    Parameters
    ----------
    images : uint8 [b, size, size, channels], C order
    slots : [n]; files : [n], None is skipped and not a failure of decoding.
    """
    size, channels = images.shape[1], images.shape[3]
    step, flat = size * size * channels, memoryview(images.reshape(-1))
    shape, colour, jpeg = (size, size, channels), _COLOURS[channels], simplejpeg.decode_jpeg
    failed = []
    for slot, data in zip(slots, files, strict=True):
        if data is None:
            continue
        if data.startswith(_JPEG) and _APP1 not in data:
            place = flat[slot * step : (slot + 1) * step]
            try:
                if jpeg(data, colour, False, False, 0, 0, 1, place).shape == shape:
                    continue
            except ValueError:
                pass  # larger than its place, or damaged: the long way tells
        try:
            images[slot] = decode(data, size, channels, scaling)
        except Undecodable:
            failed.append(slot)
    return failed


def resize(pixels: np.ndarray, size: int) -> np.ndarray:
    """uint8 [h, w, c] -> [size, size, c], bilinear and antialiased; Pillow's result within 1, four times as fast."""
    if not pixels.flags.writeable:
        pixels = pixels.copy()
    planes = torch.from_numpy(pixels).permute(2, 0, 1).unsqueeze(0)
    small = F.interpolate(planes, (size, size), mode="bilinear", antialias=True)
    return small[0].permute(1, 2, 0).numpy()


def _decode_jpeg(data: bytes, size: int, channels: int, scaling: Scaling) -> np.ndarray | None:
    """simplejpeg, several times quicker than Pillow; None for what it does not like: Pillow decides, and names it."""
    try:
        height, width, *_ = simplejpeg.decode_jpeg_header(data)
        _check_pixels(width, height)
        least = REDUCING_GAP * size if scaling == "scaled" else 0
        if scaling == "scaled" and least < min(height, width):
            return simplejpeg.decode_jpeg(data, _COLOURS[channels], False, False, least, least, 2)
        return simplejpeg.decode_jpeg(data, _COLOURS[channels])
    except Undecodable:
        raise
    except ValueError:
        return None


def _decode_numpy(data: bytes, channels: int) -> np.ndarray:
    """A `.npy` file by hand: `numpy.load` would evaluate its header and may unpickle."""
    at = {1: 10, 2: 12}.get(data[6], 0) if len(data) > 12 else 0
    length = int.from_bytes(data[8:at], "little") if at else 0
    header = _NUMPY_HEADER.fullmatch(data, at, at + length) if at and at + length <= len(data) else None
    if header is None:
        raise Undecodable("the .npy header is not that of a uint8 array [h, w] or [h, w, c] in C order")
    height, width, depth = (int(g) for g in header.groups(default=b"1"))
    if not height or not width or depth not in (1, 3):
        raise Undecodable(f"a .npy array of shape {height} x {width} x {depth}: expected pixels of 1 or 3 channels")
    if height * width * depth != len(data) - at - length:
        raise Undecodable(f"the .npy header says {height} x {width} x {depth}, {len(data) - at - length} bytes follow")
    pixels = np.frombuffer(data, np.uint8, offset=at + length).reshape(height, width, depth)
    if depth == channels:
        return pixels
    if channels == 3:
        return np.repeat(pixels, 3, axis=2)
    return np.asarray(Image.fromarray(pixels).convert("L"))[..., None]


def _orientation(data: bytes) -> int:
    """EXIF or XMP orientation, 1 .. 8, as Pillow reads it."""
    try:
        with Image.open(io.BytesIO(data), formats=["JPEG", "MPO"]) as image:
            return _upright(image)
    except Exception as error:  # see _decode_pillow
        raise Undecodable(f"{type(error).__name__}: {error}") from error


def _upright(image: Image.Image) -> int:
    turn = image.getexif().get(_ORIENTATION, 1)
    return turn if isinstance(turn, int) and turn in _UPRIGHT else 1


def _decode_pillow(data: bytes, channels: int) -> tuple[int, np.ndarray]:
    """(orientation, uint8 [h, w, channels] as stored)."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            _check_pixels(*image.size)
            image.load()  # Pillow turns TIFF here, and some formats keep their EXIF behind the pixels
            turn = _upright(image)
            pixels = _pixels(image, channels)
    except Undecodable:
        raise
    except Exception as error:  # hostile bytes raise anything at all inside a decoder; the sample is masked
        raise Undecodable(f"{type(error).__name__}: {error}") from error
    return turn, pixels


def _pixels(image: Image.Image, channels: int) -> np.ndarray:
    if image.mode.startswith("I;16") or image.mode == "I":
        wide = np.asarray(image)
        image = Image.fromarray((np.clip(wide, 0, 65535) >> 8).astype(np.uint8))
    if image.mode != _MODES[channels]:
        image = image.convert(_MODES[channels])
    pixels = np.asarray(image)
    return pixels[..., None] if channels == 1 else pixels


def _check_pixels(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise Undecodable(f"{width} x {height} pixels are more than {MAX_PIXELS}: a decompression bomb")
