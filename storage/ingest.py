"""Landing: list a source, measure every input once, set the bad ones aside with their reason, and record the batch.

Nothing is copied; sharding reads the source again. The result depends on the inputs alone, never on the number of
workers or the order in which files are found: inputs are taken in path order and rows are kept in id order.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa

from sevenfold.storage.canonical import digest_json, digest_table
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import ALIASES, LANDING, PROPERTIES, QUARANTINE, write_parquet
from sevenfold.storage.measure import Measured, as_row, measure
from sevenfold.storage.names import check_name
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.records import Batch
from sevenfold.storage.sources import Input, InputError, Source

CHUNK = 256
"""Inputs per unit of work: large enough to hide the hand-over between processes, small enough for live progress."""

_SPLIT_SALT = b"sevenfold split 1"
_KEEPER = {"test": 0, "val": 1, "train": 2, "pool": 3}
"""Which of several copies in one batch is the sample: evaluation splits first, so that nothing is trained on them."""


def split_of(pixel_digest: str) -> str:
    """train (80 %), val (10 %) or test (10 %) by a salted hash of the pixels: a picture always lands alike."""
    share = int.from_bytes(hashlib.sha256(_SPLIT_SALT + pixel_digest.encode()).digest()[:8], "big") / 2**64
    return "train" if share < 0.8 else "val" if share < 0.9 else "test"


def ingest(
    root: Path,
    source: Source,
    dataset: str,
    batch: str | None,
    *,
    classes: Sequence[str] | None = None,
    workers: int = 1,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
    write_signal: Callable[[str, str, pa.Table, str], None],
) -> tuple[Batch, bool]:
    """Land `source` as one batch of `dataset`; returns the record and whether this call made it.

    Parameters
    ----------
    root : the lake's folder.
    batch : its id; None makes one from the source's name and content.
    classes : the ontology: other labels are quarantined as label_outside_ontology. None takes any.
    workers : processes that decode; 1 decodes in this one.
    write_signal : called as (name, part, table of id and value, batch id) for each measured property.

    Raises SevenfoldError when the batch id exists with other content, or the source holds nothing.
    """
    check_name(dataset, "dataset name")
    if batch is not None:
        check_name(batch, "batch id")
        record_path = root / "batches" / dataset / f"{batch}.json"
        if record_path.exists():
            old = Batch.read(record_path)
            if old.fingerprint == source.fingerprint and old.classes == tuple(classes or ()):
                return old, False
    if not source.inputs:
        raise SevenfoldError(
            "the source holds no files", where=str(source.root), expected="images", do="check the path and its layout"
        )
    started = time.perf_counter()
    measured, bad = _measure_all(source, workers, progress or silent)
    rows, properties, aliases, quarantine = _resolve(measured, bad, classes, str(source.root))
    digest = digest_json([digest_table(rows), digest_table(aliases), digest_table(quarantine.drop_columns(["source"]))])
    batch = batch or check_name(f"{_stem(source.root)}-{digest[:8]}", "batch id")
    record_path = root / "batches" / dataset / f"{batch}.json"
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
    if record_path.exists():
        old = Batch.read(record_path)
        if old.digest != digest:
            raise SevenfoldError(
                f"the batch {batch} exists with other content",
                where=str(record_path),
                expected=f"content digest {old.digest[:12]}, found {digest[:12]}",
                do="land the changed source under a new batch id (--batch)",
            )
        return old, False
    folder = record_path.parent
    write_parquet(folder / f"{batch}.parquet", [rows], LANDING, overwrite=True)
    write_parquet(folder / f"{batch}.aliases.parquet", [aliases], ALIASES, overwrite=True)
    write_parquet(root / "quarantine" / dataset / f"{batch}.parquet", [quarantine], QUARANTINE, overwrite=True)
    for name in PROPERTIES:
        write_signal(name, f"{dataset}.{batch}", properties.select(["id", name]).rename_columns(["id", "value"]), batch)
    from sevenfold.storage import files

    files.create(record_path, record.to_json())  # the landing exists from here on, not before
    return Batch.read(record_path), True


def _stem(root: Path) -> str:
    kept = "".join(c if c.isalnum() or c in "._-" else "-" for c in root.name.split(".")[0]).strip("._-")
    return kept[:64] or "batch"


def _measure_chunk(source: Source, inputs: list[Input]) -> list[Measured | InputError]:
    results: list[Measured | InputError] = []
    for item in inputs:
        try:
            results.append(measure(source.read(item.path), item.path))
        except InputError as e:
            results.append(e)
    return results


_worker_source: Source | None = None


def _start_worker(source: Source) -> None:
    global _worker_source  # one source, with its open handles, for the life of a worker process
    _worker_source = source


def _work(inputs: list[Input]) -> list[Measured | tuple[str, str]]:
    assert _worker_source is not None
    return [(r.reason, r.detail) if isinstance(r, InputError) else r for r in _measure_chunk(_worker_source, inputs)]


def _measure_all(
    source: Source, workers: int, progress: Progress
) -> tuple[list[tuple[Input, Measured]], list[tuple[Input, InputError]]]:
    chunks = [source.inputs[i : i + CHUNK] for i in range(0, len(source.inputs), CHUNK)]
    good, bad, done = [], [], 0
    for chunk, results in zip(chunks, _results(source, chunks, workers), strict=True):
        for item, result in zip(chunk, results, strict=True):
            if isinstance(result, Measured):
                good.append((item, result))
            else:
                bad.append((item, result))
        done += len(chunk)
        progress(done, len(source.inputs), f"measuring ({len(bad)} set aside)")
    return good, bad


def _results(source: Source, chunks: list[list[Input]], workers: int) -> Iterator[list[Measured | InputError]]:
    if workers <= 1 or len(chunks) < 4:  # starting processes costs more than a thousand small images
        for chunk in chunks:
            yield _measure_chunk(source, chunk)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (source,)) as pool:
        for results in pool.map(_work, chunks):
            yield [InputError(*r) if isinstance(r, tuple) else r for r in results]


def _resolve(
    measured: list[tuple[Input, Measured]],
    bad: list[tuple[Input, InputError]],
    classes: Sequence[str] | None,
    root: str,
) -> tuple[pa.Table, pa.Table, pa.Table, pa.Table]:
    """(landing rows, properties, aliases, quarantine), all in a fixed order. See invariant 3."""
    ontology = set(classes) if classes is not None and len(classes) else None
    quarantine = [_set_aside(item, e.reason, e.detail, root) for item, e in bad]
    groups: dict[str, list[tuple[Input, Measured]]] = defaultdict(list)
    for item, m in measured:
        if ontology is not None and item.label is not None and item.label not in ontology:
            detail = f"the label is {item.label!r}, not one of the {len(ontology)} declared classes"
            quarantine.append(_set_aside(item, "label_outside_ontology", detail, root))
        else:
            groups[m.id].append((item, m))
    rows: list[dict[str, Any]] = []
    properties: list[dict[str, Any]] = []
    aliases: list[dict[str, Any]] = []
    for key in sorted(groups):
        group = groups[key]
        labels = sorted({item.label for item, _ in group if item.label is not None})
        if len(labels) > 1:
            detail = f"the same image is labelled {' and '.join(labels)} in one batch"
            quarantine += [_set_aside(item, "contradictory", detail, root) for item, _ in group]
            continue
        split_of_item = {
            id(item): "pool" if item.label is None else item.split or split_of(m.pixel_digest) for item, m in group
        }
        group.sort(key=lambda pair: (_KEEPER[split_of_item[id(pair[0])]], pair[0].path))
        keeper, m = group[0]
        label = labels[0] if labels else None
        rows.append({**as_row(m), "label": label, "split": split_of_item[id(keeper)], "path": keeper.path})
        properties.append({"id": m.id, **dict(zip(PROPERTIES, m.properties, strict=True))})
        aliases += [
            {"id": m.id, "path": other.path, "label": other.label, "reason": "same bytes twice in this batch"}
            for other, _ in group[1:]
        ]
    quarantine.sort(key=lambda q: (q["path"], q["reason"], q["label"] or ""))
    aliases.sort(key=lambda a: (a["path"], a["label"] or ""))
    property_schema = pa.schema([("id", pa.string()), *((p, pa.float64()) for p in PROPERTIES)])
    return (
        pa.Table.from_pylist(rows, schema=LANDING),
        pa.Table.from_pylist(properties, schema=property_schema),
        pa.Table.from_pylist(aliases, schema=ALIASES),
        pa.Table.from_pylist(quarantine, schema=QUARANTINE),
    )


def _set_aside(item: Input, reason: str, detail: str, root: str) -> dict[str, Any]:
    return {
        "path": item.path, "reason": reason, "detail": detail, "label": item.label, "split": item.split,
        "source": root, "bytes": item.bytes,
    }  # fmt: skip
