"""Reviews: people's decisions about samples, kept as overlays that wait for the next commit of their branch."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pyarrow as pa

from sevenfold.storage import overlays, redactions
from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.names import check_digest, check_name
from sevenfold.storage.records import FORMAT, parse_json, shaped
from sevenfold.storage.store import Store


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


def review_key(dataset: str, name: str) -> str:
    """Where a review lies."""
    return f"reviews/{check_name(dataset, 'dataset name')}/{check_name(name, 'review name')}.json"


def add_review(
    store: Store, dataset: str, name: str, table: pa.Table, *, branch: str, queues: tuple[str, ...], reviewer: str,
    time: float,
) -> tuple[Review, bool]:  # fmt: skip
    """Keep decisions (columns of index.OVERLAY) for the next commit of `branch`; returns the review and whether new.

    The same decisions under the same name are adopted; other decisions under it are refused with SevenfoldError.
    """
    check_name(branch, "branch")
    key = review_key(dataset, name)
    digest = overlays.write_overlay(store, table)
    review = Review(dataset, name, branch, digest, table.num_rows, queues, reviewer, time)
    if store.create(key, canonical_json({"format": FORMAT, **dataclasses.asdict(review)})):
        return review, True
    there = _read(store, key)
    if (redactions.current(store).last("overlays", there.overlay), there.branch) != (digest, branch):
        raise SevenfoldError(
            f"the review {name} exists with other decisions",
            where=f"{store.url}/{key}",
            do="give this one another name",
        )
    return there, False


def list_reviews(store: Store, dataset: str) -> list[Review]:
    """All reviews of a dataset, oldest first."""
    folder = f"reviews/{check_name(dataset, 'dataset name')}"
    there = store.read_folder(folder, ".json")
    found = [_parse(data, f"{store.url}/{folder}/{name}") for name, data in there.items()]
    return sorted(found, key=lambda r: (r.time, r.name))


def pending(store: Store, dataset: str, branch: str) -> list[Review]:
    """Reviews for `branch` that no commit has taken up yet, oldest first."""
    return [r for r in list_reviews(store, dataset) if r.branch == branch and r.committed is None]


def settle(store: Store, review: Review, version: str) -> None:
    """Record that `version` holds a review. A crash before this is harmless: the same overlays adopt the version."""
    taken = dataclasses.replace(review, committed=version)
    store.replace(
        review_key(review.dataset, review.name), canonical_json({"format": FORMAT, **dataclasses.asdict(taken)})
    )


def _read(store: Store, key: str) -> Review:
    return _parse(store.read(key), f"{store.url}/{key}")


def _parse(data: bytes, where: str) -> Review:
    review = shaped(Review, parse_json(data, "review", where), "review", where)
    check_digest(review.overlay, "digest of an overlay")
    if not where.endswith(review_key(review.dataset, review.name)):
        raise SevenfoldError(
            f"this is the review {review.name} of {review.dataset}", where=where, do="restore it from a copy"
        )
    return review
