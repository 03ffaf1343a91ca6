"""From a file's bytes to upright 8-bit pixels, or to the reason why there are none. No bytes crash it.

Pillow decides what is an image and what is not. A plain JPEG (see `_plain_jpeg`) goes through simplejpeg, five times
as fast: both are libjpeg-turbo with the same settings, so the pixels are equal (tested), and whatever simplejpeg as
much as warns about is left to Pillow's judgement.
"""

from __future__ import annotations

import io
import re
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import simplejpeg
from PIL import Image, ImageOps

from sevenfold.storage.sources import InputError

EXTENSIONS = {"PNG": "png", "JPEG": "jpg", "WEBP": "webp", "BMP": "bmp", "GIF": "gif", "TIFF": "tif"}
_SUFFIXES = {
    "PNG": {"png"}, "JPEG": {"jpg", "jpeg", "jpe", "jfif"}, "WEBP": {"webp"}, "BMP": {"bmp", "dib"}, "GIF": {"gif"},
    "TIFF": {"tif", "tiff"},
}  # fmt: skip
_MODES = {"1", "L", "LA", "P", "PA", "RGB", "RGBA"}
_ELEMENT = re.compile(r"#[0-9]+$")
"""Ends the name of an array's element: it has no suffix to be wrong."""
_UPRIGHT = {
    "jfif", "jfif_version", "jfif_unit", "jfif_density", "dpi", "progressive", "progression", "comment", "gamma",
    "chromaticity", "srgb", "interlace", "aspect", "transparency", "icc_profile",
}  # fmt: skip
"""What PNG and JPEG files may say of themselves without any of it being an orientation."""
MAX_PIXELS = 178_956_970
"""Pillow's own threshold for a decompression bomb (a 4:3 photo of half a gigabyte)."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """`pixels`: uint8 [h, w] (grey) or [h, w, 3] (RGB), upright; `mode`: of the file; `format`: a key of EXTENSIONS."""

    pixels: np.ndarray
    mode: str
    format: str


@contextmanager
def quiet() -> Iterator[None]:
    """Decoders warn about bytes that end in quarantine anyway; hold this around many calls of `decode`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def decode(data: bytes, path: str, channels: int | None = None) -> Decoded:
    """Decode `data` whole; `path` is only read for its suffix.

    `channels`: 1 (grey; of a colour JPEG the very luminance that it stores) or 3 (RGB); None: as the file has.

    Raises InputError with the quarantine reason: not_an_image, truncated, wrong_suffix, unsupported, too_large or
    unreadable.
    """
    decoded = _plain_jpeg(data, channels) if data.startswith(b"\xff\xd8\xff") else None
    if decoded is None:
        decoded = _with_pillow(data, channels)
    name = path.rpartition("/")[2]
    suffix = name.rpartition(".")[2].lower()
    if "." in name and suffix not in _SUFFIXES[decoded.format] and not _ELEMENT.search(name):
        raise InputError("wrong_suffix", f"the suffix is .{suffix}, the bytes are {decoded.format}")
    return decoded


def _with_pillow(data: bytes, channels: int | None) -> Decoded:
    try:
        # a PNG's signature fits no other format: do not ask them all
        formats = ["PNG"] if data.startswith(b"\x89PNG\r\n\x1a\n") else list(EXTENSIONS)
        image = Image.open(io.BytesIO(data), formats=formats)
        kind, mode = image.format or "", image.mode
        if image.width * image.height > MAX_PIXELS:
            raise InputError("too_large", f"{image.width}x{image.height} pixels, over the limit of {MAX_PIXELS}")
        if kind == "MPO":  # a JPEG with more pictures behind it (phones do that); any reader shows the first
            kind = "JPEG"
        elif getattr(image, "n_frames", 1) > 1:
            raise InputError("unsupported", f"animated: {getattr(image, 'n_frames', 1)} frames")
        if mode not in _MODES:
            raise InputError("unsupported", f"pixel mode {mode} ({kind})")
        if channels == 1 and kind == "JPEG" and mode == "RGB":
            image.draft("L", image.size)
        image.load()
        upright: Image.Image = image
        if kind not in ("PNG", "JPEG") or not image.info.keys() <= _UPRIGHT:
            upright = ImageOps.exif_transpose(image)
        own = 3 if len(upright.getbands()) >= 3 or mode in ("P", "PA") else 1
        wanted = "L" if (channels or own) == 1 else "RGB"
        return Decoded(np.asarray(upright if upright.mode == wanted else upright.convert(wanted)), mode, kind)
    except InputError:
        raise
    except Image.UnidentifiedImageError:
        raise InputError("not_an_image", _what_it_looks_like(data)) from None
    except Image.DecompressionBombError as e:
        raise InputError("too_large", str(e)) from None
    except Exception as e:  # hostile bytes raise anything at all inside a decoder; each becomes a quarantine row
        truncated = "truncated" in str(e).lower() or isinstance(e, EOFError)
        raise InputError("truncated" if truncated else "unreadable", f"{type(e).__name__}: {e}") from None


def _plain_jpeg(data: bytes, channels: int | None) -> Decoded | None:
    """Decode an unremarkable JPEG; None for every other, damaged ones too.

    Unremarkable: between its start and its first scan are only JFIF, tables, restart interval, comments and one frame
    of 8-bit grey or YCbCr, so that there is no orientation, colour space or second picture to mind.
    """
    at, colour = 2, ""
    while not colour or data[at + 1 : at + 2] != b"\xda":  # start of scan
        if at + 10 > len(data) or data[at] != 0xFF:
            return None
        marker, length = data[at + 1], data[at + 2] << 8 | data[at + 3]
        if marker in (0xC0, 0xC1, 0xC2):
            if colour or length < 11 or at + 2 + length > len(data):
                return None
            bits, height, width, components = struct.unpack_from(">BHHB", data, at + 4)
            ids = data[at + 10 : at + 2 + length : 3]
            colour = {b"\1": "GRAY", b"\1\2\3": "RGB"}.get(ids, "")
            if bits != 8 or not colour or components != len(ids) or not 0 < height * width <= MAX_PIXELS:
                return None
        elif marker not in (0xE0, 0xDB, 0xC4, 0xDD, 0xFE) or length < 2:
            return None
        at += 2 + length
    wanted = colour if channels is None else "GRAY" if channels == 1 else "RGB"
    try:
        pixels = simplejpeg.decode_jpeg(data, wanted)
    except ValueError:
        return None
    return Decoded(pixels[..., 0] if wanted == "GRAY" else pixels, "L" if colour == "GRAY" else "RGB", "JPEG")


def _what_it_looks_like(data: bytes) -> str:
    if not data:
        return "the file is empty"
    head = data[:64].lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "the bytes are HTML"
    return f"the first bytes are {data[:8].hex(' ')}"
