"""Numbers from pixels: properties and the perceptual hash, over many images of one shape at a time.

Everything is built on exact integer sums, so a number depends neither on which images share a batch, nor on strips,
BLAS or machine. The hash is the DCT perceptual hash (grey 32x32, the 8x8 lowest frequencies against their median).
"""

from __future__ import annotations

import math

import numpy as np
from PIL import Image

STRIP = 1 << 20
"""Pixels that are worked on at once: bounds the memory that one huge image takes."""


def grey_of(pixels: np.ndarray) -> np.ndarray:
    """Luma, uint8 [n, h, w], of uint8 [n, h, w] (itself) or [n, h, w, 3]: ITU-R 601 in fixed point, as Pillow's."""
    if pixels.ndim == 3:
        return pixels
    n, height, width, _ = pixels.shape
    grey = np.empty((n, height, width), np.uint8)
    rows = max(1, STRIP // (n * width))
    for top in range(0, height, rows):
        part = pixels[:, top : top + rows].astype(np.uint32)
        luma = part[..., 0] * 19595 + part[..., 1] * 38470 + part[..., 2] * 7471 + 0x8000
        grey[:, top : top + rows] = luma >> 16
    return grey


def properties(pixels: np.ndarray, grey: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """brightness, contrast, sharpness, entropy, colorfulness, aspect, bytes per pixel: float64 [n, 7].

    Parameters
    ----------
    pixels : uint8 [n, h, w] or [n, h, w, 3]; grey : uint8 [n, h, w]; sizes : int64 [n], bytes of the files.

    Brightness and contrast are mean and standard deviation of luma over 255, sharpness the mean absolute 4-neighbour
    Laplacian inside the border over 255, entropy that of 64 bins of luma in bits, colorfulness that of Hasler and
    Suesstrunk 2003 over 255 (0 for grey).
    """
    n, height, width = grey.shape
    area = height * width
    counts = np.zeros((n, 256), np.int64)
    edges = np.zeros(n, np.int64)
    colour = np.zeros((4, n), np.int64)  # sums of rg, rg^2, 2 yb, (2 yb)^2
    rows = max(1, STRIP // (n * width))
    first = np.arange(n, dtype=np.int64)[:, None] * 256
    for top in range(0, height, rows):
        strip = grey[:, top : top + rows]
        counts += np.bincount((strip.reshape(n, -1) + first).ravel(), minlength=n * 256).reshape(n, 256)
        if width > 2 and height > 2:
            around = grey[:, max(0, top - 1) : top + rows + 1].astype(np.int16)
            middle = around[:, 1:-1, 1:-1]
            beside = around[:, 1:-1, :-2] + around[:, 1:-1, 2:] + around[:, :-2, 1:-1] + around[:, 2:, 1:-1]
            edges += np.abs(4 * middle - beside).sum(axis=(1, 2), dtype=np.int64)
        if pixels.ndim == 4:
            r, g, b = np.moveaxis(pixels[:, top : top + rows].astype(np.int32), -1, 0)
            for i, difference in ((0, r - g), (2, r + g - 2 * b)):
                colour[i] += difference.sum(axis=(1, 2), dtype=np.int64)
                colour[i + 1] += (difference * difference).sum(axis=(1, 2), dtype=np.int64)
    levels = np.arange(256, dtype=np.int64)
    mean, spread = _moments(counts @ levels, counts @ (levels * levels), area)
    share = counts.reshape(n, 64, 4).sum(axis=2) / area
    entropy = 0.0 - (share * np.log2(share, out=np.zeros_like(share), where=share > 0)).sum(axis=1)
    rg_mean, rg_spread = _moments(colour[0], colour[1], area)
    yb_mean, yb_spread = _moments(colour[2], colour[3], area)
    apart = np.sqrt(rg_spread**2 + yb_spread**2 / 4) + 0.3 * np.sqrt(rg_mean**2 + yb_mean**2 / 4)
    inside = max(1, (height - 2) * (width - 2))
    columns = (
        mean / 255, spread / 255, edges / inside / 255, entropy, apart / 255, np.full(n, width / height), sizes / area
    )  # fmt: skip
    return np.stack(columns, axis=1)


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
    """Perceptual hashes, int64 [n], of uint8 [n, h, w].

    The products are whole numbers below 2^53, so float64 is exact here and any BLAS gives the same.
    """
    n, height, width = grey.shape
    if (height, width) != (32, 32):
        images = (Image.fromarray(g).resize((32, 32), Image.Resampling.LANCZOS) for g in grey)
        grey = np.stack([np.asarray(image) for image in images])
    low = (_DCT @ grey.astype(np.float64) @ _DCT.T).reshape(n, 64)
    ordered = np.partition(low, (31, 32), axis=1)
    bits = low * 2 > (ordered[:, 31] + ordered[:, 32])[:, None]  # above the median, without dividing
    return np.packbits(bits, axis=1).view(">i8").astype(np.int64).ravel()
