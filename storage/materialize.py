"""Materialising a variant: decode every sample of a version once, resize, encode, and write the shards of the result.

The shards are a function of (version, recipe, decoders, shard size): per batch and split, samples in id order, as many
in each as an average image of the recipe lets fit, so that neither threads nor a takedown move anything to another one.
Killed, it goes on behind the last shard that it noted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold import __version__
from sevenfold.storage import redactions, tombstones, traces, variants, versions
from sevenfold.storage.canonical import digest_table
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import VARIANT, conform, write_parquet
from sevenfold.storage.keys import shard_key, variant_index_key, variants_folder
from sevenfold.storage.leases import lease
from sevenfold.storage.making import Part, Work, parts_of
from sevenfold.storage.names import check_name
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.recipe import Slot, cut, recipe_of
from sevenfold.storage.rows import samples
from sevenfold.storage.store import Store
from sevenfold.storage.variants import Variant

_DECIDES = ("size", "format", "quality", "channels", "fit", "filter")
"""What makes two recipes the same to the user; releases of encoder and decoders are told beside it."""


def materialize(
    store: Store,
    dataset: str,
    ref: str,
    *,
    size: int,
    format: str = "jpeg",
    quality: int = 90,
    channels: int | None = None,
    name: str | None = None,
    shard_bytes: int,
    threads: int | None = None,
    by: str = "library",
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> tuple[Variant, bool]:
    """Make a variant of a version; returns it and whether this call made it.

    Parameters
    ----------
    size : side of the square in pixels.
    format : jpeg, or raw (uint8 pixels as .npy).
    quality : of JPEG, 1 to 100.
    channels : 1 or 3; by default 1 when every image is grey.
    name : by default `<size>-<format>`.
    threads : that decode and encode; by default one per core.

    A variant of the name and recipe that is there and whole is adopted, whatever release of an encoder made it. Raises
    SevenfoldError for a recipe that makes no sense, a version without samples, another recipe under the same name, and
    a shard of the version that is missing or damaged.
    """
    recipe_of(size, format, quality, channels or 3)
    version = versions.resolve(store, dataset, ref)
    content = version.content_id
    name = check_name(name or f"{size}-{format}", "name of a variant")
    manifest = versions.read_manifest(store, content)
    report, count = progress or silent, threads or len(os.sched_getaffinity(0))

    def make(redacted: redactions.Redactions) -> tuple[Variant, bool]:
        rows = samples(store, manifest, masked=True)
        if not pc.any(pc.is_valid(rows["offset"])).as_py():
            raise SevenfoldError(
                f"{version.name} has no samples to make a variant of", where=dataset, do="commit a batch first"
            )
        depth = channels or (1 if pc.all(pc.equal(rows["channels"].drop_null(), 1)).as_py() else 3)
        recipe = recipe_of(size, format, quality, depth)
        there = _existing(store, content, name, recipe)
        if there is not None:
            return there, False
        work = Work(store, content, recipe, cut(rows, manifest, recipe, shard_bytes), count, report)
        before = tombstones.ids(store)
        try:
            parts = work.run(parts_of(store, recipe, content))
            published = _publish(store, Draft(name, content, dataset, recipe, by), work.slots, parts, clock)
        except Exception:
            _withdraw(store, tombstones.ids(store) - before)
            raise
        work.clear()
        return published

    with lease(store, "materialize", content_ids=[content]):
        return redactions.steadily(store, make)


@dataclass(frozen=True)
class Draft:
    """What a variant is going to be called and made by."""

    name: str
    content_id: str
    dataset: str
    recipe: Mapping[str, Any]
    by: str


def _withdraw(store: Store, erased: Collection[str]) -> None:
    """Delete what was written of samples that were taken down meanwhile: the takedown may have missed it."""
    for digest in traces.orphans(store, erased) if erased else ():
        store.delete(shard_key(digest))
        store.forget(shard_key(digest))


def _existing(store: Store, content: str, name: str, recipe: Mapping[str, Any]) -> Variant | None:
    """The variant that is there, whole and of this recipe; None when it is to be made."""
    key = f"{variants_folder(content)}/{name}.json"
    if not store.exists(key):
        return None
    found = variants.read_variant(store, content, name)
    differ = [k for k in _DECIDES if found.recipe.get(k) != recipe.get(k)]
    if differ:
        told = ", ".join(f"{k} {found.recipe.get(k)} instead of {recipe.get(k)}" for k in differ)
        raise SevenfoldError(
            f"the version has a variant {name} of another recipe: {told}",
            where=f"{store.url}/{key}",
            do=f"give this one a name of its own (--name), or remove the other: sevenfold materialize --remove {name}",
        )
    if all(store.together(store.renew, sorted(found.keys))):
        return found
    variants.delete(store, key, ())  # files of it are gone: it is made again
    return None


def _publish(
    store: Store, draft: Draft, slots: list[Slot], parts: list[Part], clock: Callable[[], float]
) -> tuple[Variant, bool]:
    """Write index and manifest; of two writers the second adopts the first one's."""
    index = pa.concat_tables(_indexed(i, *pair, draft.recipe) for i, pair in enumerate(zip(slots, parts, strict=True)))
    digest = digest_table(index)
    write_parquet(store, variant_index_key(draft.content_id, digest), [index], VARIANT, overwrite=False)
    gone = sum(s.rows["offset"].null_count for s in slots)
    there = index.num_rows - index["shard"].null_count
    variant = Variant(
        name=draft.name, content_id=draft.content_id, dataset=draft.dataset, recipe=dict(draft.recipe), index=digest,
        shards=tuple(
            {"digest": p.digest, "samples": p.samples, "bytes": p.bytes, "split": s.split, "slot": i, "of": s.of}
            for i, (s, p) in enumerate(zip(slots, parts, strict=True)) if p.digest is not None
        ),
        counts={"samples": there, "undecodable": index.num_rows - there - gone, "taken_down": gone},
        created={"code": __version__, "by": draft.by, "time": clock()},
    )  # fmt: skip
    made = store.create(variant.key, variant.to_json())
    _refuse_erased(store, variant, index)
    if made:
        return variant, True
    there_first = _existing(store, draft.content_id, draft.name, draft.recipe)
    if there_first is None:
        raise SevenfoldError("another writer's variant was damaged and is gone now", where=variant.key, do="try again")
    return there_first, False


def _indexed(slot: int, place: Slot, part: Part, recipe: Mapping[str, Any]) -> pa.Table:
    """The rows of index.VARIANT of one slot."""
    n = place.rows.num_rows
    lacks = np.array(part.offsets) < 0
    columns: dict[str, Any] = {"id": place.rows["id"], "slot": pa.array(np.full(n, slot, np.int32))}
    columns["shard"] = pa.array([None if x else part.digest for x in lacks.tolist()], pa.string())
    values = {"offset": part.offsets, "size": part.sizes, "width": recipe["size"], "height": recipe["size"],
              "channels": recipe["channels"]}  # fmt: skip
    for name, value in values.items():
        columns[name] = pa.array(np.broadcast_to(np.array(value), n), VARIANT.field(name).type, mask=lacks)
    return conform(pa.table(columns), VARIANT)


def _refuse_erased(store: Store, variant: Variant, index: pa.Table) -> None:
    """Take a variant back when a takedown began meanwhile: which may have missed it."""
    erased = pa.array(sorted(tombstones.ids(store)), pa.string())
    hit = pc.and_(pc.is_valid(index["shard"]), pc.is_in(index["id"], value_set=erased))
    if pc.any(hit).as_py():
        variants.delete(store, variant.key, pc.unique(index["shard"].filter(hit)).to_pylist())
        raise SevenfoldError(
            "samples were taken down while the variant was made", where=variant.key, do="make it again, without them"
        )
