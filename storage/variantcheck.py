"""Verification of variants: their manifests, and indexes and shards against the digests that name them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage.bucket import BucketStore
from sevenfold.storage.canonical import digest_table
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import VARIANT
from sevenfold.storage.keys import shard_key, variant_index_key, variants_folder
from sevenfold.storage.shardcheck import scan
from sevenfold.storage.store import Store
from sevenfold.storage.survey import Held
from sevenfold.storage.variants import Variant, read_variant
from sevenfold.storage.verified import CACHE, Finding


@dataclass(frozen=True)
class Of:
    """A variant, and the versions that have its content."""

    variant: Variant
    versions: tuple[str, ...]

    @property
    def about(self) -> str:
        """How it is called in a finding."""
        v = self.variant
        return f"of the variant {v.name} of {v.content_id[:12]}"


def find(store: Store, holding: Sequence[Held]) -> tuple[list[Of], list[Finding]]:
    """The variants of some versions, and what cannot be read of them."""
    names: dict[str, list[str]] = {}
    for version in holding:
        names.setdefault(version.version.content_id, []).append(version.name)
    have = set(store.names("variants"))
    found, wrong = [], []
    for content, versions in names.items():
        folder = variants_folder(content)
        for name in store.stems(folder, ".json") if content in have else ():
            try:
                found.append(Of(read_variant(store, content, name), tuple(versions)))
            except SevenfoldError as e:
                wrong.append(Finding(f"{folder}/{name}.json", "unreadable", e.found, versions=tuple(versions)))
    return found, wrong


def jobs(store: Store, found: Sequence[Of]) -> Iterator[Callable[[], tuple[int, list[Finding]]]]:
    """What is to be looked at, each file once: calls that give (bytes read, findings)."""
    seen: set[str] = set()
    for one in found:
        yield partial(_index, store, one)
        for shard in one.variant.shards:
            if shard["digest"] not in seen:
                seen.add(shard["digest"])
                yield partial(_shard, store, one, shard["digest"], shard["bytes"])


def _index(store: Store, one: Of) -> tuple[int, list[Finding]]:
    variant = one.variant
    key = variant_index_key(variant.content_id, variant.index)

    def wrong(problem: str, detail: str) -> tuple[int, list[Finding]]:
        return 0, [Finding(key, problem, f"{detail} ({one.about})", versions=one.versions)]

    try:
        table = pq.read_table(io.BytesIO(store.read(key)))
        digest = digest_table(table)
    except FileNotFoundError:
        return wrong("missing", "the index is not there")
    except (OSError, TypeError, pa.ArrowException) as e:
        return wrong("unreadable", f"{type(e).__name__}: {e}")
    if digest != variant.index:
        return wrong("digest", f"the digest of its rows is {digest}")
    if not table.schema.equals(VARIANT):
        return wrong("index", "its columns are not those of a variant's index")
    counted = pc.value_counts(table["shard"].drop_null().combine_chunks())
    counts = dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))
    listed = {s["digest"]: s["samples"] for s in variant.shards}
    if counts != listed:
        return wrong("manifest", "its shards are not those that the manifest lists")
    lengths = {s["digest"]: s["bytes"] for s in variant.shards}
    there = table.filter(pc.is_valid(table["shard"]))
    ends = pc.add(there["offset"], there["size"])
    room = pa.array([lengths[d] for d in there["shard"].to_pylist()], pa.int64())
    inside = pc.and_(pc.greater_equal(pc.min_element_wise(there["offset"], there["size"]), 0), pc.less(ends, room))
    if not pc.all(pc.fill_null(inside, False), min_count=0).as_py():
        return wrong("index", "a place lies outside its shard")
    return 0, []


def _shard(store: Store, one: Of, digest: str, size: int) -> tuple[int, list[Finding]]:
    key, read, found = shard_key(digest), 0, []
    try:
        for where in _places(store, key):
            with io.BytesIO(store.read(key)) if where == "bucket" else store.local(key).open("rb") as file:
                seen = scan(file, None, 0)
            read += seen.bytes
            if seen.digest != digest or seen.bytes != size:
                told = f"{seen.bytes} bytes with the digest {seen.digest}, not {size} ({one.about})"
                at = CACHE if where == CACHE else "lake"
                found.append(Finding(key, "digest", told, versions=one.versions, where=at))
    except FileNotFoundError:
        found.append(Finding(key, "missing", f"the shard is not there ({one.about})", versions=one.versions))
    except OSError as e:
        found.append(Finding(key, "unreadable", f"{e} ({one.about})", versions=one.versions))
    return read, found


def _places(store: Store, key: str) -> list[str]:
    """A disk has the file itself; a bucket the object, and perhaps this machine's copy."""
    if not isinstance(store, BucketStore):
        return ["lake"]
    return ["bucket", CACHE] if (store.cache / key).exists() else ["bucket"]
