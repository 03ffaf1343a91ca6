"""Merging a version into a branch: the batches and edits it has and the branch lacks; never a guess between two."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage import overlays, versions
from sevenfold.storage.canonical import digest_table
from sevenfold.storage.commit import TRIES, publish
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.keys import commits_key
from sevenfold.storage.records import Manifest, Version, held
from sevenfold.storage.rows import NOTHING, edits_since, read_index, without_bytes
from sevenfold.storage.store import Store

CONFLICTS = pa.schema([("id", pa.string()), ("field", pa.string()), ("ours", pa.string()), ("theirs", pa.string())])
"""A sample on which two versions disagree: what each says of the field, as text. The field `batch`: where it is from;
`bytes`: whether they are still there."""

_SHOWN = 3


class MergeConflict(SevenfoldError):
    """Two versions that cannot be merged; `conflicts` (CONFLICTS) lists every sample on which they disagree."""

    def __init__(self, found: str, conflicts: pa.Table, *, where: str = "", do: str = "") -> None:
        self.conflicts = conflicts
        shown = "; ".join(
            f"{r['id']}: {r['field']} is {r['ours']} in ours, {r['theirs']} in theirs"
            for r in conflicts.slice(0, _SHOWN).to_pylist()
        )
        more = f"; and {conflicts.num_rows - _SHOWN:,} more" if conflicts.num_rows > _SHOWN else ""
        super().__init__(f"{found}: {shown}{more}" if shown else found, where=where, do=do)


@dataclass(frozen=True)
class _Side:
    """One of the two: its manifest, what it brought since the base, and what it edited."""

    manifest: Manifest
    added: tuple[dict[str, Any], ...]
    edits: list[pa.Table]


def merge(
    store: Store,
    dataset: str,
    theirs: str,
    *,
    into: str = "main",
    message: str,
    provenance: Mapping[str, Any],
) -> tuple[Version, bool]:
    """Bring what `theirs` (any ref) has into the branch `into`; returns its version and whether this call made it.

    The branch is moved forward when it is an ancestor of theirs, and left alone when theirs is its ancestor: both give
    a version that exists. Else the next version has both parents, ours first; its samples are those of both, each
    edit applied.

    Raises
    ------
    MergeConflict : both sides say different things of the same field of a sample, or brought the same sample in
        different batches or the same batch in different shards, or theirs needs bytes that compaction left out.
    SevenfoldError : no such branch or version, or class lists of which neither continues the other.
    """
    other = versions.resolve(store, dataset, theirs)
    line = {v.number for v in versions.ancestors(store, other)}
    for attempt in range(TRIES):
        ours = versions.tip(store, dataset, into)
        number = ours.number
        if other.number in (behind := [v.number for v in versions.ancestors(store, ours)]):
            return ours, False
        if number in line:
            if _forward(store, dataset, into, number, other.number):
                return other, False
            continue
        base = next((n for n in behind if n in line), None)
        common = versions.read_version(store, dataset, base) if base is not None else None
        manifest = _merged(
            store,
            versions.read_manifest(store, ours.content_id),
            versions.read_manifest(store, other.content_id),
            versions.read_manifest(store, common.content_id) if common else NOTHING,
            where=f"{dataset}: {other.name} into {into} ({ours.name})",
        )
        wanted = Version(dataset, 1, manifest.content_id, (number, other.number), message, dict(provenance))
        published = publish(store, wanted, into, manifest)
        if published is not None:
            return published
        time.sleep(random.random() * 0.05 * (attempt + 1))
    raise SevenfoldError(
        f"other writers moved the branch {into} {TRIES} times meanwhile", where=dataset, do="merge again"
    )


def _forward(store: Store, dataset: str, branch: str, expected: int, number: int) -> bool:
    """Move a branch to a version that has it in its past; False when another writer moved it meanwhile."""
    with store.locked(commits_key(dataset)):
        if versions.head(store, dataset, branch) != expected:
            return False
        versions.move_branch(store, dataset, branch, expected, number)
    return True


def _merged(store: Store, ours: Manifest, theirs: Manifest, base: Manifest, *, where: str) -> Manifest:
    """Our manifest with what theirs adds to it; overlays that it needs are written."""
    classes = _classes(ours, theirs, where)
    mine, other = (_Side(m, _brought(base, m), edits_since(store, base, m)) for m in (ours, theirs))
    added = _additions(store, mine, other, where)
    _refuse_double(store, ours, added, where)
    clash = overlays.conflicts(mine.edits, other.edits)
    if clash.num_rows:
        raise MergeConflict(
            f"{clash.num_rows:,} edits contradict each other",
            clash,
            where=where,
            do="commit a review on one side that says what the other says of these samples, then merge again",
        )
    _refuse_lost(store, mine, other, where)
    known = {digest_table(t) for t in mine.edits}
    layers = [overlays.write_overlay(store, t) for t in other.edits if digest_table(t) not in known]
    schema = {**theirs.schema, **ours.schema}
    return Manifest(classes, (*ours.batches, *added), (*ours.overlays, *layers), schema)


def _classes(ours: Manifest, theirs: Manifest, where: str) -> tuple[str, ...]:
    """The longer class list. Shards hold class numbers, so one has to continue the other."""
    short, long = sorted((ours.classes, theirs.classes), key=len)
    if long[: len(short)] == short:
        return long
    place = next(i for i, (a, b) in enumerate(zip(ours.classes, theirs.classes, strict=False)) if a != b)
    raise SevenfoldError(
        f"class {place} is {ours.classes[place]!r} in ours and {theirs.classes[place]!r} in theirs, and shards hold "
        "the numbers of classes",
        where=where,
        expected="class lists of which one continues the other",
        do="commit the batch or the review on the branch itself instead: it was admitted once and is not landed again",
    )


def _brought(base: Manifest, tip: Manifest) -> tuple[dict[str, Any], ...]:
    """The entries of `tip` that hold a batch which `base` lacks."""
    old = set(base.batch_ids)
    return tuple(e for e in tip.batches if not old.issuperset(held(e)))


def _additions(store: Store, mine: _Side, other: _Side, where: str) -> list[dict[str, Any]]:
    """Their entries that ours lacks altogether. One that ours has in part, or packed otherwise, is refused."""
    ours = set(mine.manifest.batch_ids)
    added = []
    for entry in other.added:
        ids = held(entry)
        if not ours & set(ids):
            added.append(entry)
        elif entry not in mine.manifest.batches:
            names = ", ".join(sorted(ours & set(ids)))
            raise MergeConflict(
                f"both sides hold {names}, in different shards",
                _packed_rows(store, entry, mine.manifest),
                where=where,
                do="merge the version from before the compaction"
                if len(ids) > 1 or any(len(held(e)) > 1 for e in mine.added)
                else "roll one branch back to before it took the batch in, and merge before it does so again",
            )
    return added


def _packed_rows(store: Store, entry: dict[str, Any], ours: Manifest) -> pa.Table:
    """CONFLICTS rows of their entry's samples: in which batch they are on each side, null where they are not."""
    alone = Manifest(ours.classes, (entry,), (), {})
    rows, mine = (read_index(store, m, ["id", "batch"]) for m in (alone, ours))
    return _batch_rows(rows["id"], rows["batch"], mine)


def _batch_rows(ids: pa.ChunkedArray, batches: pa.ChunkedArray, ours: pa.Table) -> pa.Table:
    place = pc.index_in(ids, value_set=ours["id"].combine_chunks())
    columns = [ids, pa.repeat(pa.scalar("batch"), len(ids)), pc.take(ours["batch"], place), batches]
    return pa.table([c.cast(pa.string()) for c in columns], schema=CONFLICTS).sort_by("id")


def _refuse_double(store: Store, ours: Manifest, added: Sequence[dict[str, Any]], where: str) -> None:
    """Raise MergeConflict for samples that their new batches and ours both hold: an id is in a version once."""
    if not added:
        return  # without reading ours
    rows = read_index(store, Manifest(ours.classes, tuple(added), (), {}), ["id", "batch"])
    mine = read_index(store, ours, ["id", "batch"])
    rows = rows.filter(pc.is_valid(pc.index_in(rows["id"], value_set=mine["id"].combine_chunks())))
    if rows.num_rows:
        raise MergeConflict(
            f"{rows.num_rows:,} samples came in different batches on the two sides",
            _batch_rows(rows["id"], rows["batch"], mine),
            where=where,
            do="commit their batch on the branch itself instead: what it knows already becomes aliases there",
        )


def _refuse_lost(store: Store, mine: _Side, other: _Side, where: str) -> None:
    """Raise MergeConflict when theirs takes back an exclusion that a compaction has made final in ours."""
    lost = without_bytes(read_index(store, mine.manifest, ["id", "shard", "exclude"]), other.edits)
    if len(lost):
        columns = [lost, *(pa.repeat(pa.scalar(x), len(lost)) for x in ("bytes", "gone", "wanted"))]
        raise MergeConflict(
            f"{len(lost):,} samples that theirs takes back have no bytes in ours",
            pa.table(columns, schema=CONFLICTS),
            where=where,
            do="merge into a branch off the version before the compaction, or leave them excluded",
        )
