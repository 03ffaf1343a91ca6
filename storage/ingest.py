"""Landing: list a source, measure every input once, set the bad ones aside with their reason, and record the batch.

Nothing is copied; sharding reads the source again. The result depends on the inputs alone, never on the number of
workers or the order in which files are found: inputs are taken in path order and rows are kept in id order.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path

import pyarrow as pa

from sevenfold.storage import tombstones
from sevenfold.storage.canonical import digest_json, digest_table
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import ALIASES, LANDING, PROPERTIES, QUARANTINE, write_parquet
from sevenfold.storage.keys import aliases_key, batch_key, landing_key, quarantine_key
from sevenfold.storage.measure import MEASURED, measure_many
from sevenfold.storage.names import check_batch, check_name
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.records import Batch
from sevenfold.storage.resolve import resolve
from sevenfold.storage.signals import PART_SEPARATOR
from sevenfold.storage.sources import InputError, Source
from sevenfold.storage.store import Store

Measurements = tuple[pa.RecordBatch, list[tuple[int, str, str]]]
"""Of a chunk: rows of MEASURED, and (position, reason, detail) of the inputs that have none."""

CHUNK = 256
"""Inputs per unit of work: large enough to hide the hand-over between processes, small enough for live progress."""


def ingest(
    store: Store,
    source: Source,
    dataset: str,
    batch: str | None,
    *,
    classes: Sequence[str] | None = None,
    workers: int = 1,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
    write_signal: Callable[[str, str, pa.Table, str], object],
) -> tuple[Batch, bool]:
    """Land `source` as one batch of `dataset`; returns the record and whether this call made it.

    Parameters
    ----------
    store : where the lake lies.
    batch : its id; None makes one from the source's name and content.
    classes : the ontology: other labels are quarantined as label_outside_ontology. None takes any.
    workers : processes that decode; 1 decodes in this one.
    write_signal : called as (name, part, table of id and value, batch id) for each measured property.

    Raises SevenfoldError when the batch id exists with other content, or the source holds nothing.
    """
    check_name(dataset, "dataset name")
    if batch is not None:
        check_batch(batch)
        if store.exists(batch_key(dataset, batch)):
            old = Batch.read(store, batch_key(dataset, batch))
            if old.fingerprint == source.fingerprint and old.classes == tuple(classes or ()):
                return old, False
    if not source.inputs:
        raise SevenfoldError(
            "the source holds no files", where=str(source.root), expected="images", do="check the path and its layout"
        )
    started = time.perf_counter()
    measured, bad = _measure_all(source, workers, progress or silent)
    measured, refused = tombstones.refuse(tombstones.read(store), measured)
    rows, properties, aliases, quarantine = resolve(
        source.inputs, measured, [*bad, *refused], classes, str(source.root)
    )
    reasons = quarantine.drop_columns(["source", "detail"])  # details quote decoders, whose words change
    digest = digest_json([digest_table(rows), digest_table(aliases), digest_table(reasons)])
    batch = batch or check_batch(f"{_stem(source.root)}-{digest[:8]}")
    key = batch_key(dataset, batch)
    seconds = time.perf_counter() - started
    record = Batch(
        dataset=dataset,
        batch=batch,
        source=str(source.root),
        kind=source.kind,
        fingerprint=source.fingerprint,
        digest=digest,
        status="landed",
        counts={
            "inputs": len(source.inputs),
            "samples": rows.num_rows,
            "aliases": aliases.num_rows,
            "relabels": 0,
            "quarantined": quarantine.num_rows,
        },
        reasons=dict(sorted(Counter(quarantine["reason"].to_pylist()).items())),
        times={"landed": clock(), "newest_input": max(i.modified for i in source.inputs)},
        seconds={"ingest": seconds},
        classes=tuple(classes or ()),
        notes=source.notes,
    )
    with store.locked(key):  # of two landings under one id, the second sees the first whole
        if store.exists(key):
            old = Batch.read(store, key)
            if old.digest != digest:
                raise SevenfoldError(
                    f"the batch {batch} exists with other content",
                    where=f"{store.url}/{key}",
                    expected=f"content digest {old.digest[:12]}, found {digest[:12]}",
                    do="land the changed source under a new batch id (--batch)",
                )
            return old, False
        write_parquet(store, landing_key(dataset, batch), [rows], LANDING, overwrite=True)
        write_parquet(store, aliases_key(dataset, batch), [aliases], ALIASES, overwrite=True)
        write_parquet(store, quarantine_key(dataset, batch), [quarantine], QUARANTINE, overwrite=True)
        for name in PROPERTIES:
            values = properties.select(["id", name]).rename_columns(["id", "value"])
            write_signal(name, f"{dataset}{PART_SEPARATOR}{batch}", values, batch)
        store.create(key, record.to_json())  # the landing exists from here on, not before
    return record, True


def _stem(root: Path) -> str:
    kept = re.sub(r"[^A-Za-z0-9_-]", "-", root.name.split(".")[0]).strip("_-")
    return kept[:64] or "batch"


def _measure_chunk(source: Source, paths: list[str]) -> Measurements:
    def read() -> Iterator[tuple[bytes | InputError, str]]:
        for path in paths:
            try:
                yield source.read(path), path
            except InputError as e:
                yield e, path

    table, failures = measure_many(read())
    return table, [(position, e.reason, e.detail) for position, e in failures]


_worker_source: Source | None = None


def _start_worker(source: Source) -> None:
    global _worker_source  # one source, with its open handles, for the life of a worker process
    _worker_source = source
    parent = parent_process()
    if parent is not None:  # a pool whose owner was killed would wait for work for ever
        threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()


def _work(paths: list[str]) -> Measurements:
    assert _worker_source is not None
    return _measure_chunk(_worker_source, paths)


def _measure_all(source: Source, workers: int, progress: Progress) -> tuple[pa.Table, list[tuple[int, str, str]]]:
    """(rows of MEASURED with `input`, their place among the inputs; the others as (place, reason, detail))."""
    paths = [item.path for item in source.inputs]
    chunks = [paths[i : i + CHUNK] for i in range(0, len(paths), CHUNK)]
    tables, bad, done = [], [], 0
    for chunk, (table, failures) in zip(chunks, _results(source, chunks, workers), strict=True):
        failed = {position for position, _, _ in failures}
        places = [done + position for position in range(len(chunk)) if position not in failed]
        tables.append(table.append_column("input", pa.array(places, pa.int64())))
        bad += [(done + position, reason, detail) for position, reason, detail in failures]
        done += len(chunk)
        progress(done, len(paths), f"measuring ({len(bad)} set aside)")
    return pa.Table.from_batches(tables, MEASURED.append(pa.field("input", pa.int64()))), bad


def _results(source: Source, chunks: list[list[str]], workers: int) -> Iterator[Measurements]:
    if workers <= 1 or len(chunks) < 4:  # starting processes costs more than a thousand small images
        for chunk in chunks:
            yield _measure_chunk(source, chunk)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (source,)) as pool:
        yield from pool.map(_work, chunks)
