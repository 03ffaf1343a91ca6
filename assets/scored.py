"""Which runs scored a version: the link from a content id to the predictions made about it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import read_parquet
from sevenfold.storage.lake import Lake
from sevenfold.storage.records import Version
from sevenfold.storage.signals import predictions_key


def scored_runs(lake: Lake, content_id: str) -> list[str]:
    """The producers with out-of-sample predictions about this content id; those that cover most come last, then newest.

    An out-of-fold run covers every sample; a single training run only what it was not trained on.
    """
    found = []
    for entry in lake.store.entries("predictions"):
        table = read_parquet(lake.store, entry.key, columns=["content_id", "in_sample"])
        usable = pc.and_(pc.equal(table["content_id"], content_id), pc.invert(table["in_sample"]))
        count = pc.sum(usable).as_py()
        if count:
            found.append((count, entry.modified, entry.key.rpartition("/")[2].removesuffix(".parquet")))
    return [producer for _, _, producer in sorted(found)]


def scored(lake: Lake, version: Version, producer: str | None = None) -> tuple[str, pa.Table] | None:
    """(producer, its out-of-sample predictions of this version), the last of `scored_runs` unless named, or None."""
    if producer is None:
        runs = scored_runs(lake, version.content_id)
        if not runs:
            return None
        producer = runs[-1]
    table = lake.predictions(producer)
    mine = table.filter(pc.and_(pc.equal(table["content_id"], version.content_id), pc.invert(table["in_sample"])))
    if not mine.num_rows:
        raise SevenfoldError(
            f"the run {producer} made no out-of-sample predictions of {version.name}",
            where=f"{lake.store.url}/{predictions_key(producer)}",
            expected=f"rows with the content id {version.content_id[:12]} and in_sample = false",
            do=f"run `sevenfold score {version.name}`",
        )
    return producer, mine
