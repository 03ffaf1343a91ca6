"""From a file's bytes to upright 8-bit pixels, or to the reason why there are none. No bytes crash it.

Pillow decides what is an image and what is not. A plain JPEG (see `_plain_jpeg`) goes through simplejpeg, five times
as fast: both are libjpeg-turbo with the same settings, so the pixels are equal (tested), and whatever simplejpeg as
much as warns about is left to Pillow's judgement, but for pixels that end early.
"""

from __future__ import annotations

import io
import re
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import numpy as np
import simplejpeg
from PIL import Image, ImageOps, TiffImagePlugin

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.exif import orientation, upright
from sevenfold.storage.sources import InputError

EXTENSIONS = {"PNG": "png", "JPEG": "jpg", "WEBP": "webp", "BMP": "bmp", "GIF": "gif", "TIFF": "tif"}
_SUFFIXES = {
    "PNG": {"png"}, "JPEG": {"jpg", "jpeg", "jpe", "jfif"}, "WEBP": {"webp"}, "BMP": {"bmp", "dib"}, "GIF": {"gif"},
    "TIFF": {"tif", "tiff"},
}  # fmt: skip
_MODES = {"1", "L", "LA", "P", "PA", "RGB", "RGBA"}
_ALPHA = {"LA", "PA", "RGBA"}
_DEEP = {"I;16", "I;16B", "I;16L", "I;16N"}
_ELEMENT = re.compile(r"#[0-9]+$")
"""Ends the name of an array's element: it has no suffix to be wrong."""
_UPRIGHT = {
    "jfif", "jfif_version", "jfif_unit", "jfif_density", "dpi", "progressive", "progression", "comment", "gamma",
    "chromaticity", "srgb", "interlace", "aspect", "transparency", "icc_profile",
}  # fmt: skip
"""What PNG and JPEG files may say of themselves without any of it being an orientation."""
MAX_PIXELS = 178_956_970
"""Pillow's own threshold for a decompression bomb (a 4:3 photo of half a gigabyte)."""


@dataclass(frozen=True)
class Accepts:
    """Which unusual images are taken, `[decode]` in sevenfold.toml. What they become is fixed, for every reader alike.

    Parameters
    ----------
    cmyk : CMYK pictures, as RGB without a colour profile.
    sixteen_bit : PNG and TIFF of 16 bits a channel, of which the upper 8 are kept.
    animated : animations and files of several pages, of which the first is kept.
    alpha : transparency, which is dropped: what lies under it is seen.
    max_pixels : the largest picture, before anything of it is decoded; at most MAX_PIXELS.

    EXIF orientation is no choice: every reader applies it, once.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (pydantic reads it where this is a part of the settings)

    cmyk: bool = False
    sixteen_bit: bool = False
    animated: bool = False
    alpha: bool = True
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        if not 0 < self.max_pixels <= MAX_PIXELS:
            raise ValueError(f"max_pixels is {self.max_pixels}; expected 1 to {MAX_PIXELS}")

    def changed(self) -> dict[str, bool | int]:
        """What differs from the defaults, as a batch's record keeps it."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}


USUAL = Accepts()
"""What is taken unless somebody chose otherwise."""

EVERYTHING = Accepts(cmyk=True, sixteen_bit=True, animated=True)
"""For readers of what was accepted already."""


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


def decode(data: bytes, path: str, channels: int | None = None, accepts: Accepts = USUAL) -> Decoded:
    """Decode `data` whole; `path` is only read for its suffix.

    `channels`: 1 (grey; of a colour JPEG the very luminance that it stores) or 3 (RGB); None: as the file has.

    Raises InputError with the quarantine reason: not_an_image, truncated, wrong_suffix, unsupported, too_large or
    unreadable.
    """
    decoded = _plain_jpeg(data, channels, accepts) if data.startswith(b"\xff\xd8\xff") else None
    if decoded is None:
        decoded = _with_pillow(data, channels, accepts)
    name = path.rpartition("/")[2]
    suffix = name.rpartition(".")[2].lower()
    if "." in name and suffix not in _SUFFIXES[decoded.format] and not _ELEMENT.search(name):
        raise InputError("wrong_suffix", f"the suffix is .{suffix}, the bytes are {decoded.format}")
    return decoded


def accepted_pixels(data: bytes, where: str, channels: int | None = None) -> np.ndarray:
    """uint8 [h, w] or [h, w, 3], upright, of a picture that was accepted once; `where` names it in the error.

    Raises SevenfoldError when it cannot be read.
    """
    try:
        with quiet():
            return decode(data, "", channels, EVERYTHING).pixels
    except InputError as error:
        raise SevenfoldError(
            f"this picture cannot be read ({error.reason}: {error.detail})", where=where,
            do="give an image file; for a stored sample run `sevenfold verify`",
        ) from None  # fmt: skip


def _with_pillow(data: bytes, channels: int | None, accepts: Accepts = USUAL) -> Decoded:
    try:
        # a PNG's signature fits no other format: do not ask them all
        formats = ["PNG"] if data.startswith(b"\x89PNG\r\n\x1a\n") else list(EXTENSIONS)
        image = Image.open(io.BytesIO(data), formats=formats)
        kind, mode = image.format or "", image.mode
        if image.width * image.height > accepts.max_pixels:
            raise InputError(
                "too_large", f"{image.width}x{image.height} pixels, over the limit of {accepts.max_pixels}"
            )
        if kind == "MPO":  # a JPEG with more pictures behind it (phones do that); any reader shows the first
            kind = "JPEG"
        elif not accepts.animated and getattr(image, "n_frames", 1) > 1:
            raise InputError("unsupported", f"animated: {getattr(image, 'n_frames', 1)} frames")
        _check(image, kind, accepts)
        if channels == 1 and kind == "JPEG" and mode == "RGB":
            image.draft("L", image.size)
        image.load()
        turned: Image.Image = image
        if kind not in ("PNG", "JPEG") or not image.info.keys() <= _UPRIGHT:
            turned = ImageOps.exif_transpose(image)
        own = 3 if len(turned.getbands()) >= 3 or mode in ("P", "PA") else 1
        if mode in _DEEP:
            turned = Image.fromarray((np.asarray(turned) >> 8).astype(np.uint8))
        wanted = "L" if (channels or own) == 1 else "RGB"
        return Decoded(np.asarray(turned if turned.mode == wanted else turned.convert(wanted)), mode, kind)
    except InputError:
        raise
    except Image.UnidentifiedImageError:
        raise InputError("not_an_image", _what_it_looks_like(data)) from None
    except Image.DecompressionBombError as e:
        raise InputError("too_large", str(e)) from None
    except Exception as e:  # hostile bytes raise anything at all inside a decoder; each becomes a quarantine row
        truncated = "truncated" in str(e).lower() or isinstance(e, EOFError)
        raise InputError("truncated" if truncated else "unreadable", f"{type(e).__name__}: {e}") from None


def _check(image: Image.Image, kind: str, accepts: Accepts) -> None:
    """Raises InputError for a picture whose pixels are not taken."""
    mode = image.mode
    if _is_deep(image, kind):
        if not accepts.sixteen_bit:
            raise InputError("unsupported", f"more than 8 bits a channel ({kind} of pixel mode {mode})")
    elif mode == "CMYK":
        if not accepts.cmyk:
            raise InputError("unsupported", f"pixel mode CMYK ({kind})")
    elif mode not in _MODES:
        raise InputError("unsupported", f"pixel mode {mode} ({kind})")
    if not accepts.alpha and (mode in _ALPHA or "transparency" in image.info):
        raise InputError("unsupported", f"transparency ({kind} of pixel mode {mode})")


def _is_deep(image: Image.Image, kind: str) -> bool:
    """Whether it has 16 bits a channel; of colours Pillow gives the upper 8 of them without a word."""
    if image.mode in _DEEP:
        return True
    if kind == "PNG":
        tiles = getattr(image, "tile", ())
        return any(isinstance(tile[3], str) and ";16" in tile[3] for tile in tiles)
    bits = image.tag_v2.get(258, ()) if isinstance(image, TiffImagePlugin.TiffImageFile) else ()
    return image.mode in _MODES and max(bits if isinstance(bits, tuple) else (bits,), default=8) > 8


def _plain_jpeg(data: bytes, channels: int | None, accepts: Accepts = USUAL) -> Decoded | None:
    """Decode an unremarkable JPEG; None for every other, most damaged ones too.

    Unremarkable: one frame of 8-bit grey or YCbCr, one picture, and an orientation that can be read without doubt.
    Raises InputError (truncated) when the pixels end early: Pillow paints the rest grey and says nothing if an end
    marker follows.
    """
    at, colour, turn, xmp, adobe = 2, "", 0, False, 1
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
            if bits != 8 or not colour or components != len(ids) or not 0 < height * width <= accepts.max_pixels:
                return None
        elif length < 2:
            return None
        elif marker == 0xE1:
            segment = data[at + 4 : at + 2 + length]
            if segment.startswith(b"Exif\0\0"):
                found = orientation(segment[6:]) if not turn else None
                if found is None:
                    return None
                turn = found or -1
            else:
                xmp = xmp or b"rientation" in segment
        elif marker == 0xEE:
            adobe = data[at + 15] if length >= 14 and at + 15 < len(data) else -1
        elif (marker == 0xE2 and data[at + 4 : at + 8] == b"MPF\0") or marker not in _HARMLESS:
            return None
        at += 2 + length
    if (xmp and turn < 1) or (adobe != 1 and colour == "RGB"):
        return None
    wanted = colour if channels is None else "GRAY" if channels == 1 else "RGB"
    try:
        pixels = simplejpeg.decode_jpeg(data, wanted)
    except ValueError as e:
        if "remature end" in str(e):
            raise InputError("truncated", f"libjpeg: {e}") from None
        return None
    pixels = upright(pixels[..., 0] if wanted == "GRAY" else pixels, turn)
    return Decoded(pixels, "L" if colour == "GRAY" else "RGB", "JPEG")


_HARMLESS = frozenset({0xDB, 0xC4, 0xDD, 0xFE, *range(0xE0, 0xF0)})
"""Tables, the restart interval, comments, and what applications keep: profiles, thumbnails, notes."""


def _what_it_looks_like(data: bytes) -> str:
    if not data:
        return "the file is empty"
    head = data[:64].lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "the bytes are HTML"
    return f"the first bytes are {data[:8].hex(' ')}"
