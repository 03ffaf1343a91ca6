"""Tables beside a source: labels that lie apart from the images, and what several annotators said of them.

A row names its image by path, by a path that starts in a folder above (`train/cat/1.png` finds `cat/1.png`), by file
name or by file name without suffix, whichever finds exactly one image. What finds none, or several, is told; so are the
images without a row. A table of labels that finds no image at all is an error.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.sources.base import Input, InputError, Source, stamp_of, suffix_of
from sevenfold.storage.sources.columns import LABELS, PATHS, label_of
from sevenfold.storage.sources.further import Further, Gathering, joined

KEYS = (*PATHS, "image_id", "id", "name", "key")
"""Columns that name an image, the most telling first."""

ANNOTATORS = ("annotator", "annotator_id", "worker", "worker_id", "rater", "labeller", "labeler", "user")

KINDS = ("csv", "jsonl", "ndjson", "parquet")

SAID = pa.schema([("path", pa.string()), ("annotator", pa.string()), ("label", pa.string())])
"""What annotators said of inputs."""


@dataclass(frozen=True)
class Table:
    """A table beside a source. `column`: the one that holds the labels; None: one that is called so (see LABELS)."""

    path: Path
    column: str | None = None


class Beside(Source):
    """A source together with a table of its labels, one of annotations, or both.

    With a table of labels no other label counts: what folders or the source's own columns say is not looked at. Two
    rows that label one image differently set it aside as `label_unreadable`. The tables' other columns are metadata.
    """

    def __init__(self, source: Source, labels: Table | None = None, annotations: Table | None = None) -> None:
        super().__init__(source.root)
        self.source, self.labels, self.annotated = source, labels, annotations
        self.kind = source.kind

    def __reduce__(self) -> tuple[Any, ...]:
        return Beside, (self.source, self.labels, self.annotated)

    @property
    def tables(self) -> dict[str, str]:
        """See Source.tables: what `with_tables` needs to make this again."""
        said: dict[str, str] = {}
        for name, table in (("labels", self.labels), ("annotations", self.annotated)):
            if table is not None:
                said[name] = str(table.path)
                said |= {f"{name}_column": table.column} if table.column else {}
        return said

    @property
    def stamp(self) -> str:
        """See Source.stamp."""
        there = [t for t in (self.labels, self.annotated) if t is not None]
        return "; ".join([self.source.stamp, *(stamp_of(t.path) for t in there)])

    @cached_property
    def _items(self) -> list[Input]:
        """The source's inputs, without the tables where they lie among them."""
        mine = {t.path.resolve() for t in (self.labels, self.annotated) if t is not None}
        if isinstance(self.root, Path) and self.root.is_dir():
            return [i for i in self.source.inputs if (self.root / i.path).resolve() not in mine or not _table(i.path)]
        return self.source.inputs

    @cached_property
    def _joined(self) -> _Joined:
        assert self.labels is not None
        return _Joined(self.labels, [i.path for i in self._items])

    def _list(self) -> Iterator[Input]:
        if self.labels is None:
            return iter(self._items)
        labels, problems = self._joined.labels, self._joined.problems
        return (
            replace(
                item,
                label=labels.get(item.path),
                split=None if item.split == "pool" else item.split,
                problem=item.problem or problems.get(item.path),
            )
            for item in self._items
        )

    def _remarks(self) -> Iterable[str]:
        yield from self.source._remarks()
        if self.labels is not None:
            yield from self._joined.notes

    def further(self) -> Further | None:
        """See Source.further."""
        own = self.source.further()
        return own if self.labels is None else joined(own, self._joined.further())

    def annotations(self) -> tuple[pa.Table, tuple[str, ...]] | None:
        """See Source.annotations."""
        if self.annotated is None:
            return self.source.annotations()
        return _annotations(self.annotated, [i.path for i in self._items])

    def read(self, path: str) -> bytes:
        """See Source.read."""
        if path in self.problems:
            raise InputError(*self.problems[path])
        return self.source.read(path)

    @property
    def at_once(self) -> int:
        """See Source.at_once."""
        return self.source.at_once

    def read_many(self, paths: Sequence[str]) -> list[bytes | InputError]:
        """See Source.read_many."""
        wrong = {p: InputError(*self.problems[p]) for p in paths if p in self.problems}
        found = iter(self.source.read_many([p for p in paths if p not in wrong]))
        return [wrong[p] if p in wrong else next(found) for p in paths]


def with_tables(source: Source, tables: Mapping[str, str]) -> Source:
    """The source with the tables that `Source.tables` named; itself when there are none."""
    named = {
        name: Table(Path(tables[name]), tables.get(f"{name}_column")) if name in tables else None
        for name in ("labels", "annotations")
    }
    return Beside(source, **named) if any(named.values()) else source


def read_table(path: Path) -> dict[str, pa.Array | list[Any]]:
    """The columns of a CSV, JSONL or Parquet file. Raises SevenfoldError when it is none."""
    suffix = suffix_of(path.name)
    if suffix not in KINDS:
        raise SevenfoldError("this is no table", where=str(path), expected="a .csv, .jsonl or .parquet file")
    stamp_of(path)  # says that it is not there
    try:
        if suffix == "parquet":
            table = pq.read_table(path)
            return {name: table[name].combine_chunks() for name in table.column_names}
        with open(path, newline="", encoding="utf-8-sig") as f:
            rows: list[dict[str, Any]]
            if suffix == "csv":
                rows = [*csv.DictReader(f, strict=True)]
            else:
                rows = [json.loads(line) for line in f if line.strip()]
                if not all(isinstance(row, dict) for row in rows):
                    raise ValueError("a line is no object")
        names = dict.fromkeys(name for row in rows for name in row if name is not None)
        return {name: [row.get(name) for row in rows] for name in names}
    except (ValueError, csv.Error, pa.ArrowException, RecursionError) as e:  # UnicodeDecodeError is a ValueError
        raise SevenfoldError(f"it cannot be read ({str(e)[:200]})", where=str(path), do="save it as UTF-8") from None


class _Joined:
    """A table of labels joined with the paths of inputs."""

    def __init__(self, table: Table, paths: Sequence[str]) -> None:
        columns = read_table(table.path)
        key, label = _column(columns, KEYS, table.path, "image"), _label_column(columns, table)
        self._rest = {n: v for n, v in columns.items() if n not in (key, label)}
        self._csv = suffix_of(table.path.name) == "csv"
        found, lost = _matches(_listed(columns[key]), paths)
        if paths and not any(found):
            raise SevenfoldError(
                f"no row of the column {key} finds its image; {lost[0] if lost else 'there are no rows'}",
                where=str(table.path),
                expected=f"paths or file names such as {paths[0]!r}",
                do="write the paths as they are below the source, or ingest the folder that they start from",
            )
        self.labels: dict[str, str] = {}
        self.problems: dict[str, tuple[str, str]] = {}
        for path, value in zip(found, _listed(columns[label]), strict=True):
            if path is None:
                continue
            try:
                said = label_of(value)
            except InputError as e:
                self.problems[path] = (e.reason, e.detail)
                continue
            if said is None:
                continue
            if self.labels.setdefault(path, said) != said:
                detail = f"{table.path.name} labels it {self.labels[path]!r} and {said!r}"
                self.problems[path] = ("label_unreadable", detail)
        first: dict[str, int] = {}
        for place, path in enumerate(found):
            if path is not None:
                first.setdefault(path, place)
        self._paths, self._places = [*first], [*first.values()]
        for path in self.problems:
            self.labels.pop(path, None)
        without = [p for p in paths if p not in self.labels and p not in self.problems]
        self.notes = (
            f"labels from the column {label} of {table.path.name}, joined by {key}: {len(self.labels):,} images",
            *lost,
            *(_pooled(without) if without else ()),
        )

    def further(self) -> Further | None:
        """The other columns of the rows that found their image; the first row of an image counts."""
        gathering = Gathering(texts=self._csv)
        if self._rest:
            columns = {n: _taken(values, self._places) for n, values in self._rest.items()}
            gathering.add(self._paths, columns)
        return gathering.finish()


def _pooled(paths: Sequence[str]) -> tuple[str]:
    return (f"{len(paths):,} images have no label there and land in the pool, the first is {paths[0]}",)


def _annotations(table: Table, paths: Sequence[str]) -> tuple[pa.Table, tuple[str, ...]]:
    columns = read_table(table.path)
    key = _column(columns, KEYS, table.path, "image")
    who = _column(columns, ANNOTATORS, table.path, "annotator")
    label = _label_column(columns, table)
    found, lost = _matches(_listed(columns[key]), paths)
    rows: list[tuple[str, str, str]] = []
    silent = 0
    for path, person, value in zip(found, _listed(columns[who]), _listed(columns[label]), strict=True):
        try:
            said = label_of(value)
        except InputError:
            said = None
        if path is None:
            continue
        if said is None or person is None or not str(person).strip():
            silent += 1
            continue
        rows.append((path, str(person).strip(), said))
    answers = pa.table([list(c) for c in zip(*rows, strict=True)] if rows else [[], [], []], schema=SAID)
    people = pc.count_distinct(answers["annotator"]).as_py()
    notes = [f"{len(rows):,} annotations by {people:,} annotators from {table.path.name}", *lost]
    notes += [f"{silent:,} annotations have no annotator or no readable label"] if silent else []
    return answers, tuple(notes)


def _matches(keys: Sequence[Any], paths: Sequence[str]) -> tuple[list[str | None], tuple[str, ...]]:
    """(the path that each key means or None, notes on those that mean none or several)."""
    exact = set(paths)
    by_name, by_stem = _unique(paths, stem=False), _unique(paths, stem=True)
    found: list[str | None] = []
    lost: list[str] = []
    several: list[str] = []
    for key in keys:
        text = "" if key is None else str(key).strip()
        tail = text.removeprefix("./")
        while tail not in exact and tail.count("/") > 1:  # a file name alone must be the only one of its kind
            tail = tail.partition("/")[2]
        path: str | None = tail
        if path not in exact:
            base = text.rpartition("/")[2]
            path = by_name.get(base, by_stem.get(base, "") if base else "")
            (several if path is None else lost if path == "" else []).append(text)
        found.append(path or None)
    notes = [f"{len(lost):,} rows name no image of the source, the first is {lost[0]!r}"] if lost else []
    notes += [f"{len(several):,} rows name several images, the first is {several[0]!r}"] if several else []
    return found, tuple(notes)


def _unique(paths: Sequence[str], *, stem: bool) -> dict[str, str | None]:
    """Base name (without its suffix) -> path; None where several have it."""
    found: dict[str, str | None] = {}
    for path in paths:
        name = path.rpartition("/")[2]
        name = name.rpartition(".")[0] or name if stem else name
        found[name] = path if name not in found else None
    return found


def _column(columns: Mapping[str, Any], names: Sequence[str], table: Path, what: str, do: str = "") -> str:
    by_name = {n.strip().lower(): n for n in reversed([*columns])}
    found = next((by_name[n] for n in names if n in by_name), None)
    if found is None:
        raise SevenfoldError(
            f"no column names the {what}; there are {', '.join([*columns][:20]) or 'none'}",
            where=str(table),
            expected=f"a column called {', '.join(names)}",
            do=do,
        )
    return found


def _label_column(columns: Mapping[str, Any], table: Table) -> str:
    if table.column is None:
        do = "name it with --label-column (of --labels), or rename it (of --annotations)"
        return _column(columns, LABELS, table.path, "label", do=do)
    if table.column not in columns:
        raise SevenfoldError(
            f"there is no column {table.column!r}", where=str(table.path), expected=f"one of {', '.join(columns)}"
        )
    return table.column


def _listed(values: pa.Array | list[Any]) -> list[Any]:
    return values.to_pylist() if isinstance(values, pa.Array) else values


def _taken(values: pa.Array | list[Any], places: Sequence[int]) -> Any:
    return values.take(pa.array(places, pa.int64())) if isinstance(values, pa.Array) else [values[i] for i in places]


def _table(path: str) -> bool:
    return suffix_of(path) in KINDS
