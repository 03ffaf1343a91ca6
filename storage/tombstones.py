"""Tombstones: the ids and pixel digests of samples that were taken down, and must not come back.

tombstones/<aa>/<id>.json     {id, pixel_digest, reason, time, takedown}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.records import FORMAT, read_json, shaped
from sevenfold.storage.store import Store

REASON = "taken_down"
"""Why such an input is in quarantine."""


@dataclass(frozen=True)
class Tombstone:
    """One sample that must not come back, as a file or as the same pixels in another one."""

    id: str
    pixel_digest: str | None
    reason: str
    time: float
    takedown: str

    @property
    def when(self) -> str:
        """The day, UTC."""
        return datetime.fromtimestamp(self.time, UTC).date().isoformat()


def tombstone_key(id: str) -> str:
    """Where a sample's tombstone lies."""
    return f"tombstones/{id[:2]}/{id}.json"


def write(store: Store, stone: Tombstone) -> None:
    """Set a tombstone; one that stands already is left as it is."""
    store.create(tombstone_key(stone.id), canonical_json({"format": FORMAT, **vars(stone)}))


def ids(store: Store) -> frozenset[str]:
    """The ids of all tombstones: one listing."""
    names = (e.key.rpartition("/")[2] for e in store.entries("tombstones"))
    return frozenset(n.removesuffix(".json") for n in names if n.endswith(".json"))


def read(store: Store) -> dict[str, Tombstone]:
    """All tombstones by id: one listing, of nothing in nearly every lake."""
    keys = [e.key for e in store.entries("tombstones") if e.key.endswith(".json")]
    found = []
    for key in keys:
        stone = shaped(Tombstone, read_json(store, key, "tombstone"), "tombstone", f"{store.url}/{key}")
        if tombstone_key(stone.id) != key:
            raise SevenfoldError(f"this is the tombstone of {stone.id[:80]!r}", where=f"{store.url}/{key}")
        found.append(stone)
    return {stone.id: stone for stone in found}


def refuse(stones: Mapping[str, Tombstone], measured: pa.Table) -> tuple[pa.Table, list[tuple[int, str, str]]]:
    """Part what may land from what was taken down.

    Parameters
    ----------
    stones : what `read` returns.
    measured : rows with id, pixel_digest and `input`, the place among the source's inputs.

    Returns
    -------
    The rows that may land, and (place, reason, detail) of the others, as `resolve` takes those without a measurement.
    """
    if not stones:
        return measured, []
    pixels = {s.pixel_digest: s for s in stones.values() if s.pixel_digest}
    by_id = pc.is_in(measured["id"], value_set=pa.array(list(stones), pa.string()))
    by_pixels = pc.is_in(measured["pixel_digest"], value_set=pa.array(list(pixels), pa.string()))
    hit = pc.or_(by_id, by_pixels)
    refused = []
    for row in measured.filter(hit).select(["id", "pixel_digest", "input"]).to_pylist():
        same = stones.get(row["id"])
        stone = same or pixels[row["pixel_digest"]]
        what = "this image" if same else "an image of these pixels"
        refused.append((row["input"], REASON, f"{what} was taken down on {stone.when}: {stone.reason}"))
    return measured.filter(pc.invert(hit)), refused
