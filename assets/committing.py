"""Committing: every admitted batch that a branch lacks, and every review that waits for it, as its next version."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from sevenfold.storage.canonical import digest_json
from sevenfold.storage.lake import Lake
from sevenfold.storage.progress import Progress
from sevenfold.storage.project import Project
from sevenfold.storage.records import Version


def commit(
    lake: Lake,
    project: Project,
    *,
    message: str,
    branch: str = "main",
    start: str | None = None,
    provenance: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> tuple[Version, bool]:
    """Make the next version of `branch`; returns it and whether it is new. `start`: where a new branch begins."""
    if start is not None and branch not in lake.refs(project.dataset, "branches"):
        lake.branch(project.dataset, branch, start)
    reviews = lake.pending_reviews(project.dataset, branch)
    version, new = lake.commit(
        project.dataset,
        branch=branch,
        message=message,
        overlays=[lake.overlay(r.overlay) for r in reviews],
        provenance={
            "config": digest_json({"shard_bytes": lake.shard_bytes, "classes": list(project.classes)}),
            **(provenance or {}),
            "reviews": [r.name for r in reviews],
        },
        progress=progress,
        clock=clock,
    )
    lake.settle_reviews(reviews, version)
    return version, new
