"""The further columns of a table of images: what its owner knows of each besides label and split. Typed, in columns.

Numbers stay numbers (int64, float64), truth values bool, everything else is text; nested values, bytes and very long
texts are left out, with a note. Text that is numbers throughout, as in a CSV, becomes numbers, unless one begins with
a zero (00123 is a code).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MAX_COLUMNS = 200
MAX_TEXT = 1 << 16
"""Characters of a value; a column with a longer one is left out."""

RESERVED = frozenset({"id", "path", "dataset", "batch"})
"""Names that the lake has uses for: a column called so gets an underscore behind it."""

_NO_NUMBER = pa.array(["nan", "NaN", "NA", "N/A", "null", "NULL", "None"])
"""Words for a missing number, in a column that is numbers otherwise."""

_CODE = r"^[+-]?0[0-9]"


@dataclass(frozen=True)
class Further:
    """`table`: `path`, an input's, and the columns; `notes`: what was left out or renamed, a sentence each."""

    table: pa.Table
    notes: tuple[str, ...] = ()


class Gathering:
    """Collects rows in pieces; `texts` says that numbers are written as text (CSV)."""

    def __init__(self, *, texts: bool = False) -> None:
        self._texts = texts
        self._paths: list[pa.Array] = []
        self._columns: dict[str, list[pa.Array | None]] = {}
        self._rows = 0
        self._lengths: list[int] = []

    def add(self, paths: Sequence[str], columns: Mapping[str, Sequence[Any] | pa.Array]) -> None:
        """Some rows. Columns that are not named are null in them."""
        if not len(paths):
            return
        before = len(self._lengths)
        self._paths.append(pa.array(paths, pa.string()))
        self._lengths.append(len(paths))
        for name, values in columns.items():
            pieces = self._columns.setdefault(name, [])
            pieces += [pa.nulls(n) for n in self._lengths[len(pieces) : before]]
            pieces.append(plain(values))

    def finish(self) -> Further | None:
        """The columns, named and typed; None when there is none worth keeping."""
        notes: list[str] = []
        found: dict[str, pa.ChunkedArray] = {}
        taken = {"path"}
        for name, pieces in self._columns.items():
            pieces += [pa.nulls(n) for n in self._lengths[len(pieces) :]]
            column = self._united(pieces)
            shown = name[:60].encode(errors="backslashreplace").decode()
            if column is None:
                notes.append(f"the column {shown} holds nested values, bytes or texts over {MAX_TEXT:,} characters")
                continue
            if len(found) == MAX_COLUMNS:
                notes.append(f"the column {shown} is one too many: {MAX_COLUMNS} are kept")
                continue
            new = _free(shown, taken)
            if new != name:
                notes.append(f"the column {shown} is kept as {new}")
            taken.add(new.lower())
            found[new] = column
        if not found:
            return (
                Further(pa.table({"path": pa.chunked_array(self._paths, pa.string())}), tuple(notes)) if notes else None
            )
        return Further(pa.table({"path": pa.chunked_array(self._paths, pa.string()), **found}), tuple(notes))

    def _united(self, pieces: Sequence[pa.Array | None]) -> pa.ChunkedArray | None:
        if any(p is None for p in pieces):
            return None
        kinds = {p.type for p in pieces if p is not None} - {pa.null()}
        if kinds <= {pa.int64(), pa.float64()}:
            kind = pa.float64() if pa.float64() in kinds else pa.int64() if kinds else pa.null()
        else:
            kind = pa.bool_() if kinds == {pa.bool_()} else pa.string()
        if kind == pa.null():
            return pa.chunked_array([pa.nulls(len(p), pa.string()) for p in pieces if p is not None], pa.string())
        column = pa.chunked_array([p.cast(kind) for p in pieces if p is not None], kind)
        if kind == pa.string():
            column = pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), None, column)
            if (pc.max(pc.utf8_length(column)).as_py() or 0) > MAX_TEXT:
                return None
            if self._texts:
                column = numeric(column)
        if column.type == pa.float64():
            column = pc.if_else(pc.is_nan(column), None, column)
        return column


def joined(one: Further | None, two: Further | None) -> Further | None:
    """The columns of both, by path: of a path that only the second has, the first's are null, and so on."""
    if one is None or two is None:
        return one or two
    paths = pc.unique(pa.chunked_array([*one.table["path"].chunks, *two.table["path"].chunks], pa.string()))
    columns, taken, notes = {"path": paths}, {"path"}, [*one.notes, *two.notes]
    for table in (one.table, two.table):
        place = pc.index_in(paths, value_set=table["path"].combine_chunks())
        for name in table.column_names[1:]:
            new = _free(name, taken)
            notes += [f"the column {name} is there twice: one is kept as {new}"] if new != name else []
            taken.add(new.lower())
            columns[new] = table[name].take(place)
    return Further(pa.table(columns), tuple(notes))


def plain(values: Sequence[Any] | pa.Array) -> pa.Array | None:
    """Values as an array of int64, float64, bool, string or null; None where they are nested or bytes."""
    if isinstance(values, pa.Array):
        return _plain_array(values)
    try:
        return _plain_array(pa.array(values))
    except (pa.ArrowException, UnicodeEncodeError, OverflowError, TypeError, ValueError):  # a mixture
        kinds = {type(v) for v in values} - {type(None)}
        if kinds & {dict, list, bytes}:
            return None
        if kinds <= {int, float}:
            return pa.array([None if v is None else float(v) for v in values], pa.float64())
        return pa.array([v if v is None else _text(v) for v in values], pa.string())


def _plain_array(array: pa.Array) -> pa.Array | None:
    import pyarrow.types as t

    if t.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    kind = array.type
    if kind in (pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.null()):
        return array
    if t.is_uint64(kind) and (pc.max(array).as_py() or 0) >= 2**63:
        return array.cast(pa.float64(), safe=False)
    if t.is_integer(kind):
        return array.cast(pa.int64())
    if t.is_floating(kind) or t.is_decimal(kind):
        return array.cast(pa.float64(), safe=False)
    if t.is_large_string(kind) or t.is_temporal(kind) or str(kind) == "string_view":
        return array.cast(pa.string())
    return None


def numeric(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A text column as int64, float64 or bool where every value is one; else as it is."""
    words = pc.utf8_trim_whitespace(column)
    lower = pc.utf8_lower(words)
    if column.null_count < len(column) and pc.all(pc.is_in(lower, pa.array(["true", "false", None]))).as_py():
        return pc.equal(lower, "true")
    words = pc.if_else(pc.is_in(words, _NO_NUMBER), None, words)
    if words.null_count == len(words) or pc.any(pc.match_substring_regex(words, _CODE)).as_py():
        return column
    for kind in (pa.int64(), pa.float64()):
        try:
            return words.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column


def _text(value: Any) -> str:
    said = value if isinstance(value, str) else json.dumps(value)
    return said.encode("utf-8", "backslashreplace").decode()


def _free(name: str, taken: Iterable[str]) -> str:
    """A name that is not taken, whatever its case: SQL does not tell Age from age."""
    base = name.strip() or "column"
    base = f"{base}_" if base.lower() in RESERVED else base
    new, number = base, 2
    while new.lower() in taken:
        new, number = f"{base}_{number}", number + 1
    return new
