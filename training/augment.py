"""Augmentation by (seed, sample, occurrence): each use of a sample gets its own flip and shift, whoever computes it."""

from __future__ import annotations

from typing import Literal

import numpy as np

from sevenfold.training.draw import key, mix, numbered

Augmentation = Literal["flip", "shift"]
_CHANGES, _USE = 3, 6  # salts of their own
SHIFT = 4
"""Pixels a picture of 32 may move each way; other sizes in proportion."""


def sample_keys(keys: np.ndarray, occurrences: np.ndarray) -> np.ndarray:
    """uint64 [b]: one key for each use of a sample.

    Parameters
    ----------
    keys : uint64 [b], of the samples (`dataset.keys[rows]`).
    occurrences : int64 [b], which use of it this is: the pass over its source, and the copy within one.
    """
    return mix(keys ^ numbered(occurrences, key(_USE)))


def augment(images: np.ndarray, keys: np.ndarray, seed: int, which: tuple[Augmentation, ...]) -> np.ndarray:
    """Flip half of the images left to right and shift each by up to an eighth of its side, zeros filling in.

    The image is copied row by row out of a padded batch, so no loop over images is needed.

    Parameters
    ----------
    images : uint8 [b, h, w, c]
    keys : uint64 [b], of :func:`sample_keys`; with the seed they decide everything, no generator is involved.
    which : the augmentations to apply; () returns the images as they are.

    Returns
    -------
    uint8 [b, h, w, c], a new array unless `which` is empty.
    """
    if not which or not len(images):
        return images
    b, h, w, c = images.shape
    bits = numbered(keys, key(seed, _CHANGES))
    reach = max(h * SHIFT // 32, 1) if "shift" in which else 0
    span = np.uint64(2 * reach + 1)
    down = ((bits >> np.uint64(8)) % span).astype(np.int64)
    right = ((bits >> np.uint64(32)) % span).astype(np.int64)
    flip = (bits & np.uint64(1)).astype(bool) & ("flip" in which)

    pixel = np.dtype(("V", c))  # one element for each pixel: mirroring moves whole ones
    padded = np.zeros((b, h + 2 * reach, w + 2 * reach), pixel)
    inner = padded[:, reach : reach + h, reach : reach + w]
    whole = np.ascontiguousarray(images).view(pixel)[..., 0]
    inner[~flip] = whole[~flip]
    inner[flip] = whole[flip][:, :, ::-1]
    if not reach:
        return padded.view(np.uint8).reshape(b, h, w, c)
    right = np.where(flip, 2 * reach - right, right)  # the window moves over the mirrored image

    flat = padded.reshape(-1).view(np.uint8)
    windows = np.lib.stride_tricks.as_strided(flat, (flat.size - w * c + 1, w * c), (1, 1), writeable=False)
    first = (np.arange(b) * (h + 2 * reach) + down) * (w + 2 * reach) + right
    rows = first[:, None] + np.arange(h) * (w + 2 * reach)
    return windows[(rows * c).reshape(-1)].reshape(b, h, w, c)
