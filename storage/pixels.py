"""Numbers from pixels: properties and the perceptual hash, over many images of one shape at a time.

Large pictures are looked at in a smaller copy (`reduced`) and, for sharpness, which a smaller copy has lost, in some of
their rows: all of a photograph's pixels would cost as much as decoding it. Pictures under 128 pixels are looked at
whole.

Everything is built on exact integer sums, so a number depends neither on which images share a batch, nor on strips,
BLAS or machine. The hash is the DCT perceptual hash (grey 32x32, the 8x8 lowest frequencies against their median).
"""

from __future__ import annotations

import math

import numpy as np
from PIL import Image

STRIP = 1 << 16
"""Pixels that are worked on at once: what lies in a core's cache is several times as fast as what does not."""

_COUNTED = 1 << 12
"""Pixels of an image from which Pillow counts its levels faster than NumPy."""

SIDE = 64
"""A picture is reduced by whole numbers as long as both sides keep this many pixels."""

_EDGES = 1 << 14
"""Pixels that sharpness is told from, at least, where there are so many."""


def reduced(pixels: np.ndarray) -> np.ndarray:
    """uint8 [n, h // f, w // f, ...] of uint8 [n, h, w, ...]: means of f x f pixels, where f = min(h, w) // 64.

    They are rounded half up. What f does not divide is left off at both ends. With f < 2: the pixels themselves.
    """
    n, height, width = pixels.shape[:3]
    factor = min(height, width) // SIDE
    if factor < 2:
        return pixels
    rows, columns = height // factor, width // factor
    top, left = (height % factor) // 2, (width % factor) // 2
    band = pixels[:, top : top + rows * factor].reshape(n * rows, factor, -1)
    kind = np.uint16 if factor <= 257 else np.uint32  # 257 x 255 = 65535
    sums = np.add.reduce(band, axis=1, dtype=kind).reshape(n * rows, width, -1)
    across = sums[:, left : left + columns * factor].reshape(n * rows, columns, factor, -1)
    total = across[:, :, 0].astype(np.uint32)
    for i in range(1, factor):  # few and long additions: NumPy's own sum over so short an axis takes ten times as long
        total += across[:, :, i]
    total += factor * factor // 2
    total //= factor * factor
    return total.astype(np.uint8).reshape(n, rows, columns, *pixels.shape[3:])


def grey_of(pixels: np.ndarray) -> np.ndarray:
    """Luma, uint8 [n, h, w], of uint8 [n, h, w] (itself) or [n, h, w, 3]: Pillow's, ITU-R 601 in fixed point."""
    if pixels.ndim == 3:
        return pixels
    n, height, width, _ = pixels.shape
    tall = pixels.reshape(n * height, width, 3)
    grey = np.empty((n * height, width), np.uint8)
    rows = max(1, 4 * STRIP // width)
    for top in range(0, n * height, rows):
        grey[top : top + rows] = np.asarray(Image.fromarray(tall[top : top + rows]).convert("L"))
    return grey.reshape(n, height, width)


def properties(pixels: np.ndarray, small: np.ndarray, grey: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """brightness, contrast, sharpness, entropy, colorfulness, aspect, bytes per pixel: float64 [n, 7].

    Parameters
    ----------
    pixels : uint8 [n, h, w] or [n, h, w, 3]; small : `reduced` of them; grey : `grey_of` the small ones.
    sizes : int64 [n], bytes of the files.

    Brightness and contrast are mean and standard deviation of luma over 255, entropy that of 64 bins of luma in bits,
    colorfulness that of Hasler and Suesstrunk 2003 over 255 (0 for grey): of the smaller copy. Sharpness is the mean
    absolute 4-neighbour Laplacian of the green channel over 255, inside the border, in every k-th row of the picture
    itself, where k is h w / 2^14 in whole numbers.
    """
    n, height, width = pixels.shape[:3]
    area = grey.shape[1] * grey.shape[2]
    counts = _levels(grey)
    colour = _colour(small) if small.ndim == 4 else np.zeros((4, n))
    levels = np.arange(256, dtype=np.int64)
    mean, spread = _moments(counts @ levels, counts @ (levels * levels), area)
    share = counts.reshape(n, 64, 4).sum(axis=2) / area
    entropy = 0.0 - (share * np.log2(share, out=np.zeros_like(share), where=share > 0)).sum(axis=1)
    rg_mean, rg_spread = _moments(colour[0], colour[1], area)
    yb_mean, yb_spread = _moments(colour[2], colour[3], area)
    apart = np.sqrt(rg_spread**2 + yb_spread**2 / 4) + 0.3 * np.sqrt(rg_mean**2 + yb_mean**2 / 4)
    columns = (
        mean / 255, spread / 255, sharpness(pixels), entropy, apart / 255, np.full(n, width / height),
        sizes / (height * width),
    )  # fmt: skip
    return np.stack(columns, axis=1)


def _levels(grey: np.ndarray) -> np.ndarray:
    """How often each level is there: int64 [n, 256]."""
    n, height, width = grey.shape
    if height * width >= _COUNTED:
        return np.array([Image.fromarray(g).histogram() for g in grey], np.int64)
    first = np.arange(n, dtype=np.int64)[:, None] * 256
    return np.bincount((grey.reshape(n, -1) + first).ravel(), minlength=n * 256).reshape(n, 256)


def sharpness(pixels: np.ndarray) -> np.ndarray:
    """See `properties`: float64 [n] of uint8 [n, h, w] or [n, h, w, 3]."""
    n, height, width = pixels.shape[:3]
    if width < 3 or height < 3:
        return np.zeros(n)
    green = pixels if pixels.ndim == 3 else pixels[..., 1]
    step = max(1, height * width // _EDGES)
    rows = len(range(1, height - 1, step))
    total = np.zeros(n, np.int64)
    strip = max(1, STRIP // (n * width))
    for first in range(0, rows, strip):
        start = 1 + first * step
        stop = min(height - 1, start + strip * step)
        if step == 1:  # neighbours are rows of the strip itself
            here = green[:, start - 1 : stop + 1].astype(np.int16)
            above, middle, below = here[:, :-2], here[:, 1:-1], here[:, 2:]
        else:
            above, middle, below = (green[:, start + d : stop + d : step].astype(np.int16) for d in (-1, 0, 1))
        around = above[:, :, 1:-1] + below[:, :, 1:-1]
        around += middle[:, :, :-2]
        around += middle[:, :, 2:]
        around -= middle[:, :, 1:-1] << 2
        np.abs(around, out=around)
        total += around.reshape(n, -1).sum(axis=1, dtype=np.int64)
    return total / (rows * (width - 2)) / 255


def _colour(pixels: np.ndarray) -> np.ndarray:
    """Sums of rg, rg^2, 2 yb and (2 yb)^2 with rg = r - g, 2 yb = r + g - 2 b: float64 [4, n], whole numbers < 2^53."""
    n = len(pixels)
    flat = pixels.reshape(n, -1, 3)
    sums = np.zeros((4, n))
    step = max(1, STRIP // n)
    for start in range(0, flat.shape[1], step):
        red, green, blue = (flat[:, start : start + step, i].astype(np.int16) for i in range(3))
        for i, difference in ((0, red - green), (2, red + green - 2 * blue)):
            exact = difference.astype(np.float64)
            sums[i] += np.einsum("ni->n", exact)
            sums[i + 1] += np.einsum("ni,ni->n", exact, exact)
    return sums


def _moments(total: np.ndarray, squares: np.ndarray, area: int) -> tuple[np.ndarray, np.ndarray]:
    """(mean, standard deviation) from exact sums."""
    mean = total / area
    return mean, np.sqrt(np.maximum(squares / area - mean * mean, 0))


def _dct_rows() -> np.ndarray:
    """The 8 lowest DCT-II basis rows over 32 points, scaled by 2^12 and rounded: float64 [8, 32] of whole numbers."""
    rows = [[round(4096 * math.cos(math.pi * k * (2 * n + 1) / 64)) for n in range(32)] for k in range(8)]
    return np.array(rows, dtype=np.float64)


_DCT = _dct_rows()


def phash(grey: np.ndarray) -> np.ndarray:
    """Perceptual hashes, int64 [n], of uint8 [n, h, w]: `reduced`, then brought to 32x32 by Pillow's Lanczos filter.

    The products are whole numbers below 2^53, so float64 is exact here and any BLAS gives the same.
    """
    grey = reduced(grey)
    n, height, width = grey.shape
    if (height, width) != (32, 32):
        shape = (32, 32)
        grey = np.stack([np.asarray(Image.fromarray(g).resize(shape, Image.Resampling.LANCZOS)) for g in grey])
    low = (_DCT @ grey.astype(np.float64) @ _DCT.T).reshape(n, 64)
    ordered = np.partition(low, (31, 32), axis=1)
    bits = low * 2 > (ordered[:, 31] + ordered[:, 32])[:, None]  # above the median, without dividing
    return np.packbits(bits, axis=1).view(">i8").astype(np.int64).ravel()
