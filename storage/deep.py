"""The deep look: every image of some shards is read, decoded and compared with the index, in worker processes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage.bucket import BucketStore
from sevenfold.storage.decode import EVERYTHING
from sevenfold.storage.keys import index_key, shard_key
from sevenfold.storage.measure import measure_many
from sevenfold.storage.progress import Progress
from sevenfold.storage.sources import InputError
from sevenfold.storage.store import Store

_COMPARED = ("id", "ext", "width", "height", "channels", "pixel_digest")
_CHUNK = 64
FEW = 2000
"""Images that this process decodes sooner than others would have started."""


class Wrong(NamedTuple):
    """An image that is not as the index says: `problem` is content, decode or pixels."""

    problem: str
    detail: str
    member: str
    byte: int
    end: int


def decode_all(
    store: Store, shards: Sequence[tuple[str, str]], samples: int, processes: int, progress: Progress
) -> Iterator[tuple[str, Wrong]]:
    """(shard digest, what is wrong) of every image in the shards (index digest, shard digest).

    The bytes of the shards should be known to be those of their names; `samples` of them are expected, for progress.
    """
    done = 0
    for shard, count, wrong in _results(store, shards, 1 if samples < FEW else processes):
        done += count
        progress(done, samples, "decoding")
        yield from ((shard, w) for w in wrong)


def _results(
    store: Store, shards: Sequence[tuple[str, str]], processes: int
) -> Iterator[tuple[str, int, list[Wrong]]]:  # fmt: skip
    if processes <= 1 or len(shards) < 2:
        for index, shard in shards:
            yield decode_shard(store, index, shard)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        stores = [store] * len(shards)
        yield from pool.map(decode_shard, stores, *zip(*shards, strict=True))


def decode_shard(store: Store, index: str, shard: str) -> tuple[str, int, list[Wrong]]:
    """(the shard's digest, images looked at, those that are not as the index says)."""
    table = pq.read_table(store.local(index_key(index)), filters=[("shard", "=", shard)])
    wrong: list[Wrong] = []
    key = shard_key(shard)
    with io.BytesIO(store.read(key)) if isinstance(store, BucketStore) else open(store.local(key), "rb") as file:
        for start in range(0, table.num_rows, _CHUNK):
            rows = table.slice(start, _CHUNK)
            places = list(zip(rows["offset"].to_pylist(), rows["size"].to_pylist(), strict=True))
            images = []
            for offset, size in places:
                file.seek(offset)
                images.append(file.read(size))
            wrong += _compare(rows, images)
    return shard, table.num_rows, wrong


def _compare(rows: pa.Table, images: Sequence[bytes]) -> Iterator[Wrong]:
    members = pc.binary_join_element_wise(rows["id"], rows["ext"], ".").to_pylist()
    ends = pc.add(rows["offset"], rows["size"]).to_pylist()
    places = list(zip(members, rows["offset"].to_pylist(), ends, strict=True))
    named = [(data, member) for data, (member, _, _) in zip(images, places, strict=True)]
    measured, failures = measure_many(named, EVERYTHING)
    for at, error in failures:
        yield Wrong("decode", _told(error), *places[at])
    failed = {at for at, _ in failures}
    kept = [i for i in range(rows.num_rows) if i not in failed]
    said = rows.select(_COMPARED).take(kept).to_pylist()
    for i, expected, actual in zip(kept, said, measured.select(_COMPARED).to_pylist(), strict=True):
        if actual["id"] != expected["id"]:
            yield Wrong("content", f"the bytes are those of {actual['id']}", *places[i])
        elif actual != expected:
            differ = [c for c in _COMPARED if actual[c] != expected[c]]
            told = ", ".join(f"{c} {actual[c]} instead of {expected[c]}" for c in differ)
            yield Wrong("pixels", f"{told}: the index lies, or another release of a decoder read it", *places[i])


def _told(error: InputError) -> str:
    return f"{error.reason}: {error.detail}"
