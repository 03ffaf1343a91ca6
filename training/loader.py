"""From shards to batches: map-style datasets over the sample index, read by offset, one collated batch a call.

A batch is a dict of tensors over one buffer (see buffers.py). Its parts can be filled by several threads at once:
`begin` makes the columns and everything that is vectorised, `fill` reads and decodes a range of slots, `finish` masks
what failed. `__getitems__` does the three in turn; feed.py spreads them over threads and processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch.utils.data import Dataset

from sevenfold.storage.progress import Progress, silent
from sevenfold.training.buffers import BufferPool, Column, nbytes, tensors, views
from sevenfold.training.decode import Scaling, Undecodable, decode, decode_into
from sevenfold.training.draw import keys
from sevenfold.training.feed import Batches, Feed
from sevenfold.training.held import worth_holding
from sevenfold.training.plan import PAD
from sevenfold.training.reader import ShardReader

Batch = dict[str, torch.Tensor]
OK, EMPTY, TAKEN_DOWN, UNREADABLE, UNDECODABLE = range(5)
"""A slot's status: a sample; no sample (row -1); one that was taken down; bytes that cannot be read; no image."""
_CHUNK = 256
_UINT8, _INT64, _FLOAT32, _BOOL = (np.dtype(name) for name in ("uint8", "int64", "float32", "bool"))


class ShardDataset(Dataset[Batch]):
    """The rows of a samples table as batches of what lies in the shards; its subclasses say what that is.

    Parameters
    ----------
    shard_path : finds a shard's file by its digest (`lake.shard_path`).
    samples : the samples table; a row's number in it is its index here.
    classes : class names in order; a row's label number is its place here, -1 when unlabelled.

    Attributes
    ----------
    shards : digests; `groups` int64 [n] is the number of each row's shard among them.
    labels : int64 [n]; weights : float32 [n]; keys : uint64 [n], from the ids.
    masked : bool [n], the rows without bytes: taken down, or not in the variant that is read.
    """

    def __init__(self, shard_path: Callable[[str], Path], samples: pa.Table, classes: Sequence[str]) -> None:
        self.shards, self.groups = shard_numbers(samples)
        self.masked = masked_rows(samples)
        # a variant has no image of a sample that did not decode when it was made, but still knows of what kind it was
        known = (
            samples["ext"].is_valid().to_numpy() if "ext" in samples.column_names else np.zeros(len(self.masked), bool)
        )
        self._status = np.select([~self.masked, known], [OK, UNDECODABLE], TAKEN_DOWN).astype(np.uint8)
        self.offsets = pc.fill_null(samples["offset"], 0).to_numpy().astype(np.int64)
        self.sizes = pc.fill_null(samples["size"], 0).to_numpy().astype(np.int64)
        lengths = worth_holding(self.groups, self.offsets + self.sizes, len(self.shards))
        self.reader = ShardReader(partial(_find, shard_path, self.shards), lengths=lengths)
        self.labels = label_numbers(samples["label"], classes)
        self.weights = samples["weight"].to_numpy().astype(np.float32)
        self._names: pa.Table | None = samples.select(["id", "path"])

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, row: int) -> Batch:
        """A batch of one."""
        return self.__getitems__([row])

    def __getitems__(self, rows: Sequence[int] | np.ndarray) -> Batch:
        """One batch.

        Beside what the subclass adds: label int64, row int64, weight float32, mask bool, status uint8, all [b]. A slot
        whose status is not OK keeps its place, with `mask` false, label -1, weight 0 and nothing in it; all but EMPTY
        ones have a row.

        Raises SevenfoldError when a shard is missing.
        """
        at = np.asarray(rows, dtype=np.int64)
        spec = self.columns(at)
        batch = views(spec, np.empty(nbytes(spec), np.uint8))
        self.begin(batch, at)
        self.fill(batch, 0, len(at))
        self.finish(batch)
        return tensors(batch)

    @cached_property
    def keys(self) -> np.ndarray:
        """uint64 [n]: a hash of each row's sample id, whatever row it is in."""
        assert self._names is not None
        return keys(self._names["id"].to_pylist(), 0, "augment")

    def explain(self, row: int) -> str:
        """Why the sample of a row is masked, or that it is not: tried again, in plain words."""
        if row == PAD:
            return "an empty slot: the last batch has fewer samples than places"
        name = f"row {row}"
        if self._names is not None:
            name = f"{self._names['path'][row].as_py()} (row {row}, id {self._names['id'][row].as_py()})"
        if self.masked[row]:
            gone = self._status[row] == TAKEN_DOWN
            return f"{name}: {'was taken down' if gone else 'did not decode when the variant was made'}"
        member = int(self.groups[row]), int(self.offsets[row]), int(self.sizes[row])
        why = self.reader.reason(*member)
        return f"{name}: {f'cannot be read: {why}' if why else self._explain(*member)}"

    def columns(self, rows: np.ndarray) -> list[Column]:
        """What a batch of these rows consists of."""
        n = (len(rows),)
        return [
            Column("label", _INT64, n),
            Column("row", _INT64, n),
            Column("weight", _FLOAT32, n),
            Column("mask", _BOOL, n),
            Column("status", _UINT8, n),
        ]

    def begin(self, batch: dict[str, np.ndarray], rows: np.ndarray) -> None:
        """Fill in what needs no reading. `batch`: arrays as :meth:`columns` says, of undefined contents."""
        batch["row"][:] = rows
        if not len(self):
            batch["status"][:] = EMPTY
            return
        # clipping turns PAD into row 0; what that row says is masked again
        np.take(self.labels, rows, out=batch["label"], mode="clip")
        np.take(self.weights, rows, out=batch["weight"], mode="clip")
        np.take(self._status, rows, out=batch["status"], mode="clip")
        if len(rows) and rows.min() == PAD:
            batch["status"][rows == PAD] = EMPTY

    def fill(self, batch: dict[str, np.ndarray], start: int, stop: int) -> None:
        """Read the samples of slots start .. stop; the only part that takes long, safe to run beside other ranges."""
        raise NotImplementedError

    def finish(self, batch: dict[str, np.ndarray]) -> None:
        """Mask every slot that is not OK."""
        np.equal(batch["status"], OK, out=batch["mask"])
        if not batch["mask"].all():
            bad = ~batch["mask"]
            batch["label"][bad], batch["weight"][bad] = -1, 0
            self._blank(batch, bad)

    def share_memory(self, among: int) -> None:
        """Take this process's part of the memory for shards: one of `among` that read at the same time."""
        self.reader.share_memory(among)

    def split(self, batch: Batch, sizes: Sequence[int]) -> list[Batch]:
        """Cut a batch into batches of these sizes, which share its memory."""
        parts = {name: column.split(list(sizes)) for name, column in batch.items()}
        return [{name: part[i] for name, part in parts.items()} for i in range(len(sizes))]

    def _slots(self, batch: dict[str, np.ndarray], start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """(slots that hold a sample, its rows) among start .. stop."""
        status = batch["status"][start:stop]
        slots = np.flatnonzero(status == OK) + start if status.any() else np.arange(start, stop)
        return slots, batch["row"][slots]

    def _blank(self, batch: dict[str, np.ndarray], bad: np.ndarray) -> None:
        raise NotImplementedError

    def _explain(self, shard: int, offset: int, size: int) -> str:
        return "is fine"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_names": None}  # workers need no ids: 10^8 of them are 6 GB


class SampleDataset(ShardDataset):
    """Decoded images: batches have `images`, uint8 [b, size, size, channels].

    Parameters
    ----------
    shard_path, samples, classes : as of :class:`ShardDataset`.
    size, channels : of the decoded images.
    scaling : whether libjpeg may shrink large JPEGs while decoding (see decode.py); part of what a run computes.
    """

    def __init__(
        self,
        shard_path: Callable[[str], Path],
        samples: pa.Table,
        classes: Sequence[str],
        size: int,
        channels: int,
        scaling: Scaling = "scaled",
    ) -> None:
        super().__init__(shard_path, samples, classes)
        self.size, self.channels, self.scaling = size, channels, scaling
        self._scratch = BufferPool(keep=8)
        self.decoded: np.ndarray | None = None
        self.status: np.ndarray | None = None

    def columns(self, rows: np.ndarray) -> list[Column]:
        """The images, and what every batch has."""
        shape = (len(rows), self.size, self.size, self.channels)
        return [Column("images", _UINT8, shape), *super().columns(rows)]

    def fill(self, batch: dict[str, np.ndarray], start: int, stop: int) -> None:
        """Decode the samples of slots start .. stop."""
        if self.decoded is not None and self.status is not None:
            rows, status = batch["row"][start:stop], batch["status"][start:stop]
            np.take(self.decoded, rows, axis=0, out=batch["images"][start:stop], mode="clip")
            np.copyto(status, self.status[np.maximum(rows, 0)], where=status == OK)
            return
        slots, rows = self._slots(batch, start, stop)
        groups, offsets, sizes = self.groups[rows], self.offsets[rows], self.sizes[rows]
        ends = np.cumsum(sizes)
        files = self.reader.slices(groups, offsets, sizes)
        if files is None:
            # one buffer for all files: as objects of their own they would scatter the heap that libjpeg allocates
            # from, which alone costs it a fifth at 32 pixels
            data = self._scratch.take(int(ends[-1]) if len(ends) else 0).data
            files = [data[start:end] for start, end in zip((ends - sizes).tolist(), ends.tolist(), strict=True)]
            good = self.reader.read_into(groups, offsets, sizes, files)
        else:
            good = np.fromiter(map(len, files), np.int64, len(files)) == sizes
        if not good.all():
            batch["status"][slots[~good]] = UNREADABLE
            slots, files = slots[good], [files[i] for i in np.flatnonzero(good)]
        for failed in decode_into(batch["images"], slots, files, self.scaling):
            batch["status"][failed] = UNDECODABLE

    def decoded_bytes(self) -> int:
        """What :meth:`decode_all` would keep in memory."""
        return len(self) * self.size * self.size * self.channels

    def decode_all(self, threads: int, progress: Progress = silent) -> None:
        """Decode every row once and keep the pixels; batches are the same as without, only sooner."""
        rows = np.arange(len(self))
        spec = self.columns(rows)
        batch = views(spec, np.empty(nbytes(spec), np.uint8))
        self.begin(batch, rows)
        starts = range(0, len(self), _CHUNK)
        with ThreadPoolExecutor(max(threads, 1)) as pool:
            parts = pool.map(lambda start: self.fill(batch, start, min(start + _CHUNK, len(self))), starts)
            for i, _ in enumerate(parts):
                if i % 8 == 0:
                    progress(min((i + 1) * _CHUNK, len(self)), len(self), "decoding")
        self.finish(batch)
        self.decoded, self.status = batch["images"], batch["status"]
        self.reader.share_memory(1)  # lets go of the shards: nothing is read from them any more

    def _blank(self, batch: dict[str, np.ndarray], bad: np.ndarray) -> None:
        batch["images"][bad] = 0

    def _explain(self, shard: int, offset: int, size: int) -> str:
        data = bytearray(size)
        self.reader.read_into(np.array([shard]), np.array([offset]), np.array([size]), [memoryview(data)])
        try:
            decode(bytes(data), self.size, self.channels, self.scaling)
        except Undecodable as error:
            return f"cannot be decoded: {error}"
        return "is fine"


class ByteDataset(ShardDataset):
    """Files as they are: batches have `data`, uint8 [total], and `offsets`, int64 [b + 1].

    Sample i is `data[offsets[i] : offsets[i + 1]]`; a slot without one has no bytes, one that cannot be read has zeros.
    """

    def columns(self, rows: np.ndarray) -> list[Column]:
        """Bytes and offsets, and what every batch has."""
        total = int(self._lengths(rows).sum())
        return [Column("data", _UINT8, (total,)), Column("offsets", _INT64, (len(rows) + 1,)), *super().columns(rows)]

    def begin(self, batch: dict[str, np.ndarray], rows: np.ndarray) -> None:
        """Fill in what needs no reading: all but the bytes."""
        super().begin(batch, rows)
        batch["offsets"][0] = 0
        np.cumsum(self._lengths(rows), out=batch["offsets"][1:])

    def fill(self, batch: dict[str, np.ndarray], start: int, stop: int) -> None:
        """Read the files of slots start .. stop."""
        slots, rows = self._slots(batch, start, stop)
        groups, offsets, sizes = self.groups[rows], self.offsets[rows], self.sizes[rows]
        data, begin, end = batch["data"], int(batch["offsets"][start]), int(batch["offsets"][stop])
        files = self.reader.slices(groups, offsets, sizes)
        if files is not None and len(joined := b"".join(files)) == end - begin:
            data[begin:end] = np.frombuffer(joined, np.uint8)
            return
        starts = batch["offsets"][slots]
        places = [data.data[a:b] for a, b in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)]
        good = self.reader.read_into(groups, offsets, sizes, places)
        if not good.all():
            batch["status"][slots[~good]] = UNREADABLE

    def split(self, batch: Batch, sizes: Sequence[int]) -> list[Batch]:
        """Cut a batch into batches of these sizes, which share its memory except for the offsets."""
        rest = super().split({k: v for k, v in batch.items() if k not in ("data", "offsets")}, sizes)
        first = 0
        for part, size in zip(rest, sizes, strict=True):
            offsets = batch["offsets"][first : first + size + 1]
            part["data"], part["offsets"] = batch["data"][offsets[0] : offsets[-1]], offsets - offsets[0]
            first += size
        return rest

    def _lengths(self, rows: np.ndarray) -> np.ndarray:
        filled = np.where(rows == PAD, 0, rows)
        return np.where((rows == PAD) | self.masked[filled], 0, self.sizes[filled])

    def _blank(self, batch: dict[str, np.ndarray], bad: np.ndarray) -> None:
        for i in np.flatnonzero(bad).tolist():
            batch["data"][batch["offsets"][i] : batch["offsets"][i + 1]] = 0


def make_loader(dataset: ShardDataset, sampler: Batches, workers: int = 0, threads: int = 1, prefetch: int = 2) -> Feed:
    """The batches of `dataset` in the order of `sampler`: the same by every path.

    Parameters
    ----------
    sampler : a `PlannedBatchSampler`, or any sequence of lists of rows.
    workers : processes; 0 for none, and then `threads` counts.
    threads : that read and decode ahead of the consumer; 0 does so when a batch is asked for. Pixels that are decoded
        already are always taken so: copying them is quicker than passing them on.
    prefetch : batches made ahead, at least one for each thread or worker.
    """
    kept = isinstance(dataset, SampleDataset) and dataset.decoded is not None
    return Feed(dataset, sampler, 0 if kept else workers, 0 if kept else threads, prefetch)


def _find(shard_path: Callable[[str], Path], shards: Sequence[str], number: int) -> Path:
    return shard_path(shards[number])


def shard_numbers(samples: pa.Table) -> tuple[list[str], np.ndarray]:
    """(shard digests in order of first appearance, int64 [n] the number of each row's shard)."""
    encoded = samples["shard"].combine_chunks().dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


def masked_rows(samples: pa.Table) -> np.ndarray:
    """bool [n]: the samples that were taken down, of a table that keeps their rows."""
    return samples["offset"].is_null().to_numpy()


def label_numbers(labels: pa.ChunkedArray, classes: Sequence[str]) -> np.ndarray:
    """int64 [n]: each label's place among the classes, -1 for null or unknown."""
    found = pc.index_in(labels, value_set=pa.array(list(classes), pa.string()))
    return pc.fill_null(found, -1).to_numpy().astype(np.int64)
