"""Batches ahead of the consumer: in its own thread, by a pool of threads, or by worker processes; the same by each.

Threads share the pixels and pass nothing on, but take turns at Python's lock between two images; processes share no
lock, but hand each batch over through shared memory. Which is quicker depends on the image: see tune.py.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from sevenfold.storage.errors import SevenfoldError
from sevenfold.training.buffers import BufferPool, Column, nbytes, tensors, views
from sevenfold.training.ring import Borrower, Lender, Lent, Returned

_PART = 1 << 20
"""Bytes of a batch that are worth a thread of their own: smaller parts cost more in handing over than they save."""
_IN_HAND = 4
"""Pieces of memory beyond those asked for: in the consumer's hands, the one before, and what requests tell late."""
_BLOCK = 1 << 22
"""Bytes that a worker delivers at once, in whole batches: a delivery costs as much as dozens of small images."""


class Fillable(Protocol):
    """A dataset whose batches can be made in parts (see loader.py)."""

    def columns(self, rows: np.ndarray) -> list[Column]:
        """What a batch of these rows consists of."""

    def begin(self, batch: dict[str, np.ndarray], rows: np.ndarray) -> None:
        """Fill in what is quick."""

    def fill(self, batch: dict[str, np.ndarray], start: int, stop: int) -> None:
        """Fill in slots start .. stop."""

    def finish(self, batch: dict[str, np.ndarray]) -> None:
        """Mask what failed."""

    def share_memory(self, among: int) -> None:
        """Keep no more than this part of what a process may keep."""

    def split(self, batch: dict[str, torch.Tensor], sizes: Sequence[int]) -> list[dict[str, torch.Tensor]]:
        """Cut a batch into batches."""


class Batches(Iterable[list[int]], Sized, Protocol):
    """A batch sampler."""


class Feed:
    """An iterable of batches. Each iteration asks the sampler anew; one that is left early leaves nothing running.

    Worker processes are started by the first iteration (they import the main module again: guard it) and live until
    the feed does, or :meth:`close`. Errors are raised where the batch is asked for.

    Parameters
    ----------
    dataset, sampler : what is delivered, and in which order.
    workers, threads, prefetch : as of `make_loader`.
    """

    def __init__(self, dataset: Fillable, sampler: Batches, workers: int, threads: int, prefetch: int) -> None:
        if min(workers, threads, prefetch) < 0:
            raise SevenfoldError(
                f"workers {workers}, threads {threads}, prefetch {prefetch}", where="loader", expected="none below 0"
            )
        self.dataset, self.sampler = dataset, sampler
        self.workers, self.threads, self.prefetch = workers, threads, prefetch
        self._buffers = BufferPool(keep=max(prefetch, threads) + 3)
        self.memory = Borrower()
        self._processes: DataLoader[Any] | None = None
        self._whole = True  # no iteration over worker processes is under way, or was left early

    def __len__(self) -> int:
        """Batches left in the sampler's epoch."""
        return len(self.sampler)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """The batches of :meth:`loader.ShardDataset.__getitems__`, one for each list of rows of the sampler."""
        if self.workers:
            return self._by_processes()
        return self._by_threads() if self.threads else self._serially()

    def close(self) -> None:
        """End the worker processes."""
        self._processes = None
        if self._whole:
            self.memory.restart()

    def _begin(self, rows: Sequence[int]) -> tuple[int, dict[str, np.ndarray]]:
        at = np.asarray(rows, dtype=np.int64)
        spec = self.dataset.columns(at)
        size = nbytes(spec)
        batch = views(spec, self._buffers.take(size))
        self.dataset.begin(batch, at)
        return size, batch

    def _serially(self) -> Iterator[dict[str, torch.Tensor]]:
        for rows in self.sampler:
            _, batch = self._begin(rows)
            self.dataset.fill(batch, 0, len(rows))
            self.dataset.finish(batch)
            yield tensors(batch)
            del batch  # or its buffer would be in use while the next is made

    def _by_threads(self) -> Iterator[dict[str, torch.Tensor]]:
        waiting: deque[tuple[dict[str, np.ndarray], list[Future[None]]]] = deque()
        ahead = max(self.prefetch, self.threads)
        pool = ThreadPoolExecutor(self.threads, "sevenfold-loader")

        def next_one() -> dict[str, torch.Tensor]:
            batch, parts = waiting.popleft()
            for part in parts:
                part.result()
            self.dataset.finish(batch)
            return tensors(batch)

        try:
            for rows in self.sampler:
                size, batch = self._begin(rows)
                step = -(-len(rows) // min(self.threads, max(size // _PART, 1)))
                starts = range(0, len(rows), max(step, 1))
                parts = [pool.submit(self.dataset.fill, batch, s, min(s + step, len(rows))) for s in starts]
                waiting.append((batch, parts))
                del batch, parts
                if len(waiting) > ahead:
                    yield next_one()
            while waiting:
                yield next_one()
        finally:  # also when the consumer leaves the loop: what has begun ends, what has not never does
            pool.shutdown(wait=True, cancel_futures=True)

    def _by_processes(self) -> Iterator[dict[str, torch.Tensor]]:
        ahead = max(2, -(-self.prefetch // self.workers))
        if self._processes is None:
            self._processes = DataLoader(
                _Worker(self.dataset, self.workers, ahead + _IN_HAND),
                batch_sampler=_Blocks(self),  # type: ignore[arg-type]  # torch passes on what it yields, unseen
                num_workers=self.workers,
                collate_fn=collate,
                prefetch_factor=ahead,
                persistent_workers=True,
                multiprocessing_context="spawn",
                worker_init_fn=partial(_end_without, os.getpid()),
            )
        if not self._whole:
            self.memory.restart()
        self._whole = False
        try:
            for delivered in self._processes:
                if isinstance(delivered, SevenfoldError):
                    raise delivered
                sizes, spec, lent = delivered
                block = tensors(views(spec, self.memory.receive(lent)))
                del lent, delivered
                parts = self.dataset.split(block, sizes)
                del block
                yield from _handed_over(parts)
            self._whole = True
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            self.close()
            raise SevenfoldError(
                f"a worker process of the loader died: {error}",
                where=f"loader, {self.workers} workers",
                do="set workers: 0; a process that was killed may have met the machine's memory limit",
            ) from error


def _handed_over(parts: list[dict[str, torch.Tensor]]) -> Iterator[dict[str, torch.Tensor]]:
    """Each of the parts, keeping none."""
    parts.reverse()
    while parts:
        yield parts.pop()


class _Blocks:
    """The sampler's batches in groups, so that small ones travel together."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed

    def __len__(self) -> int:
        return len(self.feed.sampler)

    def __iter__(self) -> Iterator[tuple[Returned, list[list[int]]]]:
        block: list[list[int]] = []
        most = 0
        for rows in self.feed.sampler:
            if not most:
                size = nbytes(self.feed.dataset.columns(np.asarray(rows, dtype=np.int64)))
                # but each worker gets a few blocks of an epoch, however short that is
                most = max(1, min(_BLOCK // size, len(self.feed.sampler) // (4 * self.feed.workers)))
            block.append(rows)
            if len(block) == most:
                yield self.feed.memory.returned(), block
                block = []
        if block:
            yield self.feed.memory.returned(), block


class _Worker(Dataset[Any]):
    """The dataset as a worker process sees it: several batches a call, made in one piece of shared memory."""

    def __init__(self, dataset: Fillable, workers: int, pieces: int) -> None:
        self.dataset, self.workers, self.pieces = dataset, workers, pieces
        self._memory: Lender | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self.dataset.share_memory(self.workers)

    def __getitems__(
        self, request: tuple[Returned, list[list[int]]]
    ) -> tuple[list[int], list[Column], Lent] | SevenfoldError:
        if self._memory is None:
            info = get_worker_info()
            self._memory = Lender(info.id if info else 0, self.pieces)
        returned, block = request
        rows = np.asarray([row for batch in block for row in batch], dtype=np.int64)
        spec = self.dataset.columns(rows)
        lent, buffer = self._memory.lend(nbytes(spec), returned)
        batch = views(spec, buffer)
        try:
            self.dataset.begin(batch, rows)
            self.dataset.fill(batch, 0, len(rows))
            self.dataset.finish(batch)
        except SevenfoldError as error:
            return error
        return [len(rows) for rows in block], spec, lent


def _end_without(parent: int, worker: int) -> None:
    """End a worker whose parent was killed while it started: torch watches only for one that dies later."""
    if os.getppid() != parent:
        os._exit(1)


def collate(delivered: Any) -> Any:
    """The `collate_fn` of a loader around the datasets of loader.py: what they deliver comes collated."""
    return delivered
