"""One full decode per image: validity, size, digests, perceptual hash and properties, all from the same pixels.

Hashing uses integer arithmetic only, so a perceptual hash does not depend on chunking, BLAS or machine. The hash is
the DCT perceptual hash (grey 32x32, the 8x8 lowest frequencies against their median).
"""

from __future__ import annotations

import io
import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from sevenfold.storage.canonical import digest_bytes
from sevenfold.storage.sources import InputError

EXTENSIONS = {"PNG": "png", "JPEG": "jpg", "WEBP": "webp", "BMP": "bmp", "GIF": "gif", "TIFF": "tif"}
_SUFFIXES = {
    "PNG": {"png"}, "JPEG": {"jpg", "jpeg", "jpe", "jfif"}, "WEBP": {"webp"}, "BMP": {"bmp", "dib"}, "GIF": {"gif"},
    "TIFF": {"tif", "tiff"},
}  # fmt: skip
_MODES = {"1", "L", "LA", "P", "PA", "RGB", "RGBA"}
MAX_PIXELS = 178_956_970
"""Pillow's own threshold for a decompression bomb (a 4:3 photo of half a gigabyte)."""


@dataclass(frozen=True)
class Measured:
    """What one decode tells. `properties` follows index.PROPERTIES."""

    id: str
    ext: str
    bytes: int
    width: int
    height: int
    channels: int
    mode: str
    format: str
    pixel_digest: str
    phash: int
    properties: tuple[float, ...]


def measure(data: bytes, path: str) -> Measured:
    """Decode `data` whole and measure it; `path` is only read for its suffix.

    Raises InputError with the quarantine reason: not_an_image, truncated, wrong_suffix, unsupported, too_large or
    unreadable.
    """
    image, kind, mode = _decode(data)
    suffix = (path.rpartition("#")[0] and "") or path.rpartition(".")[2].lower()
    if "." in path.rpartition("/")[2] and suffix not in _SUFFIXES[kind]:
        raise InputError("wrong_suffix", f"the suffix is .{suffix}, the bytes are {kind}")
    plain = image.convert("RGB" if len(image.getbands()) >= 3 or mode in ("P", "PA") else "L")
    pixels = np.asarray(plain)
    grey = pixels if pixels.ndim == 2 else np.asarray(plain.convert("L"))
    height, width = grey.shape
    return Measured(
        id=digest_bytes(data),
        ext=EXTENSIONS[kind],
        bytes=len(data),
        width=width,
        height=height,
        channels=1 if pixels.ndim == 2 else 3,
        mode=mode,
        format=kind,
        pixel_digest=digest_bytes(f"{plain.mode} {width} {height} ".encode() + pixels.tobytes()),
        phash=_phash(plain),
        properties=_properties(pixels, grey, len(data)),
    )


def _decode(data: bytes) -> tuple[Image.Image, str, str]:
    """(upright fully decoded image, format, original mode)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data), formats=list(EXTENSIONS))
            kind, mode = image.format or "", image.mode
            if image.width * image.height > MAX_PIXELS:
                raise InputError("too_large", f"{image.width}x{image.height} pixels, over the limit of {MAX_PIXELS}")
            if getattr(image, "n_frames", 1) > 1:
                raise InputError("unsupported", f"animated: {getattr(image, 'n_frames', 1)} frames")
            if mode not in _MODES:
                raise InputError("unsupported", f"pixel mode {mode} ({kind})")
            image.load()
            return ImageOps.exif_transpose(image), kind, mode
    except InputError:
        raise
    except Image.UnidentifiedImageError:
        raise InputError("not_an_image", _what_it_looks_like(data)) from None
    except Image.DecompressionBombError as e:
        raise InputError("too_large", str(e)) from None
    except Exception as e:  # hostile bytes raise anything at all inside a decoder; each becomes a quarantine row
        truncated = "truncated" in str(e).lower() or isinstance(e, EOFError)
        raise InputError("truncated" if truncated else "unreadable", f"{type(e).__name__}: {e}") from None


def _what_it_looks_like(data: bytes) -> str:
    if not data:
        return "the file is empty"
    head = data[:64].lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "the bytes are HTML"
    return f"the first bytes are {data[:8].hex(' ')}"


def _dct_rows() -> np.ndarray:
    """The 8 lowest DCT-II basis rows over 32 points, scaled by 2^12 and rounded: int64 [8, 32]."""
    rows = [[round(4096 * math.cos(math.pi * k * (2 * n + 1) / 64)) for n in range(32)] for k in range(8)]
    return np.array(rows, dtype=np.int64)


_DCT = _dct_rows()


def _phash(image: Image.Image) -> int:
    grey = np.asarray(image.convert("L").resize((32, 32), Image.Resampling.LANCZOS), dtype=np.int64)
    low = (_DCT @ grey @ _DCT.T).ravel()
    ordered = np.sort(low)
    bits = low * 2 > ordered[31] + ordered[32]  # above the median, without dividing
    return int(np.packbits(bits).view(">i8")[0])


def _properties(pixels: np.ndarray, grey: np.ndarray, size: int) -> tuple[float, ...]:
    """brightness, contrast, sharpness, entropy, colorfulness, aspect, bytes per pixel (see index.PROPERTIES)."""
    luma = grey.astype(np.float32)
    height, width = luma.shape
    if height > 2 and width > 2:
        inner = 4 * luma[1:-1, 1:-1] - luma[:-2, 1:-1] - luma[2:, 1:-1] - luma[1:-1, :-2] - luma[1:-1, 2:]
        sharpness = float(np.abs(inner).mean()) / 255
    else:
        sharpness = 0.0
    share = np.bincount(grey.ravel() >> 2, minlength=64) / grey.size
    share = share[share > 0]
    colorfulness = 0.0
    if pixels.ndim == 3:  # Hasler and Suesstrunk 2003
        r, g, b = (pixels[..., i].astype(np.float32) for i in range(3))
        rg, yb = r - g, (r + g) / 2 - b
        colorfulness = float(np.hypot(rg.std(), yb.std()) + 0.3 * np.hypot(rg.mean(), yb.mean())) / 255
    return (
        float(luma.mean()) / 255,
        float(luma.std()) / 255,
        sharpness,
        float(-(share * np.log2(share)).sum()),
        colorfulness,
        width / height,
        size / (width * height),
    )


def as_row(measured: Measured) -> dict[str, Any]:
    """The landing columns that come from the measurement."""
    row = dict(measured.__dict__)
    row.pop("properties")
    return row
