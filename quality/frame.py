"""The metric frame: the numbers that a suite names, over millions of rows, from one DuckDB query per table.

A metric is ``rows`` or ``<column>_<reduction>``. Only what is named is computed: a count of distinct ids costs more
than all else together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

REDUCTIONS = {
    "nulls": "count(*) - count({0})",
    "nullshare": "(count(*) - count({0})) / greatest(count(*), 1)::double",
    "min": "min({0})",
    "max": "max({0})",
    "mean": "avg({0})",
    "distinct": "count(distinct {0})",
    "values": "",
    "type": "",
}
"""Reduction -> SQL over a quoted column. `values` lists the distinct values: ``|cat|dog|``; `type` is Arrow's name.

Besides there are quantiles, ``q01`` to ``q99``: ``brightness_q50`` is the median.
"""

_QUANTILE = re.compile("q[0-9][0-9]")


def split_metric(metric: str) -> tuple[str, str] | None:
    """(column, reduction) of a metric's name; None for one that has another form (`rows`, or a mistake)."""
    column, _, reduction = metric.rpartition("_")
    return (column, reduction) if column and (reduction in REDUCTIONS or _QUANTILE.fullmatch(reduction)) else None


def forms() -> str:
    """What a metric may be called, in words."""
    return f"a metric is rows or <column>_<{'|'.join(REDUCTIONS)}|q01 ... q99>"


def home(column: str, tables: Sequence[pa.Table]) -> int | None:
    """The first table that has the column; None where none has."""
    return next((i for i, t in enumerate(tables) if column in t.column_names), None)


def metrics(names: Iterable[str], rows: pa.Table, *others: pa.Table | None) -> dict[str, Any]:
    """The named metrics of rows, and of other tables about the same samples, keyed by id.

    What names no column there is left out. A sample that another table lacks counts as a null of its columns. The min,
    max, mean and quantiles of an empty or all-null column are None; other values are Python numbers and strings.
    """
    tables = [rows, *(t for t in others if t is not None)]
    wanted: dict[int, list[tuple[str, str, str]]] = {}
    values: dict[str, Any] = {"rows": rows.num_rows}
    for name in dict.fromkeys(names):
        parts = split_metric(name)
        at = home(parts[0], tables) if parts else None
        if parts is None or at is None:
            continue
        column, reduction = parts
        if reduction == "type":
            kind = tables[at].schema.field(column).type
            values[name] = str(kind.value_type if pa.types.is_dictionary(kind) else kind).replace("large_", "")
        elif reduction == "values":
            values[name] = listed(tables[at][column])
        elif not pa.types.is_nested(tables[at].schema.field(column).type):
            wanted.setdefault(at, []).append((name, column, reduction))
    for at, items in wanted.items():
        found = _query(tables[at], items)
        absent = rows.num_rows - tables[at].num_rows if at else 0
        for name, _, reduction in items:
            if reduction == "nulls":
                found[name] += absent
            elif reduction == "nullshare":
                found[name] = (found[name] * tables[at].num_rows + absent) / max(rows.num_rows, 1)
        values |= found
    return values


def listed(column: pa.ChunkedArray) -> str:
    """The distinct values as text: ``|cat|dog|``; ``|`` when there is none. Arrow is faster at this than SQL."""
    words = pc.unique(column).drop_null().cast(pa.string()).to_pylist()
    return "".join(f"|{word}" for word in sorted(words)) + "|"


def _query(table: pa.Table, items: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    import duckdb

    quantiles: dict[str, list[str]] = {}  # all of one column at once: sorting it is what costs
    for _, column, reduction in items:
        if reduction not in REDUCTIONS:
            quantiles.setdefault(column, []).append(reduction)
    parts = [
        f"{REDUCTIONS[reduction].format(_quote(column))} as {_quote(name)}"
        for name, column, reduction in items
        if reduction in REDUCTIONS
    ]
    for i, (column, asked) in enumerate(quantiles.items()):
        parts.append(f"quantile_cont({_quote(column)}, [{', '.join(f'0.{q[1:]}' for q in asked)}]) as quantiles_{i}")
    used = list(dict.fromkeys(column for _, column, _ in items))
    with duckdb.connect() as connection:
        connection.register("samples", table.select(used))
        (answer,) = connection.sql(f"select {', '.join(parts)} from samples").to_arrow_table().to_pylist()
    for i, (column, asked) in enumerate(quantiles.items()):
        found = answer.pop(f"quantiles_{i}") or [None] * len(asked)
        answer |= {f"{column}_{q}": value for q, value in zip(asked, found, strict=True)}
    return answer


def offenders(metric: str, kwargs: dict[str, Any], rows: pa.Table, *others: pa.Table | None) -> list[str]:
    """The ids of the rows behind a failing null, range or set rule; none for rules about the whole table."""
    tables = [rows, *(t for t in others if t is not None)]
    parts = split_metric(metric)
    at = home(parts[0], tables) if parts else None
    if parts is None or at is None or "id" not in tables[at].column_names or "id" not in rows.column_names:
        return []
    column, reduction = parts
    table = tables[at]
    bad = _broken(table[column], reduction, kwargs)
    if bad is None:
        return []
    ids = set(table.filter(pc.fill_null(bad, False))["id"].to_pylist())
    if at and reduction in ("nulls", "nullshare"):
        there = pc.is_in(rows["id"], value_set=table["id"].combine_chunks())
        ids |= set(rows.filter(pc.invert(there))["id"].to_pylist())
    return sorted(i or "" for i in ids)


def _broken(values: pa.ChunkedArray, reduction: str, kwargs: dict[str, Any]) -> Any:
    """Which values break a rule on one of their reductions; None where a rule blames no single value."""
    if reduction in ("nulls", "nullshare"):
        return pc.is_null(values)
    if reduction == "values" and "regex" in kwargs:
        different = pc.drop_null(pc.unique(values))
        rule = re.compile(kwargs["regex"])
        fine = [v for v in different.to_pylist() if rule.search(f"|{v}|")]
        return pc.invert(pc.is_in(values, value_set=pa.array(fine, different.type)))
    if reduction not in ("min", "max"):
        return None
    if "value_set" in kwargs:
        return pc.invert(pc.is_in(values, value_set=pa.array(kwargs["value_set"])))
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    if pa.types.is_integer(values.type):  # one of 64 bits is no exact float, which the limit may be
        values = values.cast(pa.float64(), safe=False)
    sides = [pc.less(values, low)] if low is not None else []
    sides += [pc.greater(values, high)] if high is not None else []
    return sides[0] if len(sides) == 1 else pc.or_(*sides) if sides else None


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
