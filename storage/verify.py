"""Verify: are the files of some versions the bytes that were written, and do index, manifest and shards agree?

The quick look hashes every byte once and meanwhile compares every tar header with the index.
What does not fit is located to the member and the byte. `deep` also decodes every image (deep.py).
"""

from __future__ import annotations

import io
import mmap
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage import embeddings, variantcheck
from sevenfold.storage.bucket import BucketStore
from sevenfold.storage.canonical import digest_table
from sevenfold.storage.damage import Flaw, locate
from sevenfold.storage.index import INDEX
from sevenfold.storage.keys import index_key, lost_keys, manifest_key, overlay_key, shard_key
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.shardcheck import Members, scan
from sevenfold.storage.store import Store
from sevenfold.storage.survey import Held, Part, Survey, survey
from sevenfold.storage.verified import CACHE, Finding, Report


@dataclass
class _Indexed:
    """A part with what its index says: rows (None: not to be trusted) and whether its own digest fits."""

    part: Part
    findings: list[Finding]
    rows: pa.Table | None = None


@dataclass(frozen=True)
class _Checked:
    """What became of one shard."""

    part: Part
    digest: str
    findings: list[Finding]
    bytes: int


@dataclass
class _Run:
    store: Store
    report: Progress
    total: int
    began: float = field(default_factory=time.perf_counter)
    bytes: int = 0

    def count(self, n: int) -> None:
        self.bytes += n
        rate = self.bytes / 1e6 / max(time.perf_counter() - self.began, 1e-9)
        self.report(self.bytes // 1_000_000, self.total // 1_000_000, f"verifying, MB at {rate:,.0f} MB/s")


def verify(
    store: Store,
    datasets: Sequence[str],
    ref: str | None = None,
    *,
    deep: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check the version of a dataset that `ref` names, or every version of some datasets.

    Parameters
    ----------
    deep : also decode every image in `threads` processes and compare size and pixels with the index.
    threads : of hashing; as many as there are cores by default.

    Raises SevenfoldError when `ref` names no version.
    """
    began = time.perf_counter()
    threads = threads or len(os.sched_getaffinity(0))
    seen = survey(store, datasets, ref)
    derived, unreadable = variantcheck.find(store, seen.versions)
    total = sum(s["bytes"] or 0 for p in seen.parts for s in p.entry["shards"])
    run = _Run(store, progress or silent, total + sum(one.variant.tar_bytes for one in derived))
    findings = [Finding(k, "unreadable", what, versions=(v,)) for k, v, what in seen.unreadable] + unreadable
    sound: list[tuple[Part, str]] = []
    samples = sum(p.entry["samples"] or 0 for p in seen.parts)
    with ThreadPoolExecutor(threads) as pool:

        def shards() -> Iterator[Callable[[], _Checked]]:  # the next index is read while shards are still hashed
            for indexed in _ahead(pool, (partial(check_index, store, p) for p in seen.parts), threads):
                findings.extend(indexed.findings)
                yield from _shard_jobs(store, indexed)

        for checked in _ahead(pool, shards(), 2 * threads):
            findings += checked.findings
            run.count(checked.bytes)
            if not checked.findings:
                sound.append((checked.part, checked.digest))
        for read, wrong in _ahead(pool, variantcheck.jobs(store, derived), 2 * threads):
            findings += wrong
            run.count(read)
    findings += _lost(store, seen, {f.key for f in findings})
    findings += _across(store, seen)
    findings += embeddings.check(store)
    overlays: dict[str, list[Held]] = {}
    for held in seen.versions:
        for overlay in held.manifest.overlays:
            overlays.setdefault(overlay, []).append(held)
    findings += [f for digest, holding in overlays.items() for f in _overlay(store, digest, holding)]
    if deep:
        from sevenfold.storage.deep import decode_all

        of = {digest: part for part, digest in sound}
        work = [(p.entry["index"], digest) for digest, p in of.items() if p.entry["index"]]
        for digest, wrong in decode_all(store, work, samples, threads, progress or silent):
            findings.append(Finding(shard_key(digest), *wrong, versions=tuple(of[digest].versions)))
    return Report(
        findings=tuple(sorted(findings, key=lambda f: (f.key, f.byte is not None, f.byte or 0, f.problem))),
        versions=len(seen.versions),
        indexes=len({p.entry["index"] for p in seen.parts if p.entry["index"]}),
        overlays=len(overlays),
        shards=len({s["digest"] for p in seen.parts for s in p.entry["shards"]}),
        variants=len(derived),
        samples=samples,
        bytes=run.bytes,
        seconds=time.perf_counter() - began,
        deep=deep,
    )


def _ahead(pool: ThreadPoolExecutor, jobs: Iterator[Callable[[], Any]], most: int) -> Iterator[Any]:
    """The results in order, with at most `most` of the jobs begun and not yet taken: memory stays bounded."""
    waiting: deque[Future[Any]] = deque()
    for job in jobs:
        waiting.append(pool.submit(job))
        if len(waiting) >= most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def check_index(store: Store, part: Part) -> _Indexed:
    """Read a part's index and compare it with its name and with the manifest's entry."""
    entry, versions = part.entry, tuple(part.versions)
    if entry["index"] is None:
        wrong = entry["shards"] or entry["samples"]
        found = [Finding(f"batch {entry['batch']}", "manifest", "the entry has shards and no index", versions=versions)]
        return _Indexed(part, found if wrong else [])
    key = index_key(entry["index"])
    try:
        table = read_table(store, key)
    except FileNotFoundError:
        return _Indexed(part, [Finding(key, "missing", "the index is not there", versions=versions)])
    except (OSError, pa.ArrowException) as e:
        return _Indexed(part, [Finding(key, "unreadable", f"{type(e).__name__}: {e}", versions=versions)])
    try:
        digest = digest_table(table)
    except TypeError as e:
        return _Indexed(part, [Finding(key, "index", str(e), versions=versions)])
    if digest != entry["index"]:
        return _Indexed(part, [Finding(key, "digest", f"the digest of its rows is {digest}", versions=versions)])
    lacks = [f.name for f in INDEX if f.name not in table.column_names or table.schema.field(f.name).type != f.type]
    if lacks:
        return _Indexed(part, [Finding(key, "index", f"no or other columns {', '.join(lacks)}", versions=versions)])
    said = [Finding(key, problem, detail, versions=versions) for problem, detail in _counts(table, entry)]
    return _Indexed(part, said, table)


def _counts(table: pa.Table, entry: Any) -> Iterator[tuple[str, str]]:
    """Where an index and the manifest's entry disagree in numbers."""
    stored = table.num_rows - table["shard"].null_count
    if entry["samples"] not in (None, table.num_rows, stored):
        yield "manifest", f"the manifest says {entry['samples']} samples, the index has {table.num_rows}"
    counted = pc.value_counts(table["shard"].combine_chunks().drop_null())
    counts = Counter(dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)))
    listed = {s["digest"]: s for s in entry["shards"]}
    for digest in counts.keys() - listed.keys():
        yield "index", f"{counts[digest]} rows lie in shard {digest}, which the manifest does not list"
    for digest, shard in listed.items():
        if shard["samples"] not in (None, counts[digest]):
            yield "manifest", f"the manifest says {shard['samples']} samples in {digest}, the index {counts[digest]}"
    if table["id"].null_count:
        yield "index", f"{table['id'].null_count} rows have no id"


def read_table(store: Store, key: str) -> pa.Table:
    """A Parquet file as it lies in the lake, whole; raises FileNotFoundError, OSError or ArrowException."""
    if isinstance(store, BucketStore):
        return pq.read_table(io.BytesIO(store.read(key)))
    with open(store.local(key), "rb") as f:
        return pq.read_table(f)


def _shard_jobs(store: Store, indexed: _Indexed) -> Iterator[Callable[[], _Checked]]:
    part, rows = indexed.part, indexed.rows
    places = _runs(rows["shard"]) if rows is not None else {}
    for shard in part.entry["shards"]:
        runs = [rows.slice(*run) for run in places.get(shard["digest"], ())] if rows is not None else []
        mine = pa.concat_tables(runs) if runs else None
        yield partial(check_shard, store, part, shard, mine)


def _runs(column: pa.ChunkedArray) -> dict[str, list[tuple[int, int]]]:
    """Where each value stands: (start, length) of its runs; an index has one run per shard."""
    encoded = column.combine_chunks().dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    starts = np.flatnonzero(np.diff(codes, prepend=-2))
    found: dict[str, list[tuple[int, int]]] = {}
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(codes)], strict=True):
        if codes[start] >= 0:
            found.setdefault(encoded.dictionary[codes[start]].as_py(), []).append((start, end - start))
    return found


def check_shard(store: Store, part: Part, shard: Any, rows: pa.Table | None) -> _Checked:
    """Look at one shard, in the lake and, of a bucket, in this machine's cache."""
    digest, key, length = shard["digest"], shard_key(shard["digest"]), 0
    members = Members.of(rows, part.classes) if rows is not None else None
    found: list[Finding] = []
    with ExitStack() as stack:
        try:
            for where, file in _copies(store, key, stack):
                seen = scan(file, members, len(part.classes))
                length += seen.bytes
                wrong_size = shard["bytes"] not in (None, seen.bytes)
                if seen.digest == digest and not wrong_size and (members is None or seen.fits):
                    continue
                found += _closely(file, key, digest, seen.digest, members, where, part)
                if wrong_size:
                    told = f"{seen.bytes} bytes, the manifest says {shard['bytes']}"
                    found.append(Finding(key, "size", told, versions=tuple(part.versions), where=where))
        except FileNotFoundError:
            found.append(Finding(key, "missing", f"the shard is not there: {shard['samples']} samples of the batch "
                                 f"{part.entry['batch']}", versions=tuple(part.versions)))  # fmt: skip
        except OSError as e:
            found.append(Finding(key, "unreadable", str(e), versions=tuple(part.versions)))
    return _Checked(part, digest, found, length)


def _copies(store: Store, key: str, stack: ExitStack) -> Iterator[tuple[str, BinaryIO]]:
    """Every place where a file can be damaged: (where, the open file)."""
    if not isinstance(store, BucketStore):
        yield "lake", _opened(store.local(key), stack)
        return
    yield "lake", io.BytesIO(store.read(key))
    cached: Path = store.cache / key
    if cached.exists():
        yield CACHE, _opened(cached, stack)


def _opened(path: Path, stack: ExitStack) -> BinaryIO:
    file = path.open("rb", buffering=0)
    return cast(BinaryIO, stack.enter_context(file))


def _closely(
    file: BinaryIO, key: str, digest: str, actual: str, members: Members | None, where: str, part: Part
) -> list[Finding]:  # fmt: skip
    named = actual == digest
    expected = members.listed() if members is not None else None
    if named and members is not None and members.problems:
        flaws = [Flaw("index", p) for p in members.problems]
    elif isinstance(file, io.BytesIO):
        flaws = locate(file.getvalue(), expected, named=named)
    elif file.seek(0, os.SEEK_END) == 0:  # an empty file cannot be mapped
        flaws = [Flaw("truncated", "the file is empty", None, 0)]
    else:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            flaws = locate(data, expected, named=named)
    if named and not flaws and members is not None:
        flaws = [Flaw("index", "its rows do not tile the shard")]
    about = f" of shard {digest}" if named else ""
    blamed = index_key(part.entry["index"]) if named else key
    return [
        Finding(blamed, f.problem, f.detail + about, f.member, f.byte, f.end, tuple(part.versions), where)
        for f in flaws
    ]


def _lost(store: Store, seen: Survey, told: set[str]) -> Iterator[Finding]:
    """Samples that repair gave up, in shards that got a valid name since: a takedown of others cut them."""
    aside = {n.removesuffix(".parquet") for n in store.names("quarantine/shards")}
    for part in seen.parts if aside else ():
        for digest in {s["digest"] for s in part.entry["shards"]} & aside:
            if shard_key(digest) not in told:
                for row in read_table(store, lost_keys(digest)[1]).to_pylist():
                    versions = tuple(part.versions)
                    yield Finding(shard_key(digest), "content", f"lost before: {row['detail']}", versions=versions)


def _across(store: Store, seen: Survey) -> Iterator[Finding]:
    """Ids that are twice in a version. A version that another one continues is looked at with that one."""
    looked: list[tuple[str, ...]] = []
    for held in reversed(seen.versions):
        if any(other[: len(held.indexes)] == held.indexes for other in looked):
            continue
        looked.append(held.indexes)
        ids = _ids(store, held.indexes)
        if ids is not None and len(pc.unique(ids)) != len(ids):
            counts = pc.value_counts(ids)
            twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
            detail = f"{len(twice)} ids are in the version more than once, the first is {twice[0]}"
            yield Finding(manifest_key(held.version.content_id), "duplicate", detail, versions=(held.name,))


def _ids(store: Store, indexes: Sequence[str]) -> pa.ChunkedArray | None:
    """The ids of some indexes; None when one cannot be read, which is told elsewhere."""
    chunks: list[pa.Array] = []
    for digest in indexes:
        try:
            chunks += pq.read_table(store.local(index_key(digest)), columns=["id"])["id"].chunks
        except (OSError, KeyError, pa.ArrowException):
            return None
    if any(c.type != pa.string() for c in chunks):
        return None
    return pa.chunked_array(chunks, pa.string())


def _overlay(store: Store, digest: str, holding: Sequence[Held]) -> Iterator[Finding]:
    key, names = overlay_key(digest), tuple(h.name for h in holding)
    try:
        table = read_table(store, key)
        actual = digest_table(table)
    except FileNotFoundError:
        yield Finding(key, "missing", "the overlay is not there", versions=names)
        return
    except (OSError, TypeError, pa.ArrowException) as e:
        yield Finding(key, "unreadable", f"{type(e).__name__}: {e}", versions=names)
        return
    if actual != digest:
        yield Finding(key, "digest", f"the digest of its rows is {actual}", versions=names)
        return
    passed: list[tuple[str, ...]] = []
    for held in holding:
        if any(held.indexes[: len(p)] == p for p in passed):  # more batches store more ids, never fewer
            continue
        stored = _ids(store, held.indexes)
        if stored is None:
            continue
        lost = table["id"].filter(pc.invert(pc.is_in(table["id"], value_set=stored.combine_chunks())))
        if len(lost):
            detail = f"{len(lost)} ids are not stored in {held.name}, the first is {lost[0]}"
            yield Finding(key, "overlay", detail, versions=(held.name,))
        else:
            passed.append(held.indexes)
