"""What must stay: the key of every file that a version, a batch, a review or a reader's lease needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from sevenfold.storage import leases, redactions, variants, versions
from sevenfold.storage.commit import read_batches
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.keys import index_key, manifest_key, overlay_key, shard_key, version_key
from sevenfold.storage.records import Manifest
from sevenfold.storage.reviews import list_reviews
from sevenfold.storage.store import Store
from sevenfold.storage.survey import BROKEN, reason


def reachable(store: Store, *, clock: Callable[[], float] = time.time) -> set[str]:
    """Keys under shards/, index/, overlays/, manifests/ and variants/ that must stay.

    Roots are all versions of all datasets (branches and tags only point at these), the packed batches that a commit
    may still take up, the overlays of reviews, what leases name, and the shards of variants that are being made.
    Raises SevenfoldError when a root cannot be read: then nobody knows what it needs.
    """
    kept: set[str] = set()
    redacted = redactions.current(store)
    datasets = sorted({n for folder in ("datasets", "batches", "reviews") for n in store.names(folder)})
    contents: set[str] = set()
    for dataset in datasets:
        contents |= _contents(store, dataset)
        for batch in _read(partial(read_batches, store, dataset), f"the batches of {dataset}"):
            if batch.packed and batch.status != "rejected":
                kept.update(_entry(redacted, batch.packed))
        for review in _read(partial(list_reviews, store, dataset), f"the reviews of {dataset}"):
            kept |= {overlay_key(review.overlay), overlay_key(redacted.last("overlays", review.overlay))}
    for lease in leases.active(store, clock=clock):
        contents.update(lease.content_ids)
        kept.update(lease.keys)
    for content in contents:
        kept.update(of_content(store, content, redacted))
    kept.update(_read(lambda: [*variants.unfinished(store)], "the notes of unfinished variants"))  # it may take days
    return kept


def of_content(store: Store, content_id: str, redacted: redactions.Redactions) -> set[str]:
    """The keys that one content id needs, manifest and variants included; SevenfoldError when one is unreadable."""
    manifest: Manifest = _read(partial(versions.read_manifest, store, content_id), f"the manifest {content_id}")
    kept = {manifest_key(content_id), *map(overlay_key, manifest.overlays)}
    kept |= {overlay_key(redacted.last("overlays", d)) for d in manifest.overlays}
    for entry in manifest.batches:
        kept.update(_entry(redacted, entry))
    for variant in _read(partial(variants.list_variants, store, content_id), f"the variants of {content_id}"):
        kept |= variant.keys
    return kept


def _contents(store: Store, dataset: str) -> set[str]:
    found = set()
    for number in versions.numbers(store, dataset):
        what = f"v{number} of {dataset}"
        found.add(_read(partial(versions.read_version, store, dataset, number), what).content_id)
    for kind in ("branches", "tags"):
        refs = _read(partial(versions.read_refs, store, dataset, kind), f"the {kind} of {dataset}")
        for name, number in refs.items():
            if not store.exists(version_key(dataset, number)):
                raise SevenfoldError(f"{name} points at v{number}, which is not there", where=dataset, do=_VERIFY)
    return found


def _entry(redacted: redactions.Redactions, entry: Mapping[str, Any]) -> Iterator[str]:
    """An entry's files, those it names and those that stand for them today."""
    for form in (entry, redacted.entry(entry)):
        if form["index"]:
            yield index_key(form["index"])
        yield from (shard_key(s["digest"]) for s in form["shards"])


_VERIFY = "run `sevenfold verify`; nothing is deleted while a root is damaged"


def _read(read: Callable[[], Any], what: str) -> Any:
    try:
        return read()
    except (*BROKEN, ValueError) as e:
        found = reason(e) if isinstance(e, BROKEN) else str(e)
        where = getattr(e, "where", "") or what
        raise SevenfoldError(f"{what} cannot be read: {found}", where=where, do=_VERIFY) from None
