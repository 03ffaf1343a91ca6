"""Embeddings: one vector per sample and encoder, kept by sample id and never computed twice.

    embeddings/<producer>/about.json        what the encoder is: kind, digest, preprocessing, dimension
    embeddings/<producer>/<part>.parquet    id, in_sample, vector (FixedSizeList of float16 or float32)

The producer's name holds the encoder's digest (weights and preprocessing), so that two encoders never mix. A part is
named after the ids it holds: writing it again changes nothing, and a job that was killed goes on with what is missing.
Without its `about.json` a producer is gone; garbage collection takes its parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.names import check_name
from sevenfold.storage.records import parse_json
from sevenfold.storage.store import Entry, Store
from sevenfold.storage.verified import Finding

FOLDER, ABOUT = "embeddings", "about.json"
_LARGEST = 6e4
"""Vectors with a component beyond this are kept as float32: float16 ends at 65,504."""

_SMALLEST = 6e-5
"""So are those whose largest component is below this, where float16 loses digits."""


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Vectors of some samples by one encoder.

    Parameters
    ----------
    ids : string [n], each once.
    vectors : float32 [n, d].
    producer : the encoder.
    in_sample : bool [n]; true where the encoder was trained on the sample under its label. None: all false.
    """

    ids: pa.Array
    vectors: np.ndarray
    producer: str
    in_sample: np.ndarray | None = None

    @property
    def unseen(self) -> Embeddings:
        """Those the encoder was not trained on: only they tell of new and old alike."""
        if self.in_sample is None or not self.in_sample.any():
            return self
        return self.take(self.ids.filter(pa.array(~self.in_sample)))

    def take(self, ids: pa.Array | pa.ChunkedArray) -> Embeddings:
        """Those of some ids, in their order; ids that have no vector are left out."""
        place = pc.index_in(ids, value_set=self.ids).drop_null()
        rows = (place.combine_chunks() if isinstance(place, pa.ChunkedArray) else place).to_numpy().astype(np.int64)
        seen = None if self.in_sample is None else self.in_sample[rows]
        return Embeddings(self.ids.take(pa.array(rows)), self.vectors[rows], self.producer, seen)


def producer_folder(producer: str) -> str:
    """Where an encoder's embeddings lie."""
    return f"{FOLDER}/{check_name(producer, 'producer')}"


def describe(store: Store, producer: str, about: Mapping[str, Any]) -> None:
    """Say what an encoder is, before its first part is written; the same again changes nothing."""
    store.create(f"{producer_folder(producer)}/{ABOUT}", canonical_json(dict(about)))


def described(store: Store, producer: str) -> dict[str, Any]:
    """What `describe` said. Raises SevenfoldError naming the encoders that there are."""
    key = f"{producer_folder(producer)}/{ABOUT}"
    try:
        return parse_json(store.read(key), "description of an encoder", f"{store.url}/{key}")
    except FileNotFoundError:
        there = ", ".join(producers(store)) or "none"
        raise SevenfoldError(
            f"there are no embeddings by {producer}", where=store.url, expected=f"one of: {there}",
            do="run `sevenfold embed`",
        ) from None  # fmt: skip


def producers(store: Store) -> list[str]:
    """The encoders that have embeddings here, by name."""
    return sorted(e.key.split("/")[1] for e in store.entries(FOLDER) if e.key.endswith(f"/{ABOUT}"))


def write_part(
    store: Store, producer: str, ids: pa.Array, vectors: np.ndarray, in_sample: np.ndarray | None = None
) -> str:
    """Keep the vectors (float [n, d]) of some ids; returns their key.

    They are stored as float16, or as float32 where that would overflow or lose digits. Raises SevenfoldError for a
    vector that is not finite, naming the sample.
    """
    vectors = np.asarray(vectors, np.float32)
    bad = np.flatnonzero(~np.isfinite(vectors).all(1))
    if len(bad):
        raise SevenfoldError(
            f"{len(bad)} of {len(vectors)} vectors are not finite, the first is that of {ids[int(bad[0])]}",
            where=producer,
            do="look for a division or a logarithm of zero in the encoder",
        )
    top = float(np.abs(vectors).max(initial=0.0))
    kind = np.float16 if _SMALLEST < top < _LARGEST else np.float32
    flat = pa.array(vectors.astype(kind).ravel())
    seen = np.zeros(len(ids), bool) if in_sample is None else np.asarray(in_sample, bool)
    columns = {
        "id": ids.cast(pa.string()),
        "in_sample": pa.array(seen),
        "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
    }
    key = f"{producer_folder(producer)}/{_digest_of(ids)[:32]}.parquet"
    table = pa.table(columns)
    with (
        store.writing(key, overwrite=True) as draft,
        pq.ParquetWriter(
            draft.file, table.schema, compression="zstd", use_dictionary=False, write_page_checksum=True
        ) as writer,
    ):
        writer.write_table(table)
    return key


def embedded_ids(store: Store, producer: str) -> pa.Array:
    """string [n]: the ids that an encoder has vectors of."""
    tables = store.together(lambda key: pq.read_table(store.local(key), columns=["id"]), _parts(store, producer))
    return pc.unique(pa.chunked_array([c for t in tables for c in t["id"].chunks], pa.string()))


def read(store: Store, producer: str, ids: pa.Array | pa.ChunkedArray | None = None) -> Embeddings:
    """The vectors of some ids (default: all there are) in their order; those without one are left out.

    Raises SevenfoldError when the encoder has none, and when its parts do not fit each other.
    """
    described(store, producer)
    wanted = None if ids is None else (ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids)
    kept: list[tuple[pa.Array, np.ndarray, np.ndarray]] = []
    for key in _parts(store, producer):
        table = _read_part(store, key)
        if wanted is not None:
            table = table.filter(pc.is_in(table["id"], value_set=wanted))
        if table.num_rows:
            kept.append(_arrays(table))
    if len({v.shape[1] for _, v, _ in kept}) > 1:
        sizes = sorted({v.shape[1] for _, v, _ in kept})
        raise SevenfoldError(
            f"its vectors have {' and '.join(map(str, sizes))} components", where=f"{store.url}/{FOLDER}/{producer}",
            expected="one dimension per encoder", do="delete the folder and run `sevenfold embed` again",
        )  # fmt: skip
    if not kept:
        d = int(described(store, producer).get("dimension") or 0)
        return Embeddings(pa.array([], pa.string()), np.zeros((0, d), np.float32), producer, np.zeros(0, bool))
    all_ids = pa.concat_arrays([i for i, _, _ in kept])
    vectors, seen = np.concatenate([v for _, v, _ in kept]), np.concatenate([s for _, _, s in kept])
    order = pc.unique(all_ids) if wanted is None else pc.unique(wanted)  # two writers may both have made a vector
    return Embeddings(all_ids, vectors, producer, seen).take(order)


def newest_for(store: Store, ids: pa.Array | pa.ChunkedArray) -> str | None:
    """The encoder that covers most of some ids, of equals the one that wrote last; None when none has any."""
    best: tuple[int, float, str] | None = None
    entries = [e for e in store.entries(FOLDER) if e.key.endswith(".parquet")]
    known = set(producers(store))
    for producer in sorted({e.key.split("/")[1] for e in entries} & known):
        mine = [e for e in entries if e.key.split("/")[1] == producer]
        count = int(pc.sum(pc.is_in(ids, value_set=embedded_ids(store, producer))).as_py() or 0)
        found = (count, max(e.modified for e in mine), producer)
        if count and (best is None or found > best):
            best = found
    return best[2] if best else None


def orphans(entries: Sequence[Entry]) -> set[str]:
    """The keys, among a lake's files, of parts whose encoder nobody describes any more."""
    mine = [e.key for e in entries if e.key.startswith(f"{FOLDER}/") and e.key.count("/") == 2]
    described_ones = {k.split("/")[1] for k in mine if k.endswith(f"/{ABOUT}")}
    return {k for k in mine if k.endswith(".parquet") and k.split("/")[1] not in described_ones}


def check(store: Store) -> Iterator[Finding]:
    """What verification says of the embeddings: parts that cannot be read (page checksums included) or do not fit."""
    sizes: dict[str, int] = {}
    for entry in store.entries(FOLDER):
        if not entry.key.endswith(".parquet"):
            continue
        try:
            table = _read_part(store, entry.key)
        except (OSError, pa.ArrowException, SevenfoldError) as error:
            yield Finding(entry.key, "unreadable", f"{type(error).__name__}: {error}")
            continue
        ids, vectors, _ = _arrays(table)
        expected = sizes.setdefault(entry.key.split("/")[1], vectors.shape[1])
        if vectors.shape[1] != expected:
            detail = f"its vectors have {vectors.shape[1]} components, others of this encoder {expected}"
            yield Finding(entry.key, "embedding", detail)
        bad = int((~np.isfinite(vectors).all(1)).sum())
        if bad:
            yield Finding(entry.key, "embedding", f"{bad} vectors are not finite")
        if ids.null_count or len(pc.unique(ids)) != len(ids):
            yield Finding(entry.key, "embedding", "an id is null or twice in it")


def _parts(store: Store, producer: str) -> list[str]:
    return [e.key for e in store.entries(producer_folder(producer)) if e.key.endswith(".parquet")]


def _read_part(store: Store, key: str) -> pa.Table:
    table = pq.read_table(store.local(key), page_checksum_verification=True)
    wrong = {"id", "in_sample", "vector"} - set(table.column_names)
    if wrong or not pa.types.is_fixed_size_list(table.schema.field("vector").type):
        raise SevenfoldError(
            "these are no embeddings", where=f"{store.url}/{key}", expected="id, in_sample, vector (FixedSizeList)"
        )
    return table


def _arrays(table: pa.Table) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """(ids, float32 [n, d], bool [n]) of a part."""
    column = table["vector"].combine_chunks()
    width = column.type.list_size
    vectors = column.flatten().to_numpy(zero_copy_only=False).astype(np.float32, copy=False).reshape(-1, width)
    return table["id"].combine_chunks(), vectors, table["in_sample"].to_numpy(zero_copy_only=False).astype(bool)


def _digest_of(ids: pa.Array) -> str:
    hashed = hashlib.sha256()
    for chunk in ids.to_pylist():
        hashed.update(chunk.encode())
        hashed.update(b"\n")
    return hashed.hexdigest()
