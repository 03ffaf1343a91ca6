"""What the columns of a table say: which holds the images, the labels, the split; and which paths may be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.names import SPLIT_WORDS
from sevenfold.storage.sources.base import InputError, is_text
from sevenfold.storage.sources.folder import read_file

PATHS = ("path", "file", "filename", "file_name", "image_path", "image", "img")
"""Columns of paths, the most telling first."""

EMBEDDED = ("image", "img", "image_bytes", "bytes", "image_base64", "base64")
"""Columns of bytes, the most telling first."""

MAX_LABEL = 1000
"""Characters of a label."""

LABELS = ("label", "labels", "class", "category", "fine_label")


@dataclass(frozen=True)
class Columns:
    """The columns, under the names that the table has for them; None: there is none.

    `rest`: all others; `others`: some of them, to be shown.
    """

    image: str
    label: str | None
    split: str | None
    others: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()

    def __str__(self) -> str:
        label = f"labels from the column {self.label}" if self.label else "no column of labels"
        if not self.label and self.others:
            label += f" (called {', '.join(LABELS)}; there are {', '.join(self.others)})"
        return f"images from the column {self.image}, {label}" + (f", splits from {self.split}" if self.split else "")


def find_columns(names: Iterable[str | None], images: Sequence[str], where: str) -> Columns:
    """Find the columns by name, whatever their case. `images`: the names that the images' column may have.

    Raises SevenfoldError when none of them is there.
    """
    there = [n for n in names if n is not None]
    by_name = {n.strip().lower(): n for n in reversed(there)}
    image = next((by_name[c] for c in images if c in by_name), None)
    if image is None:
        raise SevenfoldError(
            f"the columns are {', '.join(there[:20]).encode(errors='backslashreplace').decode() or 'none'}",
            where=where,
            expected=f"a column named path (or {', '.join(c for c in images if c != 'path')}), label, optionally split",
            do="rename the column that holds the images or their paths",
        )
    label = next((by_name[c] for c in LABELS if c in by_name and by_name[c] != image), None)
    split = by_name.get("split")
    rest = tuple(dict.fromkeys(n for n in there if n not in (image, label, split)))
    others = tuple(n[:40].encode(errors="backslashreplace").decode() for n in rest[:10])
    return Columns(image, label, split, others, rest)


def split_of_word(word: Any, where: str) -> str | None:
    """The split that a value names; None for an empty one. Raises SevenfoldError for another word."""
    text = str(word).strip().lower() if word is not None else ""
    if text and text not in SPLIT_WORDS:
        raise SevenfoldError(f"the split is {text[:60]!r}", where=where, expected="train, val, test or pool")
    return SPLIT_WORDS.get(text)


def label_of(value: Any, names: Sequence[str] | None = None) -> str | None:
    """A label as text: text is stripped, an integer is a place among `names` (-1: none, as Hugging Face has it).

    Raises InputError for another type, or a number that has no name.
    """
    if isinstance(value, float) and (value != value or value.is_integer()):  # whole numbers beside missing ones
        value = int(value) if value == value else None
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise InputError("label_unreadable", f"the label is of type {type(value).__name__}, not text or a whole number")
    if isinstance(value, str) and (len(value) > MAX_LABEL or not is_text(value)):
        raise InputError(
            "label_unreadable", f"the label is no text of at most {MAX_LABEL} characters: {value[:20]!r}..."
        )
    if value is None or isinstance(value, str):
        return (value or "").strip() or None
    if names is None:
        return str(value)
    if value == -1:
        return None
    if not 0 <= value < len(names):
        raise InputError("label_unreadable", f"the label is {value}, and there are names for 0 to {len(names) - 1}")
    return names[value]


def class_names(folder: Path) -> list[str]:
    """The lines of `classes.txt` in a folder: names of the numbers 0, 1 ...; empty when there is none."""
    file = folder / "classes.txt"
    try:
        return [n.strip() for n in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    except UnicodeDecodeError as e:
        raise SevenfoldError(f"this is no UTF-8 ({e})", where=str(file), do="save it as UTF-8") from None


def class_name(number: int, names: Sequence[str]) -> str:
    """The name of a class, or its number as text where there is no name."""
    return names[number] if 0 <= number < len(names) and names[number] else str(number)


def leads_out(path: str) -> bool:
    """Whether a relative path climbs out of the folder that it starts in."""
    depth = 0
    for part in path.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return True
    return False


def read_named(folder: Path, path: str) -> bytes:
    """Read the file that a table names, relative to the table's folder.

    A table may be somebody else's, and what is no image is quoted in quarantine: a relative path that leads out of
    the folder, by `..` or by a link, is refused (`outside`). An absolute path is read: who writes one means it.
    """
    full = folder / path
    if not path.startswith("/"):
        try:
            out = leads_out(path) or _linked_out(folder, path)
        except (OSError, ValueError) as e:  # a NUL in the path
            raise InputError("unreadable", f"{type(e).__name__}: {e}") from None
        if out:
            raise InputError(
                "outside", "the path leads out of the table's folder; give an absolute path if it is meant"
            )
    return read_file(full)


def _linked_out(folder: Path, path: str) -> bool:
    """Whether a link on the way leads out of the folder. Nearly always there is none, which is cheap to see."""
    at = folder
    for part in path.split("/"):
        at = at / part
        if at.is_symlink():
            inside = os.path.realpath(folder)
            return os.path.commonpath([inside, os.path.realpath(folder / path)]) != inside
    return False


def size_and_time(folder: Path, path: str) -> tuple[int, float]:
    """(bytes, modified) of the file that a table names; zeros when it cannot be looked at or leads out."""
    if not path.startswith("/") and leads_out(path):
        return 0, 0.0
    try:
        status = (folder / path).stat()
        return status.st_size, status.st_mtime
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return 0, 0.0


def huggingface_names(metadata: Mapping[bytes, bytes] | None, column: str) -> list[str] | None:
    """The class names that Hugging Face `datasets` keeps in a Parquet file's schema for a ClassLabel column."""
    import json

    try:
        feature = json.loads((metadata or {})[b"huggingface"])["info"]["features"][column]
        names = feature["names"] if feature["_type"] == "ClassLabel" else None
        if isinstance(names, dict):  # {"0": "cat", ...} in old files
            names = [names[str(i)] for i in range(len(names))]
        return [str(n).encode(errors="backslashreplace").decode() for n in names] if names else None
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
