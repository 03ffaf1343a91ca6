"""An index made again from the landing: rows, order and offsets follow from it, and the digest proves them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage import tar
from sevenfold.storage.canonical import digest_table
from sevenfold.storage.index import INDEX, LANDING, QUARANTINE, conform, read_parquet
from sevenfold.storage.keys import index_key, landing_key, quarantine_key
from sevenfold.storage.names import SPLITS
from sevenfold.storage.store import Store
from sevenfold.storage.survey import Part


def rebuild_index(store: Store, part: Part) -> tuple[list[pa.Table], pa.Schema] | str:
    """(row groups, schema) of a part's index; a sentence for the user when it cannot be made.

    The landed rows that the version did not know yet, without those whose inputs had changed, are in the shards in
    the order of splits and ids; how many are in which shard is in the manifest.
    """
    entry = part.entry
    try:
        landed = read_parquet(store, landing_key(part.dataset, entry["batch"]), LANDING)
        aside = read_parquet(store, quarantine_key(part.dataset, entry["batch"]), QUARANTINE)
        known = [read_parquet(store, index_key(b["index"]), columns=["id"]) for b in part.before if b["index"]]
    except FileNotFoundError as e:
        return f"it was not made from one landing, or what it was made from is gone ({e})"
    except (OSError, pa.ArrowException) as e:
        return f"what it was made from cannot be read: {type(e).__name__}: {e}"
    ids = pa.concat_tables(known)["id"].combine_chunks() if known else pa.array([], pa.string())
    changed = aside.filter(pc.equal(aside["reason"], "changed"))["path"].combine_chunks()
    fresh = landed.filter(pc.invert(pc.is_in(landed["id"], value_set=ids)))
    fresh = fresh.filter(pc.invert(pc.is_in(fresh["path"], value_set=changed)))
    groups: list[pa.Table] = []
    for split in SPLITS:
        rows, start = fresh.filter(pc.equal(fresh["split"], split)), 0
        for shard in entry["shards"]:
            if shard["split"] == split:
                some = rows.slice(start, shard["samples"])
                groups.append(_group(some, entry["batch"], shard["digest"], part.classes))
                start += shard["samples"]
    if groups and digest_table(pa.concat_tables(groups)) == entry["index"]:
        return groups, INDEX
    return "the landing does not give the rows that it had (its digest does not come out)"


def _group(rows: pa.Table, batch: str, shard: str, classes: Sequence[str]) -> pa.Table:
    """The index rows of one shard: an image and, of a labelled sample, its class number, each behind the other."""
    digits = {name: len(str(i)) for i, name in enumerate(classes)}
    offsets, components, at = [], [], 0
    for size, label in zip(rows["bytes"].to_pylist(), rows["label"].to_pylist(), strict=True):
        offsets.append(at + tar.BLOCK)
        at += tar.member_length(size)
        others = []
        if label is not None:
            length = digits.get(label, 0)
            others.append({"ext": "cls", "offset": at + tar.BLOCK, "size": length})
            at += tar.member_length(length)
        components.append(others)
    n = rows.num_rows
    more = {
        "batch": pa.repeat(pa.scalar(batch), n),
        "shard": pa.repeat(pa.scalar(shard), n),
        "offset": pa.array(offsets, pa.int64()),
        "size": rows["bytes"],
        "components": pa.array(components, INDEX.field("components").type),
    }
    for name, column in more.items():
        rows = rows.append_column(name, column)
    return conform(rows, INDEX)
