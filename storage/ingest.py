"""Landing: list a source, measure every input once, set the bad ones aside with their reason, and record the batch.

Nothing is copied; sharding reads the source again. The result depends on the inputs alone, never on the number of
workers or the order in which files are found: inputs are taken in path order and rows are kept in id order.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from sevenfold.storage import metadata, tombstones
from sevenfold.storage.canonical import digest_json, digest_table
from sevenfold.storage.chunks import PLACED, Kept, Part, cut
from sevenfold.storage.decode import USUAL, Accepts
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import ALIASES, LANDING, PROPERTIES, QUARANTINE, write_parquet
from sevenfold.storage.keys import aliases_key, annotations_key, batch_key, landing_key, metadata_key, quarantine_key
from sevenfold.storage.names import check_batch, check_name
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.records import Batch
from sevenfold.storage.resolve import resolve
from sevenfold.storage.signals import PART_SEPARATOR
from sevenfold.storage.sources import Source
from sevenfold.storage.store import Store
from sevenfold.storage.workers import WORTH_SECONDS, Measurements, measure_chunk, measure_in_processes, seconds_of

KEEP_SECONDS = 2.0
"""What is measured is kept about this often: a kill costs no more, and a shorter landing writes nothing."""

WRITERS = 4
"""Files written at once when the batch is recorded."""


def ingest(
    store: Store,
    source: Source,
    dataset: str,
    batch: str | None,
    *,
    classes: Sequence[str] | None = None,
    accepts: Accepts = USUAL,
    workers: int = 1,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
    write_signal: Callable[[str, str, pa.Table, str], object],
) -> tuple[Batch, bool]:
    """Land `source` as one batch of `dataset`; returns the record and whether this call made it.

    Parameters
    ----------
    store : the lake's.
    batch : its id; None makes one from the source's name and content.
    classes : the ontology: other labels are quarantined as label_outside_ontology. None takes any.
    accepts : which unusual images are taken.
    workers : processes that measure; 1, or little work, is measured in this one.
    write_signal : called as (name, part, table of id and value, batch id) for each measured property, from threads.

    Raises SevenfoldError when the batch id exists with other content, or the source holds nothing.
    """
    check_name(dataset, "dataset name")
    if batch is not None:
        check_batch(batch)
        old = _record(store, batch_key(dataset, batch))
        same = old and old.fingerprint == source.fingerprint and old.accepts == accepts.changed()
        if old and same and old.classes == tuple(classes or ()):
            Kept(store, dataset, source, accepts).clear()  # killed right after the record was made
            return old, False
    if not source.inputs:
        raise SevenfoldError(
            "the source holds no files", where=source.location, expected="images", do="check the path and its layout"
        )
    started = time.perf_counter()
    measured, bad = _measure_all(store, dataset, source, accepts, workers, progress or silent)
    measured, refused = tombstones.refuse(tombstones.read(store), measured)
    rows, properties, aliases, quarantine = resolve(source.inputs, measured, [*bad, *refused], classes, source.location)
    reasons = quarantine.drop_columns(["source", "detail"])  # details quote decoders, whose words change
    further, remarks = metadata.of_samples(rows, aliases, source.further())
    answers, more = metadata.of_annotators(rows, aliases, source.annotations())
    parts = [rows, aliases, reasons, *(part for part in (further, answers) if part is not None)]
    digest = digest_json([digest_table(part) for part in parts])
    batch = batch or check_batch(f"{_stem(source.name)}-{digest[:8]}")
    key = batch_key(dataset, batch)
    seconds = time.perf_counter() - started
    record = Batch(
        dataset=dataset,
        batch=batch,
        source=source.location,
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
        notes=(*source.notes, *remarks, *more),
        tables=source.tables,
        accepts=accepts.changed(),
    )
    with store.locked(key):  # of two landings under one id, the second sees the first whole
        old = _record(store, key)
        if old is not None and old.digest != digest:
            raise SevenfoldError(
                f"the batch {batch} exists with other content",
                where=f"{store.url}/{key}",
                expected=f"content digest {old.digest[:12]}, found {digest[:12]}",
                do="land the changed source under a new batch id (--batch)",
            )
        if old is None:
            tables = [
                (landing_key(dataset, batch), rows, LANDING),
                (aliases_key(dataset, batch), aliases, ALIASES),
                (quarantine_key(dataset, batch), quarantine, QUARANTINE),
            ]
            if further is not None:
                tables.append((metadata_key(dataset, batch), further, further.schema))
            if answers is not None:
                tables.append((annotations_key(dataset, batch), answers, metadata.ANNOTATIONS))
            part = f"{dataset}{PART_SEPARATOR}{batch}"
            with ThreadPoolExecutor(WRITERS) as pool:  # they wait for the disk or the bucket
                writes: list[Future[object]] = [
                    pool.submit(write_parquet, store, at, [t], schema, overwrite=True) for at, t, schema in tables
                ]
                for name in PROPERTIES:
                    values = properties.select(["id", name]).rename_columns(["id", "value"])
                    writes.append(pool.submit(write_signal, name, part, values, batch))
            for write in writes:
                write.result()
            store.create(key, record.to_json())  # the landing exists from here on, not before
    Kept(store, dataset, source, accepts).clear()
    return old or record, old is None


def _record(store: Store, key: str) -> Batch | None:
    return Batch.read(store, key) if store.exists(key) else None


def _stem(name: str) -> str:
    kept = re.sub(r"[^A-Za-z0-9_-]", "-", name.split(".")[0]).strip("_-")
    return kept[:64] or "batch"


def _measure_all(
    store: Store, dataset: str, source: Source, accepts: Accepts, workers: int, progress: Progress
) -> tuple[pa.Table, list[tuple[int, str, str]]]:
    """(rows of chunks.PLACED, the other inputs as (place, reason, detail)); what an earlier try measured is used."""
    paths = [item.path for item in source.inputs]
    spans = cut(source.inputs)
    kept = Kept(store, dataset, source, accepts)
    parts = kept.read()
    before = {number for part in parts for number in range(part.first, part.last)}
    todo = [number for number in range(len(spans)) if number not in before]
    done = sum(stop - start for number, (start, stop) in enumerate(spans) if number in before)
    aside = sum(len(part.failures) for part in parts)
    remark = f", {done:,} measured before" if done else ""
    progress(done, len(paths), f"measuring ({aside:,} set aside{remark})")
    chunks = (paths[slice(*spans[number])] for number in todo)
    fresh: list[Part] = []  # not kept in a file yet
    since = time.monotonic()
    for number, (rows, failures) in zip(todo, _results(source, accepts, chunks, todo, spans, workers), strict=True):
        part = _placed(number, *spans[number], rows, failures)
        if fresh and (fresh[-1].last < number or time.monotonic() - since > KEEP_SECONDS):
            parts.append(_joined(fresh))
            kept.add(parts[-1])
            fresh, since = [], time.monotonic()
        fresh.append(part)
        done += part.rows.num_rows + len(failures)
        aside += len(failures)
        progress(done, len(paths), f"measuring ({aside:,} set aside{remark})")
    parts = sorted([*parts, *fresh], key=lambda part: part.first)
    table = pa.concat_tables([PLACED.empty_table(), *(part.rows for part in parts)])
    return table, [failure for part in parts for failure in part.failures]


def _results(
    source: Source,
    accepts: Accepts,
    chunks: Iterator[list[str]],
    todo: list[int],
    spans: list[tuple[int, int]],
    workers: int,
) -> Iterator[Measurements]:
    left = (item for number in todo for item in source.inputs[slice(*spans[number])])
    if workers > 1 and len(todo) > 1 and seconds_of(left) >= WORTH_SECONDS:
        return measure_in_processes(source, chunks, min(workers, len(todo)), accepts)
    return (measure_chunk(source, chunk, accepts) for chunk in chunks)


def _placed(number: int, start: int, stop: int, rows: pa.RecordBatch, failures: list[tuple[int, str, str]]) -> Part:
    failed = {position for position, _, _ in failures}
    places = pa.array([place for place in range(start, stop) if place - start not in failed], pa.int64())
    table = pa.Table.from_batches([rows.append_column("input", places)], PLACED)
    return Part(number, number + 1, table, [(start + at, reason, detail) for at, reason, detail in failures])


def _joined(parts: list[Part]) -> Part:
    rows = pa.concat_tables([part.rows for part in parts])
    return Part(parts[0].first, parts[-1].last, rows, [f for part in parts for f in part.failures])
