"""From shards to batches: a map-style dataset over the sample index, read by offset, and a plain DataLoader around it.

One call of `__getitems__` returns one collated batch as a dict of tensors, so that a worker ships one array per column
through shared memory instead of one object per sample.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch.utils.data import DataLoader, Dataset

from sevenfold.storage.progress import Progress, silent
from sevenfold.training.decode import BROKEN, decode
from sevenfold.training.plan import PAD
from sevenfold.training.sampler import PlannedBatchSampler

Batch = dict[str, torch.Tensor]
_CHUNK = 64


class ShardReader:
    """Reads members at indexed offsets with `os.pread`; each process opens its own files, when first needed."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = list(paths)
        self._files: dict[int, int] = {}
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def read(self, shard: int, offset: int, size: int) -> bytes:
        """`size` bytes at `offset` of the shard. Raises OSError when the file is missing or too short."""
        if self._pid != os.getpid():  # forked: the inherited descriptors belong to the parent
            self._files, self._pid, self._lock = {}, os.getpid(), threading.Lock()
        fd = self._files.get(shard)
        if fd is None:
            with self._lock:
                fd = self._files.get(shard)
                if fd is None:
                    fd = self._files[shard] = os.open(self.paths[shard], os.O_RDONLY | os.O_CLOEXEC)
        data = os.pread(fd, size, offset)
        if len(data) != size:
            raise OSError(f"{self.paths[shard]}: {len(data)} of {size} bytes at offset {offset}")
        return data

    def __getstate__(self) -> dict[str, Any]:
        return {"paths": self.paths}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["paths"])  # type: ignore[misc]

    def __del__(self) -> None:
        if self._pid == os.getpid():
            for fd in self._files.values():
                os.close(fd)


class SampleDataset(Dataset[Batch]):
    """The rows of a samples table as training batches.

    Parameters
    ----------
    shard_path : finds a shard's file by its digest (`lake.shard_path`).
    samples : the samples table; a row's number in it is its index here.
    classes : class names in order; a row's label number is its place here, -1 when unlabelled.
    size, channels : of the decoded images.
    """

    def __init__(
        self,
        shard_path: Callable[[str], Path],
        samples: pa.Table,
        classes: Sequence[str],
        size: int,
        channels: int,
    ) -> None:
        shards, self.groups = shard_numbers(samples)
        self.shards = shards
        self.keys = id_keys(samples["id"].to_pylist())
        self.masked = masked_rows(samples)
        there = set(self.groups[~self.masked].tolist())
        self.reader = ShardReader([str(shard_path(s)) if i in there else "" for i, s in enumerate(shards)])
        self.offsets = pc.fill_null(samples["offset"], 0).to_numpy()
        self.sizes = pc.fill_null(samples["size"], 0).to_numpy()
        self.labels = label_numbers(samples["label"], classes)
        self.weights = samples["weight"].to_numpy().astype(np.float32)
        self.size, self.channels = size, channels
        self.decoded: np.ndarray | None = None
        self.broken: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitems__(self, rows: list[int]) -> Batch:
        """One batch: images uint8 [b, h, w, c], label int64, row int64, weight float32, mask bool, all [b].

        An empty slot (row -1), a sample that was taken down and one that does not decode keep their place with `mask`
        false and zero pixels; all but the first have a row.
        """
        at = np.asarray(rows, dtype=np.int64)
        mask = at != PAD
        filled = np.where(mask, at, 0)
        if self.decoded is not None and self.broken is not None:
            images = self.decoded[filled]
            mask &= ~self.broken[filled]
        else:
            images = np.zeros((len(at), self.size, self.size, self.channels), np.uint8)
            mask[mask] = ~self._decode_into(images, np.flatnonzero(mask), at[mask])
        images[~mask] = 0
        return {
            "images": torch.from_numpy(images),
            "label": torch.from_numpy(np.where(mask, self.labels[filled], -1)),
            "row": torch.from_numpy(at),
            "weight": torch.from_numpy(np.where(mask, self.weights[filled], np.float32(0))),
            "mask": torch.from_numpy(mask),
        }

    def __getitem__(self, row: int) -> Batch:
        """A batch of one."""
        return self.__getitems__([row])

    def decoded_bytes(self) -> int:
        """What :meth:`decode_all` would keep in memory."""
        return len(self) * self.size * self.size * self.channels

    def decode_all(self, threads: int, progress: Progress = silent) -> None:
        """Decode every row once and keep the pixels; batches are the same as without, only sooner."""
        images = np.zeros((len(self), self.size, self.size, self.channels), np.uint8)
        broken = np.zeros(len(self), bool)
        starts = range(0, len(self), _CHUNK)

        def work(start: int) -> None:
            rows = np.arange(start, min(start + _CHUNK, len(self)))
            broken[rows] = self._decode_into(images, rows, rows)

        with ThreadPoolExecutor(max(threads, 1)) as pool:
            for i, _ in enumerate(pool.map(work, starts)):
                if i % 32 == 0:
                    progress(min(i * _CHUNK, len(self)), len(self), "decoding")
        self.decoded, self.broken = images, broken

    def _decode_into(self, images: np.ndarray, slots: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Decode `rows` into `images[slots]`; returns bool [rows], true where that failed."""
        failed = np.zeros(len(rows), bool)
        shards, offsets, sizes = self.groups[rows].tolist(), self.offsets[rows].tolist(), self.sizes[rows].tolist()
        gone = self.masked[rows].tolist()
        for i, slot in enumerate(slots.tolist()):
            if gone[i]:
                failed[i] = True
                continue
            try:
                images[slot] = decode(self.reader.read(shards[i], offsets[i], sizes[i]), self.size, self.channels)
            except BROKEN:
                failed[i] = True
        return failed


def make_loader(dataset: SampleDataset, sampler: PlannedBatchSampler, workers: int = 0) -> DataLoader[Batch]:
    """A plain torch DataLoader: the sampler decides the order, the dataset collates, nothing else happens."""
    return DataLoader(
        dataset,
        batch_sampler=sampler,
        num_workers=workers,
        collate_fn=_as_it_is,
        persistent_workers=workers > 0,
        multiprocessing_context="spawn" if workers else None,
    )


def shard_numbers(samples: pa.Table) -> tuple[list[str], np.ndarray]:
    """(shard digests in order of first appearance, int64 [n] the number of each row's shard)."""
    encoded = samples["shard"].combine_chunks().dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


def id_keys(ids: Sequence[str]) -> np.ndarray:
    """uint64 [n]: the first 16 hexadecimal digits of each id."""
    return np.frombuffer(bytes.fromhex("".join(i[:16] for i in ids)), dtype=">u8").astype(np.uint64)


def masked_rows(samples: pa.Table) -> np.ndarray:
    """bool [n]: the samples that were taken down, of a table that keeps their rows."""
    return samples["offset"].is_null().to_numpy()


def label_numbers(labels: pa.ChunkedArray, classes: Sequence[str]) -> np.ndarray:
    """int64 [n]: each label's place among the classes, -1 for null or unknown."""
    found = pc.index_in(labels, value_set=pa.array(list(classes), pa.string()))
    return pc.fill_null(found, -1).to_numpy().astype(np.int64)


def _as_it_is(batch: Any) -> Any:
    return batch
