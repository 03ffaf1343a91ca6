"""Variants: the same samples of one version as other bytes, resized for a loader that need not decode large files.

    variants/<content id>/<name>.json          the manifest: recipe, shards, counts; written last
    variants/<content id>/<digest>.parquet     its index (index.VARIANT)

Ids, labels, splits and everything said of samples stay the version's; only shard, offset and size are others. A
variant can be made again at any time, so nothing else depends on it: it is deleted rather than mended.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage import leases
from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import VARIANT, read_parquet
from sevenfold.storage.keys import shard_key, variant_index_key, variant_key, variants_folder
from sevenfold.storage.names import SPLITS, check_digest
from sevenfold.storage.records import FORMAT, read_json, shaped
from sevenfold.storage.store import Store

EXTENSIONS = {"jpeg": "jpg", "raw": "npy"}
"""The forms of a variant, and what a member's name ends in."""


@dataclass(frozen=True)
class Variant:
    """A variant's manifest.

    `content_id`: of the version it is made of. `recipe`: size, format, quality (of JPEG), channels, fit, filter,
    encoder, decoders. `shards`: mappings of digest, samples, bytes, split, slot, `of` (see recipe.Slot). `counts`:
    samples, undecodable, taken_down. `created`: code, time, by.
    """

    name: str
    content_id: str
    dataset: str
    recipe: dict[str, Any]
    index: str
    shards: tuple[dict[str, Any], ...]
    counts: dict[str, int]
    created: dict[str, Any]

    @property
    def tar_bytes(self) -> int:
        """Length of its tars."""
        return sum(s["bytes"] for s in self.shards)

    @property
    def key(self) -> str:
        """Where its manifest lies."""
        return variant_key(self.content_id, self.name)

    @property
    def keys(self) -> frozenset[str]:
        """Every file of it."""
        shards = (shard_key(s["digest"]) for s in self.shards)
        return frozenset({self.key, variant_index_key(self.content_id, self.index), *shards})

    def to_json(self) -> bytes:
        """The manifest's file bytes."""
        return canonical_json({"format": FORMAT, **dataclasses.asdict(self)})


def command(content_id: str, name: str, dataset: str | None = None) -> str:
    """The command that makes a variant of this name, with its size and format where the name says them."""
    told = re.fullmatch(r"(\d+)-(jpeg|raw)", name)
    how = f"--size {told[1]}{' --format raw' * (told[2] == 'raw')}" if told else f"--size PIXELS --name {name}"
    return f"sevenfold materialize {content_id[:12]} {how}{f' --dataset {dataset}' if dataset else ''}"


def read_variant(store: Store, content_id: str, name: str, dataset: str | None = None) -> Variant:
    """One variant. Raises SevenfoldError naming those that exist, or what is wrong with its manifest."""
    key = variant_key(content_id, name)
    try:
        return _parsed(store, key)
    except SevenfoldError:
        if store.exists(key):
            raise
    there = ", ".join(store.stems(variants_folder(content_id), ".json")) or "none"
    raise SevenfoldError(
        f"there is no variant {name!r} of the content {content_id[:12]}",
        where=store.url,
        expected=f"one of: {there}",
        do=f"make it: `{command(content_id, name, dataset)}`; a takedown deletes the variants that held the sample",
    )


def list_variants(store: Store, content_id: str) -> list[Variant]:
    """The variants of a content id, by name."""
    names = store.stems(variants_folder(content_id), ".json")
    return store.together(lambda name: read_variant(store, content_id, name), names)


def all_keys(store: Store) -> list[str]:
    """The manifests of all variants in the lake: one listing."""
    return [e.key for e in store.entries("variants") if e.key.endswith(".json")]


def unfinished(store: Store) -> Iterator[str]:
    """The keys of the shards that writers of variants, running or killed, have noted as theirs (see storage.making)."""
    for entry in store.entries("variants", hidden=True):
        if "/.part-" in entry.key:
            with suppress(FileNotFoundError):  # finished since it was listed
                noted = json.loads(store.read(entry.key)).values()
                yield from (shard_key(part["digest"]) for part in noted if part["digest"])


def readable(store: Store) -> Iterator[Variant]:
    """Every variant of the lake whose manifest can be read."""
    return (variant for _, variant in _each(store) if variant is not None)


def _parsed(store: Store, key: str) -> Variant:
    where = f"{store.url}/{key}"
    variant = shaped(Variant, read_json(store, key, "variant"), "variant", where)
    try:
        digests = [check_digest(s["digest"], "shard digest") for s in variant.shards]
        digests += [check_digest(s["of"], "digest of a slot") for s in variant.shards]
        check_digest(variant.index, "index digest")
        numbers = [*variant.counts.values(), *(s[k] for s in variant.shards for k in ("samples", "bytes", "slot"))]
        sound = all(isinstance(n, int) and n >= 0 for n in numbers) and len(set(digests)) == len(digests)
        sound &= variant.recipe["format"] in EXTENSIONS and isinstance(variant.created.get("time"), int | float)
        sound &= all(isinstance(variant.recipe[k], int) and variant.recipe[k] > 0 for k in ("size", "channels"))
        sound &= all(s["split"] in SPLITS for s in variant.shards) and "samples" in variant.counts
    except (KeyError, TypeError):
        sound = False
    if not sound or variant.key != key:
        raise SevenfoldError(
            "this variant's manifest does not say what it should",
            where=where,
            do="remove it with `sevenfold materialize --remove` and make it again",
        )
    return variant


def index_of(store: Store, variant: Variant) -> pa.Table:
    """A variant's index (index.VARIANT). Raises SevenfoldError when it is gone."""
    key = variant_index_key(variant.content_id, variant.index)
    try:
        return read_parquet(store, key, VARIANT)
    except FileNotFoundError:
        raise SevenfoldError(
            f"the index of the variant {variant.name} is missing",
            where=f"{store.url}/{key}",
            do=f"remove it with `sevenfold materialize --remove {variant.name}` and make it again",
        ) from None


def placed(store: Store, variant: Variant, samples: pa.Table, *, masked: bool = False) -> pa.Table:
    """A version's samples (index.SAMPLES) with the places that they have in a variant.

    shard, offset, size, ext, width, height and channels are the variant's; shard, offset and size are null for a
    sample that it lacks. With `masked` such a row names the shard that is its place, as `rows.samples` does for
    samples that were taken down, so that every row keeps its place in the order of an epoch.
    """
    index = index_of(store, variant)
    place = pc.index_in(samples["id"], value_set=index["id"].combine_chunks())
    if place.null_count:
        raise SevenfoldError(
            f"the index of the variant {variant.name} lacks {place.null_count} samples of its version",
            where=f"{store.url}/{variant_index_key(variant.content_id, variant.index)}",
            do=f"remove it with `sevenfold materialize --remove {variant.name}` and make it again",
        )
    rows = index.take(place.combine_chunks() if isinstance(place, pa.ChunkedArray) else place)
    columns = {name: rows[name] for name in ("shard", "offset", "size")}
    there = pc.is_valid(rows["offset"])
    for name in ("width", "height", "channels"):
        columns[name] = pc.if_else(there, rows[name], samples[name])
    columns["ext"] = pc.if_else(there, EXTENSIONS[variant.recipe["format"]], samples["ext"])
    gone = pc.is_null(samples["offset"])  # taken down since, or before: nothing of it is in the variant
    for name in ("shard", "offset", "size"):
        columns[name] = pc.if_else(gone, pa.scalar(None, columns[name].type), columns[name])
    if masked:
        columns["shard"] = _homes(variant, rows["slot"], samples["shard"])
    for name, column in columns.items():
        samples = samples.set_column(samples.column_names.index(name), samples.schema.field(name), column)
    return samples.combine_chunks()


def _homes(variant: Variant, slots: pa.ChunkedArray, base: pa.ChunkedArray) -> pa.Array:
    """The shard that is each row's place; of a slot without a shard, where its first sample lies in the version."""
    at = slots.to_numpy().astype(np.int64)
    known = {s["slot"]: s["digest"] for s in variant.shards}
    found, first = np.unique(at, return_index=True)
    names = [known.get(s) or base[i].as_py() for s, i in zip(found.tolist(), first.tolist(), strict=True)]
    return pa.array(names, pa.string()).take(pa.array(np.searchsorted(found, at)))


def shard_urls(store: Store, variant: Variant, split: str) -> list[str]:
    """Where the shards of one split lie, for stock WebDataset readers; labels and splits are the version's own."""
    if split not in SPLITS:
        raise SevenfoldError(f"there is no split {split!r}", expected=", ".join(SPLITS))
    return [f"{store.url}/{shard_key(s['digest'])}" for s in variant.shards if s["split"] == split]


def remove(store: Store, content_id: str, name: str) -> Variant | None:
    """Delete a variant's manifest; garbage collection takes its shards and index. None when it could not be read.

    Raises SevenfoldError when there is none, and while somebody reads the version.
    """
    key = variant_key(content_id, name)
    variant = None
    try:
        variant = read_variant(store, content_id, name)
    except SevenfoldError:
        if not store.exists(key):
            raise
    readers = [x for x in leases.active(store) if content_id in x.content_ids]
    if readers:
        raise SevenfoldError(
            f"{len(readers)} readers hold this version, the first is {readers[0].what!r} on {readers[0].host}",
            where=store.url,
            do="wait until it has ended; a lease whose holder died ends after five minutes",
        )
    _gone(store, key)
    return variant


def holding(store: Store, ids: Collection[str]) -> tuple[dict[str, tuple[str, ...]], set[str]]:
    """(manifest -> its shards that hold one of some samples, of the variants that do; the shards of all variants).

    A variant that cannot be read counts as holding them, with all its shards.
    """
    wanted = pa.array(sorted(ids), pa.string())
    found: dict[str, tuple[str, ...]] = {}
    known: set[str] = set()
    for key, variant in _each(store):
        if variant is None:
            found[key] = ()
            continue
        shards = tuple(s["digest"] for s in variant.shards)
        known.update(shards)
        try:
            index = index_of(store, variant)
        except (SevenfoldError, OSError, pa.ArrowException):
            found[key] = shards
            continue
        hit = pc.and_(pc.is_valid(index["shard"]), pc.is_in(index["id"], value_set=wanted))
        if pc.any(hit).as_py():
            found[key] = tuple(sorted(pc.unique(index["shard"].filter(hit)).to_pylist()))
    return found, known


def _each(store: Store) -> Iterator[tuple[str, Variant | None]]:
    for key in all_keys(store):
        try:
            yield key, _parsed(store, key)
        except SevenfoldError:
            if store.exists(key):
                yield key, None


def delete(store: Store, key: str, shards: Collection[str]) -> None:
    """Delete some shards of a variant, its index and, last, its manifest: killed before that, it is found again."""
    for digest in shards:
        _gone(store, shard_key(digest))
    try:
        variant = _parsed(store, key)
    except SevenfoldError:  # its index is garbage from here on, and holds ids alone
        variant = None
    if variant is not None:
        _gone(store, variant_index_key(variant.content_id, variant.index))
    _gone(store, key)


def _gone(store: Store, key: str) -> None:
    store.delete(key)
    store.forget(key)
