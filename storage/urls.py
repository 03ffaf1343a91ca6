"""The shards of a version as paths or URLs for stock WebDataset readers, which know neither index nor overlays."""

from __future__ import annotations

import pyarrow.compute as pc

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.keys import shard_key
from sevenfold.storage.names import SPLITS
from sevenfold.storage.records import Manifest
from sevenfold.storage.rows import read_index
from sevenfold.storage.store import Store


def urls(store: Store, manifest: Manifest, split: str) -> list[str]:
    """Where the shards of one split lie, in the version's order.

    Raises SevenfoldError for a version with overlays, whose `.cls` members and splits a stock reader would take for the
    truth, and for a split that does not exist. Weights are not in the tars.
    """
    if split not in SPLITS:
        raise SevenfoldError(f"there is no split {split!r}", expected=", ".join(SPLITS))
    if manifest.overlays:
        raise SevenfoldError(
            f"the version has {len(manifest.overlays)} overlays, which are not in its shards",
            expected="a version whose shards hold its labels, splits and samples as they are",
            do="bake them in first: `sevenfold compact`",
        )
    rows = read_index(store, manifest, ["shard", "split"])
    shards = pc.unique(rows.filter(pc.equal(rows["split"], split))["shard"].drop_null())
    return [f"{store.url}/{shard_key(digest)}" for digest in shards.to_pylist()]
