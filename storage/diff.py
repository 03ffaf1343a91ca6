"""What differs between two versions, sample by sample: in Python, and as a query."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage.lens import text


def diff(before: pa.Table, after: pa.Table) -> dict[str, Any]:
    """What changed between two versions' effective samples.

    Returns counts (added, removed, relabelled, moved, reweighted) and, under `rows`, a table of the changed ids:
    id, change, before, after.
    """
    place = pc.index_in(after["id"], value_set=before["id"].combine_chunks())
    parts: list[pa.Table] = []

    def part(change: str, ids: Any, old: Any, new: Any) -> None:
        n = len(ids)
        texts = [_text(c) if c is not None else pa.nulls(n, pa.string()) for c in (old, new)]
        parts.append(
            pa.table({"id": ids, "change": pa.array([change] * n, pa.string()), "before": texts[0], "after": texts[1]})
        )

    added = after.filter(pc.is_null(place))
    part("added", added["id"], None, added["label"])
    gone = before.filter(pc.is_null(pc.index_in(before["id"], value_set=after["id"].combine_chunks())))
    part("removed", gone["id"], gone["label"], None)
    both = after.filter(pc.is_valid(place))
    was = before.take(place.drop_null())
    for change, column in (("relabelled", "label"), ("moved", "split"), ("reweighted", "weight")):
        same = pc.fill_null(pc.equal(both[column], was[column]), False)
        neither = pc.and_(pc.is_null(both[column]), pc.is_null(was[column]))
        changed = pc.invert(pc.or_(same, neither))
        part(change, both["id"].filter(changed), was[column].filter(changed), both[column].filter(changed))
    rows = pa.concat_tables([p.cast(parts[0].schema) for p in parts])
    counts = {
        name: parts[i].num_rows for i, name in enumerate(("added", "removed", "relabelled", "moved", "reweighted"))
    }
    return {"counts": counts, "rows": rows}


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Values as text; numbers as Python and DuckDB write them (3.0, 1e-07), Arrow does not."""
    if pa.types.is_floating(column.type):
        return pa.array([None if v is None else repr(v) for v in column.to_pylist()], pa.string())
    return column.cast(pa.string())


def diff_sql(dataset: str, before: str, after: str) -> str:
    """A SELECT over the view samples_all that gives the rows of `diff`: id, change, before, after.

    `before`, `after`: versions as they are named there (v3).
    """
    sides = ",\n".join(
        f"{side} AS (SELECT id, label, split, weight FROM samples_all "
        f"WHERE dataset = {text(dataset)} AND version = {text(version)})"
        for side, version in (("a", before), ("b", after))
    )
    changed = "\n".join(
        f"UNION ALL SELECT id, '{change}', a.{column}::VARCHAR, b.{column}::VARCHAR FROM a JOIN b USING (id) "
        f"WHERE a.{column} IS DISTINCT FROM b.{column}"
        for change, column in (("relabelled", "label"), ("moved", "split"), ("reweighted", "weight"))
    )
    return (
        f"WITH {sides}\n"
        "SELECT id, 'added' AS change, NULL::VARCHAR AS before, label AS after FROM b ANTI JOIN a USING (id)\n"
        "UNION ALL SELECT id, 'removed', label, NULL FROM a ANTI JOIN b USING (id)\n"
        f"{changed}"
    )
