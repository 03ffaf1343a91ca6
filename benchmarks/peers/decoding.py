"""What every peer and the bare loops decode and collate with, so that only the loaders differ.

In a DataLoader's worker a batch is built in shared memory, as torch's own `default_collate` does: that spares a copy.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import simplejpeg
import torch
from PIL import Image
from torch.utils.data import get_worker_info

Decoder = Callable[[Any], np.ndarray]


def by_pillow(data: Any) -> np.ndarray:
    """uint8 [h, w, 3]"""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def by_simplejpeg(data: Any) -> np.ndarray:
    """uint8 [h, w, 3]"""
    return simplejpeg.decode_jpeg(data, colorspace="RGB")


DECODERS: dict[str, Decoder] = {"pillow": by_pillow, "simplejpeg": by_simplejpeg}


def resized(pixels: np.ndarray, side: int) -> np.ndarray:
    """uint8 [side, side, 3], bilinear as Pillow does it; the pixels themselves where they are of that size."""
    if pixels.shape[:2] == (side, side):
        return pixels
    return np.asarray(Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR))


def fresh(shape: tuple[int, ...]) -> torch.Tensor:
    """An empty uint8 tensor, in shared memory inside a worker."""
    if get_worker_info() is None:
        return torch.empty(shape, dtype=torch.uint8)
    size = int(np.prod(shape))
    return torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage._new_shared(size)).resize_(shape)


def decode_batch(files: Sequence[Any], decoder: Decoder, side: int) -> torch.Tensor:
    """uint8 [b, side, side, 3]"""
    batch = fresh((len(files), side, side, 3))
    pixels = batch.numpy()
    for i, data in enumerate(files):
        pixels[i] = resized(decoder(data), side)
    return batch
