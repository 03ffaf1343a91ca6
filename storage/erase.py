"""Taking samples out of shards, indexes and overlays: pure where it can be, byte for byte where it must be.

A shard loses the members of the samples and nothing else; an index keeps an empty row for each, so that the place of
every other sample in a version stays what it was; an overlay loses what was said in words.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage import tar
from sevenfold.storage.canonical import digest_bytes, digest_table
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import OVERLAY, QUARANTINE, SLOT, read_parquet, write_parquet
from sevenfold.storage.keys import index_key, lost_keys, overlay_key, shard_key
from sevenfold.storage.overlays import stored_rows, without_words
from sevenfold.storage.store import Store

KEPT = ("id", "batch", "split", "weight", "exclude")
"""What stays of an index row whose sample was taken down, with `slot` and whether it had a label."""

_PIECE = 1 << 20
_ID = re.compile(r"\b[0-9a-f]{64}\b")
_SIZE = re.compile(rb"[0-7]{11}")


@dataclass(frozen=True)
class Member:
    """One member of a tar: the id its name starts with and the bytes [start, end), header and padding included."""

    id: str
    start: int
    end: int


@dataclass(frozen=True)
class Cut:
    """What became of a shard: its new digest (None: nothing was left) and the byte ranges that are gone."""

    to: str | None
    samples: int
    bytes: int
    starts: np.ndarray
    lengths: np.ndarray

    def moved(self, offsets: np.ndarray) -> np.ndarray:
        """Where the bytes that were at `offsets` (int64 [n]) are now."""
        before = np.concatenate([[0], np.cumsum(self.lengths)])
        return np.asarray(offsets - before[np.searchsorted(self.starts, offsets)], np.int64)


def members(file: BinaryIO) -> Iterator[Member]:
    """The members of a shard, by its headers alone. Raises SevenfoldError where there is none."""
    at = 0
    while True:
        file.seek(at)
        head = file.read(tar.BLOCK)
        if len(head) < tar.BLOCK or not head.strip(b"\0"):
            return
        if not _SIZE.fullmatch(head, 124, 135):
            raise SevenfoldError(
                "this is no header of a tar", where=f"{file.name}, byte {at}", do="run `sevenfold verify` first"
            )
        end = at + tar.member_length(int(head[124:135], 8))
        yield Member(head[:100].rstrip(b"\0").decode("ascii", "replace").partition(".")[0], at, end)
        at = end


def cut_shard(store: Store, digest: str, ids: Collection[str]) -> Cut | None:
    """Write the shard without some samples, all other members as they are; None when the shard is not there.

    Raises SevenfoldError when its bytes are not those of its name: a damaged shard must not get a new, valid name. One
    that repair has been through may: of what it lost and is still in the new shard, verification goes on telling.
    """
    if not store.renew(shard_key(digest)):
        return None
    with open(store.local(shard_key(digest)), "rb") as file:
        found = list(members(file))
        gone = [m for m in found if m.id in ids]
        kept = {m.id for m in found if m.id not in ids}
        starts = np.array([m.start for m in gone], np.int64)
        lengths = np.array([m.end - m.start for m in gone], np.int64)
        if not kept:
            return Cut(None, 0, 0, starts, lengths)
        old, new, size = hashlib.sha256(), hashlib.sha256(), 0
        with store.writing(shard_key(digest) + ".cut") as draft:
            file.seek(0)
            edges = [0, *(x for m in gone for x in (m.start, m.end))]
            for i, start in enumerate(edges):
                until = edges[i + 1] if i + 1 < len(edges) else None
                for piece in _pieces(file, start, until):
                    old.update(piece)
                    if i % 2 == 0:
                        new.update(piece)
                        draft.file.write(piece)
                        size += len(piece)
            if old.hexdigest() != digest and not _all_but_lost(store, digest, file, found, ids):
                raise SevenfoldError(
                    "this shard is damaged: its bytes are not those of its name",
                    where=f"{store.url}/{shard_key(digest)}",
                    expected=f"sha256 {digest}",
                    do="mend it with `sevenfold verify --repair`, then run the takedown again",
                )
            draft.key = shard_key(new.hexdigest())
        _hand_on(store, digest, new.hexdigest(), ids)
    return Cut(new.hexdigest(), len(kept), size, starts, lengths)


def lost_rows(store: Store, digest: str) -> pa.Table:
    """What repair could not put back of a shard (index.QUARANTINE), none for nearly every one."""
    _, table = lost_keys(digest)
    return read_parquet(store, table, QUARANTINE) if store.exists(table) else QUARANTINE.empty_table()


def _lost_ids(rows: pa.Table) -> list[str]:
    return [ids_in(detail)[0] for detail in rows["detail"].to_pylist()]


def _all_but_lost(store: Store, digest: str, file: BinaryIO, found: list[Member], ids: Collection[str]) -> bool:
    """Whether every image that stays in a shard is whole, or is one that repair gave up."""
    lost = set(_lost_ids(lost_rows(store, digest)))
    for member in {m.id: m for m in reversed(found)}.values() if lost else ():  # of each sample the first: its image
        file.seek(member.start)
        size = int(file.read(tar.BLOCK)[124:135], 8)
        if member.id not in lost and member.id not in ids and digest_bytes(file.read(size)) != member.id:
            return False
    return bool(lost)


def _hand_on(store: Store, old: str, new: str, ids: Collection[str]) -> None:
    """Keep on record what is lost of a shard that got a new name."""
    rows = lost_rows(store, old)
    rows = rows.filter(pa.array([i not in ids for i in _lost_ids(rows)], pa.bool_()))
    if rows.num_rows:
        details = [d.replace(old, new) for d in rows["detail"].to_pylist()]
        rows = rows.set_column(QUARANTINE.get_field_index("detail"), "detail", pa.array(details, pa.string()))
        write_parquet(store, lost_keys(new)[1], [rows], QUARANTINE, overwrite=True)


def _pieces(file: BinaryIO, start: int, until: int | None) -> Iterator[bytes]:
    left = until - start if until is not None else None
    while left is None or left > 0:
        piece = file.read(_PIECE if left is None else min(_PIECE, left))
        if not piece:
            return
        left = left - len(piece) if left is not None else None
        yield piece


def mask_index(store: Store, digest: str, ids: Collection[str], cuts: Mapping[str, Cut]) -> str:
    """Write the index with empty rows for some samples and the others where they are now; returns its digest."""
    with pq.ParquetFile(store.local(index_key(digest))) as file:
        groups = [masked_rows(file.read_row_group(i), ids, cuts) for i in range(file.num_row_groups)]
    new = digest_table(pa.concat_tables(groups))
    write_parquet(store, index_key(new), groups, groups[0].schema, overwrite=False)
    return new


def masked_rows(table: pa.Table, ids: Collection[str], cuts: Mapping[str, Cut]) -> pa.Table:
    """Index rows after a takedown; `cuts` says by the digest of a shard what became of it."""
    if SLOT.name not in table.column_names:
        table = table.append_column(SLOT, pa.nulls(table.num_rows, SLOT.type))
    table = table.combine_chunks()
    hit = pc.is_in(table["id"], value_set=pa.array(list(ids), pa.string()))
    columns = {n: table[n].combine_chunks() for n in table.column_names}
    columns |= _moved(columns, cuts)
    for name, column in columns.items():
        if name == SLOT.name:
            columns[name] = pc.if_else(hit, pc.coalesce(table["shard"], column), column)
        elif name == "label":
            columns[name] = pc.if_else(pc.and_(hit, pc.is_valid(column)), "", column)
        elif name not in KEPT:
            columns[name] = pc.if_else(hit, pa.scalar(None, column.type), column)
    return pa.table([columns[f.name] for f in table.schema], schema=table.schema)


def _moved(columns: Mapping[str, pa.Array], cuts: Mapping[str, Cut]) -> dict[str, pa.Array]:
    """Shard, offset and components of index rows where they are after the cuts."""
    place = pc.index_in(columns["shard"], value_set=pa.array(list(cuts), pa.string()))
    cut_rows = pc.is_valid(place)
    parts = columns["components"].flatten()
    of_row = pc.fill_null(place, -1).to_numpy()
    of_part = of_row[pc.list_parent_indices(columns["components"]).to_numpy()]
    offsets = pc.fill_null(columns["offset"], 0).to_numpy().copy()
    inside = pc.fill_null(parts.field("offset"), 0).to_numpy().copy()
    each = list(cuts.values())
    for i in np.unique(of_row[of_row >= 0]):
        for now, of in ((offsets, of_row), (inside, of_part)):
            now[of == i] = each[i].moved(now[of == i])
    lengths = pc.fill_null(pc.list_value_length(columns["components"]), 0).to_numpy()
    fields = [pa.array(inside) if f.name == "offset" else parts.field(f.name) for f in parts.type]
    return {
        "shard": pc.if_else(cut_rows, pc.take(pa.array([c.to for c in each], pa.string()), place), columns["shard"]),
        "offset": pc.if_else(cut_rows, pa.array(offsets), columns["offset"]),
        "components": pa.ListArray.from_arrays(
            pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32()),
            pa.StructArray.from_arrays(fields, fields=list(parts.type)),
            type=columns["components"].type,
            mask=pc.is_null(columns["components"]),
        ),
    }


def shows(rows: pa.Table) -> pa.ChunkedArray:
    """bool [n]: whether an index row shows anything of its sample but id and split."""
    shown = pc.or_(pc.is_valid(rows["shard"]), pc.is_valid(rows["path"]))
    return pc.or_(shown, pc.is_valid(rows["pixel_digest"]))


def says(overlay: pa.Table, ids: pa.Array) -> pa.ChunkedArray:
    """bool [n]: whether a row of an overlay is about one of the samples and says something in words."""
    words = pc.or_(pc.greater(pc.fill_null(pc.utf8_length(overlay["label"]), 0), 0), pc.is_valid(overlay["reason"]))
    return pc.and_(pc.is_in(overlay["id"], value_set=ids), words)


def strip_overlay(store: Store, digest: str, ids: Collection[str]) -> str:
    """Write the overlay without labels and reasons of some samples; returns its digest."""
    table = without_words(stored_rows(store, digest), ids)
    new = digest_table(table)
    write_parquet(store, overlay_key(new), [table], OVERLAY, overwrite=False)
    return new


def ids_in(detail: str | None) -> list[str]:
    """The ids that the detail of a quarantined input names."""
    return _ID.findall(detail or "")


def about(quarantine: pa.Table, ids: Collection[str], places: Collection[tuple[str, str]]) -> list[bool]:
    """[n]: which quarantined inputs are these samples, by (source, path) or by the id in their detail."""
    columns = (quarantine[c].to_pylist() for c in ("source", "path", "detail"))
    return [(s, p) in places or any(i in ids for i in ids_in(d)) for s, p, d in zip(*columns, strict=True)]


def without_samples(verdicts: pa.Table, ids: Collection[str], paths: Collection[str]) -> pa.Table | None:
    """Verdicts that no longer quote these paths, nor say or draw anything of these samples; None when none did.

    Ids stay among the findings, without their note; pairs and examples that one of them is in go.
    """
    quoted = "|".join(sorted(map(re.escape, paths), key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w/.-])(?:{quoted})(?![\w/-])") if paths else _NOTHING
    before = verdicts.to_pylist()
    after = [_row_without(row, set(ids), set(paths), pattern) for row in before]
    return pa.Table.from_pylist(after, schema=verdicts.schema) if after != before else None


_NOTHING = re.compile(r"(?!)")
_NAMES = frozenset({"v", "check", "subject", "result", "reference"})
"""Columns of a verdict that never quote an input, even if one is called like a check."""


def _row_without(row: Mapping[str, Any], ids: set[str], paths: set[str], pattern: re.Pattern[str]) -> dict[str, Any]:
    out = dict(row)
    for name, value in row.items():
        if name == "data" and value:
            said = json.loads(value)
            less = _data_without(said, ids, paths, pattern)
            out[name] = json.dumps(less, sort_keys=True) if less != said else value
        elif name == "findings":
            out[name] = value and [GONE if x in paths else x for x in value]
        elif name not in _NAMES:
            out[name] = _data_without(value, set(), paths, pattern)
    if row.get("notes"):
        about = zip(row["findings"], out["notes"], strict=True)
        out["notes"] = ["" if finding in ids or finding in paths else note for finding, note in about]
    return out


def _data_without(value: Any, ids: set[str], paths: set[str], pattern: re.Pattern[str]) -> Any:
    """What a plot is drawn from, without samples: a list of keys loses them, and pairs that hold one."""
    if isinstance(value, str):
        return GONE if value in ids else pattern.sub(GONE, value)
    if isinstance(value, dict):
        return {
            _data_without(k, ids, paths, pattern): [x for x in v if not _names_one(x, ids, paths)]
            if isinstance(v, list) and k in _KEYED
            else _data_without(v, ids, paths, pattern)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [_data_without(x, ids, paths, pattern) for x in value]
    return value


_KEYED = ("pairs", "now", "reference")
"""Parts of a verdict's data that are lists of keys, or of lists of them (numbers otherwise)."""


def _names_one(value: Any, ids: set[str], paths: set[str]) -> bool:
    if isinstance(value, list):
        return any(_names_one(x, ids, paths) for x in value)
    return isinstance(value, str) and (value in ids or value in paths)


GONE = "(taken down)"
"""What a verdict quotes in place of a path."""
