"""What the columns of a metadata table are: numbers, truth values, categories, identifiers or texts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Kind = str
"""number, bool, category, identifier, text, empty (nothing but nulls), or other: times, lists, decimals, bytes."""

MAX_CATEGORIES = 200
"""Different values of a text column up to which they are categories, if each is there twice on average."""

MIN_WORDS = 2.5
"""Words in a value, on average, from which a text column is texts (captions) and not identifiers."""

_LOOK = 1 << 16
"""Rows by which a column's kind is told."""


@dataclass(frozen=True)
class Column:
    """One column: `n` rows, `nulls` of them null; `low`, `high` of numbers; `values` of categories, with their rows."""

    name: str
    kind: Kind
    n: int
    nulls: int
    low: float | None = None
    high: float | None = None
    values: Mapping[str, int] | None = None


def described(table: pa.Table) -> dict[str, Column]:
    """Every column but `id`, by name; those of nested values or bytes are left out, as at ingest.

    Dates and times are told of as text: what a lake keeps is plain already, another table need not be.
    """
    columns = {name: _plain(table[name]) for name in table.column_names if name != "id"}
    return {name: _column(name, column) for name, column in columns.items() if column is not None}


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The column as numbers, truth values or text; None where it is nested or bytes."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type))
    if pa.types.is_decimal(kind) or pa.types.is_float16(kind):
        return column.cast(pa.float64())
    if pa.types.is_temporal(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return column.cast(pa.string())
    if pa.types.is_nested(kind) or not (
        pa.types.is_primitive(kind) or pa.types.is_string(kind) or pa.types.is_null(kind)
    ):
        return None
    return column


def _column(name: str, column: pa.ChunkedArray) -> Column:
    n, nulls = len(column), column.null_count
    if nulls == n:
        return Column(name, "empty", n, nulls)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        column = column.cast(pa.float32()) if pa.types.is_float16(column.type) else column
        ends = pc.min_max(column).as_py()
        return Column(name, "number", n, nulls, float(ends["min"]), float(ends["max"]))
    if pa.types.is_boolean(column.type):
        return Column(name, "bool", n, nulls, values=_counts(column))
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return Column(name, "other", n, nulls)
    kind = _kind_of_text(column)
    return Column(name, kind, n, nulls, values=_counts(column) if kind == "category" else None)


def _kind_of_text(column: pa.ChunkedArray) -> Kind:
    step = max(1, len(column) // _LOOK)
    seen = column.take(pa.array(np.arange(0, len(column), step))) if step > 1 else column
    seen = seen.drop_null()
    if not len(seen):
        return "text"
    different = pc.count_distinct(seen).as_py()
    if different <= MAX_CATEGORIES and (2 * different <= len(seen) or different == 1):
        return "category"
    words = pc.mean(pc.count_substring_regex(seen, r"\S+")).as_py()
    return "text" if words >= MIN_WORDS or not _spaced(seen) else "identifier"


def _spaced(column: pa.ChunkedArray) -> bool:
    """Whether the values are in a script that parts words by spaces, so that words can be counted."""
    unspaced = pc.match_substring_regex(column, r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")
    return bool(pc.mean(unspaced.cast(pa.int32())).as_py() < 0.5)


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    counted = pc.value_counts(column.cast(pa.string()))
    return {
        value: n
        for value, n in zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)
        if value is not None
    }
