"""A large picture as 32x32 pixels: Pillow's Lanczos filter, bit for bit, as a few small products of matrices.

Pillow's fixed-point filter is sums of whole numbers below 2^53, so float64 is exact and any BLAS gives the same.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from PIL import Image

SIDE = 32
_LOBES = 3.0
_UNIT = float(1 << 22)
"""Pillow's fixed point."""

_GROUPS = 4
"""Outputs are computed eight at a time: their inputs overlap, and beyond those all weights are zero."""

_PRODUCTS = 1 << 18
"""Multiplications up to which OpenBLAS starts no threads: every core has a worker already."""

_LARGE = 1 << 16
"""Pixels from which the products are faster than Pillow."""


def thumbnail(grey: np.ndarray) -> np.ndarray:
    """uint8 [32, 32] of uint8 [h, w], equal to Image.resize((32, 32), LANCZOS).

    Small and tall pictures go through Pillow itself: tall ones it filters by columns first, from release 13 on.
    """
    height, width = grey.shape
    if height * width < _LARGE or height < SIDE or 3 * width < 2 * height:
        return np.asarray(Image.fromarray(grey).resize((SIDE, SIDE), Image.Resampling.LANCZOS))
    return _filtered(_filtered(grey).T).T.astype(np.uint8)


def _filtered(rows: np.ndarray) -> np.ndarray:
    """float64 [n, 32], whole numbers in 0 to 255, of [n, size]."""
    out = np.empty((len(rows), SIDE))
    bands = _bands(rows.shape[1])
    step = max(1, min(_PRODUCTS // weights.size for _, weights in bands))
    for top in range(0, len(rows), step):
        strip = rows[top : top + step].astype(np.float64)
        for i, (first, weights) in enumerate(bands):
            columns = slice(i * SIDE // _GROUPS, (i + 1) * SIDE // _GROUPS)
            out[top : top + step, columns] = strip[:, first : first + len(weights)] @ weights
    out += _UNIT / 2
    out *= 1 / _UNIT
    return np.clip(np.floor(out, out=out), 0, 255, out=out)


@lru_cache(maxsize=256)
def _bands(size: int) -> tuple[tuple[int, np.ndarray], ...]:
    """For each group of outputs the first of its inputs and their weights: float64 [inputs, 8] of whole numbers."""
    scale = size / SIDE
    stretch = max(scale, 1.0)
    centres = (np.arange(SIDE)[:, None] + 0.5) * scale
    first = np.maximum(np.trunc(centres - _LOBES * stretch + 0.5), 0)
    last = np.minimum(np.trunc(centres + _LOBES * stretch + 0.5), size)
    inputs = first + np.arange(int((last - first).max()))
    weights = np.where(inputs < last, _lanczos((inputs - centres + 0.5) * (1 / stretch)), 0.0)
    weights *= 1 / np.cumsum(weights, axis=1)[:, -1:]  # added up one by one, as Pillow does
    weights = np.trunc(weights * _UNIT + np.copysign(0.5, weights))
    whole = np.zeros((size + inputs.shape[1], SIDE))
    whole[inputs.astype(int), np.arange(SIDE)[:, None]] = weights
    groups = []
    for start in range(0, SIDE, SIDE // _GROUPS):
        stop = start + SIDE // _GROUPS
        band = slice(int(first[start, 0]), int(last[stop - 1, 0]))
        groups.append((band.start, np.ascontiguousarray(whole[band, start:stop])))
    return tuple(groups)


def _lanczos(x: np.ndarray) -> np.ndarray:
    inside = (x >= -_LOBES) & (x < _LOBES)
    return np.where(inside, _sinc(x) * _sinc(x / _LOBES), 0.0)


def _sinc(x: np.ndarray) -> np.ndarray:
    turned = x * math.pi
    # the C library's sines, as Pillow takes them; NumPy has its own
    sines = np.fromiter(map(math.sin, turned.ravel().tolist()), np.float64, turned.size).reshape(turned.shape)
    return np.divide(sines, turned, out=np.ones_like(turned), where=turned != 0)
