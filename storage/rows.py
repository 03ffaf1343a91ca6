"""The rows of a version: index and overlays read and put together; what one version's edits are on top of another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage import overlays, redactions
from sevenfold.storage.index import BAKED, INDEX, SAMPLES, SLOT, conform
from sevenfold.storage.keys import index_key
from sevenfold.storage.pack import Known
from sevenfold.storage.records import Manifest, held
from sevenfold.storage.store import Store


def known_ids(store: Store, manifest: Manifest | None) -> Known:
    """Every stored id of a version, excluded ones too, with its label after the overlays."""
    if manifest is None or not manifest.batches:
        return Known(pa.array([], pa.string()), pa.array([], pa.string()))

    def known(redacted: redactions.Redactions) -> Known:
        opened = redactions.opened(manifest, redacted)
        rows = _read(store, opened, ["id", "label"])
        labels = rows["label"]
        for digest in opened.overlays:
            overlay = overlays.stored_rows(store, digest)
            place = pc.index_in(rows["id"], value_set=overlay["id"].combine_chunks())
            labels = pc.coalesce(pc.take(overlay["label"], place), labels)
        return Known(flat(rows["id"]), flat(labels))

    return redactions.steadily(store, known)


def read_index(store: Store, manifest: Manifest, columns: list[str] | None = None) -> pa.Table:
    """All index rows of a version in manifest order, before overlays: index.INDEX and index.BAKED, or some of them.

    `columns` may also name index.SLOT. Samples that were taken down keep their row, without a shard.
    """
    return redactions.steadily(store, lambda now: _read(store, redactions.opened(manifest, now), columns))


def _read(store: Store, opened: Manifest, columns: list[str] | None) -> pa.Table:
    fields = [*INDEX, *BAKED] if columns is None else [f for f in (*INDEX, *BAKED, SLOT) if f.name in columns]
    schema = pa.schema(fields)
    tables = []
    for path in store.together(store.local, [index_key(b["index"]) for b in opened.batches if b["index"]]):
        there = set(pq.read_schema(path).names)
        tables.append(conform(pq.read_table(path, columns=[f.name for f in fields if f.name in there]), schema))
    return pa.concat_tables(tables) if tables else schema.empty_table()


def effective(store: Store, manifest: Manifest, *, masked: bool = False) -> pa.Table:
    """All index rows of a version after its overlays, excluded ones too (see overlays.effective), in manifest order.

    With `masked`, samples that were taken down name the shard that they lay in.
    """
    columns = [f.name for f in (*INDEX, *BAKED, SLOT) if f.name != "components"]

    def read(redacted: redactions.Redactions) -> pa.Table:  # index and overlays of one moment
        opened = redactions.opened(manifest, redacted)
        edits = store.together(lambda d: overlays.stored_rows(store, d), opened.overlays)
        rows = _read(store, opened, columns)
        if masked and redacted:
            slots = pc.unique(rows["slot"]).drop_null()
            lay_in = pa.array([redacted.last("shards", s) for s in slots.to_pylist()], pa.string())
            shards = pc.coalesce(rows["shard"], pc.take(lay_in, pc.index_in(rows["slot"], value_set=slots)))
            rows = rows.set_column(rows.column_names.index("shard"), "shard", shards)
        return overlays.effective(rows, edits)

    return redactions.steadily(store, read)


def samples(store: Store, manifest: Manifest, *, masked: bool = False) -> pa.Table:
    """The version's effective samples (index.SAMPLES) in manifest, shard and offset order.

    With `masked`, samples that were taken down keep their row and with it their place in every epoch: id, batch, split,
    weight, the shard they lay in and, if they had a label, an empty one; everything else is null.
    """
    table = effective(store, manifest, masked=masked)
    table = table.filter(pc.and_(pc.invert(table["exclude"]), pc.is_valid(table["shard"])))
    return table.select(SAMPLES.names).combine_chunks()


def flat(column: pa.ChunkedArray) -> pa.Array:
    """One contiguous string array."""
    return pa.concat_arrays([pa.array([], pa.string()), *(c.cast(pa.string()) for c in column.chunks)])


NOTHING = Manifest((), (), (), {})
"""What a branch holds before its first version."""


def edits_since(store: Store, base: Manifest, tip: Manifest) -> list[pa.Table]:
    """The edits (index.OVERLAY) that make `tip`'s samples of those of `base` and of the batches that came since.

    Its own overlays where they say it; after a compaction or a merge, what differs between the two.
    """
    old = set(base.batch_ids)
    new = (e for e in tip.batches if old.isdisjoint(held(e)))
    kept = all(e in tip.batches for e in base.batches)
    n = len(base.overlays)
    redacted = redactions.current(store)  # asked once: in a bucket it is a request

    def rows(digests: Iterable[str]) -> list[pa.Table]:
        return store.together(lambda d: overlays.stored_rows(store, redacted.last("overlays", d)), digests)

    if kept and tip.overlays[:n] == base.overlays:
        return rows(tip.overlays[n:])
    ground = effective(store, Manifest(tip.classes, (*base.batches, *new), base.overlays, {}))
    now = effective(store, tip)
    own = rows(d for d in tip.overlays if d not in base.overlays)
    if kept and not overlays.changes(overlays.effective(ground, own), now).num_rows:
        return own
    change = overlays.changes(ground, now)
    return [change] if change.num_rows else []


def without_bytes(rows: pa.Table, edits: Sequence[pa.Table]) -> pa.ChunkedArray:
    """Ids that `edits` take back from an exclusion although compaction left their bytes out.

    `rows`: id, shard and exclude of the version's index.
    """
    last = overlays.last_words(edits)
    back = last.filter(pc.equal(last["exclude"], False))["id"].combine_chunks()
    gone = pc.and_(pc.is_null(rows["shard"]), pc.fill_null(rows["exclude"], False))
    return rows.filter(pc.and_(gone, pc.is_in(rows["id"], value_set=back)))["id"]
