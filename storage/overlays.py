"""Overlays: a version's edits on top of its shards. The last word on each field of each sample wins."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage import redactions, tombstones
from sevenfold.storage.canonical import digest_table
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import BAKED, OVERLAY, SAMPLES, conform, read_parquet, write_parquet
from sevenfold.storage.keys import overlay_key
from sevenfold.storage.names import SPLITS
from sevenfold.storage.store import Store


def checked(table: pa.Table) -> pa.Table:
    """The overlay in its stored form: columns of index.OVERLAY (absent ones null), sorted by id.

    Raises SevenfoldError for an unknown column, a missing id or one named twice, a split that does not exist, or a
    weight that is negative or no number.
    """
    unknown = [c for c in table.column_names if c not in OVERLAY.names]
    if unknown or "id" not in table.column_names:
        raise SevenfoldError(
            f"an overlay has the columns {', '.join(table.column_names) or 'none'}",
            expected=f"id and any of {', '.join(OVERLAY.names[1:])}",
            do=f"drop or rename {unknown[0]}" if unknown else "add the ids of the samples to edit",
        )
    table = conform(table, OVERLAY).sort_by("id")
    if table["id"].null_count:
        raise SevenfoldError("an overlay has rows without an id", expected="the id of a sample in every row")
    if len(pc.unique(table["id"])) != table.num_rows:
        raise SevenfoldError("an overlay names the same sample twice", expected="one row per id", do="merge the rows")
    wrong = [s for s in pc.unique(table["split"]).to_pylist() if s is not None and s not in SPLITS]
    if wrong:
        raise SevenfoldError(f"an overlay moves samples to the split {wrong[0]!r}", expected=", ".join(SPLITS))
    bad = [w for w in pc.unique(table["weight"]).to_pylist() if w is not None and not 0 <= w < math.inf]
    if bad:
        raise SevenfoldError(f"an overlay gives the weight {bad[0]}", expected="a number from 0 upwards")
    return table


def write_overlay(store: Store, table: pa.Table) -> str:
    """Store an overlay (see `checked` and `unsaid`) and return its digest."""
    table = unsaid(store, checked(table))
    digest = digest_table(table)
    write_parquet(store, overlay_key(digest), [table], OVERLAY, overwrite=False)
    return digest


def unsaid(store: Store, table: pa.Table) -> pa.Table:
    """A checked overlay without what it says in words of samples that were taken down: they must not come back."""
    ids = tombstones.ids(store)
    return without_words(table, ids) if ids else table


def without_words(table: pa.Table, ids: Collection[str]) -> pa.Table:
    """An overlay (index.OVERLAY) without the labels and reasons of some samples; a label is then empty, not null."""
    hit = pc.is_in(table["id"], value_set=pa.array(list(ids), pa.string()))
    emptied = pc.if_else(pc.is_valid(table["label"]), "", pa.scalar(None, pa.string()))
    for name, value in (("label", emptied), ("reason", pa.scalar(None, pa.string()))):
        table = table.set_column(OVERLAY.get_field_index(name), name, pc.if_else(hit, value, table[name]))
    return table.cast(OVERLAY)


def read_overlay(store: Store, digest: str) -> pa.Table:
    """The overlay's rows, columns of index.OVERLAY; of samples that were taken down without label and reason."""
    return stored_rows(store, redactions.current(store).last("overlays", digest))


def stored_rows(store: Store, digest: str) -> pa.Table:
    """The rows in the overlay file of this very digest."""
    return read_parquet(store, overlay_key(digest), OVERLAY)


def conflicts(ours: Sequence[pa.Table], theirs: Sequence[pa.Table]) -> pa.Table:
    """Fields that two series of overlays leave at different values: id, field, ours, theirs (as text)."""
    mine, other = last_words(ours), last_words(theirs)
    place = pc.index_in(mine["id"], value_set=other["id"].combine_chunks())
    both = mine.filter(pc.is_valid(place))
    beside = other.take(place.drop_null())
    parts = []
    for name in EDITS:
        differ = pc.fill_null(pc.not_equal(both[name], beside[name]), False)  # one side says nothing: no conflict
        texts = [t[name].filter(differ).cast(pa.string()) for t in (both, beside)]
        ids = both["id"].filter(differ)
        field = pa.array([name] * len(ids), pa.string())
        parts.append(pa.table({"id": ids, "field": field, "ours": texts[0], "theirs": texts[1]}))
    return pa.concat_tables(parts).sort_by([("id", "ascending"), ("field", "ascending")])


def last_words(overlays: Sequence[pa.Table]) -> pa.Table:
    """id and EDITS: what a series of overlays says last about every field of every id it names."""
    rows = pa.concat_tables([o.select(["id", *EDITS]) for o in overlays]) if overlays else OVERLAY.empty_table()
    ids = pc.unique(rows["id"])
    columns = {"id": pa.chunked_array([ids])}
    for name in EDITS:
        column = pa.chunked_array([pa.nulls(len(ids), OVERLAY.field(name).type)])
        for overlay in overlays:
            place = pc.index_in(ids, value_set=overlay["id"].combine_chunks())
            column = pc.coalesce(pa.chunked_array([pc.take(overlay[name].combine_chunks(), place)]), column)
        columns[name] = column
    return pa.table(columns)


EDITS = ("exclude", "label", "split", "weight")
"""What an overlay can change of a sample."""


def apply(rows: pa.Table, overlays: Sequence[pa.Table]) -> pa.Table:
    """Effective samples (index.SAMPLES) of index rows: later overlays win field by field; excluded rows go last."""
    table = effective(rows, overlays)
    return conform(table.filter(pc.invert(table["exclude"])), SAMPLES)


def effective(rows: pa.Table, overlays: Sequence[pa.Table]) -> pa.Table:
    """index.SAMPLES and index.BAKED of index rows, excluded ones too; neither `weight` nor `exclude` is null."""
    table = conform(rows, pa.schema([*SAMPLES, *(f for f in BAKED if f.name not in SAMPLES.names)]))
    table = table.set_column(table.column_names.index("weight"), "weight", pc.fill_null(table["weight"], 1.0))
    excluded = pc.fill_null(table["exclude"], False)
    for overlay in overlays:
        place = pc.index_in(table["id"], value_set=overlay["id"].combine_chunks())
        excluded = pc.coalesce(pc.take(overlay["exclude"], place), excluded)
        for name in ("label", "split", "weight"):
            column = pc.coalesce(pc.take(overlay[name], place), table[name])
            table = table.set_column(table.column_names.index(name), name, column)
    return table.set_column(table.column_names.index("exclude"), "exclude", excluded)


def changes(before: pa.Table, after: pa.Table) -> pa.Table:
    """The overlay that turns one table of effective rows into another, for the ids that are in both."""
    place = pc.index_in(after["id"], value_set=before["id"].combine_chunks())
    both, was = after.filter(pc.is_valid(place)), before.take(place.drop_null())
    columns, any_changed = {"id": both["id"]}, pa.chunked_array([pa.repeat(pa.scalar(False), both.num_rows)])
    for name in EDITS:
        same = pc.or_(
            pc.fill_null(pc.equal(both[name], was[name]), False),
            pc.and_(pc.is_null(both[name]), pc.is_null(was[name])),
        )
        columns[name] = pc.if_else(same, pa.scalar(None, both.schema.field(name).type), both[name])
        any_changed = pc.or_(any_changed, pc.invert(same))
    return checked(pa.table(columns).filter(any_changed))
