"""What a source is: a list of inputs, each with a path and perhaps a label and a split, and a way to read one."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.sources.further import Further

MAX_FILE_BYTES = 256 << 20
"""A single image file over this is quarantined, not read: a member of an archive may claim any size."""

MAX_INPUTS = 20_000_000
"""A source of more is refused: listing takes about 200 bytes of memory for each."""

ARCHIVES = frozenset({"tar", "tgz", "zip", "gz", "bz2", "xz", "zst", "7z", "rar"})
"""Suffixes of files that are archives or compressed: found inside a source they are named and not opened."""


class InputError(Exception):
    """An input that cannot be read: `reason` is a quarantine reason, `detail` says what was found."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}")

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str]]:
        return InputError, (self.reason, self.detail)


@dataclass(frozen=True, slots=True)
class Input:
    """One thing to ingest: its path within the source, and what the source says of it (None: nothing).

    `bytes` is 0 where the size is not known before the input is read. `problem` is the (quarantine reason, detail)
    of an input that was found unusable while listing: reading it raises InputError with the same.
    """

    path: str
    label: str | None
    split: str | None
    bytes: int
    modified: float
    problem: tuple[str, str] | None = None


class Source:
    """Base of the sources. They are picklable by their root, so that worker processes open their own handles.

    What a subclass names in `carried` (cached properties that reading needs) travels along once the inputs are listed.
    """

    kind = ""
    carried: tuple[str, ...] = ()

    def __init__(self, root: Path | str) -> None:
        self.root = root

    def __reduce__(self) -> tuple[Any, ...]:
        listed = "inputs" in self.__dict__
        return type(self), (self.root,), {n: getattr(self, n) for n in self.carried if listed or n in self.__dict__}

    @property
    def location(self) -> str:
        """The root as text: a path or a URL. `open_source(location, kind)` opens the source again."""
        return str(self.root)

    @property
    def path(self) -> Path:
        """The root as a path on this machine."""
        return Path(self.root)

    @property
    def name(self) -> str:
        """The last part of the root."""
        return self.root.name if isinstance(self.root, Path) else self.root.rstrip("/").rpartition("/")[2]

    @cached_property
    def inputs(self) -> list[Input]:
        """All inputs, sorted by path. Raises SevenfoldError when there are more than MAX_INPUTS."""
        found = list(islice(self._list(), MAX_INPUTS + 1))
        if len(found) > MAX_INPUTS:
            raise too_many(self.location)
        found.sort(key=lambda i: i.path)
        return found

    @cached_property
    def problems(self) -> dict[str, tuple[str, str]]:
        """Path -> (reason, detail) of the inputs that were found unusable while listing."""
        return {i.path: i.problem for i in self.inputs if i.problem}

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What was guessed about labels and splits, one sentence each, for the person who ingests."""
        splits = sorted({i.split for i in self.inputs if i.split})
        labels = {i.label for i in self.inputs if i.label is not None}
        by = f"splits from the source: {', '.join(splits)}" if splits else "no splits in the source: hashed 80/10/10"
        if self.inputs and not labels:
            return ("no labels in the source: whatever its splits, all of it is pool", *self._remarks())
        return (by, f"{len(labels)} labels from the source", *self._remarks())

    @cached_property
    def fingerprint(self) -> str:
        """A cheap digest of names, sizes and times: equal means nothing needs to be read again."""
        h = hashlib.sha256(b"[")
        for start in range(0, len(self.inputs), 4096):  # not at once: a million rows as one text would be 200 MB
            part = self.inputs[start : start + 4096]
            rows = [[i.path, i.label, i.split, i.bytes, round(i.modified, 6), *(i.problem or ())] for i in part]
            h.update(b"," if start else b"")
            h.update(canonical_json(rows)[1:-1])
        h.update(b"]")
        h.update(self.stamp.encode())
        return h.hexdigest()

    @property
    def stamp(self) -> str:
        """What a change of the further columns changes, for the fingerprint; "" where there are none."""
        return ""

    def further(self) -> Further | None:
        """What the source says of its inputs besides label and split, by path; None: nothing. Reads anew."""
        return None

    @property
    def tables(self) -> dict[str, str]:
        """The tables beside the source, as a batch's record keeps them (see sources.beside); empty: there are none."""
        return {}

    def annotations(self) -> tuple[pa.Table, tuple[str, ...]] | None:
        """(path, annotator, label: what several people said of the inputs; notes); None: nothing."""
        return None

    def _list(self) -> Iterator[Input]:
        raise TypeError("a source lists its inputs")

    def _remarks(self) -> Iterable[str]:
        """Further notes; asked for when the inputs are listed."""
        return ()

    def read(self, path: str) -> bytes:
        """The bytes of one input; raises InputError when it cannot be read."""
        raise TypeError("a source reads its inputs")

    @property
    def at_once(self) -> int:
        """How many inputs `read_many` is best asked for in one call: all are in memory then."""
        return 1

    def read_many(self, paths: Sequence[str]) -> list[bytes | InputError]:
        """The bytes of some inputs, or why there are none, in the order of `paths`."""
        return [self._try(path) for path in paths]

    def _try(self, path: str) -> bytes | InputError:
        try:
            return self.read(path)
        except InputError as e:
            return e


class Selected(Source):
    """Some inputs of another source, by path: what a retry of the quarantine reads again."""

    def __init__(self, source: Source, paths: frozenset[str]) -> None:
        super().__init__(source.root)
        self.source, self.paths, self.kind = source, paths, source.kind

    def __reduce__(self) -> tuple[Any, ...]:
        return Selected, (self.source, self.paths)

    def _list(self) -> Iterator[Input]:
        return (i for i in self.source.inputs if i.path in self.paths)

    @property
    def stamp(self) -> str:
        """See Source.stamp."""
        return self.source.stamp

    def further(self) -> Further | None:
        """See Source.further."""
        return self.source.further()

    @property
    def tables(self) -> dict[str, str]:
        """See Source.tables."""
        return self.source.tables

    def annotations(self) -> tuple[pa.Table, tuple[str, ...]] | None:
        """See Source.annotations."""
        return self.source.annotations()

    def read(self, path: str) -> bytes:
        """See Source.read."""
        return self.source.read(path)

    @property
    def at_once(self) -> int:
        """See Source.at_once."""
        return self.source.at_once

    def read_many(self, paths: Sequence[str]) -> list[bytes | InputError]:
        """See Source.read_many."""
        return self.source.read_many(paths)


def in_blocks(source: Source, paths: Sequence[str], most: int | None = None) -> Iterator[bytes | InputError]:
    """What `source` holds under each of `paths`, in their order, asked for as it is asked best, `most` at once."""
    step = min(source.at_once, most or source.at_once)
    for start in range(0, len(paths), step):
        yield from source.read_many(paths[start : start + step])


class Places:
    """Where the bytes of each path lie, as a few integers: a list of names and one array instead of objects.

    Parameters
    ----------
    paths : unique names.
    numbers : int64 [n, k], what is known of each.
    """

    def __init__(self, paths: Sequence[str], numbers: np.ndarray) -> None:
        order = sorted(range(len(paths)), key=paths.__getitem__)
        self._paths = [paths[i] for i in order]
        self._numbers = numbers[order]

    def __len__(self) -> int:
        return len(self._paths)

    def of(self, path: str) -> list[int] | None:
        """The numbers of `path`; None when there is no such path."""
        at = bisect_left(self._paths, path)
        if at == len(self._paths) or self._paths[at] != path:
            return None
        return self._numbers[at].tolist()


def too_many(where: str) -> SevenfoldError:
    """The error about a source of more than MAX_INPUTS."""
    return SevenfoldError(
        f"there are more than {MAX_INPUTS:,} inputs",
        where=where,
        expected="at most that many in one batch",
        do="ingest it in parts, one batch each",
    )


def as_root(text: str) -> Path | str:
    """A source's root from its text: URLs stay text, everything else is a path."""
    return text if "://" in text else Path(text)


def climbs(path: str) -> bool:
    """Whether a name points out of its archive or folder."""
    return path.startswith("/") or (".." in path and ".." in path.split("/"))


def is_text(value: str) -> bool:
    """Whether a string can be stored as UTF-8: JSON may hold half a character (a lone surrogate)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def suffix_of(path: str) -> str:
    """The lower-cased suffix of the base name without its dot; "" when there is none."""
    name = path.rpartition("/")[2]
    return name.rpartition(".")[2].lower() if "." in name else ""


def check_size(size: int) -> None:
    """Raises InputError when an input of `size` bytes is over the limit."""
    if size > MAX_FILE_BYTES:
        raise InputError("too_large", f"{size} bytes, over the limit of {MAX_FILE_BYTES}")


def check_archive(path: str) -> None:
    """Raises InputError when the name is that of an archive: archives in archives are not opened."""
    if suffix_of(path) in ARCHIVES:
        raise InputError("unsupported", f"a nested archive (.{suffix_of(path)}): ingest it by itself")


def stamp_of(file: Path) -> str:
    """Size and time of a table, as Source.stamp; SevenfoldError when it is not there."""
    try:
        status = file.stat()
    except OSError as e:
        raise SevenfoldError(f"it cannot be opened ({e.strerror})", where=str(file), do="check the path") from None
    return f"{status.st_size} {status.st_mtime_ns}"


def counted(numbers: Counter[str]) -> str:
    """'3 png, 1 txt': the most frequent first."""
    return ", ".join(f"{n:,} {name}" for name, n in sorted(numbers.items(), key=lambda pair: (-pair[1], pair[0])))
