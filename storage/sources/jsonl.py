"""Lines of JSON: each names an image file or holds one in base64."""

from __future__ import annotations

import base64
import binascii
import json
import re
from array import array
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.sources.base import (
    MAX_FILE_BYTES,
    Input,
    InputError,
    Places,
    Source,
    check_size,
    is_text,
    stamp_of,
)
from sevenfold.storage.sources.blobs import LocalBlob
from sevenfold.storage.sources.columns import (
    EMBEDDED,
    PATHS,
    Columns,
    find_columns,
    label_of,
    read_named,
    size_and_time,
    split_of_word,
)
from sevenfold.storage.sources.further import Further, Gathering

_MAX_LINE = MAX_FILE_BYTES // 3 * 4 + (1 << 20)
_LOOK = 100
"""Lines that are looked at to find the columns."""
_PIECE = 1 << 14
"""Rows of further columns that are gathered at once."""
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]{60,}={0,2}\s*")
_DATA_URL = re.compile(r"data:[^,]{0,100};base64,")


class JsonlSource(Source):
    """One JSON object a line: `path`, `file_name`, `image` ... and `label`, optionally `split`.

    An image is a path relative to the file's folder, or embedded: a `data:` URL, 60 characters or more of base64, or
    an object with `bytes` (base64) or `path`. An input that is a path is known by it, every other as
    `file.jsonl#00000012`, counted from 0. Lines that cannot be used are set aside as `bad_row` or `label_unreadable`.
    """

    kind = "jsonl"
    carried = ("_listed",)

    @cached_property
    def _blob(self) -> LocalBlob:
        return LocalBlob(self.path)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """(offset, line) of every line that is not blank; of a line over the limit, its beginning."""
        with open(self.path, "rb") as f:
            offset = 0
            while line := f.readline(_MAX_LINE + 1):
                start, offset = offset, offset + len(line)
                more = line
                while more and not more.endswith(b"\n") and len(line) > _MAX_LINE:
                    more = f.readline(1 << 20)
                    offset += len(more)
                if line.strip():
                    yield start, line

    @cached_property
    def _columns(self) -> Columns:
        names: dict[str, None] = {}
        for number, (_, line) in enumerate(self._lines()):
            if number == _LOOK:
                break
            try:
                names |= dict.fromkeys(_parse(line))
            except InputError:
                continue
        if not names:
            raise SevenfoldError(
                "none of the first lines is a JSON object", where=self.location, expected='lines like {"path": "a.png"}'
            )
        return find_columns(names, list(dict.fromkeys((*PATHS[:-2], *EMBEDDED))), self.location)

    @cached_property
    def _scan(self) -> tuple[list[Input], Places]:
        """(inputs, byte offset and length of the line of each that is known by its number)."""
        folder, modified = self.path.parent, self._blob.modified
        inputs: list[Input] = []
        names: list[str] = []
        numbers = array("q")
        known: dict[str, str] = {}
        self._embedded = 0
        for number, (offset, line) in enumerate(self._lines()):
            address = f"{self.name}#{number:08d}"
            label, split = None, None
            try:
                if len(line) > _MAX_LINE:
                    raise InputError("too_large", f"line {number + 1} has more than {_MAX_LINE} bytes")
                row = _parse(line)
                where = f"{self.location}, row {number}"
                split = split_of_word(row.get(self._columns.split), where) if self._columns.split else None
                label = label_of(row.get(self._columns.label)) if self._columns.label and split != "pool" else None
                label = known.setdefault(label, label) if label is not None else None
                path, data = _image(row.get(self._columns.image), self._columns.image)
            except InputError as e:
                inputs.append(Input(address, label, split, 0, modified, (e.reason, f"byte {offset}: {e.detail}")))
                continue
            if path is not None:
                inputs.append(Input(path, label, split, *size_and_time(folder, path)))
                continue
            self._embedded += 1
            names.append(address)
            numbers.extend((offset, len(line)))
            inputs.append(Input(address, label, split, len(data) * 3 // 4, modified))
        return inputs, Places(names, np.array(numbers, np.int64).reshape(-1, 2))

    @cached_property
    def _listed(self) -> tuple[Columns, Places, dict[str, tuple[str, str]]]:
        """What reading needs."""
        inputs, places = self._scan
        return self._columns, places, {i.path: i.problem for i in inputs if i.problem}

    def _list(self) -> Iterator[Input]:
        inputs, _ = self._scan
        self._listed  # noqa: B018  (what reading needs is kept, the rest is let go)
        del self.__dict__["_scan"]
        return iter(inputs)

    def _remarks(self) -> Iterable[str]:
        return (str(self._columns), f"{self._embedded:,} images are embedded")

    @property
    def stamp(self) -> str:
        """See Source.stamp."""
        return stamp_of(self.path) if self._columns.rest else ""

    def further(self) -> Further | None:
        """See Source.further: all keys but those of the image, label and split, also those of later lines."""
        known = {self._columns.image, self._columns.label, self._columns.split}
        gathering = Gathering()
        paths: list[str] = []
        rows: list[dict[str, Any]] = []

        def gather() -> None:
            names = dict.fromkeys(name for row in rows for name in row if name not in known)
            gathering.add(paths, {name: [row.get(name) for row in rows] for name in names})
            paths.clear()
            rows.clear()

        for number, (_, line) in enumerate(self._lines()):
            try:
                row = _parse(line)
                path, _ = _image(row.pop(self._columns.image, None), self._columns.image)
            except InputError:  # it is in quarantine
                continue
            paths.append(path if path is not None else f"{self.name}#{number:08d}")
            rows.append(row)
            if len(rows) == _PIECE:
                gather()
        gather()
        return gathering.finish()

    def read(self, path: str) -> bytes:
        """See Source.read."""
        if not path.startswith(f"{self.name}#"):
            return read_named(self.path.parent, path)
        columns, places, problems = self._listed
        if path in problems:
            raise InputError(*problems[path])
        place = places.of(path)
        if place is None:
            raise InputError("unreadable", "the file has no such line any more")
        _, text = _image(_parse(self._blob.read_at(*place)).get(columns.image), columns.image)
        check_size(len(text) * 3 // 4)
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError) as e:
            raise InputError("unreadable", f"base64: {e}") from None


def _parse(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise InputError("bad_row", f"this is no line of JSON ({str(e)[:100]})") from None
    if not isinstance(row, dict):
        raise InputError("bad_row", f"the line is a {type(row).__name__}, not an object")
    return row


def _image(value: Any, column: str) -> tuple[str | None, str]:
    """(path, "") of an image in a file, (None, base64) of one that is embedded. Raises InputError for another value."""
    if isinstance(value, dict) and (value.get("bytes") or value.get("path")):
        value = value.get("path") if not value.get("bytes") else f"data:;base64,{value['bytes']}"
    if not isinstance(value, str):
        raise InputError("bad_row", f"{column} is {'absent' if value is None else type(value).__name__}, not text")
    if match := _DATA_URL.match(value):
        return None, value[match.end() :]
    if _BASE64.fullmatch(value):
        return None, value
    if not value.strip() or not is_text(value):
        raise InputError("bad_row", f"{column} is empty, or no text")
    return value.strip(), ""
