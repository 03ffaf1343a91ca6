"""Measuring the loader: every setting in turn and again, on a version's own images, with the cache warm."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from time import perf_counter

import numpy as np

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.progress import Progress, silent
from sevenfold.training.decode import decode_into
from sevenfold.training.feed import Feed
from sevenfold.training.loader import ByteDataset, SampleDataset, make_loader
from sevenfold.training.tune import Rates, Setting, candidates

_ROUNDS = 5
_BUDGET = 512
"""Samples of the version that the probe reads again and again: after the first pass they are in the system's cache."""


def probe(
    images: SampleDataset,
    files: ByteDataset,
    rows: np.ndarray,
    batch_size: int,
    seconds: float,
    cores: int | None = None,
    progress: Progress = silent,
) -> Rates:
    """Measure every candidate, one after the other and again, so that a busy moment spoils no single one.

    Parameters
    ----------
    images, files : the same rows, decoded and not.
    rows : int64, what to read; a sample of them is used, in random order.
    seconds : for measuring, in which one round is always made; starting worker processes takes some more.

    Raises SevenfoldError when there are no rows or none of them decodes.
    """
    cores = cores or len(os.sched_getaffinity(0))
    load = os.getloadavg()[0] / cores
    if not len(rows):
        raise SevenfoldError("there are no samples to read", where="tune-loader", do="name a version that has some")
    batch_size = min(batch_size, len(rows))
    batches = _Repeated(rows, batch_size)
    settings = candidates(cores)
    feeds = {
        (kind, setting): make_loader(dataset, batches.copy(), setting.workers, setting.threads)
        for setting in settings
        for kind, dataset in (("decoded", images), ("bytes", files))
    }
    memory = _Decoding(images, files, batches.pool[:_BUDGET])
    if not memory.good:
        raise SevenfoldError("no image decodes", where="tune-loader", do="run `sevenfold verify --deep`")
    turn = seconds / (_ROUNDS * (len(feeds) + 1))
    found: dict[tuple[str, Setting], list[float]] = {key: [] for key in feeds}
    decoding = []
    try:
        for key, feed in feeds.items():  # starts the processes, and tells how many batches fill a turn
            progress(0, _ROUNDS, f"starting {key[1].name}")
            _calibrate(feed, turn)
        begun = perf_counter()
        for done in range(_ROUNDS):
            progress(done, _ROUNDS, "measuring the loader")
            for key, feed in feeds.items():
                found[key].append(_rate(feed))
            decoding.append(memory.rate(turn))
            # where a few batches take longer than a turn, fewer rounds fit into the time
            if (perf_counter() - begun) * (done + 2) / (done + 1) > seconds:
                break
    finally:
        for feed in feeds.values():
            feed.close()
    rates = {key: median(values) for key, values in found.items()}
    return Rates(
        decoded={s: rates["decoded", s] for s in settings},
        bytes_only={s: rates["bytes", s] for s in settings},
        reading=rates["bytes", Setting()],
        decoding=median(decoding),
        load=load,
    )


class _Repeated:
    """Batches over a fixed pool of rows, `count` of them each time: a sampler for probing."""

    def __init__(self, rows: np.ndarray, batch_size: int) -> None:
        random = np.random.default_rng(0)
        self.pool = random.permutation(rows)[: max(_BUDGET, 4 * batch_size)]
        self.batch_size, self.count = batch_size, 1

    def copy(self) -> _Repeated:
        """The same, with a count of its own."""
        return _Repeated(self.pool, self.batch_size)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[list[int]]:
        at = np.arange(self.batch_size)
        for i in range(self.count):
            yield self.pool[(i * self.batch_size + at) % len(self.pool)].tolist()


class _Decoding:
    """Files in memory, decoded by one thread: what the pixels cost without the reading."""

    def __init__(self, images: SampleDataset, files: ByteDataset, rows: np.ndarray) -> None:
        batch = files.__getitems__(rows)
        data, offsets = batch["data"].numpy().data, batch["offsets"].tolist()
        self.files = [data[a:b] for (a, b), ok in zip(pairwise(offsets), batch["mask"].tolist(), strict=True) if ok]
        self.scaling = images.scaling
        self.place = np.zeros((1, images.size, images.size, images.channels), np.uint8)
        self.files = [file for file in self.files if not self._decode([file])]

    @property
    def good(self) -> bool:
        """Whether there is anything to decode."""
        return bool(self.files)

    def rate(self, seconds: float) -> float:
        """Images per second."""
        begun, n = perf_counter(), 0
        while perf_counter() - begun < seconds or not n:
            part = self.files[n % len(self.files) :][:32]
            self._decode(part)
            n += len(part)
        return n / (perf_counter() - begun)

    def _decode(self, files: Sequence[memoryview]) -> list[int]:
        return decode_into(self.place, [0] * len(files), files, self.scaling)


def _calibrate(feed: Feed, turn: float) -> None:
    """Run twice, the first time to start and warm up, and set the sampler's count so that a run takes one turn."""
    batches = feed.sampler
    assert isinstance(batches, _Repeated)
    _rate(feed)
    batches.count = max(feed.workers, 1)
    batches.count = max(batches.count, int(turn * _rate(feed) / batches.batch_size))


def _rate(feed: Feed) -> float:
    """Samples per second of one run."""
    begun, n = perf_counter(), 0
    for batch in feed:
        n += len(batch["row"])
    return n / (perf_counter() - begun)
