"""The lake: one folder or bucket that holds everything, and the door through which the other rooms reach it."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold import __version__
from sevenfold.storage import commit as committing
from sevenfold.storage import embeddings as embedding
from sevenfold.storage import findings, metadata, rows, signals, takedown, versions
from sevenfold.storage import overlays as overlaying
from sevenfold.storage import reviews as reviewing
from sevenfold.storage.canonical import canonical_json, digest_json
from sevenfold.storage.decode import USUAL, Accepts
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import LANDING, QUARANTINE, read_parquet
from sevenfold.storage.ingest import ingest
from sevenfold.storage.keys import LAKE, aliases_key, batch_key, landing_key, quarantine_key, shard_key
from sevenfold.storage.names import check_digest, check_name
from sevenfold.storage.pack import change
from sevenfold.storage.progress import Progress
from sevenfold.storage.records import FORMAT, STATUSES, Batch, Manifest, Version, parse_json
from sevenfold.storage.retry import changed_inputs
from sevenfold.storage.sources import Beside, Source, Table, open_source, with_tables
from sevenfold.storage.store import LocalStore, Store, open_store

if TYPE_CHECKING:
    from sevenfold.storage.lineage import Lineage
    from sevenfold.storage.query import Session
    from sevenfold.storage.variants import Variant

SHARD_BYTES = 64 << 20
"""Default size of a shard: large enough to stream, small enough to hold in memory while it is written."""


class Lake:
    """A lake in a folder or a bucket. Objects are cheap and hold no open files."""

    def __init__(self, store: Store, shard_bytes: int) -> None:
        self.store = store
        self.shard_bytes = shard_bytes

    @staticmethod
    def open(url: str | os.PathLike[str] | Store) -> Lake:
        """Open an existing lake: a folder or s3://bucket/prefix.

        Raises SevenfoldError when there is none or its format is unknown.
        """
        store = url if isinstance(url, Store) else open_store(url)
        try:
            data = store.read(LAKE)
        except (FileNotFoundError, NotADirectoryError):
            raise SevenfoldError("there is no lake", where=store.url, do="make one with `sevenfold init`") from None
        shard_bytes = parse_json(data, "lake", f"{store.url}/{LAKE}").get("shard_bytes")
        if not isinstance(shard_bytes, int) or shard_bytes < 1:
            raise SevenfoldError(
                f"shard_bytes is {shard_bytes!r}", where=f"{store.url}/{LAKE}", expected="a number of bytes"
            )
        return Lake(store, shard_bytes)

    @staticmethod
    def create(url: str | os.PathLike[str] | Store, *, shard_bytes: int = SHARD_BYTES) -> Lake:
        """Make a lake, or open the one that is there."""
        store = url if isinstance(url, Store) else open_store(url)
        if not store.exists(LAKE):  # else nothing is written, and a store that may only be read will do
            store.create(LAKE, canonical_json({"format": FORMAT, "shard_bytes": shard_bytes}))
        return Lake.open(store)

    @property
    def root(self) -> Path:
        """The folder of a lake on a local disk; SevenfoldError for one in a bucket."""
        if not isinstance(self.store, LocalStore):
            raise SevenfoldError("this works on lakes on a local disk only", where=self.store.url)
        return self.store.root

    # Landing

    def ingest(
        self,
        source: str | os.PathLike[str] | Source,
        dataset: str,
        batch: str | None = None,
        *,
        kind: str | None = None,
        labels: Table | None = None,
        annotations: Table | None = None,
        classes: Sequence[str] | None = None,
        accepts: Accepts = USUAL,
        workers: int = 1,
        progress: Progress | None = None,
        clock: Callable[[], float] = time.time,
    ) -> tuple[Batch, bool]:
        """Land a source as one batch (see storage.ingest); returns its record and whether it is new.

        `labels`, `annotations`: tables that lie apart from the images (see sources.beside).
        """
        opened = source if isinstance(source, Source) else open_source(source, kind)
        if labels or annotations:
            opened = Beside(opened, labels, annotations)
        return ingest(
            self.store,
            opened,
            dataset,
            batch,
            classes=classes,
            accepts=accepts,
            workers=workers,
            progress=progress,
            clock=clock,
            write_signal=lambda name, part, table, _batch: self.write_signal(
                name, signals.MEASURE, table, scope="content", in_sample=False, part=part
            ),
        )

    def retry_quarantine(
        self, dataset: str, batch: str, *, accepts: Accepts = USUAL, workers: int = 1,
        progress: Progress | None = None, clock: Callable[[], float] = time.time,
    ) -> tuple[Batch, bool]:  # fmt: skip
        """Read a batch's quarantined inputs again, after a fix, and land those that changed as `<batch>+retryN`.

        So do those of an unusual kind when `accepts` is another now. Of a rejected batch, whose other samples no
        version will take up, the whole source is landed again. See storage.retry. Raises SevenfoldError when nothing
        is quarantined or nothing at the source has changed since.
        """
        old = self.batch(dataset, batch)
        whole = with_tables(open_source(old.source, old.kind), old.tables)
        landed = [*self.batch_rows(dataset, batch)["path"].to_pylist(), *self._alias_paths(dataset, batch)]
        loosened = accepts.changed() != old.accepts
        source: Source = changed_inputs(whole, old, self.quarantine(dataset, batch), landed, loosened=loosened)
        if old.status == "rejected":
            source = whole
        earlier = [b for b in self.batches(dataset) if b.batch.startswith(f"{batch}+retry")]
        for b in earlier:
            if b.fingerprint == source.fingerprint and b.accepts == accepts.changed():
                return b, False
        name = f"{batch}+retry{len(earlier) + 1}"
        return self.ingest(
            source, dataset, name, classes=old.classes or None, accepts=accepts, workers=workers, progress=progress,
            clock=clock,
        )  # fmt: skip

    def batches(self, dataset: str) -> list[Batch]:
        """All batch records, in id order."""
        return committing.read_batches(self.store, dataset)

    def batch(self, dataset: str, batch: str) -> Batch:
        """One batch record. Raises SevenfoldError naming those that exist."""
        key = batch_key(dataset, batch)
        try:
            return Batch.parse(self.store.read(key), f"{self.store.url}/{key}")
        except FileNotFoundError:
            there = ", ".join(b.batch for b in self.batches(dataset)) or "none"
            raise SevenfoldError(
                f"{dataset} has no batch {batch!r}", where=self.store.url, expected=f"one of: {there}"
            ) from None

    def batch_rows(self, dataset: str, batch: str) -> pa.Table:
        """The landed samples of a batch (index.LANDING)."""
        return read_parquet(self.store, landing_key(dataset, self.batch(dataset, batch).batch), LANDING)

    def quarantine(self, dataset: str, batch: str) -> pa.Table:
        """The inputs that were set aside (index.QUARANTINE)."""
        return read_parquet(self.store, quarantine_key(dataset, self.batch(dataset, batch).batch), QUARANTINE)

    def _alias_paths(self, dataset: str, batch: str) -> list[str]:
        return read_parquet(self.store, aliases_key(dataset, batch), columns=["path"])["path"].to_pylist()

    def set_status(
        self,
        dataset: str,
        batch: str,
        status: str,
        *,
        seconds: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Batch:
        """Record that a batch was admitted, rejected or committed, and how long its stages took.

        A committed batch stays committed.
        """
        if status not in STATUSES:
            raise SevenfoldError(f"{status!r} is no status of a batch", expected=", ".join(STATUSES))
        return self._set_status(self.batch(dataset, batch), status, clock, seconds or {})

    def _set_status(
        self, batch: Batch, status: str, clock: Callable[[], float], seconds: Mapping[str, float] = MappingProxyType({})
    ) -> Batch:
        def moved(now: Batch) -> Batch:
            now = replace(now, seconds={**now.seconds, **seconds})
            if status == now.status or now.status == "committed":
                return now
            return replace(now, status=status, times={**now.times, status: clock()})

        return change(self.store, batch, moved)

    def withdraw(self, dataset: str, batch: str, reason: str, *, clock: Callable[[], float] = time.time) -> Batch:
        """Leave a batch out of the next commits: rejected, with the reason among its notes, until it is judged anew.

        Raises SevenfoldError for a batch that is in a version.
        """

        def out(now: Batch) -> Batch:
            if now.status == "committed":
                raise SevenfoldError(
                    f"the batch {batch} is committed",
                    where=dataset,
                    expected="a batch that is landed, admitted or rejected",
                    do="take its samples out with an exclude overlay, or roll the branch back",
                )
            note = f"withdrawn: {' '.join(reason.split())}"
            if now.status == "rejected" and note in now.notes:
                return now
            notes = (*(n for n in now.notes if n != note), note)
            return replace(now, status="rejected", notes=notes, times={**now.times, "rejected": clock()})

        if not reason.strip():
            raise SevenfoldError("there is no reason", where=batch, do="say why the batch is left out")
        return change(self.store, self.batch(dataset, batch), out)

    def pack(self, dataset: str, batch: str, branch: str = "main", *, progress: Progress | None = None) -> Batch:
        """Write the shards of one admitted batch ahead of the commit that will include it."""
        todo = committing.plan(self.store, dataset, branch)
        done = committing.pack_pending(self.store, todo, shard_bytes=self.shard_bytes, only=batch, progress=progress)
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
            self.store,
            dataset,
            branch=branch,
            message=message,
            edits=overlays,
            start=start,
            provenance=self._provenance(provenance, clock),
            shard_bytes=self.shard_bytes,
            progress=progress,
        )
        held = set(self.manifest(version.content_id).batch_ids)
        for batch in self.batches(dataset):
            if batch.status != "committed" and batch.batch in held:
                self._set_status(batch, "committed", clock)
        return version, made

    def _provenance(self, given: Mapping[str, Any] | None, clock: Callable[[], float]) -> dict[str, Any]:
        """What a version tells of its making: code, config (digest of what decides its bytes) and time."""
        config = digest_json({"shard_bytes": self.shard_bytes})
        return {"code": __version__, "config": config, **(given or {}), "time": clock()}

    def compact(
        self,
        dataset: str,
        branch: str = "main",
        *,
        message: str = "compacted",
        provenance: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        clock: Callable[[], float] = time.time,
    ) -> tuple[Version, bool]:
        """The same samples in full shards without overlays, as the branch's next version (see storage.compact)."""
        from sevenfold.storage.compact import compact

        return compact(
            self.store, dataset, branch=branch, message=message, shard_bytes=self.shard_bytes,
            provenance=self._provenance(provenance, clock), progress=progress,
        )  # fmt: skip

    def merge(
        self,
        dataset: str,
        theirs: str,
        into: str = "main",
        *,
        message: str | None = None,
        provenance: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> tuple[Version, bool]:
        """Bring a version's batches and edits into a branch. Raises merge.MergeConflict (see storage.merge)."""
        from sevenfold.storage.merge import merge

        return merge(
            self.store, dataset, theirs, into=into, message=message or f"merge {theirs} into {into}",
            provenance=self._provenance(provenance, clock),
        )  # fmt: skip

    def urls(self, dataset: str, ref: str = "main", split: str = "train", *, variant: str | None = None) -> list[str]:
        """Where a split's shards lie, for stock WebDataset readers, or those of one of its variants.

        SevenfoldError for a version with overlays; those of a variant have them in their `.cls` and their splits.
        """
        from sevenfold.storage.urls import urls

        if variant is not None:
            from sevenfold.storage.variants import read_variant, shard_urls

            found = read_variant(self.store, self.version(dataset, ref).content_id, variant, dataset)
            return shard_urls(self.store, found, split)
        return urls(self.store, self.manifest(self.version(dataset, ref).content_id), split)

    def lineage(self, dataset: str, ref: str = "main") -> Lineage:
        """What a version came from and what came of it (see storage.lineage)."""
        from sevenfold.storage.lineage import lineage

        return lineage(self.store, dataset, ref)

    def datasets(self) -> list[str]:
        """Datasets with a landing or a version."""
        return sorted({n for folder in ("datasets", "batches") for n in self.store.names(folder)})

    def versions(self, dataset: str) -> list[Version]:
        """All versions, oldest first."""
        return versions.list_versions(self.store, dataset)

    def version(self, dataset: str, ref: str = "main") -> Version:
        """The version a branch, tag, `v7`, content id prefix or date names (see storage.versions.resolve)."""
        return versions.resolve(self.store, dataset, ref)

    def refs(self, dataset: str, kind: str) -> dict[str, int]:
        """`branches` or `tags`: name -> version number."""
        return versions.read_refs(self.store, dataset, kind)

    def tag(self, dataset: str, tag: str, ref: str = "main") -> Version:
        """Name a version for good."""
        version = self.version(dataset, ref)
        versions.set_tag(self.store, dataset, tag, version.number)
        return version

    def branch(self, dataset: str, branch: str, ref: str = "main") -> Version:
        """Start a branch at a version."""
        version = self.version(dataset, ref)
        versions.move_branch(self.store, dataset, branch, None, version.number)
        return version

    def rollback(self, dataset: str, ref: str, branch: str = "main") -> Version:
        """Point a branch back at an older version; nothing is deleted."""
        version = self.version(dataset, ref)
        versions.move_branch(self.store, dataset, branch, self.version(dataset, branch).number, version.number)
        return version

    def manifest(self, content_id: str) -> Manifest:
        """The manifest of a content id."""
        return versions.read_manifest(self.store, check_digest(content_id, "content id"))

    def samples(self, dataset: str, ref: str = "main") -> pa.Table:
        """Effective samples of a version (index.SAMPLES), overlays applied, in a fixed order."""
        return self.samples_of(self.version(dataset, ref).content_id)

    def samples_of(self, content_id: str, *, masked: bool = False) -> pa.Table:
        """Effective samples of a content id (index.SAMPLES).

        With `masked`, those that were taken down keep an empty row (see storage.commit.samples).
        """
        return rows.samples(self.store, self.manifest(content_id), masked=masked)

    # Variants

    def materialize(
        self,
        dataset: str,
        ref: str = "main",
        *,
        size: int,
        format: str = "jpeg",
        quality: int = 90,
        channels: int | None = None,
        name: str | None = None,
        threads: int | None = None,
        by: str = "library",
        progress: Progress | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Variant:
        """Make a variant of a version, or adopt the one that is there (see storage.materialize).

        Samples that do not decode have no bytes in it; a RuntimeWarning says how many they are.
        """
        from sevenfold.storage.materialize import materialize

        variant, _ = materialize(
            self.store, dataset, ref, size=size, format=format, quality=quality, channels=channels, name=name,
            shard_bytes=self.shard_bytes, threads=threads, by=by, progress=progress, clock=clock,
        )  # fmt: skip
        if variant.counts["undecodable"]:
            told = f"{variant.counts['undecodable']} samples do not decode and are not in the variant {variant.name}"
            warnings.warn(told, RuntimeWarning, stacklevel=2)
        return variant

    def variants(self, content_id: str) -> list[Variant]:
        """The variants of a content id, by name."""
        from sevenfold.storage.variants import list_variants

        return list_variants(self.store, content_id)

    def variant_samples(
        self, content_id: str, name: str, *, masked: bool = False, dataset: str | None = None
    ) -> pa.Table:
        """`samples_of` with the places of a variant (see storage.variants.placed).

        Where there is no such variant, the error says how to make it; `dataset`, which has the version, is told there.
        """
        from sevenfold.storage.variants import placed, read_variant

        variant = read_variant(self.store, content_id, name, dataset)
        return placed(self.store, variant, self.samples_of(content_id, masked=masked), masked=masked)

    def remove_variant(self, content_id: str, name: str) -> None:
        """Delete a variant's manifest; `gc` takes its files. SevenfoldError while somebody reads the version."""
        from sevenfold.storage.variants import remove

        remove(self.store, content_id, name)

    def redacted(self, content_id: str) -> tuple[takedown.Takedown, ...]:
        """The takedowns that took samples out of a content id, oldest first; none for nearly every one."""
        return takedown.of_manifest(self.store, self.manifest(content_id))

    def diff(self, dataset: str, before: str, after: str) -> dict[str, Any]:
        """What changed from one version to another: counts and rows (see storage.diff)."""
        from sevenfold.storage.compare import diff_versions

        return diff_versions(
            self.store, *(self.manifest(self.version(dataset, ref).content_id) for ref in (before, after))
        )

    # Bytes

    def shard_path(self, digest: str) -> Path:
        """Where a shard, or this machine's copy of it, lies."""
        return self.store.local(shard_key(check_digest(digest, "shard digest")))

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
    ) -> str:
        """Store a signal (see storage.signals); returns its key."""
        return signals.write_signal(self.store, name, producer, table, scope=scope, in_sample=in_sample, part=part)

    def signal(self, name: str, producer: str | None = None) -> pa.Table:
        """All rows of a signal."""
        return signals.read_signal(self.store, name, producer)

    def batch_properties(self, dataset: str, batch: str) -> pa.Table:
        """id and the float properties (index.PROPERTIES) of a landed batch, in id order."""
        return signals.read_properties(
            self.store, [f"{dataset}{signals.PART_SEPARATOR}{self.batch(dataset, batch).batch}"]
        )

    def batch_metadata(self, dataset: str, batch: str) -> pa.Table | None:
        """id and the further columns that a batch's source had, of the samples it says something of; None: nothing."""
        return metadata.read(self.store, dataset, [self.batch(dataset, batch).batch])

    def metadata(self, dataset: str, ref: str = "main") -> pa.Table | None:
        """id and the further columns of a version's samples, in their order, null where nothing is known.

        None when no batch of the version has any. Where batches disagree on a column's type, it is text.
        """
        version = self.version(dataset, ref)
        table = metadata.read(self.store, dataset, self.manifest(version.content_id).batch_ids)
        return metadata.of_ids(table, self.samples_of(version.content_id)["id"])

    def batch_annotations(self, dataset: str, batch: str) -> pa.Table | None:
        """What several people said of a batch's samples (metadata.ANNOTATIONS); None: nobody was asked."""
        return metadata.read_annotations(self.store, dataset, [self.batch(dataset, batch).batch])

    def annotations(self, dataset: str, ref: str = "main") -> pa.Table | None:
        """What several people said of a version's samples (metadata.ANNOTATIONS), also of those not in it any more."""
        version = self.version(dataset, ref)
        return metadata.read_annotations(self.store, dataset, self.manifest(version.content_id).batch_ids)

    def properties(self, dataset: str, ref: str = "main") -> pa.Table:
        """id and the float properties of a version's samples, in their order."""
        version = self.version(dataset, ref)
        parts = [f"{dataset}{signals.PART_SEPARATOR}{b}" for b in self.manifest(version.content_id).batch_ids]
        ids = self.samples_of(version.content_id)["id"]
        table = signals.read_properties(self.store, parts)
        return table.take(pc.index_in(ids, value_set=table["id"].combine_chunks()))

    def write_predictions(self, producer: str, table: pa.Table) -> str:
        """Store a run's predictions (see storage.signals.PREDICTION); returns their key."""
        return signals.write_predictions(self.store, producer, table)

    def predictions(self, producer: str) -> pa.Table:
        """A run's predictions."""
        return signals.read_predictions(self.store, producer)

    def embeddings(self, dataset: str, ref: str = "main", producer: str | None = None) -> embedding.Embeddings | None:
        """A version's vectors, in its order, by one encoder: the one that covers most of it, unless named.

        None when there are none; SevenfoldError when the one that is named has none (see storage.embeddings).
        """
        ids = self.samples(dataset, ref)["id"]
        chosen = producer or embedding.newest_for(self.store, ids)
        return embedding.read(self.store, chosen, ids) if chosen else None

    def append_verdicts(self, dataset: str, subject: str, table: pa.Table) -> str:
        """Store a check run's verdicts beside those before it (see storage.findings); returns their key."""
        return findings.append_verdicts(self.store, dataset, subject, table)

    def verdicts(self, dataset: str, subject: str | None = None) -> pa.Table | None:
        """All verdicts about a subject (or every subject), oldest first; None when there is none."""
        return findings.read_verdicts(self.store, dataset, subject)

    def write_queue(self, dataset: str, name: str, table: pa.Table) -> str:
        """Store a review queue (index.QUEUE); returns its key."""
        return findings.write_queue(self.store, dataset, name, table)

    def queue(self, dataset: str, name: str) -> pa.Table:
        """A review queue. Raises SevenfoldError naming those that exist."""
        return findings.read_queue(self.store, dataset, name)

    def queues(self, dataset: str) -> list[str]:
        """The names of the review queues."""
        return findings.queue_names(self.store, dataset)

    def reviews(self, dataset: str) -> list[reviewing.Review]:
        """All reviews of a dataset, oldest first."""
        return reviewing.list_reviews(self.store, dataset)

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
    ) -> tuple[reviewing.Review, bool]:
        """Keep decisions for the next commit of a branch (see storage.reviews)."""
        return reviewing.add_review(
            self.store, dataset, name, table, branch=branch, queues=tuple(queues), reviewer=reviewer, time=clock()
        )

    def pending_reviews(self, dataset: str, branch: str = "main") -> list[reviewing.Review]:
        """Reviews for `branch` that no commit has taken up yet, oldest first."""
        return reviewing.pending(self.store, check_name(dataset, "dataset name"), branch)

    def settle_reviews(self, taken: Sequence[reviewing.Review], version: Version) -> None:
        """Record that a version holds these reviews (see storage.reviews)."""
        for review in taken:
            reviewing.settle(self.store, review, version.name)

    def overlay(self, digest: str) -> pa.Table:
        """The rows of an overlay (index.OVERLAY)."""
        return overlaying.read_overlay(self.store, check_digest(digest, "overlay digest"))

    def sql(self, query: str, dataset: str | None = None, ref: str = "main") -> pa.Table:
        """Answer one SELECT over the lake; `samples` is the version `ref` of the dataset (see storage.query)."""
        from sevenfold.storage import query as querying

        return querying.run(self.store, query, dataset, ref)

    def session(self) -> AbstractContextManager[Session]:
        """Many queries with one database: `with lake.session() as ask: ask.run("select ...")` (see storage.query)."""
        from sevenfold.storage import query as querying

        return querying.session(self.store)
