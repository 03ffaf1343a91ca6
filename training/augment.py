"""Augmentation by (seed, sample, occurrence): each use of a sample gets its own flip and shift, whoever computes it."""

from __future__ import annotations

from typing import Literal

import numpy as np

from sevenfold.training.draw import mix

Augmentation = Literal["flip", "shift"]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SALT = 3
SHIFT = 4
"""Pixels a picture of 32 may move each way; other sizes in proportion."""


def sample_keys(keys: np.ndarray, occurrences: np.ndarray) -> np.ndarray:
    """uint64 [b]: one key for each use of a sample, from the samples' keys and the numbers of their uses."""
    return mix(keys.astype(np.uint64) ^ mix(occurrences.astype(np.uint64) * _GOLDEN + _GOLDEN))


def augment(images: np.ndarray, keys: np.ndarray, seed: int, which: tuple[Augmentation, ...]) -> np.ndarray:
    """Flip half of the images left to right and shift each by up to an eighth of its side, zeros filling in.

    Parameters
    ----------
    images : uint8 [b, h, w, c]
    keys : uint64 [b], of each use of a sample (:func:`sample_keys`): two uses of one sample look different.
    seed : keys the hash together with them; no generator is involved.
    which : the augmentations to apply; () returns the images as they are.

    Returns
    -------
    uint8 [b, h, w, c], a new array unless `which` is empty.
    """
    if not which:
        return images
    b, h, w, _ = images.shape
    state = np.zeros(1, np.uint64)
    for word in (seed, _SALT):
        state = mix((state ^ np.uint64(word % 2**64)) + _GOLDEN)
    bits = mix(keys + state[0])
    reach = max(h * SHIFT // 32, 1) if "shift" in which else 0
    span = np.uint64(2 * reach + 1)
    down = ((bits >> np.uint64(8)) % span).astype(np.int64).tolist()
    right = ((bits >> np.uint64(32)) % span).astype(np.int64).tolist()
    flip = ((bits & np.uint64(1)).astype(bool) & ("flip" in which)).tolist()
    padded = np.pad(images, ((0, 0), (reach, reach), (reach, reach), (0, 0))) if reach else images
    out = np.empty_like(images)
    for i in range(b):
        view = padded[i, down[i] : down[i] + h, right[i] : right[i] + w]
        out[i] = view[:, ::-1] if flip[i] else view
    return out
