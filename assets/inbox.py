"""The inbox: each entry of that folder is one landing batch, and one Dagster partition."""

from __future__ import annotations

import time
from pathlib import Path

import dagster as dg

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.project import Project

batches = dg.DynamicPartitionsDefinition(name="batches")
"""One partition per batch, named by its id; never one per image."""


def entries(project: Project) -> dict[str, Path]:
    """Batch id -> path for every folder, zip and CSV in the inbox; hidden names are ignored."""
    inbox = project.path("inbox")
    if not inbox.is_dir():
        return {}
    found = sorted(p for p in inbox.iterdir() if not p.name.startswith("."))
    return {p.name if p.is_dir() else p.stem: p for p in found if p.is_dir() or p.suffix.lower() in (".zip", ".csv")}


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
