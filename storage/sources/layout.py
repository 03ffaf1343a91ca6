"""Labels and splits out of names: of folders, and of the files that hold many inputs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from sevenfold.storage.names import SPLIT_WORDS
from sevenfold.storage.sources.base import Input, climbs


def is_hidden(path: str) -> bool:
    """Whether any part of the name has a leading dot, or is what macOS adds to a zip."""
    if "/." not in path and "__MACOSX" not in path and not path.startswith("."):  # nearly all of a million
        return False
    return any(part.startswith(".") or part == "__MACOSX" for part in PurePosixPath(path).parts)


def by_folders(paths: Sequence[tuple[str, int, float]]) -> Iterator[Input]:
    """Labels and splits from folders: <split>/<class>/file, <split>/file or <class>/file.

    `paths` holds (path, bytes, modified). Top folders are splits only when every one of them is a word for a split.
    Hidden files are no inputs, but names that climb out of their archive are, so that they end in quarantine.
    """
    tops: set[str] = set()
    for path, _, _ in paths:
        if "/" in path and not climbs(path) and not is_hidden(path):
            tops.add(path.partition("/")[0].lower())
    by_split = bool(tops) and tops <= SPLIT_WORDS.keys()
    labels: dict[str, str] = {}  # one string per class, however many inputs
    for path, size, modified in paths:
        if is_hidden(path) and not climbs(path):
            continue
        folders = [part for part in path.split("/") if part and part != "."]
        split = SPLIT_WORDS.get(folders[0].lower()) if by_split and len(folders) > 1 else None
        rest = folders[1:] if split else folders
        label = labels.setdefault(rest[0], rest[0]) if len(rest) > 1 and split != "pool" else None
        yield Input(path, label, split, size, modified)


def splits_of_files(names: Iterable[str]) -> dict[str, str | None]:
    """The split that each file of a folder names (train-00000.tar, data/val-00000-of-00002.parquet, test/0.tar).

    A word for a split counts where it stands alone in the name or is a folder. Only when every file names exactly one
    split are they splits; otherwise none is.
    """
    found: dict[str, str | None] = {}
    for name in names:
        words = re.split(r"[^a-z]+", name.lower())
        said = {SPLIT_WORDS[w] for w in words if w in SPLIT_WORDS}
        found[name] = said.pop() if len(said) == 1 else None
    return found if all(found.values()) else dict.fromkeys(found)
