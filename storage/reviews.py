"""Reviews: people's decisions about samples, kept as overlays that wait for the next commit of their branch."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from sevenfold.storage import files, overlays
from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.names import check_name
from sevenfold.storage.records import FORMAT, read_json


@dataclass(frozen=True)
class Review:
    """One round of decisions. `overlay` is the digest of its rows; `queues` are the queues that asked for them.

    `committed` names the version that took it up; a rollback does not bring it back.
    """

    dataset: str
    name: str
    branch: str
    overlay: str
    rows: int
    queues: tuple[str, ...]
    reviewer: str
    time: float
    committed: str | None = None


def reviews_folder(root: Path, dataset: str) -> Path:
    """Where a dataset's reviews lie."""
    return root / "reviews" / check_name(dataset, "dataset name")


def add_review(
    root: Path, dataset: str, name: str, table: pa.Table, *, branch: str, queues: tuple[str, ...], reviewer: str,
    time: float,
) -> tuple[Review, bool]:  # fmt: skip
    """Keep decisions (columns of index.OVERLAY) for the next commit of `branch`; returns the review and whether new.

    The same decisions under the same name are adopted; other decisions under it are refused with SevenfoldError.
    """
    check_name(name, "review name")
    check_name(branch, "branch")
    path = reviews_folder(root, dataset) / f"{name}.json"
    digest = overlays.write_overlay(root, table)
    review = Review(dataset, name, branch, digest, table.num_rows, queues, reviewer, time)
    if files.create(path, canonical_json({"format": FORMAT, **dataclasses.asdict(review)})):
        return review, True
    there = _read(path)
    if (there.overlay, there.branch) != (digest, branch):
        raise SevenfoldError(
            f"the review {name} exists with other decisions", where=str(path), do="give this one another name"
        )
    return there, False


def list_reviews(root: Path, dataset: str) -> list[Review]:
    """All reviews of a dataset, oldest first."""
    found = [_read(p) for p in reviews_folder(root, dataset).glob("[!.]*.json")]
    return sorted(found, key=lambda r: (r.time, r.name))


def pending(root: Path, dataset: str, branch: str) -> list[Review]:
    """Reviews for `branch` that no commit has taken up yet, oldest first."""
    return [r for r in list_reviews(root, dataset) if r.branch == branch and r.committed is None]


def settle(root: Path, review: Review, version: str) -> None:
    """Record that `version` holds a review. A crash before this is harmless: the same overlays adopt the version."""
    path = reviews_folder(root, review.dataset) / f"{review.name}.json"
    taken = dataclasses.replace(review, committed=version)
    files.replace(path, canonical_json({"format": FORMAT, **dataclasses.asdict(taken)}))


def _read(path: Path) -> Review:
    value = read_json(path, "review")
    value.pop("format")
    return Review(**{**value, "queues": tuple(value["queues"])})
