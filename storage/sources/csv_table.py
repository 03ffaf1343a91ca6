"""A CSV that names image files."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from itertools import islice

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.sources.base import Input, InputError, Source, stamp_of
from sevenfold.storage.sources.columns import PATHS, Columns, find_columns, read_named, size_and_time, split_of_word
from sevenfold.storage.sources.further import Further, Gathering

PIECE = 1 << 14
"""Rows of further columns that are gathered at once."""


class CsvSource(Source):
    """A CSV with the columns path and label (optional: split); paths are relative to the CSV's folder.

    Other columns are kept as metadata.
    """

    kind = "csv"
    carried = ("problems",)
    _columns: Columns

    def _list(self) -> Iterator[Input]:
        try:
            yield from self._rows()
        except (UnicodeDecodeError, csv.Error) as e:
            raise SevenfoldError(
                f"this is no CSV in UTF-8 ({e})", where=self.location, do="save it as UTF-8, its quotes in pairs"
            ) from None

    def _rows(self) -> Iterator[Input]:
        with open(self.path, newline="", encoding="utf-8-sig") as f:
            reader = csv.DictReader(f, strict=True)
            columns = find_columns(reader.fieldnames or [], PATHS, self.location)
            self._columns = columns
            for number, row in enumerate(reader):
                path = (row[columns.image] or "").strip()
                label = (row[columns.label] or "").strip() if columns.label else ""
                word = row[columns.split] if columns.split else ""
                split = split_of_word(word, f"{self.location}, line {reader.line_num}")
                label_or_none = (label or None) if split != "pool" else None
                if not path:
                    problem = ("bad_row", f"line {reader.line_num} names no file")
                    yield Input(f"{self.name}#{number:08d}", label_or_none, split, 0, 0.0, problem)
                    continue
                size, modified = size_and_time(self.path.parent, path)
                yield Input(path, label_or_none, split, size, modified)

    def _remarks(self) -> Iterable[str]:
        return (str(self._columns),)

    @property
    def stamp(self) -> str:
        """See Source.stamp."""
        self.inputs  # noqa: B018  (the columns are known from here on)
        return stamp_of(self.path) if self._columns.rest else ""

    def further(self) -> Further | None:
        """See Source.further."""
        self.inputs  # noqa: B018
        columns = self._columns
        gathering = Gathering(texts=True)
        with open(self.path, newline="", encoding="utf-8-sig") as f:
            rows = ((r, (r[columns.image] or "").strip()) for r in csv.DictReader(f, strict=True))
            named = ((r, path) for r, path in rows if path)
            while piece := list(islice(named, PIECE)):
                gathering.add([path for _, path in piece], {c: [r[c] for r, _ in piece] for c in columns.rest})
        return gathering.finish()

    def read(self, path: str) -> bytes:
        """See Source.read."""
        if path.startswith(f"{self.name}#") and path in self.problems:
            raise InputError(*self.problems[path])
        return read_named(self.path.parent, path)
