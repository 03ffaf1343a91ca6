"""Where raw inputs come from: a folder, a zip, a CSV, idx arrays. A source lists its inputs and copies nothing."""

from __future__ import annotations

import csv
import lzma
import os
import re
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np

from sevenfold.storage.canonical import digest_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.names import SPLIT_WORDS

MAX_FILE_BYTES = 256 << 20
"""A single image file over this is quarantined, not read: a zip member may claim any size."""


class InputError(Exception):
    """An input that cannot be read: `reason` is a quarantine reason, `detail` says what was found."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}")


@dataclass(frozen=True)
class Input:
    """One thing to ingest: its path within the source, and what the source says of it (None: nothing)."""

    path: str
    label: str | None
    split: str | None
    bytes: int
    modified: float


class Source:
    """Base of the sources: picklable by its root, so that worker processes open their own handles."""

    kind = ""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __reduce__(self) -> tuple[type[Source], tuple[Path]]:
        return type(self), (self.root,)

    @cached_property
    def inputs(self) -> list[Input]:
        """All inputs, sorted by path."""
        return sorted(self._list(), key=lambda i: i.path)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What was guessed about labels and splits, one sentence each, for the person who ingests."""
        splits = sorted({i.split for i in self.inputs if i.split})
        labels = {i.label for i in self.inputs if i.label is not None}
        by = f"splits from the source: {', '.join(splits)}" if splits else "no splits in the source: hashed 80/10/10"
        return (by, f"{len(labels)} labels from the source")

    @cached_property
    def fingerprint(self) -> str:
        """A cheap digest of names, sizes and times: equal means nothing needs to be read again."""
        return digest_json([[i.path, i.label, i.split, i.bytes, round(i.modified, 6)] for i in self.inputs])

    def _list(self) -> Iterator[Input]:
        raise TypeError("a source lists its inputs")

    def read(self, path: str) -> bytes:
        """The bytes of one input; raises InputError when it cannot be read."""
        raise TypeError("a source reads its inputs")


def _climbs(path: str) -> bool:
    """Whether a member's name points out of its archive. Nothing is ever unpacked, but such an archive is hostile."""
    return path.startswith("/") or ".." in path.split("/")


def _by_folders(paths: list[tuple[str, int, float]]) -> Iterator[Input]:
    """Labels and splits from folders: <split>/<class>/file, <split>/file or <class>/file.

    Top folders are splits only when every one of them is a word for a split; hidden files are no inputs.
    """
    parts = [(PurePosixPath(p).parts, p, size, modified) for p, size, modified in paths]
    parts = [row for row in parts if _climbs(row[1]) or not any(x.startswith(".") or x == "__MACOSX" for x in row[0])]
    tops = {row[0][0].lower() for row in parts if len(row[0]) > 1 and not _climbs(row[1])}
    by_split = bool(tops) and tops <= SPLIT_WORDS.keys()
    for folders, path, size, modified in parts:
        split = SPLIT_WORDS[folders[0].lower()] if by_split and len(folders) > 1 else None
        rest = folders[1:] if split else folders
        label = rest[0] if len(rest) > 1 and split != "pool" else None
        yield Input(path, label, split, size, modified)


class FolderSource(Source):
    """Images under a folder; its sub-folders name classes, or splits and then classes."""

    kind = "folder"

    def _list(self) -> Iterator[Input]:
        found = []
        for path in self.root.rglob("*"):
            if path.is_dir():
                continue
            try:
                status = path.stat()
                size, modified = status.st_size, status.st_mtime
            except OSError:  # a link to nothing is an input that cannot be read, not nothing
                size, modified = 0, 0.0
            # a name that is no text is shown with escapes; reading it fails, so it ends in quarantine
            name = os.fsencode(path.relative_to(self.root).as_posix()).decode("utf-8", "backslashreplace")
            found.append((name, size, modified))
        return _by_folders(found)

    def read(self, path: str) -> bytes:
        """See Source.read."""
        return _read_file(self.root / path)


class ZipSource(Source):
    """The same layout inside a zip, read in place; nothing is unpacked to disk."""

    kind = "zip"

    @cached_property
    def _zip(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self.root)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as e:
            raise SevenfoldError(
                f"this is no readable zip ({e})", where=str(self.root), expected="a zip file"
            ) from None

    @cached_property
    def _members(self) -> dict[str, zipfile.ZipInfo]:
        return {m.filename: m for m in self._zip.infolist() if not m.is_dir()}

    def _list(self) -> Iterator[Input]:
        names = [m.filename for m in self._zip.infolist() if not m.is_dir()]
        if len(names) != len(set(names)):
            twice = Counter(names).most_common(1)[0][0]
            raise SevenfoldError(f"two members are named {twice!r}", where=str(self.root), do="make the names unique")
        modified = self.root.stat().st_mtime
        return _by_folders([(n, self._members[n].file_size, modified) for n in names])

    def read(self, path: str) -> bytes:
        """See Source.read."""
        member = self._members.get(path)
        if _climbs(path):
            raise InputError("unsupported", "the member's name climbs out of the archive")
        if member is None:
            raise InputError("unreadable", "the zip has no such member any more")
        if member.flag_bits & 1:
            raise InputError("unreadable", "the zip member is encrypted")
        if member.file_size > MAX_FILE_BYTES:
            raise InputError("too_large", f"{member.file_size} bytes, over the limit of {MAX_FILE_BYTES}")
        try:
            with self._zip.open(member) as f:
                data = f.read(member.file_size + 1)
        except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, ValueError, zlib.error, lzma.LZMAError) as e:
            raise InputError("unreadable", f"zip: {e}") from None
        if len(data) != member.file_size:
            raise InputError("unreadable", f"zip: the member says {member.file_size} bytes and holds {len(data)}")
        return data


class CsvSource(Source):
    """A CSV with the columns path and label (optional: split); paths are relative to the CSV's folder."""

    kind = "csv"

    def _list(self) -> Iterator[Input]:
        try:
            yield from self._rows()
        except (UnicodeDecodeError, csv.Error) as e:
            raise SevenfoldError(
                f"this is no CSV in UTF-8 ({e})", where=str(self.root), do="save it as UTF-8, its quotes in pairs"
            ) from None

    def _rows(self) -> Iterator[Input]:
        with open(self.root, newline="", encoding="utf-8-sig") as f:
            reader = csv.DictReader(f, strict=True)
            columns = {(c or "").strip().lower(): c for c in reader.fieldnames or []}
            path_column = next((columns[c] for c in ("path", "file", "filename", "image") if c in columns), None)
            if path_column is None:
                raise SevenfoldError(
                    f"the columns are {', '.join(reader.fieldnames or []) or 'none'}",
                    where=str(self.root),
                    expected="a column named path (and label, optionally split)",
                    do="rename the column that holds the image paths to path",
                )
            label_column, split_column = columns.get("label"), columns.get("split")
            for number, row in enumerate(reader, start=2):
                path = (row[path_column] or "").strip()
                label = (row[label_column] or "").strip() if label_column else ""
                word = (row[split_column] or "").strip().lower() if split_column else ""
                if word and word not in SPLIT_WORDS:
                    raise SevenfoldError(
                        f"the split is {word!r}",
                        where=f"{self.root}, line {number}",
                        expected="train, val, test or pool",
                    )
                split = SPLIT_WORDS.get(word)
                try:
                    status = (self.root.parent / path).stat()
                    size, modified = status.st_size, status.st_mtime
                except (OSError, ValueError):  # ValueError: a NUL in the path
                    size, modified = 0, 0.0
                yield Input(path, (label or None) if split != "pool" else None, split, size, modified)

    def read(self, path: str) -> bytes:
        """See Source.read."""
        return _read_file(self.root.parent / path)


_IDX_IMAGES = re.compile(r"(?P<stem>.+)-images[-.]idx3-ubyte(\.gz)?")


class IdxSource(Source):
    """idx arrays (the MNIST family): `<stem>-images-idx3-ubyte[.gz]` beside `<stem>-labels-idx1-ubyte[.gz]`.

    The root is one images file or a folder of them; with a folder, stems train and t10k are the splits train and
    test. Labels take their names from a `classes.txt` beside them (one per line), else they are the numbers. Each
    image becomes a PNG with stored deflate blocks, whose bytes do not depend on a compressor's release.
    """

    kind = "idx"

    @cached_property
    def _arrays(self) -> dict[str, tuple[np.ndarray, np.ndarray | None, float]]:
        from sevenfold.storage.idx import read_idx

        found = {}
        folder = self.root if self.root.is_dir() else self.root.parent
        for path in sorted(folder.iterdir()) if self.root.is_dir() else [self.root]:
            match = _IDX_IMAGES.fullmatch(path.name)
            if not match:
                continue
            images = read_idx(path)
            labels = None
            for suffix in ("-labels-idx1-ubyte.gz", "-labels-idx1-ubyte"):
                beside = folder / (match["stem"] + suffix)
                if beside.exists():
                    labels = read_idx(beside)
                    break
            if images.ndim != 3 or (labels is not None and labels.shape != images.shape[:1]):
                raise SevenfoldError(
                    f"images of shape {images.shape}, labels of shape {None if labels is None else labels.shape}",
                    where=str(path),
                    expected="[n, height, width] and [n]",
                )
            found[match["stem"]] = (images, labels, path.stat().st_mtime)
        return found

    def _list(self) -> Iterator[Input]:
        folder = self.root if self.root.is_dir() else self.root.parent
        names_file = folder / "classes.txt"
        names = names_file.read_text(encoding="utf-8").splitlines() if names_file.exists() else []
        splits = {"train": "train", "t10k": "test", "test": "test"} if self.root.is_dir() else {}
        for stem, (images, labels, modified) in self._arrays.items():
            for i in range(len(images)):
                label = None if labels is None else int(labels[i])
                name = None if label is None else names[label].strip() if label < len(names) else str(label)
                yield Input(f"{stem}#{i:08d}", name, splits.get(stem), images[i].nbytes, modified)

    def read(self, path: str) -> bytes:
        """See Source.read."""
        from sevenfold.storage.png import encode_png

        stem, number = path.rsplit("#", 1)
        try:
            return encode_png(self._arrays[stem][0][int(number)])
        except (KeyError, IndexError):
            raise InputError("unreadable", "the arrays have no such image any more") from None


class Selected(Source):
    """Some inputs of another source, by path: what a retry of the quarantine reads again."""

    def __init__(self, source: Source, paths: frozenset[str]) -> None:
        super().__init__(source.root)
        self.source, self.paths, self.kind = source, paths, source.kind

    def __reduce__(self) -> tuple[type[Selected], tuple[Source, frozenset[str]]]:  # type: ignore[override]
        return Selected, (self.source, self.paths)

    def _list(self) -> Iterator[Input]:
        return (i for i in self.source.inputs if i.path in self.paths)

    def read(self, path: str) -> bytes:
        """See Source.read."""
        return self.source.read(path)


SOURCES: dict[str, type[Source]] = {s.kind: s for s in (FolderSource, ZipSource, CsvSource, IdxSource)}


def open_source(path: Path, kind: str | None = None) -> Source:
    """The source at `path`, its kind guessed from the name unless given.

    Raises SevenfoldError when nothing is there or no kind fits.
    """
    path = path.absolute()
    if not path.exists():
        raise SevenfoldError("there is nothing there", where=str(path), do="check the path")
    if kind is None:
        if path.is_dir():
            kind = "idx" if any(_IDX_IMAGES.fullmatch(p.name) for p in path.iterdir()) else "folder"
        elif _IDX_IMAGES.fullmatch(path.name):
            kind = "idx"
        else:
            kind = {".zip": "zip", ".csv": "csv"}.get(path.suffix.lower())
    if kind not in SOURCES:
        raise SevenfoldError(
            f"this is no source that can be read here (kind {kind})",
            where=str(path),
            expected="a folder of class folders, a zip of them, a CSV with path and label, or idx files",
        )
    return SOURCES[kind](path)


def _read_file(path: Path) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe or a device may never end
            raise InputError("unreadable", "it is not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise InputError("too_large", f"{status.st_size} bytes, over the limit of {MAX_FILE_BYTES}")
        return path.read_bytes()
    except (OSError, ValueError) as e:
        detail = e.strerror if isinstance(e, OSError) else str(e)
        raise InputError("unreadable", f"{type(e).__name__}: {detail}") from None
