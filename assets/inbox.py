"""The inbox: each entry of that folder is one landing batch, and one Dagster partition."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import dagster as dg

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.names import is_name
from sevenfold.storage.project import Project

batches = dg.DynamicPartitionsDefinition(name="batches")
"""One partition per batch, named by its id; never one per image."""


def entries(project: Project) -> dict[str, Path]:
    """Batch id -> path for each folder, zip and CSV in the inbox whose name can be a batch id; hidden ones are ignored.

    A file is named without its suffix, unless something else there has that name.
    """
    found = _found(project)
    stems = Counter(p.name if p.is_dir() else p.stem for p in found)
    named = {p.name if p.is_dir() or stems[p.stem] > 1 else p.stem: p for p in found}
    return {name: path for name, path in named.items() if is_name(name)}


def unusable(project: Project) -> list[str]:
    """Names in the inbox that cannot be batch ids, such as those with spaces: they have to be renamed."""
    usable = set(entries(project).values())
    return [p.name for p in _found(project) if p not in usable]


def _found(project: Project) -> list[Path]:
    inbox = project.path("inbox")
    if not inbox.is_dir():
        return []
    there = sorted(p for p in inbox.iterdir() if not p.name.startswith("."))
    return [p for p in there if p.is_dir() or p.suffix.lower() in (".zip", ".csv")]


def entry(project: Project, batch: str) -> Path:
    """The inbox entry of a batch. Raises SevenfoldError naming what the inbox holds."""
    found = entries(project)
    if batch not in found:
        raise SevenfoldError(
            f"the inbox has no entry for the batch {batch!r}",
            where=str(project.path("inbox")),
            expected=f"one of: {', '.join(found) or 'nothing is there'}",
        )
    return found[batch]


def settled(path: Path, seconds: float, now: float | None = None) -> bool:
    """Whether nothing in the entry has changed for `seconds`: a folder that is still being copied is left alone."""
    try:
        newest = max(p.lstat().st_mtime for p in (path, *path.rglob("*")))  # a link to nothing has a time too
    except FileNotFoundError:  # it went while it was looked at
        return False
    return (time.time() if now is None else now) - newest >= seconds
