"""Real images for the drift benchmark: CIFAR-10 from a zip, CIFAR-10-C's corruptions, measurements and embeddings.

The corruptions follow Hendrycks and Dietterich (ICLR 2019) at their published severities; the embedding is a random
convolution (whitened patches of the images themselves as filters), which needs no training and no download.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from sevenfold.storage.measure import measure_many

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def read_cifar(path: Path, split: str, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(uint8 [count, 32, 32, 3], labels int64 [count]) of random images of the zip's folder `split`."""
    with zipfile.ZipFile(path) as z:
        names = sorted(n for n in z.namelist() if f"{split}/" in n and n.endswith(".jpg"))
        chosen = np.random.default_rng(seed).permutation(len(names))[:count]
        pixels = np.stack([np.asarray(Image.open(io.BytesIO(z.read(names[i]))).convert("RGB")) for i in chosen])
    labels = np.array([CLASSES.index(names[i].split("/")[-2]) for i in chosen])
    return pixels, labels


def gaussian_noise(x: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
    scale = (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    return _bytes(x / 255 + rng.normal(scale=scale, size=x.shape))


def gaussian_blur(x: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
    from scipy.ndimage import gaussian_filter

    sigma = (0.4, 0.6, 0.7, 0.8, 1.0)[severity - 1]
    axes = [0.0, sigma, sigma, 0.0][: x.ndim]
    return _bytes(gaussian_filter(x / 255, axes, mode="nearest", truncate=4.0))


def defocus_blur(x: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
    from scipy.ndimage import convolve

    radius, alias = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))[severity - 1]
    span = np.arange(-8, 9)
    disk = (span[:, None] ** 2 + span**2 <= radius**2).astype(float)
    line = np.exp(-(np.arange(-1, 2) ** 2) / (2 * alias**2))  # OpenCV's 3 x 3 Gaussian
    line /= line.sum()
    kernel = convolve(disk / disk.sum(), np.outer(line, line), mode="mirror")
    kernel = kernel[5:12, 5:12]  # the rest is zero
    shape = (1, 7, 7, 1)[: x.ndim]
    return _bytes(convolve(x / 255, kernel.reshape(shape), mode="mirror"))


def brightness(x: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
    """Value + c in HSV: the largest channel rises by c (to 1 at most) and the others in proportion."""
    c = (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]
    x = x / 255
    value = x.max(axis=-1, keepdims=True) if x.ndim == 4 else x
    ratio = np.divide(x, value, out=np.ones_like(x), where=value > 0)
    return _bytes(ratio * np.clip(value + c, 0, 1))


def jpeg_compression(x: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
    quality = (80, 65, 58, 50, 40)[severity - 1]
    return np.stack([np.asarray(Image.open(io.BytesIO(_jpeg(image, quality)))) for image in x])


CORRUPTIONS: dict[str, Callable[[np.ndarray, int, np.random.Generator], np.ndarray]] = {
    "gaussian blur": gaussian_blur,
    "defocus blur": defocus_blur,
    "gaussian noise": gaussian_noise,
    "brightness": brightness,
    "jpeg compression": jpeg_compression,
}


@dataclass(frozen=True)
class Pool:
    """Images as the checks see them: properties name -> float [n], labels [n], embeddings [n, d], outputs [n, k]."""

    properties: dict[str, np.ndarray]
    labels: np.ndarray
    vectors: np.ndarray
    outputs: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


def measured(pixels: np.ndarray) -> dict[str, np.ndarray]:
    """The properties that ingest measures, of the images written as PNG files (so that no encoder adds a hint)."""
    from sevenfold.storage.index import PROPERTIES
    from sevenfold.storage.png import encode_png

    table, failures = measure_many((encode_png(image), f"{i}.png") for i, image in enumerate(pixels))
    if failures:
        raise failures[0][1]
    return {name: table[name].to_numpy() for name in PROPERTIES}


class RandomConvolution:
    """64 filters of 5 x 5, made of patches of the given images, rectified and averaged over quarters: 256 numbers."""

    def __init__(self, pixels: np.ndarray, filters: int = 64, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        patches = _patches(pixels[:500])
        patches = patches[rng.permutation(len(patches))[:20000]]
        patches = patches - patches.mean(1, keepdims=True)
        values, vectors = np.linalg.eigh(np.cov(patches.T))
        self.whiten = (vectors / np.sqrt(values + 0.01)) @ vectors.T
        chosen = patches[:filters] @ self.whiten
        self.filters = (chosen / np.linalg.norm(chosen, axis=1, keepdims=True)).astype(np.float32)

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        """float32 [n, 4 filters]."""
        out = []
        for start in range(0, len(pixels), 500):
            part = pixels[start : start + 500]
            patches = _patches(part)
            patches = patches - patches.mean(1, keepdims=True)
            seen = np.maximum(patches @ (self.whiten.astype(np.float32) @ self.filters.T), 0)
            side = int(np.sqrt(len(seen) / len(part)))
            grid = seen.reshape(len(part), side, side, -1)
            half = side // 2
            halves = (slice(half), slice(half, None))
            quarters = [grid[:, a, b].mean((1, 2)) for a in halves for b in halves]
            out.append(np.concatenate(quarters, axis=1))
        return np.concatenate(out).astype(np.float32)


def _patches(pixels: np.ndarray, size: int = 5, stride: int = 2) -> np.ndarray:
    x = (pixels if pixels.ndim == 4 else pixels[..., None]).astype(np.float32) / 255
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(1, 2))[:, ::stride, ::stride]
    return windows.reshape(-1, x.shape[-1] * size * size)


def _jpeg(image: np.ndarray, quality: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, "JPEG", quality=quality)
    return out.getvalue()


def _bytes(x: np.ndarray) -> np.ndarray:
    return np.uint8(np.clip(x, 0, 1) * 255)
