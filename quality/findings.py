"""The table of findings: every offending key of every verdict, with what is known about the sample it names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality.verdict import Verdict

FINDINGS = pa.schema(
    [
        ("subject", pa.string()),
        ("v", pa.string()),
        ("check", pa.string()),
        ("result", pa.string()),
        ("key", pa.string()),
        ("rank", pa.int64()),
        ("note", pa.string()),
        ("path", pa.string()),
        ("label", pa.string()),
        ("split", pa.string()),
        ("batch", pa.string()),
        ("known", pa.bool_()),
    ]
)
"""One row per finding, in the verdicts' order; `rank` 1 is the worst of its check.

`path` is where the sample came from, within the source of its `batch`; `known` says whether the baseline has the
finding too, and is null without one. What is not a sample (a class, a slice) has no path, label or split.
"""

Keys = Mapping[tuple[str, str], Collection[str]]
"""(V, check) -> finding keys."""


def findings_table(
    verdicts: Sequence[Verdict],
    rows: pa.Table | None = None,
    quarantine: pa.Table | None = None,
    *,
    known: Keys | None = None,
) -> pa.Table:
    """All findings as a table of :data:`FINDINGS`.

    Parameters
    ----------
    rows : the subject's samples: id, path and, where they have them, label, split and batch.
    quarantine : the inputs that were set aside (path, reason, detail, label, split), whose keys are their paths; the
        reason is their note where the verdict has none.
    known : the baseline's findings; None without a baseline.
    """
    parts = [_of(v, known) for v in verdicts if v.findings]
    if not parts:
        return FINDINGS.empty_table()
    table = pa.concat_tables(parts)
    for name in ("path", "label", "split", "batch"):
        found = _looked_up(table["key"], rows, "id", name)
        aside = _looked_up(table["key"], quarantine, "path", name)
        table = table.append_column(name, pc.coalesce(found, aside))
    reason, detail = (_looked_up(table["key"], quarantine, "path", name) for name in ("reason", "detail"))
    why = pc.if_else(pc.equal(pc.fill_null(detail, ""), ""), reason, _with(reason, detail))
    note = pc.coalesce(table["note"], why)
    return table.set_column(table.column_names.index("note"), "note", note).select(FINDINGS.names).cast(FINDINGS)


def _of(verdict: Verdict, known: Keys | None) -> pa.Table:
    n = len(verdict.findings)
    keys = pa.array(verdict.findings, pa.string())
    old: pa.Array = pa.nulls(n, pa.bool_())
    if known is not None:
        old = pc.is_in(keys, value_set=pa.array(list(known.get((verdict.v, verdict.check), ())), pa.string()))
    same = {name: pa.repeat(pa.scalar(getattr(verdict, name), pa.string()), n) for name in FINDINGS.names[:4]}
    notes = pa.array(verdict.notes, pa.string()) if verdict.notes else pa.nulls(n, pa.string())
    return pa.table({**same, "key": keys, "rank": pa.array(range(1, n + 1), pa.int64()), "note": notes, "known": old})


def _with(reason: pa.ChunkedArray, detail: pa.ChunkedArray) -> pa.ChunkedArray:
    """`reason: detail` where there are both."""
    return pc.binary_join_element_wise(reason, pc.fill_null(detail, ""), ": ")


def _looked_up(keys: pa.ChunkedArray, table: pa.Table | None, on: str, column: str) -> pa.ChunkedArray:
    """The column's value in the first row whose `on` is the key; null where there is none."""
    if table is None or not {on, column} <= set(table.column_names):
        return pa.chunked_array([pa.nulls(len(keys), pa.string())])
    place = pc.index_in(keys, value_set=table[on].combine_chunks())
    return pc.take(table[column].combine_chunks().cast(pa.string()), place)
