"""Commit: pack the admitted batches that a branch lacks, in id order, add overlays, publish, move the branch.

Optimistic: everything is prepared against the head as it was; giving the number and moving the branch happen under the
dataset's lock. When another writer was faster, the commit is made again there, on top of his, unless the two edit the
same fields of the same samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage import overlays, redactions, versions
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import INDEX, read_parquet
from sevenfold.storage.keys import commits_key, landing_key
from sevenfold.storage.names import check_name, check_ref
from sevenfold.storage.pack import Known, pack
from sevenfold.storage.progress import Progress
from sevenfold.storage.records import Batch, Manifest, Version
from sevenfold.storage.rows import NOTHING, edits_since, flat, known_ids, read_index, without_bytes
from sevenfold.storage.sources import InputError, Source, as_root, open_source
from sevenfold.storage.store import Store

SCHEMA = {f.name: str(f.type) for f in INDEX}


@dataclass(frozen=True)
class Plan:
    """What a commit is about to do: the head it builds on, the batches it adds, and the class order."""

    head: Version | None
    manifest: Manifest | None
    pending: tuple[Batch, ...]
    classes: tuple[str, ...]


def read_batches(store: Store, dataset: str) -> list[Batch]:
    """All batch records of a dataset, in id order."""
    folder = f"batches/{check_name(dataset, 'dataset name')}"
    found = store.read_folder(folder, ".json")
    batches = {n: Batch.parse(d, f"{store.url}/{folder}/{n}") for n, d in found.items()}
    for name, batch in batches.items():
        if (batch.dataset, f"{batch.batch}.json") != (dataset, name):
            raise SevenfoldError(
                f"this is the record of {batch.batch} of {batch.dataset}",
                where=f"{store.url}/{folder}/{name}",
                do="restore it from a copy",
            )
    return sorted(batches.values(), key=lambda b: b.batch)


def plan(store: Store, dataset: str, branch: str, extra_labels: Sequence[str] = ()) -> Plan:
    """Find the head, the admitted batches that it lacks, and the classes in their append-only order."""
    number = versions.head(store, dataset, branch)
    head = versions.read_version(store, dataset, number) if number is not None else None
    manifest = versions.read_manifest(store, head.content_id) if head else None
    there = set(manifest.batch_ids) if manifest else set()
    pending = tuple(b for b in read_batches(store, dataset) if b.status == "admitted" and b.batch not in there)
    classes = list(manifest.classes if manifest else ())
    declared = [c for b in pending for c in b.classes]
    found: set[str] = set(extra_labels)
    for b in pending:
        table = read_parquet(store, landing_key(dataset, b.batch), columns=["label"])
        found |= {x for x in pc.unique(table["label"]).to_pylist() if x is not None}
    classes += [c for c in [*dict.fromkeys(declared), *sorted(found)] if c not in classes]
    return Plan(head, manifest, pending, tuple(dict.fromkeys(classes)))


def pack_pending(
    store: Store,
    todo: Plan,
    *,
    shard_bytes: int,
    only: str | None = None,
    sources: Mapping[str, Source] | None = None,
    progress: Progress | None = None,
) -> list[Batch]:
    """Pack the plan's batches in id order, each against the head and the batches before it; stop after `only`."""
    if not todo.pending:
        return []
    known = known_ids(store, todo.manifest)
    numbers = {c: i for i, c in enumerate(todo.classes)}
    packed = []
    for batch in todo.pending:
        source = (sources or {}).get(batch.batch)
        if source is None:
            source = _LazySource(batch)
        done = pack(store, batch, source, known, numbers, shard_bytes=shard_bytes, progress=progress)
        packed.append(done)
        if batch.batch == only:
            break
        # what is in its shards, not what it landed: of an input that has changed, another batch may have the image
        entries = (done.packed,) if done.packed else ()
        new = read_index(store, Manifest((), entries, (), {}), ["id", "label"])
        known = Known(
            pa.concat_arrays([known.ids, flat(new["id"])]), pa.concat_arrays([known.labels, flat(new["label"])])
        )
    return packed


class _LazySource(Source):
    """Opens the batch's source only if a shard has to be written: a source that moved away is no trouble otherwise."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(as_root(batch.source))
        self._batch = batch
        self._source: Source | None = None

    def read(self, path: str) -> bytes:
        """See Source.read."""
        return self._opened().read(path)

    @property
    def at_once(self) -> int:
        """See Source.at_once."""
        return self._opened().at_once

    def read_many(self, paths: Sequence[str]) -> list[bytes | InputError]:
        """See Source.read_many."""
        return self._opened().read_many(paths)

    def _opened(self) -> Source:
        if self._source is None:
            try:
                self._source = open_source(self._batch.source, self._batch.kind)
            except SevenfoldError as e:
                raise SevenfoldError(
                    f"the source of the batch {self._batch.batch} cannot be opened: {e.found}",
                    where=self._batch.source,
                    expected="what was landed: its bytes enter the lake with the commit",
                    do="put it back and commit again, or leave the batch out: "
                    f"`sevenfold withdraw {self._batch.batch} --reason TEXT`",
                ) from None
        return self._source


def commit(
    store: Store,
    dataset: str,
    *,
    branch: str,
    message: str,
    edits: Sequence[pa.Table] = (),
    start: str | None = None,
    provenance: Mapping[str, Any],
    shard_bytes: int,
    progress: Progress | None = None,
) -> tuple[Version, bool]:
    """Make the next version of `branch`; returns it and whether this call made it.

    `edits` are overlay tables; `start` names the version at which a new branch begins. With nothing to add the
    head is returned. Raises SevenfoldError when there is neither a head nor an admitted batch, when an overlay names
    a sample that the version lacks, or when another writer edited the same fields of the same samples meanwhile.
    Saying again the overlays that the head ends with adds nothing, so that a retry adopts what it made before.
    """
    check_ref(branch, "branch")
    edits = [overlays.unsaid(store, e) for e in map(overlays.checked, edits) if e.num_rows]
    if start is not None and versions.head(store, dataset, branch) is None:
        versions.move_branch(store, dataset, branch, None, versions.resolve(store, dataset, start).number)
    labels = sorted({x for e in edits for x in e["label"].to_pylist() if x})  # empty: its sample was taken down
    first = todo = plan(store, dataset, branch, labels)
    manifest = _prepare(store, dataset, todo, edits, shard_bytes, progress)
    with nullcontext() if _adds_nothing(todo, manifest) else store.locked(commits_key(dataset)):
        for _ in range(TRIES):
            if todo.head is not None and _adds_nothing(todo, manifest):
                return todo.head, False
            parents = (todo.head.number,) if todo.head else ()
            wanted = Version(dataset, 1, manifest.content_id, parents, message, dict(provenance))
            published = publish(store, wanted, branch, manifest)
            if published is not None:
                return published
            todo = plan(store, dataset, branch, labels)
            if edits:
                _refuse_conflicts(store, branch, first, todo, edits)
            manifest = _prepare(store, dataset, todo, edits, shard_bytes, progress, checked=manifest)
    raise SevenfoldError(
        f"other writers moved the branch {branch} {TRIES} times meanwhile", where=dataset, do="commit again"
    )


def _adds_nothing(todo: Plan, manifest: Manifest) -> bool:
    return todo.manifest is not None and manifest.content_id == todo.manifest.content_id


TRIES = 20
"""How often a commit is made again because another writer was faster: more than once only if he had no lock."""


def publish(store: Store, wanted: Version, branch: str, manifest: Manifest) -> tuple[Version, bool] | None:
    """Write the manifest, give the version its number, move the branch from its first parent (none: create it).

    Returns the version and whether this call made it; None when the branch is no longer at that parent.
    """
    expected = wanted.parents[0] if wanted.parents else None
    with store.locked(commits_key(wanted.dataset)):  # so that a loser leaves no version that no branch holds
        if versions.head(store, wanted.dataset, branch) != expected:
            return None
        fresh = versions.write_manifest(store, manifest)
        version, made = versions.append(store, wanted, fresh=fresh)
        versions.move_branch(store, wanted.dataset, branch, expected, version.number)
    return version, made


def _prepare(
    store: Store, dataset: str, todo: Plan, edits: Sequence[pa.Table], shard_bytes: int, progress: Progress | None,
    checked: Manifest | None = None,
) -> Manifest:  # fmt: skip
    """Pack what the plan adds; the manifest of the version to be, not yet written.

    What was found of `edits` in `checked`, an earlier try, holds for a version that has the same indexes and more.
    """
    if todo.head is None and not todo.pending:
        waiting = [b.batch for b in read_batches(store, dataset) if b.status in ("landed", "rejected")]
        raise SevenfoldError(
            f"{dataset} has no admitted batch to commit",
            where=store.url,
            expected="a batch that passed its checks",
            do=f"run `sevenfold check {waiting[0]}`, mend what fails and check again"
            if waiting
            else "run `sevenfold ingest` first",
        )
    packed = pack_pending(store, todo, shard_bytes=shard_bytes, progress=progress)
    entries = [
        {"batch": b.batch, "digest": b.digest, **{k: b.packed[k] for k in ("index", "samples", "shards")}}
        for b in packed
        if b.packed
    ]
    before = todo.manifest
    manifest = Manifest(
        classes=todo.classes,
        batches=(*(before.batches if before else ()), *entries),
        overlays=before.overlays if before else (),
        schema={**SCHEMA, **(before.schema if before else {})},
    )
    if not edits:
        return manifest
    if not checked or not {b["index"] for b in checked.batches} <= {b["index"] for b in manifest.batches}:
        _refuse_strangers(store, dataset, manifest, edits)
    digests = tuple(overlays.write_overlay(store, e) for e in edits)
    redacted = redactions.current(store)
    if tuple(redacted.last("overlays", d) for d in manifest.overlays[-len(digests) :]) == digests:
        digests = ()  # a retry: saying the last words again changes nothing
    return Manifest(manifest.classes, manifest.batches, (*manifest.overlays, *digests), manifest.schema)


def _refuse_strangers(store: Store, dataset: str, manifest: Manifest, edits: Sequence[pa.Table]) -> None:
    """Raise SevenfoldError for edits of samples that the version lacks, or whose bytes compaction left out."""
    from sevenfold.storage.compare import missing_ids

    missing = missing_ids(store, manifest, pa.chunked_array([c for e in edits for c in e["id"].chunks], pa.string()))
    if len(missing):
        raise SevenfoldError(
            f"{len(missing)} samples of the overlay are not in the version, the first is {missing[0]}",
            expected=f"ids among the {manifest.stored} stored samples of {dataset}",
            do="drop these rows, or commit the batch that holds them first",
        )
    if manifest.baked:
        lost = without_bytes(read_index(store, manifest, ["id", "shard", "exclude"]), edits)
        if len(lost):
            raise SevenfoldError(
                f"{len(lost)} samples that the overlay takes back have no bytes any more, the first is {lost[0]}",
                expected="samples that were not excluded when the version was compacted",
                do="branch off the version before the compaction, or leave them excluded",
            )


def _refuse_conflicts(store: Store, branch: str, first: Plan, now: Plan, edits: Sequence[pa.Table]) -> None:
    """Raise SevenfoldError when what others committed since `first` edits the same fields of the same samples."""
    since = edits_since(store, first.manifest or NOTHING, now.manifest or NOTHING)
    clash = overlays.conflicts(since, edits)
    if clash.num_rows:
        row = clash.slice(0, 1).to_pylist()[0]
        raise SevenfoldError(
            f"another writer edited {clash.num_rows} of the same samples on {branch} meanwhile: of {row['id']} the "
            f"{row['field']} is {row['ours']} there and {row['theirs']} here",
            expected="edits of other samples or fields, or the same ones",
            do="look at the newest version, decide, and commit again",
        )
