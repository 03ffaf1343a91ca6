"""Commit: pack the admitted batches that a branch lacks, in id order, add overlays, publish, move the branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage import files, overlays, versions
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import INDEX, SAMPLES
from sevenfold.storage.names import check_name, check_ref
from sevenfold.storage.pack import Known, pack
from sevenfold.storage.progress import Progress
from sevenfold.storage.records import Batch, Manifest, Version
from sevenfold.storage.sources import Source, as_root, open_source

SCHEMA = {f.name: str(f.type) for f in INDEX}


@dataclass(frozen=True)
class Plan:
    """What a commit is about to do: the head it builds on, the batches it adds, and the class order."""

    head: Version | None
    manifest: Manifest | None
    pending: tuple[Batch, ...]
    classes: tuple[str, ...]


def read_batches(root: Path, dataset: str) -> list[Batch]:
    """All batch records of a dataset, in id order."""
    folder = root / "batches" / check_name(dataset, "dataset name")
    return [Batch.read(p) for p in sorted(folder.glob("[!.]*.json"), key=lambda p: p.stem)]


def plan(root: Path, dataset: str, branch: str, extra_labels: Sequence[str] = ()) -> Plan:
    """Find the head, the admitted batches that it lacks, and the classes in their append-only order."""
    number = versions.read_refs(root, dataset, "branches").get(branch)
    head = versions.resolve(root, dataset, f"v{number}") if number is not None else None
    manifest = versions.read_manifest(root, head.content_id) if head else None
    there = {b["batch"] for b in manifest.batches} if manifest else set()
    pending = tuple(b for b in read_batches(root, dataset) if b.status == "admitted" and b.batch not in there)
    classes = list(manifest.classes if manifest else ())
    declared = [c for b in pending for c in b.classes]
    found: set[str] = set(extra_labels)
    for b in pending:
        table = pq.read_table(root / "batches" / dataset / f"{b.batch}.parquet", columns=["label"])
        found |= {x for x in pc.unique(table["label"]).to_pylist() if x is not None}
    classes += [c for c in [*dict.fromkeys(declared), *sorted(found)] if c not in classes]
    return Plan(head, manifest, pending, tuple(dict.fromkeys(classes)))


def known_ids(root: Path, manifest: Manifest | None) -> Known:
    """Every stored id of a version, excluded ones too, with its label after the overlays."""
    if manifest is None or not manifest.batches:
        return Known(pa.array([], pa.string()), pa.array([], pa.string()))
    rows = read_index(root, manifest, ["id", "label"])
    labels = rows["label"]
    for digest in manifest.overlays:
        overlay = overlays.read_overlay(root, digest)
        place = pc.index_in(rows["id"], value_set=overlay["id"].combine_chunks())
        labels = pc.coalesce(pc.take(overlay["label"], place), labels)
    return Known(_flat(rows["id"]), _flat(labels))


def read_index(root: Path, manifest: Manifest, columns: list[str] | None = None) -> pa.Table:
    """All index rows of a version in manifest order, before overlays."""
    schema = pa.schema([INDEX.field(c) for c in columns]) if columns else INDEX
    tables = [
        pq.read_table(root / "index" / b["index"][:2] / f"{b['index']}.parquet", columns=columns).cast(schema)
        for b in manifest.batches
        if b["index"]
    ]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def samples(root: Path, manifest: Manifest) -> pa.Table:
    """The version's effective samples (index.SAMPLES) in manifest, shard and offset order."""
    columns = [f.name for f in INDEX if f.name != "components"]
    edits = [overlays.read_overlay(root, d) for d in manifest.overlays]
    table = overlays.apply(read_index(root, manifest, columns), edits)
    return table.select(SAMPLES.names).combine_chunks()


def pack_pending(
    root: Path,
    todo: Plan,
    *,
    shard_bytes: int,
    only: str | None = None,
    sources: Mapping[str, Source] | None = None,
    progress: Progress | None = None,
) -> list[Batch]:
    """Pack the plan's batches in id order, each against the head and the batches before it; stop after `only`."""
    known = known_ids(root, todo.manifest)
    numbers = {c: i for i, c in enumerate(todo.classes)}
    packed = []
    for batch in todo.pending:
        source = (sources or {}).get(batch.batch)
        if source is None:
            source = _LazySource(batch)
        done = pack(root, batch, source, known, numbers, shard_bytes=shard_bytes, progress=progress)
        packed.append(done)
        if batch.batch == only:
            break
        rows = pq.read_table(root / "batches" / batch.dataset / f"{batch.batch}.parquet", columns=["id", "label"])
        new = rows.filter(pc.is_null(pc.index_in(rows["id"], value_set=known.ids)))
        known = Known(
            pa.concat_arrays([known.ids, _flat(new["id"])]), pa.concat_arrays([known.labels, _flat(new["label"])])
        )
    return packed


def _flat(column: pa.ChunkedArray) -> pa.Array:
    """One contiguous string array."""
    return pa.concat_arrays([pa.array([], pa.string()), *(c.cast(pa.string()) for c in column.chunks)])


class _LazySource(Source):
    """Opens the batch's source only if a shard has to be written: a source that moved away is no trouble otherwise."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(as_root(batch.source))
        self._batch = batch
        self._source: Source | None = None

    def read(self, path: str) -> bytes:
        """See Source.read."""
        if self._source is None:
            try:
                self._source = open_source(self._batch.source, self._batch.kind)
            except SevenfoldError as e:
                raise SevenfoldError(
                    f"the source of the batch {self._batch.batch} cannot be opened: {e.found}",
                    where=self._batch.source,
                    expected="what was landed: its bytes enter the lake with the commit",
                    do="put it back and commit again",
                ) from None
        return self._source.read(path)


def commit(
    root: Path,
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
    a sample that the version lacks, or when another writer moved the branch meanwhile. Saying again the overlays that
    the head ends with adds nothing, so that a retry adopts what it made before.
    """
    check_ref(branch, "branch")
    edits = [e for e in map(overlays.checked, edits) if e.num_rows]
    if start is not None and branch not in versions.read_refs(root, dataset, "branches"):
        versions.move_branch(root, dataset, branch, None, versions.resolve(root, dataset, start).number)
    labels = sorted({x for e in edits for x in e["label"].to_pylist() if x is not None})
    todo = plan(root, dataset, branch, labels)
    if todo.head is None and not todo.pending:
        waiting = [b.batch for b in read_batches(root, dataset) if b.status in ("landed", "rejected")]
        raise SevenfoldError(
            f"{dataset} has no admitted batch to commit",
            where=str(root),
            expected="a batch that passed its checks",
            do=f"run `sevenfold check {waiting[0]}`, mend what fails and check again"
            if waiting
            else "run `sevenfold ingest` first",
        )
    packed = pack_pending(root, todo, shard_bytes=shard_bytes, progress=progress)
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
        schema=SCHEMA,
    )
    if edits:
        stored = _flat(read_index(root, manifest, ["id"])["id"])
        for edit in edits:
            missing = edit["id"].filter(pc.is_null(pc.index_in(edit["id"], value_set=stored)))
            if len(missing):
                raise SevenfoldError(
                    f"{len(missing)} samples of the overlay are not in the version, the first is {missing[0]}",
                    expected=f"ids among the {len(stored)} stored samples of {dataset}",
                    do="drop these rows, or commit the batch that holds them first",
                )
        digests = tuple(overlays.write_overlay(root, e) for e in edits)
        if manifest.overlays[-len(digests) :] == digests:
            digests = ()  # a retry: saying the last words again changes nothing
        manifest = Manifest(manifest.classes, manifest.batches, (*manifest.overlays, *digests), manifest.schema)
    if before is not None and todo.head is not None and manifest.content_id == before.content_id:
        return todo.head, False
    files.create(versions.manifest_path(root, manifest.content_id), manifest.to_json())
    parents = (todo.head.number,) if todo.head else ()
    wanted = Version(dataset, 1, manifest.content_id, parents, message, dict(provenance))
    if versions.read_refs(root, dataset, "branches").get(branch) != (todo.head.number if todo.head else None):
        raise SevenfoldError(
            f"another writer moved the branch {branch} meanwhile", where=dataset, do="commit again on the new head"
        )
    version, made = versions.append(root, wanted)
    versions.move_branch(root, dataset, branch, todo.head.number if todo.head else None, version.number)
    return version, made
