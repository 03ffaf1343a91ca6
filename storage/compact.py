"""Compaction: a version's small shards rewritten as few full ones, its overlays baked in; the samples stay the same.

Bytes come from the shards there are, never from sources, and each image is proven to be its id on the way. A pure
function of the version and the shard size: any machine writes the same shards.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage import redactions, tar, versions
from sevenfold.storage.canonical import digest_bytes, digest_json, digest_table
from sevenfold.storage.commit import publish
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import BAKED, INDEX, conform, write_parquet
from sevenfold.storage.keys import index_key, shard_key
from sevenfold.storage.names import SPLITS
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.records import Manifest, Version
from sevenfold.storage.rows import effective
from sevenfold.storage.shards import Sample, Written, cuts, write_shards
from sevenfold.storage.store import Store

TRIES = 10
"""How often a compaction is made again because another writer moved the branch: what was written is found again."""

_SCHEMA = pa.schema([*INDEX, *BAKED])


def compact(
    store: Store,
    dataset: str,
    *,
    branch: str = "main",
    message: str,
    shard_bytes: int,
    provenance: Mapping[str, Any],
    progress: Progress | None = None,
) -> tuple[Version, bool]:
    """Make the branch's next version of the same samples in few full shards without overlays.

    Returns the version and whether this call made it; the head when it is as compact as it can be. Excluded samples
    lose their bytes, but keep a row in the index: they are known when they land again, and stay excluded.
    Raises SevenfoldError for a branch without a version, a shard that is missing, or bytes that are not their id's.
    """
    for attempt in range(TRIES):
        head = versions.tip(store, dataset, branch)
        before = versions.read_manifest(store, head.content_id)
        after = redactions.steadily(store, partial(_compacted, store, before, shard_bytes, progress or silent))
        if after is None or after.content_id == head.content_id:
            return head, False
        wanted = Version(dataset, 1, after.content_id, (head.number,), message, dict(provenance))
        published = publish(store, wanted, branch, after)
        if published is not None:
            return published
        time.sleep(random.random() * 0.05 * (attempt + 1))
    raise SevenfoldError(
        f"other writers moved the branch {branch} {TRIES} times meanwhile",
        where=dataset,
        do="compact again when they are done",
    )


def _compacted(
    store: Store, manifest: Manifest, shard_bytes: int, progress: Progress, redacted: redactions.Redactions
) -> Manifest | None:
    """The manifest of the compacted version, its shards and index written; None when there is nothing to do."""
    rows = effective(store, manifest).combine_chunks()
    stay = pc.and_(pc.is_valid(rows["shard"]), pc.invert(rows["exclude"]))
    groups = list(_groups(rows.filter(stay), manifest.classes, shard_bytes))
    layout = [(split, g.num_rows, _length(g)) for split, g in groups]
    now = redactions.opened(manifest, redacted)
    there = [(s["split"], s["samples"], s["bytes"]) for s in now.shards]
    if len(manifest.batches) <= 1 and not manifest.overlays and layout == there:
        return None
    written, shards = [], []
    done, total = 0, sum(g.num_rows for _, g in groups)
    made = write_shards(store, (_samples(store, group) for _, group in groups))
    for (split, group), shard in zip(groups, made, strict=True):
        assert shard is not None  # no group is empty
        shards.append({"digest": shard.digest, "samples": shard.samples, "bytes": shard.bytes, "split": split})
        written.append(_placed(group, shard))
        done += shard.samples
        progress(done, total, "compacting")
    gone = rows.filter(pc.invert(stay))
    if gone.num_rows:
        empty = {n: pa.nulls(gone.num_rows, _SCHEMA.field(n).type) for n in ("shard", "offset", "size")}
        for name, column in empty.items():
            gone = gone.set_column(gone.column_names.index(name), name, column)
        written.append(conform(gone.sort_by("id"), _SCHEMA))
    index = None
    if written:
        index = digest_table(pa.concat_tables(written))
        write_parquet(store, index_key(index), written, _SCHEMA, overwrite=False)
    held = list(manifest.batch_ids)
    digest = digest_json({"holds": held, "index": index})
    entry = {
        "batch": f"compact-{digest[:8]}", "digest": digest, "index": index, "samples": total, "shards": shards,
        "holds": held,
    }  # fmt: skip
    schema = {f.name: str(f.type) for f in _SCHEMA}
    return Manifest(classes=manifest.classes, batches=(entry,), overlays=(), schema=schema)


def _groups(rows: pa.Table, classes: tuple[str, ...], shard_bytes: int) -> Iterator[tuple[str, pa.Table]]:
    """(split, rows of one shard) as pack.py cuts them: per split, in id order, each tar within shard_bytes.

    `cls` is added: the label's number as the shard's text has it, null without a label.
    """
    place = pc.index_in(rows["label"], value_set=pa.array(classes, pa.string()))
    rows = rows.append_column("cls", place.cast(pa.string()))
    for split in SPLITS:
        part = rows.filter(pc.equal(rows["split"], split)).sort_by("id")
        yield from ((split, part.slice(*cut)) for cut in cuts(part["size"].to_pylist(), shard_bytes))


def _length(group: pa.Table) -> int:
    """Bytes of the tar that a group of rows makes."""
    images = sum(map(tar.member_length, group["size"].to_pylist()))
    numbers = sum(tar.member_length(len(c)) for c in group["cls"].to_pylist() if c is not None)
    return images + numbers + len(tar.END)


def _samples(store: Store, group: pa.Table) -> Iterator[Sample]:
    """The samples of one shard; its images are held while it is written."""
    columns = (group[c].to_pylist() for c in ("id", "ext", "cls"))
    for key, ext, number, data in zip(*columns, images(store, group), strict=True):
        yield key, ((ext, data),) if number is None else ((ext, data), ("cls", number.encode()))


def _placed(group: pa.Table, shard: Written) -> pa.Table:
    """The index rows of a shard that has been written."""
    for name, column in (
        ("shard", pa.repeat(pa.scalar(shard.digest), shard.samples)),
        ("offset", pa.array(shard.offsets)),
        ("size", pa.array(shard.sizes)),
    ):
        group = group.set_column(group.column_names.index(name), name, column)
    return conform(group.append_column("components", shard.components), _SCHEMA)


def images(store: Store, rows: pa.Table) -> list[bytes]:
    """The images of some rows, in their order, read shard by shard and verified.

    Raises SevenfoldError naming shard and member.
    """
    found: list[bytes] = [b""] * rows.num_rows
    columns = (rows[c].to_pylist() for c in ("shard", "offset", "size", "id", "ext"))
    wanted = sorted(zip(*columns, range(rows.num_rows), strict=True))
    for shard, members in itertools.groupby(wanted, key=lambda m: m[0]):
        with _opened(store, shard) as handle:
            for _, offset, size, key, ext, i in members:
                data = os.pread(handle, size, offset)
                if digest_bytes(data) != key:
                    cut = len(data) < size
                    raise SevenfoldError(
                        f"the member {key}.{ext} at byte {offset} "
                        + (f"ends after {len(data)} of {size} bytes" if cut else f"has digest {digest_bytes(data)}"),
                        where=f"{store.url}/{shard_key(shard)}",
                        expected="the bytes whose sha256 is the sample's id",
                        do="run `sevenfold verify` and restore the shard from a copy; nothing was changed",
                    )
                found[i] = data
    return found


@contextmanager
def _opened(store: Store, shard: str) -> Iterator[int]:
    try:
        handle = os.open(store.local(shard_key(shard)), os.O_RDONLY)
    except FileNotFoundError:
        raise SevenfoldError(
            "this shard is missing",
            where=f"{store.url}/{shard_key(shard)}",
            expected="every shard of the version",
            do="run `sevenfold verify` and restore the shard from a copy; nothing was changed",
        ) from None
    try:
        yield handle
    finally:
        os.close(handle)
