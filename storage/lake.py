"""The lake: one folder that holds everything, and the door through which the other rooms reach it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage import commit as committing
from sevenfold.storage import files, reviews, signals, versions
from sevenfold.storage import overlays as overlaying
from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import LANDING, PROPERTIES, QUARANTINE, QUEUE, conform, write_parquet
from sevenfold.storage.ingest import ingest
from sevenfold.storage.measure import MEASURE
from sevenfold.storage.names import ALIASES_SUFFIX, check_digest, check_name
from sevenfold.storage.pack import record_path, save, shard_path
from sevenfold.storage.progress import Progress
from sevenfold.storage.records import FORMAT, STATUSES, Batch, Manifest, Version, read_json
from sevenfold.storage.sources import Selected, Source, open_source
from sevenfold.storage.store import LocalStore

SHARD_BYTES = 64 << 20
"""Default size of a shard: large enough to stream, small enough to hold in memory while it is written."""


class Lake:
    """A lake on a local disk. Objects are cheap and hold no open files."""

    def __init__(self, root: Path, shard_bytes: int) -> None:
        self.root = root
        self.shard_bytes = shard_bytes

    @staticmethod
    def open(root: str | os.PathLike[str]) -> Lake:
        """Open an existing lake. Raises SevenfoldError when there is none or its format is unknown."""
        path = Path(root).absolute()
        if not (path / "lake.json").exists():
            raise SevenfoldError("there is no lake", where=str(path), do="make one with `sevenfold init`")
        shard_bytes = read_json(path / "lake.json", "lake").get("shard_bytes")
        if not isinstance(shard_bytes, int) or shard_bytes < 1:
            raise SevenfoldError(
                f"shard_bytes is {shard_bytes!r}", where=str(path / "lake.json"), expected="a number of bytes"
            )
        return Lake(path, shard_bytes)

    @staticmethod
    def create(root: str | os.PathLike[str], *, shard_bytes: int = SHARD_BYTES) -> Lake:
        """Make a lake at `root`, or open the one that is there."""
        path = Path(root).absolute()
        files.create(path / "lake.json", canonical_json({"format": FORMAT, "shard_bytes": shard_bytes}))
        return Lake.open(path)

    # Landing

    def ingest(
        self,
        source: str | os.PathLike[str] | Source,
        dataset: str,
        batch: str | None = None,
        *,
        kind: str | None = None,
        classes: Sequence[str] | None = None,
        workers: int = 1,
        progress: Progress | None = None,
        clock: Callable[[], float] = time.time,
    ) -> tuple[Batch, bool]:
        """Land a source as one batch (see storage.ingest); returns its record and whether it is new."""
        opened = source if isinstance(source, Source) else open_source(Path(source), kind)
        return ingest(
            LocalStore(self.root),
            opened,
            dataset,
            batch,
            classes=classes,
            workers=workers,
            progress=progress,
            clock=clock,
            write_signal=lambda name, part, table, _batch: self.write_signal(
                name, MEASURE, table, scope="content", in_sample=False, part=part
            ),
        )

    def retry_quarantine(
        self, dataset: str, batch: str, *, workers: int = 1, progress: Progress | None = None,
        clock: Callable[[], float] = time.time,
    ) -> tuple[Batch, bool]:  # fmt: skip
        """Read a batch's quarantined inputs again, after a fix, and land those that changed as `<batch>+retryN`.

        Inputs under paths that the batch did not have belong to it: a fix may rename a file or move it to its class.
        What has not changed stays in the old batch's quarantine, but for contradictions, which may have been resolved.
        Raises SevenfoldError when nothing is quarantined, or nothing at the source has changed since.
        """
        old = self.batch(dataset, batch)
        aside = self.quarantine(dataset, batch)
        if not aside.num_rows:
            raise SevenfoldError(f"the batch {batch} has nothing in quarantine", do="there is nothing to retry")
        whole = open_source(Path(old.source), old.kind)
        before = {row["path"]: (row["bytes"], row["label"], row["split"]) for row in aside.to_pylist()}
        clashing = set(aside.filter(pc.equal(aside["reason"], "contradictory"))["path"].to_pylist())
        landed = {*self.batch_rows(dataset, batch)["path"].to_pylist(), *self._alias_paths(dataset, batch)}
        changed = {
            i.path
            for i in whole.inputs
            if (i.path in before or i.path not in landed)
            and (before.get(i.path) != (i.bytes, i.label, i.split) or i.modified > old.times["newest_input"])
        }
        here = {i.path for i in whole.inputs}
        if changed or clashing - here:  # taking one side of a contradiction away mends the other
            changed |= clashing & here
        source = Selected(whole, frozenset(changed))
        if not changed:
            raise SevenfoldError(
                f"nothing that the batch {batch} set aside has changed at the source",
                where=old.source,
                do='mend or relabel the inputs that `sevenfold query "select * from quarantine"` lists, then retry',
            )
        earlier = [b for b in self.batches(dataset) if b.batch.startswith(f"{batch}+retry")]
        for b in earlier:
            if b.fingerprint == source.fingerprint:
                return b, False
        name = f"{batch}+retry{len(earlier) + 1}"
        return self.ingest(
            source, dataset, name, classes=old.classes or None, workers=workers, progress=progress, clock=clock
        )

    def batches(self, dataset: str) -> list[Batch]:
        """All batch records, in id order."""
        return committing.read_batches(self.root, dataset)

    def batch(self, dataset: str, batch: str) -> Batch:
        """One batch record. Raises SevenfoldError naming those that exist."""
        path = record_path(self.root, dataset, batch)
        if not path.exists():
            there = ", ".join(b.batch for b in self.batches(dataset)) or "none"
            raise SevenfoldError(f"{dataset} has no batch {batch!r}", where=str(self.root), expected=f"one of: {there}")
        return Batch.read(path)

    def batch_rows(self, dataset: str, batch: str) -> pa.Table:
        """The landed samples of a batch (index.LANDING)."""
        path = record_path(self.root, dataset, self.batch(dataset, batch).batch)
        return pq.read_table(path.with_name(f"{batch}.parquet"), schema=LANDING)

    def quarantine(self, dataset: str, batch: str) -> pa.Table:
        """The inputs that were set aside (index.QUARANTINE)."""
        name = self.batch(dataset, batch).batch
        return pq.read_table(self.root / "quarantine" / dataset / f"{name}.parquet", schema=QUARANTINE)

    def _alias_paths(self, dataset: str, batch: str) -> list[str]:
        path = record_path(self.root, dataset, batch).with_name(f"{batch}{ALIASES_SUFFIX}.parquet")
        return pq.read_table(path, columns=["path"])["path"].to_pylist()

    def set_status(self, dataset: str, batch: str, status: str, *, clock: Callable[[], float] = time.time) -> Batch:
        """Record that a batch was admitted, rejected or committed. A committed batch stays committed."""
        if status not in STATUSES:
            raise SevenfoldError(f"{status!r} is no status of a batch", expected=", ".join(STATUSES))
        self.batch(dataset, batch)
        with files.locked(record_path(self.root, dataset, batch)):
            record = self.batch(dataset, batch)
            if status == record.status or record.status == "committed":
                return record
            return save(self.root, replace(record, status=status, times={**record.times, status: clock()}))

    def pack(self, dataset: str, batch: str, branch: str = "main", *, progress: Progress | None = None) -> Batch:
        """Write the shards of one admitted batch ahead of the commit that will include it."""
        todo = committing.plan(self.root, dataset, branch)
        done = committing.pack_pending(self.root, todo, shard_bytes=self.shard_bytes, only=batch, progress=progress)
        return next((b for b in done if b.batch == batch), self.batch(dataset, batch))

    # Versions

    def commit(
        self,
        dataset: str,
        *,
        message: str,
        branch: str = "main",
        overlays: Sequence[pa.Table] = (),
        start: str | None = None,
        provenance: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        clock: Callable[[], float] = time.time,
    ) -> tuple[Version, bool]:
        """Commit every admitted batch the branch lacks, plus overlays; returns the version and whether it is new."""
        check_name(dataset, "dataset name")
        version, made = committing.commit(
            self.root,
            dataset,
            branch=branch,
            message=message,
            edits=overlays,
            start=start,
            provenance={**(provenance or {}), "time": clock()},
            shard_bytes=self.shard_bytes,
            progress=progress,
        )
        for entry in self.manifest(version.content_id).batches:
            self.set_status(dataset, entry["batch"], "committed", clock=clock)
        return version, made

    def datasets(self) -> list[str]:
        """Datasets with a landing or a version."""
        found = {p.name for folder in ("datasets", "batches") for p in (self.root / folder).glob("[!.]*")}
        return sorted(found)

    def versions(self, dataset: str) -> list[Version]:
        """All versions, oldest first."""
        return versions.list_versions(self.root, dataset)

    def version(self, dataset: str, ref: str = "main") -> Version:
        """The version a branch, tag, `v7` or content id prefix names."""
        return versions.resolve(self.root, dataset, ref)

    def refs(self, dataset: str, kind: str) -> dict[str, int]:
        """`branches` or `tags`: name -> version number."""
        return versions.read_refs(self.root, dataset, kind)

    def tag(self, dataset: str, tag: str, ref: str = "main") -> Version:
        """Name a version for good."""
        version = self.version(dataset, ref)
        versions.set_tag(self.root, dataset, tag, version.number)
        return version

    def branch(self, dataset: str, branch: str, ref: str = "main") -> Version:
        """Start a branch at a version."""
        version = self.version(dataset, ref)
        versions.move_branch(self.root, dataset, branch, None, version.number)
        return version

    def rollback(self, dataset: str, ref: str, branch: str = "main") -> Version:
        """Point a branch back at an older version; nothing is deleted."""
        version = self.version(dataset, ref)
        versions.move_branch(self.root, dataset, branch, self.version(dataset, branch).number, version.number)
        return version

    def manifest(self, content_id: str) -> Manifest:
        """The manifest of a content id."""
        return versions.read_manifest(self.root, check_digest(content_id, "content id"))

    def samples(self, dataset: str, ref: str = "main") -> pa.Table:
        """Effective samples of a version (index.SAMPLES), overlays applied, in a fixed order."""
        return self.samples_of(self.version(dataset, ref).content_id)

    def samples_of(self, content_id: str) -> pa.Table:
        """Effective samples of a content id (index.SAMPLES)."""
        return committing.samples(self.root, self.manifest(content_id))

    def diff(self, dataset: str, before: str, after: str) -> dict[str, Any]:
        """What changed from one version to another: counts and rows (see versions.diff)."""
        return versions.diff(self.samples(dataset, before), self.samples(dataset, after))

    # Bytes

    def shard_path(self, digest: str) -> Path:
        """Where a shard lies."""
        return shard_path(self.root, check_digest(digest, "shard digest"))

    def read_images(self, samples: pa.Table) -> list[bytes]:
        """The image files of some samples (columns shard, offset, size), in their order."""
        handles: dict[str, int] = {}
        try:
            images = []
            columns = (samples[c].to_pylist() for c in ("shard", "offset", "size"))
            for shard, offset, size in zip(*columns, strict=True):
                if shard not in handles:
                    handles[shard] = os.open(self.shard_path(shard), os.O_RDONLY)
                images.append(os.pread(handles[shard], size, offset))
            return images
        finally:
            for handle in handles.values():
                os.close(handle)

    # Columns about samples

    def write_signal(
        self, name: str, producer: str, table: pa.Table, *, scope: str, in_sample: bool, part: str = "0"
    ) -> Path:
        """Store a signal (see storage.signals)."""
        return signals.write_signal(self.root, name, producer, table, scope=scope, in_sample=in_sample, part=part)

    def signal(self, name: str, producer: str | None = None) -> pa.Table:
        """All rows of a signal."""
        return signals.read_signal(self.root, name, producer)

    def batch_properties(self, dataset: str, batch: str) -> pa.Table:
        """id and the float properties (index.PROPERTIES) of a landed batch, in id order."""
        return self._properties([f"{dataset}{signals.PART_SEPARATOR}{self.batch(dataset, batch).batch}"])

    def properties(self, dataset: str, ref: str = "main") -> pa.Table:
        """id and the float properties of a version's samples, in their order."""
        version = self.version(dataset, ref)
        parts = [f"{dataset}{signals.PART_SEPARATOR}{b['batch']}" for b in self.manifest(version.content_id).batches]
        ids = self.samples_of(version.content_id)["id"]
        table = self._properties(parts)
        return table.take(pc.index_in(ids, value_set=table["id"].combine_chunks()))

    def _properties(self, parts: Sequence[str]) -> pa.Table:
        columns: dict[str, pa.ChunkedArray] = {}
        for name in PROPERTIES:
            folder = self.root / "signals" / name / MEASURE
            table = pa.concat_tables([pq.read_table(folder / f"{p}.parquet", columns=["id", "value"]) for p in parts])
            columns["id"] = table["id"]
            columns[name] = table["value"]
        return pa.table(columns)

    def write_predictions(self, producer: str, table: pa.Table) -> Path:
        """Store a run's predictions (see storage.signals.PREDICTION)."""
        return signals.write_predictions(self.root, producer, table)

    def predictions(self, producer: str) -> pa.Table:
        """A run's predictions."""
        return signals.read_predictions(self.root, producer)

    def append_verdicts(self, dataset: str, subject: str, table: pa.Table) -> Path:
        """Store a check run's verdicts beside those before it; the name counts up, so the newest sorts last."""
        folder = self.root / "checks" / check_name(dataset, "dataset name") / check_name(subject, "subject")
        number = len(list(folder.glob("[!.]*.parquet"))) if folder.exists() else 0
        while not write_parquet(LocalStore(folder), f"{number:06d}.parquet", [table], table.schema, overwrite=False):
            number += 1
        return folder / f"{number:06d}.parquet"

    def verdicts(self, dataset: str, subject: str | None = None) -> pa.Table | None:
        """All verdicts about a subject (or every subject), oldest first; None when there is none."""
        folder = self.root / "checks" / check_name(dataset, "dataset name")
        paths = sorted(folder.glob(f"{check_name(subject, 'subject') if subject else '[!.]*'}/[!.]*.parquet"))
        return pa.concat_tables([pq.read_table(p) for p in paths], promote_options="default") if paths else None

    def write_queue(self, dataset: str, name: str, table: pa.Table) -> Path:
        """Store a review queue (index.QUEUE)."""
        path = self.root / "queues" / check_name(dataset, "dataset name") / f"{check_name(name, 'queue name')}.parquet"
        write_parquet(LocalStore(path.parent), path.name, [conform(table, QUEUE)], QUEUE, overwrite=True)
        return path

    def queue(self, dataset: str, name: str) -> pa.Table:
        """A review queue. Raises SevenfoldError naming those that exist."""
        folder = self.root / "queues" / check_name(dataset, "dataset name")
        path = folder / f"{check_name(name, 'queue name')}.parquet"
        if not path.exists():
            there = ", ".join(sorted(p.stem for p in folder.glob("[!.]*.parquet"))) or "none"
            raise SevenfoldError(f"there is no queue {name!r}", where=str(folder), expected=f"one of: {there}")
        return pq.read_table(path, schema=QUEUE)

    def add_review(
        self,
        dataset: str,
        name: str,
        table: pa.Table,
        *,
        branch: str = "main",
        queues: Sequence[str] = (),
        reviewer: str,
        clock: Callable[[], float] = time.time,
    ) -> tuple[reviews.Review, bool]:
        """Keep decisions for the next commit of a branch (see storage.reviews)."""
        return reviews.add_review(
            self.root, dataset, name, table, branch=branch, queues=tuple(queues), reviewer=reviewer, time=clock()
        )

    def pending_reviews(self, dataset: str, branch: str = "main") -> list[reviews.Review]:
        """Reviews for `branch` that no commit has taken up yet, oldest first."""
        return reviews.pending(self.root, check_name(dataset, "dataset name"), branch)

    def settle_reviews(self, taken: Sequence[reviews.Review], version: Version) -> None:
        """Record that a version holds these reviews (see storage.reviews)."""
        for review in taken:
            reviews.settle(self.root, review, version.name)

    def overlay(self, digest: str) -> pa.Table:
        """The rows of an overlay (index.OVERLAY)."""
        return overlaying.read_overlay(self.root, check_digest(digest, "overlay digest"))

    def sql(self, query: str, dataset: str | None = None) -> pa.Table:
        """Answer one SELECT over the lake (see storage.query)."""
        from sevenfold.storage import query as querying

        return querying.run(self.root, query, dataset)
