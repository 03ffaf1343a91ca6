"""Equal pixels under different labels, found among 10^7 rows in seconds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality.keys64 import numbers, one_width


def contradicting(rows: pa.Table, others: pa.Table) -> list[str]:
    """The ids of labelled rows whose pixels occur among the others under another label, sorted.

    Looks for rows whose pixels have a label there that is smaller or larger than their own, by 64-bit numbers of the
    digests; the digests themselves are compared for those alone.
    """
    mine, theirs = (_labelled(t) for t in (rows, others))
    names = pc.unique(pa.chunked_array([*mine["label"].chunks, *theirs["label"].chunks], pa.string())).sort()
    alike = bool(one_width(mine["pixel_digest"])) and one_width(mine["pixel_digest"]) == one_width(
        theirs["pixel_digest"]
    )
    if not alike:  # numbers of the two columns compare only within one column
        both = pa.chunked_array([*mine["pixel_digest"].chunks, *theirs["pixel_digest"].chunks], pa.string())
        keys, known = np.split(numbers(both), [mine.num_rows])
    else:
        keys, known = numbers(mine["pixel_digest"]), numbers(theirs["pixel_digest"])
    labels = pc.index_in(theirs["label"], value_set=names).to_numpy().astype(np.int32)
    order = np.argsort(known)
    known, labels = known[order], labels[order]
    del order
    starts = np.flatnonzero(np.r_[True, known[1:] != known[:-1]]) if len(known) else np.zeros(0, np.int64)
    if not len(starts):
        return []
    least, most = np.minimum.reduceat(labels, starts), np.maximum.reduceat(labels, starts)
    known = known[starts]
    own = pc.index_in(mine["label"], value_set=names).to_numpy().astype(np.int32)
    suspects = _differing(keys, own, known, least, most)
    if not len(suspects):
        return []
    asked = mine.take(pa.array(suspects))
    there = theirs.filter(pc.is_in(theirs["pixel_digest"], value_set=pc.unique(asked["pixel_digest"])))
    said = there.group_by("pixel_digest").aggregate([("label", "min"), ("label", "max")])
    place = pc.index_in(asked["pixel_digest"], value_set=said["pixel_digest"].combine_chunks())
    low, high = (pc.take(said[f"label_{which}"], place) for which in ("min", "max"))
    other = pc.or_(pc.not_equal(low, asked["label"]), pc.not_equal(high, asked["label"]))
    return sorted(asked["id"].filter(pc.fill_null(other, False)).to_pylist())


def _labelled(table: pa.Table) -> pa.Table:
    """id, pixel_digest and label of the rows that have a label; no copy where all have one."""
    columns = table.select([c for c in ("id", "pixel_digest", "label") if c in table.column_names])
    return columns.filter(pc.is_valid(columns["label"])) if columns["label"].null_count else columns


def _differing(keys: np.ndarray, own: np.ndarray, known: np.ndarray, least: np.ndarray, most: np.ndarray) -> np.ndarray:
    """int64 [m]: which keys are known (sorted) with a least or most label other than their own."""
    found = []
    for start in range(0, len(keys), 1 << 20):
        part, label = keys[start : start + (1 << 20)], own[start : start + (1 << 20)]
        order = np.argsort(part)  # looking up in order stays within the cache
        part, label = part[order], label[order]
        place = np.minimum(np.searchsorted(known, part), len(known) - 1)
        hit = (known[place] == part) & ((least[place] != label) | (most[place] != label))
        found.append(start + order[hit])
    return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)
