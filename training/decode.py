"""Decoding: image bytes to a uint8 array of the size and channels the model wants, by the quickest reader there is."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import simplejpeg
import torch
from PIL import Image

from sevenfold.storage.decode import MAX_PIXELS
from sevenfold.storage.npy import MAGIC, npy_pixels

Data = bytes | memoryview
"""A file in memory; a view spares the copy."""
Scaling = Literal["scaled", "exact"]
"""`scaled`: a JPEG at least twice too large in both directions after halving comes out of libjpeg smaller (1/2, 3/8,
1/4, 1/8 by its inverse DCT) before it is resized. `exact`: it is decoded whole."""
REDUCING_GAP = 2
"""How much larger than wanted a scaled JPEG still is: Pillow's own choice in `Image.thumbnail`."""

_TOGETHER = 1 << 16
"""Bytes of small images that go to their places at once."""

_JPEG = b"\xff\xd8\xff"
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


def decode(data: Data, size: int, channels: int, scaling: Scaling = "scaled") -> np.ndarray:
    """Decode one image.

    Parameters
    ----------
    data : the encoded file: JPEG, PNG or anything else Pillow reads, or a raw member (storage.npy).
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
    if data[:3] == _JPEG:
        turn = _orientation(data) if _may_be_turned(data) else 1
        pixels = _decode_jpeg(data, size, channels, scaling)
    else:
        turn, pixels = 1, _decode_raw(data, channels) if data[:6] == MAGIC else None
    if pixels is None:
        turn, pixels = _decode_pillow(data, channels)
    if pixels.shape[:2] != (size, size):
        pixels = resize(pixels, size)
    # turned last: a square stays one, and this is the smallest it gets
    return np.ascontiguousarray(_UPRIGHT[turn](pixels)) if turn != 1 else pixels


def decode_into(
    images: np.ndarray, slots: Sequence[int] | np.ndarray, files: Sequence[Data], scaling: Scaling = "scaled"
) -> list[int]:
    """Decode files into `images[slots]`; the slots where that failed are returned, their pixels are undefined.

    Parameters
    ----------
    images : uint8 [b, size, size, channels]
    slots : [n]; files : [n]
    """
    size, channels = images.shape[1], images.shape[3]
    plain, jpeg, colour = _plain_jpeg(size), simplejpeg.decode_jpeg, _COLOURS[channels]
    to = np.asarray(slots, np.int64)
    together = max(min(_TOGETHER // max(size * size * channels, 1), len(files)), 1)
    some = _off_32((together, size, size, channels))
    places = list(some)
    failed = []
    for i in range(0, len(files), together):
        part = files[i : i + together]
        for at, place, data in zip(range(i, i + together), places, part, strict=False):
            try:
                if plain(data):
                    jpeg(data, colour, buffer=place)
                else:
                    place[:] = decode(data, size, channels, scaling)
            except ValueError as error:
                if isinstance(error, Undecodable) or not _second_try(place, data, scaling):
                    failed.append(int(to[at]))
        images[to[i : i + together]] = some[: len(part)]
    return failed


def _off_32(shape: tuple[int, ...]) -> np.ndarray:
    """uint8 of a shape, to decode into: it begins 16 bytes off a multiple of 32.

    Rows at multiples of 32 are written past the processor's caches by libjpeg-turbo (streaming stores), and whoever
    reads them next waits for the memory: 3 microseconds at 32 x 32. What malloc returns is so half of the time.
    """
    raw = np.empty(math.prod(shape) + 48, np.uint8)
    at = (16 - raw.__array_interface__["data"][0]) % 32
    return raw[at : at + math.prod(shape)].reshape(shape)


def _second_try(place: np.ndarray, data: Data, scaling: Scaling) -> bool:
    """A plain JPEG that simplejpeg refuses goes the long way: Pillow decides whether it is too damaged."""
    try:
        place[:] = decode(data, place.shape[0], place.shape[2], scaling)
    except Undecodable:
        return False
    return True


@lru_cache(8)
def _plain_jpeg(size: int) -> Callable[[Data], object]:
    """Matches the JPEGs of the very size that libjpeg writes by default, up to where their pixels begin.

    A third of a microsecond tells that nothing in the header is hostile, to be turned, or of another size.
    """
    side = re.escape(size.to_bytes(2, "big") * 2)
    return re.compile(
        rb"\xff\xd8\xff\xe0\x00\x10.{14}"  # JFIF
        rb"(?:\xff\xdb\x00\x43.{65}){1,2}"  # quantisation tables
        rb"\xff\xc0\x00[\x0b\x11]\x08" + side + rb"(?:\x01.{3}|\x03.{9})"  # frame: size, grey or three components
        rb"(?:\xff\xc4\x00\x1f.{29}\xff\xc4\x00\xb5.{179}){1,2}\xff\xda",  # Huffman tables of the standard
        re.DOTALL,
    ).match


def resize(pixels: np.ndarray, size: int) -> np.ndarray:
    """uint8 [h, w, c] -> [size, size, c], bilinear and antialiased; Pillow's result within 1, four times as fast."""
    if not pixels.flags.writeable:
        pixels = pixels.copy()
    planes = torch.from_numpy(pixels).permute(2, 0, 1).unsqueeze(0)
    small = torch.empty((size, size, pixels.shape[2]), dtype=torch.uint8)
    # what F.interpolate calls, which would put the channels first again: turning them back costs as much as this
    torch.ops.aten._upsample_bilinear2d_aa.out(
        planes, [size, size], False, None, None, out=small.permute(2, 0, 1).unsqueeze(0)
    )
    return small.numpy()


def _decode_jpeg(data: Data, size: int, channels: int, scaling: Scaling) -> np.ndarray | None:
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


def _decode_raw(data: Data, channels: int) -> np.ndarray:
    try:
        return npy_pixels(data, channels)
    except ValueError as error:
        raise Undecodable(str(error)) from None


def _may_be_turned(data: Data) -> bool:
    """Whether a JPEG has an EXIF or XMP segment, or is too odd to tell."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xDA:  # start of scan: the pixels follow
            return False
        if marker == 0xE1:
            return True
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return True


def _orientation(data: Data) -> int:
    """EXIF or XMP orientation, 1 .. 8, as Pillow reads it."""
    try:
        with Image.open(io.BytesIO(data), formats=["JPEG", "MPO"]) as image:
            return _upright(image)
    except Exception as error:  # see _decode_pillow
        raise Undecodable(f"{type(error).__name__}: {error}") from error


def _upright(image: Image.Image) -> int:
    turn = image.getexif().get(_ORIENTATION, 1)
    return turn if isinstance(turn, int) and turn in _UPRIGHT else 1


def _decode_pillow(data: Data, channels: int) -> tuple[int, np.ndarray]:
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
