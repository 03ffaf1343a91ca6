"""Batch memory: every column of a batch in one uint8 buffer, and buffers used again once nobody holds their batch."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

_ALIGN = 64
_FREE = 2
"""References to a buffer that only its pool holds: the list's and the argument of `sys.getrefcount`."""


class Column(NamedTuple):
    """One array of a batch, before it exists."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def nbytes(columns: Sequence[Column]) -> int:
    """Bytes of a buffer for these columns, each aligned to a cache line."""
    return sum(-(-c.nbytes // _ALIGN) * _ALIGN for c in columns)


def views(columns: Sequence[Column], buffer: np.ndarray) -> dict[str, np.ndarray]:
    """The columns as arrays over `buffer` (uint8 [at least nbytes(columns)]); their contents are what was there."""
    found, at = {}, 0
    for c in columns:
        found[c.name] = np.ndarray(c.shape, c.dtype, buffer, at)
        at += -(-c.nbytes // _ALIGN) * _ALIGN
    return found


class BufferPool:
    """Hands out buffers; one returns by itself when the last array or tensor over it is gone.

    Fresh memory costs a page fault every 4 KB, as much as copying a batch does. A consumer that keeps its batches
    simply keeps their buffers: the pool then makes new ones.

    Parameters
    ----------
    keep : buffers the pool holds on to at most.
    """

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self._buffers: list[np.ndarray] = []
        self._lock = threading.Lock()

    def take(self, size: int) -> np.ndarray:
        """uint8 [size], its contents undefined."""
        with self._lock:
            for i in range(len(self._buffers)):
                if sys.getrefcount(self._buffers[i]) == _FREE:
                    if size <= len(self._buffers[i]) <= 4 * size + 4096:
                        return self._buffers[i][:size]
                    del self._buffers[i]
                    break
            # a little room to spare, since files differ in size and so do batches of them
            buffer = np.empty(size + size // 8, np.uint8)
            if len(self._buffers) < self.keep:
                self._buffers.append(buffer)
            return buffer[:size]  # a view: its life keeps the buffer's count up

    def __reduce__(self) -> tuple[type[BufferPool], tuple[int]]:
        return BufferPool, (self.keep,)  # another process begins with none


def tensors(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The arrays as tensors over the same memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
