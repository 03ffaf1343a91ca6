"""Repair: put back what verification found damaged, from a cache, the sources or other shards, or set it aside.

A file is replaced only by the whole bytes of its name. Where samples stay lost, the damaged bytes are kept in
quarantine/shards/ with a row per lost sample, and the shard is written anew with zeros in their place: the others stay
readable at their offsets, and the lost ones fail to decode instead of passing as something they are not.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage import commit as committing
from sevenfold.storage import overlays, tar, variants, versions
from sevenfold.storage.canonical import digest_bytes
from sevenfold.storage.damage import walk
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import OVERLAY, QUARANTINE, write_parquet
from sevenfold.storage.keys import batch_key, digest_in, index_key, lost_keys, shard_key
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.rebuild import rebuild_index
from sevenfold.storage.records import Batch, Version
from sevenfold.storage.rows import samples
from sevenfold.storage.sources import InputError, Source, open_source
from sevenfold.storage.store import LocalStore, Store
from sevenfold.storage.survey import Part, survey
from sevenfold.storage.verified import CACHE, Finding
from sevenfold.storage.verify import read_table

REBUILT, REFETCHED, QUARANTINED, LEFT = "rebuilt", "fetched again", "quarantined", "left as it is"


@dataclass(frozen=True)
class Repair:
    """What became of one damaged file. `lost`: (dataset, sample id) of every sample that cannot be had."""

    key: str
    outcome: str
    detail: str
    lost: tuple[tuple[str, str], ...] = ()


def repair(
    store: Store, datasets: Sequence[str], findings: Iterable[Finding], *, progress: Progress | None = None
) -> list[Repair]:
    """Mend the files that verification blames, indexes first; verify again afterwards.

    Raises OSError when the lake cannot be written.
    """
    report = progress or silent
    done: list[Repair] = []
    cached = {f.key for f in findings if f.where == CACHE}
    bad = {f.key for f in findings if f.where != CACHE}
    for key in sorted(cached):
        done.append(_fetch_again(store, key))
    parts = survey(store, datasets).parts
    seen: set[str] = set()
    for part in parts:
        key = index_key(part.entry["index"]) if part.entry["index"] else ""
        if key in bad and key not in seen:
            seen.add(key)
            done.append(_mend_index(store, part, key))
    everywhere = _Everywhere(store, parts)
    shards = [(p, s) for p in parts for s in p.entry["shards"] if shard_key(s["digest"]) in bad]
    for i, (part, shard) in enumerate(shards):
        report(i, len(shards), "mending shards")
        if shard_key(shard["digest"]) not in seen:
            seen.add(shard_key(shard["digest"]))
            done.append(_mend_shard(store, part, shard["digest"], everywhere))
    again = "a variant is not mended: remove it with `sevenfold materialize --remove NAME` and make it again"
    derived = variants.holding(store, ())[1] if bad - seen else set()
    advice = {"variants": again,
              "overlays": "restore it from a copy: an overlay is people's decisions, and lies nowhere else",
              "manifests": "restore it from a copy", "datasets": "restore it from a copy"}  # fmt: skip
    for k in sorted(bad - seen):
        told = again if digest_in(k) in derived else advice.get(k.partition("/")[0], "nothing here can mend it")
        done.append(Repair(k, LEFT, told))
    return done


def _fetch_again(store: Store, key: str) -> Repair:
    store.forget(key)
    try:
        store.local(key)
    except OSError as e:
        return Repair(key, LEFT, f"this machine's damaged copy was dropped, and a new one cannot be had: {e}")
    return Repair(key, REFETCHED, "this machine's copy was damaged")


def _mend_index(store: Store, part: Part, key: str) -> Repair:
    found = rebuild_index(store, part)
    if isinstance(found, str):
        return Repair(key, LEFT, found)
    groups, schema = found
    write_parquet(store, key, groups, schema, overwrite=True)
    store.forget(key)
    return Repair(key, REBUILT, f"from the landing of the batch {part.entry['batch']}")


def _mend_shard(store: Store, part: Part, digest: str, everywhere: _Everywhere) -> Repair:
    key = shard_key(digest)
    rows = everywhere.rows(part, digest)
    if rows is None:
        return Repair(key, LEFT, "its index cannot be read, so nobody knows what was in it: mend the index first")
    wanted = rows.to_pylist()
    damaged = _read(store, key)
    images, origins = _gather(part, digest, wanted, damaged, everywhere)
    pieces = _layout(wanted, images, part.classes)
    lost = [r for r in wanted if r["id"] not in images]
    whole = digest_bytes(b"".join(pieces))
    if whole == digest and not lost:  # a takedown may have named a shard with zeros in the place of lost ones
        _write(store, key, pieces)
        _release(store, digest)
        return Repair(key, REBUILT, ", ".join(f"{n} samples {where}" for where, n in origins.items()))
    if not lost:  # every image is there and the bytes still are not those of the name: no guess is written
        return Repair(key, LEFT, f"all {len(wanted)} samples are whole, but together they give the digest {whole}")
    _set_aside(store, digest, damaged, lost)
    if len(lost) < len(wanted):
        _write(store, key, pieces)
        told = f"{len(wanted) - len(lost)} samples are whole at their places, {len(lost)} are lost"
    else:
        store.delete(key)
        store.forget(key)
        told = f"all {len(lost)} samples are lost"
    return Repair(key, QUARANTINED, told, tuple((part.dataset, r["id"]) for r in lost))


class _Everywhere:
    """Finds the other places of a sample: the indexes of the lake, read once and only when they are needed."""

    def __init__(self, store: Store, parts: Sequence[Part]) -> None:
        self.store, self.parts = store, parts
        self._tables: dict[str, pa.Table | None] = {}
        self._sources: dict[tuple[str, str], Source | None] = {}

    def rows(self, part: Part, digest: str) -> pa.Table | None:
        """The index rows of one of a part's shards, by offset."""
        table = self._table(part.entry["index"])
        return None if table is None else table.filter(pc.equal(table["shard"], digest)).sort_by("offset")

    def copies(self, ids: set[str], without: str) -> Iterator[tuple[str, bytes]]:
        """(id, bytes) of those samples found whole in other shards."""
        wanted = pa.array(sorted(ids), pa.string())
        for index in dict.fromkeys(p.entry["index"] for p in self.parts if p.entry["index"]):
            table = self._table(index)
            if table is None:
                continue
            there = table.filter(pc.and_(pc.is_in(table["id"], value_set=wanted), pc.is_valid(table["shard"])))
            for row in there.filter(pc.not_equal(there["shard"], without)).to_pylist():
                data = _read(self.store, shard_key(row["shard"]), row["offset"], row["size"])
                if digest_bytes(data) == row["id"]:
                    yield row["id"], data

    def source(self, dataset: str, batch: str) -> Source | None:
        """A batch's source, if it is still there."""
        if (dataset, batch) not in self._sources:
            try:
                record = Batch.read(self.store, batch_key(dataset, batch))
                self._sources[dataset, batch] = open_source(record.source, record.kind)
            except (SevenfoldError, OSError):
                self._sources[dataset, batch] = None
        return self._sources[dataset, batch]

    def _table(self, index: str | None) -> pa.Table | None:
        if index is None:
            return None
        if index not in self._tables:
            try:
                self._tables[index] = read_table(self.store, index_key(index))
            except (OSError, pa.ArrowException):
                self._tables[index] = None
        return self._tables[index]


def _gather(
    part: Part, digest: str, rows: Sequence[Mapping[str, Any]], damaged: bytes, everywhere: _Everywhere
) -> tuple[dict[str, bytes], dict[str, int]]:
    """(the images by id, how many came from where): the damaged file itself, other shards, the batch's source."""
    images: dict[str, bytes] = {}
    origins: dict[str, int] = {}

    def take(found: Iterable[tuple[str, bytes]], where: str) -> None:
        before = len(images)
        images.update((i, d) for i, d in found if i in wanted and digest_bytes(d) == i)
        if len(images) > before:
            origins[where] = len(images) - before

    wanted = {r["id"] for r in rows}
    take(((r["id"], damaged[r["offset"] : r["offset"] + r["size"]]) for r in rows), "were whole in it")
    if damaged and len(images) < len(wanted):  # members that lie elsewhere than they should
        members = [m for m in walk(damaged)[0] if m.digest is not None]
        take(((m.digest or "", damaged[m.offset : m.offset + m.size]) for m in members), "were whole in it, moved")
    if len(images) < len(wanted):
        take(everywhere.copies(wanted - images.keys(), digest), "from other shards")
    if len(images) < len(wanted):
        take(_from_sources(part, [r for r in rows if r["id"] not in images], everywhere), "from the source")
    return images, origins


def _from_sources(
    part: Part, rows: Sequence[Mapping[str, Any]], everywhere: _Everywhere
) -> Iterator[tuple[str, bytes]]:  # fmt: skip
    for row in rows:
        source = everywhere.source(part.dataset, row["batch"])
        if source is None:
            continue
        try:
            yield row["id"], source.read(row["path"])
        except (InputError, OSError):
            continue


def _layout(
    rows: Sequence[Mapping[str, Any]], images: Mapping[str, bytes], classes: Sequence[str]
) -> list[bytes]:  # fmt: skip
    """The pieces of the shard as it was written; zeros stand for images that are not there."""
    numbers = {name: b"%d" % i for i, name in enumerate(classes)}
    members: list[tuple[int, bytes, bytes]] = []
    for row in rows:
        name = row["id"].encode() + b"."
        members.append((row["offset"], name + row["ext"].encode(), images.get(row["id"], bytes(row["size"]))))
        for other in row["components"] or ():
            body = numbers.get(row["label"], b"") if other["ext"] == "cls" else bytes(other["size"])
            members.append((other["offset"], name + other["ext"].encode(), body))
    pieces: list[bytes] = []
    for _, name, body in sorted(members, key=lambda m: m[0]):
        pieces += (tar.header(name, len(body)), body, tar.padding(len(body)))
    return [*pieces, tar.END]


def exclude(
    store: Store, repairs: Iterable[Repair], *, clock: Callable[[], float] = time.time
) -> list[tuple[str, Version]]:  # fmt: skip
    """Commit, on every branch that still shows lost samples, a version that leaves them out: (branch, version).

    Nothing but an overlay is added: batches that wait for a commit go on waiting.
    """
    lost: dict[str, set[str]] = defaultdict(set)
    for dataset, sample in (x for r in repairs for x in r.lost):
        lost[dataset].add(sample)
    made = []
    for dataset, ids in lost.items():
        for branch in versions.read_refs(store, dataset, "branches"):
            version = _without(store, dataset, branch, sorted(ids), clock)
            if version is not None:
                made.append((branch, version))
    return made


def _without(
    store: Store, dataset: str, branch: str, ids: Sequence[str], clock: Callable[[], float]
) -> Version | None:  # fmt: skip
    """The new version of a branch; None when it shows none of these samples."""
    why = {"reviewer": "sevenfold verify", "reason": "lost: its bytes are damaged and cannot be had"}
    for _ in range(committing.TRIES):
        head = versions.tip(store, dataset, branch)
        manifest = versions.read_manifest(store, head.content_id)
        shown = samples(store, manifest)["id"]
        rows = [{"id": i, "exclude": True, **why} for i in shown.filter(pc.is_in(shown, pa.array(ids))).to_pylist()]
        if not rows:
            return None
        overlay = overlays.write_overlay(store, pa.Table.from_pylist(rows, schema=OVERLAY))
        manifest = replace(manifest, overlays=(*manifest.overlays, overlay))
        message = f"without {len(rows)} lost samples"
        provenance = {"by": "sevenfold verify --repair --exclude", "time": clock()}
        wanted = Version(dataset, 1, manifest.content_id, (head.number,), message, provenance)
        published = committing.publish(store, wanted, branch, manifest)
        if published is not None:
            return published[0]
    raise SevenfoldError(f"other writers move the branch {branch} all the time", where=dataset, do="run it again")


def _set_aside(store: Store, digest: str, damaged: bytes, lost: Sequence[Mapping[str, Any]]) -> None:
    kept, table = lost_keys(digest)
    if damaged and not store.exists(kept):  # the first finding is the damage; later ones are our own zeros
        store.create(kept, damaged)
    rows = [
        {"path": r["path"], "reason": "lost", "detail": f"sample {r['id']}: damaged in shard {digest}",
         "label": r["label"], "split": r["split"], "source": r["batch"], "bytes": r["size"]}
        for r in lost
    ]  # fmt: skip
    write_parquet(store, table, [pa.Table.from_pylist(rows, schema=QUARANTINE)], QUARANTINE, overwrite=True)


def _release(store: Store, digest: str) -> None:
    for key in lost_keys(digest):
        store.delete(key)


def _write(store: Store, key: str, pieces: Sequence[bytes]) -> None:
    with store.writing(key, overwrite=True) as draft:
        draft.file.writelines(pieces)
    store.forget(key)


def _read(store: Store, key: str, offset: int = 0, size: int = -1) -> bytes:
    """Bytes of a file, from the lake itself; none when it is missing or cannot be read."""
    try:
        if isinstance(store, LocalStore):
            with open(store.path(key), "rb") as f:
                f.seek(offset)
                return f.read(size)
        data = store.read(key)
        return data[offset : offset + size] if size >= 0 else data[offset:]
    except OSError:
        return b""
