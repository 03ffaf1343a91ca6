"""Measuring in worker processes: results in order, few chunks in flight, and a worker that dies does not end it.

Which input killed a worker is not told, so everything that was under way is measured again, one chunk at a time; a
chunk that kills its worker alone is taken apart, and the input that does so alone is set aside as crashes_decoder.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait

import pyarrow as pa

from sevenfold.storage.allocator import keep_memory
from sevenfold.storage.decode import USUAL, Accepts
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.measure import MEASURED, measure_many
from sevenfold.storage.sources import Input, Source, in_blocks

Measurements = tuple[pa.RecordBatch, list[tuple[int, str, str]]]
"""Of a chunk: rows of MEASURED, and (position, reason, detail) of the inputs that have none."""

IN_FLIGHT = 3
"""Chunks per worker that are handed out at once: none waits for the next, and memory does not grow with the source."""

WORTH_SECONDS = 1.0
"""Work of one process, by `seconds_of`, from which starting several pays: they need nearly half a second."""

DEATHS = 50
"""Of workers in one landing; an input that is set aside costs two or three. More are not the images' fault."""


def seconds_of(inputs: Iterable[Input]) -> float:
    """Roughly what measuring them takes on one core: so much for each image and so much for each of its bytes."""
    return sum(5e-5 + 2e-8 * i.bytes for i in inputs)


def measure_chunk(source: Source, paths: Iterable[str], accepts: Accepts = USUAL) -> Measurements:
    """Read and measure some inputs in this process."""
    named = list(paths)
    table, failures = measure_many(zip(in_blocks(source, named, most=64), named, strict=True), accepts)
    return table, [(position, e.reason, e.detail) for position, e in failures]


def measure_in_processes(
    source: Source, chunks: Iterable[Sequence[str]], workers: int, accepts: Accepts = USUAL
) -> Iterator[Measurements]:
    """Measure each chunk of paths; results come in the chunks' order.

    Raises SevenfoldError when workers cannot start, or keep dying.
    """
    todo = iter(chunks)
    under_way: deque[tuple[Sequence[str], Future[Measurements]]] = deque()
    crew = _Crew(source, workers, accepts)
    try:
        while True:
            while len(under_way) < IN_FLIGHT * workers and (chunk := next(todo, None)) is not None:
                under_way.append((chunk, crew.submit(chunk)))
            if not under_way:
                return
            error = under_way[0][1].exception()
            if error is None:
                yield under_way.popleft()[1].result()
            elif isinstance(error, BrokenProcessPool):
                crew.bury()
                lost, under_way = under_way, deque()
                for chunk, future in lost:
                    whole = future.done() and not future.cancelled() and future.exception() is None
                    yield future.result() if whole else _with_care(crew, chunk)
                crew.leave()  # the next ones are measured by all again
            else:
                raise error
    finally:
        crew.leave(wait=False)


def _with_care(crew: _Crew, chunk: Sequence[str]) -> Measurements:
    """Measure one chunk with nothing else under way; of one that kills its worker again, each input by itself."""
    try:
        return crew.submit(chunk, alone=True).result()
    except BrokenProcessPool:
        crew.bury()
    tables, failures = [], []
    for position, path in enumerate(chunk):
        try:
            table, failed = crew.submit([path], alone=True).result()
        except BrokenProcessPool:
            crew.bury()
            failures.append((position, "crashes_decoder", "the process that measured it died, also when it was alone"))
            continue
        tables.append(table)
        failures += [(position, reason, detail) for _, reason, detail in failed]
    rows = pa.Table.from_batches(tables, MEASURED).combine_chunks().to_batches()
    return rows[0] if rows else MEASURED.empty_table().to_batches()[0], failures


class _Crew:
    """The pool and its successors: started when first needed, so that after a death it is simply used again."""

    def __init__(self, source: Source, workers: int, accepts: Accepts) -> None:
        self._source, self._workers, self._accepts, self._deaths = source, workers, accepts, 0
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, paths: Sequence[str], *, alone: bool = False) -> Future[Measurements]:
        """Hand out a chunk. The future fails with BrokenProcessPool when a worker dies, this one or another."""
        if self._pool is None:
            self._pool = self._start(1 if alone else self._workers)
        try:
            return self._pool.submit(_work, paths)
        except BrokenProcessPool as e:  # died since the last one was handed out
            lost: Future[Measurements] = Future()
            lost.set_exception(e)
            return lost

    def _start(self, workers: int) -> ProcessPoolExecutor:
        pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (self._source, self._accepts))
        try:
            pool.submit(_nothing).result()
        except BrokenProcessPool:
            raise SevenfoldError(
                "worker processes die while they start",
                where=self._source.location,
                expected="a process that can import this program and open the source",
                do="see what they printed; a script that ingests needs `if __name__ == '__main__':`; or use one worker",
            ) from None
        return pool

    def bury(self) -> None:
        """Take note of a death. Raises SevenfoldError when there were too many."""
        self._deaths += 1
        self.leave()
        if self._deaths > DEATHS:
            raise SevenfoldError(
                f"worker processes died {self._deaths} times",
                where=self._source.location,
                do="look for a lack of memory (dmesg), take fewer workers; what is measured so far is kept",
            )

    def leave(self, *, wait: bool = True) -> None:
        """End the workers, and wait until they have; what was handed out and not begun is dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=True)
            self._pool = None


_worker_source: tuple[Source, Accepts] | None = None


def _start_worker(source: Source, accepts: Accepts) -> None:
    global _worker_source  # one source, with its open handles, for the life of a worker process
    _worker_source = source, accepts
    keep_memory()
    parent = parent_process()
    if parent is not None:  # a pool whose owner was killed would wait for work for ever
        threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()


def _nothing() -> None:
    return None


def _work(paths: Sequence[str]) -> Measurements:
    assert _worker_source is not None
    source, accepts = _worker_source
    return measure_chunk(source, paths, accepts)
