"""What a picture looks like in 367 bytes: low frequencies, a thumbnail, the hashes of the picture and of its mirror.

The vector holds the lowest DCT-II coefficients of brightness (8 x 8 without the mean) and of two colour differences
(4 x 4 each), scaled to length 1, so that gain and offset of brightness and compression hardly move it; a mirrored
picture has the same numbers with other signs, and needs no second vector. The thumbnail is brightness at 16 x 16: it
rules out nearly all that only looks alike, before any picture is read again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
from PIL import Image

PRODUCER = "descriptor-1"
"""Names this definition; the number rises when a number below changes."""

SIDE = 32
"""Pictures are compared at this many pixels a side."""

THUMB = 16
"""Pixels a side of the thumbnail."""

LUMA, COLOUR = 8, 4
"""Frequencies a side that are kept of brightness and of each colour difference."""

WIDTH = LUMA * LUMA - 1 + 2 * COLOUR * COLOUR
"""Numbers in a vector: 95."""

SCALE = 127.0
"""A vector of length 1 is stored times this, clipped to int8: coefficients of natural images seldom pass 1."""

_COLOUR_WEIGHT = 1.5
"""Colour differences are weak beside brightness, and tell pictures of one layout apart."""

_FLOOR = 2.0 * SIDE
"""Added to a vector's length, in DCT units: contrast of two grey levels; below it noise is not blown up."""


@dataclass(frozen=True)
class Described:
    """Descriptors of n pictures: `vectors` int8 [n, WIDTH], `thumbs` uint8 [n, 256], `hashes`, `mirrored` int64 [n]."""

    vectors: np.ndarray
    thumbs: np.ndarray
    hashes: np.ndarray
    mirrored: np.ndarray

    def __len__(self) -> int:
        return len(self.vectors)

    @staticmethod
    def joined(parts: list[Described]) -> Described:
        """One after the other; of none, empty."""
        if not parts:
            return describe(np.zeros((0, SIDE, SIDE, 3), np.uint8))
        return Described(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Described)))

    def take(self, rows: np.ndarray) -> Described:
        """Those of some rows, in that order."""
        return Described(*(getattr(self, f.name)[rows] for f in fields(Described)))


def small(pixels: np.ndarray) -> np.ndarray:
    """One picture, uint8 [h, w] or [h, w, 3], as uint8 [32, 32, 3], without keeping its aspect.

    A triangle filter: smoother than a box, so that a shift by a part of a pixel changes little.
    """
    image = Image.fromarray(np.ascontiguousarray(pixels))
    if image.size != (SIDE, SIDE):
        image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, reducing_gap=3.0)
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def describe(pixels: np.ndarray) -> Described:
    """Descriptors of uint8 [n, 32, 32, 3]; see the module."""
    n = len(pixels)
    rgb = pixels.astype(np.float32).transpose(3, 0, 1, 2)
    grey = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]
    luma = _low(grey, LUMA)
    order = _ascending()
    parts = [luma.reshape(n, LUMA * LUMA)[:, 1:]]
    for difference in (rgb[0] - grey, rgb[2] - grey):
        parts.append(_COLOUR_WEIGHT * _low(difference, COLOUR).reshape(n, COLOUR * COLOUR))
    vectors = np.concatenate(parts, axis=1)[:, order]
    vectors /= (np.linalg.norm(vectors, axis=1) + _FLOOR)[:, None]
    hashes = [_hash(luma * signs) for signs in (1.0, _odd(LUMA))]
    half = SIDE // THUMB
    thumbs = grey.reshape(n, THUMB, half, THUMB, half).mean((2, 4)).reshape(n, THUMB * THUMB)
    return Described(
        np.clip(np.rint(vectors * SCALE), -127, 127).astype(np.int8), np.rint(thumbs).astype(np.uint8), *hashes
    )


def mirror_signs() -> np.ndarray:
    """float32 [WIDTH], 1 or -1: times a picture's vector this is the vector of its mirror image."""
    signs = np.concatenate([_odd(LUMA).ravel()[1:], *[_odd(COLOUR).ravel()] * 2])
    return signs[_ascending()].astype(np.float32)


def _odd(size: int) -> np.ndarray:
    """1 or -1 by horizontal frequency: mirrored, the odd ones change their sign."""
    return np.broadcast_to(np.where(np.arange(size) % 2, -1.0, 1.0), (size, size))


def _ascending() -> np.ndarray:
    """The order of a vector's numbers: lowest frequencies first, which hold most of its length."""
    across = [np.add.outer(np.arange(s) ** 2, np.arange(s) ** 2).ravel() for s in (LUMA, COLOUR, COLOUR)]
    return np.argsort(np.concatenate([across[0][1:], *across[1:]]), kind="stable")


def _low(planes: np.ndarray, size: int) -> np.ndarray:
    """The lowest orthonormal DCT-II coefficients, float32 [n, size, size], of [n, 32, 32]."""
    k, x = np.arange(size)[:, None], np.arange(SIDE)[None, :]
    basis = np.cos(math.pi * k * (2 * x + 1) / (2 * SIDE)) * math.sqrt(2 / SIDE)
    basis[0] /= math.sqrt(2)
    rows = basis.astype(np.float32)
    return np.asarray(rows @ planes @ rows.T)


def _hash(luma: np.ndarray) -> np.ndarray:
    """Perceptual hashes, int64 [n], of brightness coefficients [n, 8, 8]: which lie above their median."""
    flat = luma.reshape(len(luma), luma.shape[1] * luma.shape[2])
    bits = flat > np.median(flat, axis=1, keepdims=True)
    return np.packbits(bits, axis=1).view(">i8").astype(np.int64).ravel()
