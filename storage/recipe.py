"""Recipes of variants: what one says, the members that it makes of images, and how its samples are cut into shards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import PIL
import pyarrow as pa
import pyarrow.compute as pc
import simplejpeg

from sevenfold.storage import tar
from sevenfold.storage.canonical import digest_table
from sevenfold.storage.compact import images
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.names import SPLITS
from sevenfold.storage.npy import HEADER, npy_bytes
from sevenfold.storage.records import Manifest, held
from sevenfold.storage.resize import SUBSAMPLING, jpeg_bytes, squashed
from sevenfold.storage.shards import Sample
from sevenfold.storage.sources import InputError
from sevenfold.storage.store import Store
from sevenfold.storage.variants import EXTENSIONS

MOST_SIZE = 4096
"""Pixels: the largest side of a variant."""


def recipe_of(size: int, format: str, quality: int, channels: int) -> dict[str, Any]:
    """A recipe as manifests have it. Raises SevenfoldError for one that makes no sense."""
    wrong = expected = ""
    if format not in EXTENSIONS:
        wrong, expected = f"the format {format!r} is not known", ", ".join(EXTENSIONS)
    elif not 1 <= size <= MOST_SIZE:
        wrong, expected = f"a size of {size} pixels", f"1 to {MOST_SIZE}"
    elif not 1 <= quality <= 100:
        wrong, expected = f"a quality of {quality}", "1 to 100"
    elif channels not in (1, 3):
        wrong, expected = f"{channels} channels", "1 (grey) or 3 (RGB)"
    if wrong:
        raise SevenfoldError(wrong, expected=expected)
    made: dict[str, Any] = {"size": size, "format": format, "channels": channels, "fit": "squash", "filter": "bilinear"}
    if format == "jpeg":
        made |= {"quality": quality, "subsampling": SUBSAMPLING, "encoder": f"simplejpeg {simplejpeg.__version__}"}
    return {**made, "decoders": [f"pillow {PIL.__version__}", f"simplejpeg {simplejpeg.__version__}"]}


def encode(store: Store, rows: pa.Table, recipe: Mapping[str, Any]) -> list[Sample | None]:
    """The members of some rows (id, shard, offset, size, ext, cls) by a recipe; None for what does not decode."""
    there = pc.is_valid(rows["offset"])
    originals = iter(images(store, rows.filter(there)))
    ext = EXTENSIONS[recipe["format"]]
    found: list[Sample | None] = []
    columns = (c.to_pylist() for c in (rows["id"], rows["cls"], there))
    for key, number, stored in zip(*columns, strict=True):
        data = _encoded(next(originals), recipe) if stored else None
        if data is None:
            found.append(None)
        else:
            found.append((key, ((ext, data),) if number is None else ((ext, data), ("cls", number.encode()))))
    return found


def _encoded(data: bytes, recipe: Mapping[str, Any]) -> bytes | None:
    try:
        pixels = squashed(data, recipe["size"], recipe["channels"])
    except InputError:
        return None
    return npy_bytes(pixels) if recipe["format"] == "raw" else jpeg_bytes(pixels, recipe["quality"])


@dataclass(frozen=True)
class Slot:
    """The place of one shard: rows (index.SAMPLES and `cls`) in id order; a row without an offset was taken down.

    `of`: a digest of what decides the shard's bytes beside the recipe: which samples it holds, and their classes.
    """

    split: str
    rows: pa.Table
    of: str


def cut(rows: pa.Table, manifest: Manifest, recipe: Mapping[str, Any], shard_bytes: int) -> list[Slot]:
    """Cut a version's rows as its own shards are: per entry of the manifest and split, in id order.

    Samples that were taken down count, so that every other one stays where it would be with them.
    """
    entry = {batch: i for i, e in enumerate(manifest.batches) for batch in held(e)}
    number = pc.index_in(rows["label"], value_set=pa.array(manifest.classes, pa.string()))
    rows = rows.append_column("cls", number.cast(pa.string()))
    place = pc.index_in(rows["batch"], value_set=pa.array(list(entry), pa.string()))
    rows = rows.append_column("entry", pc.take(pa.array(list(entry.values()), pa.int32()), place))
    rows = rows.append_column("order", pc.index_in(rows["split"], value_set=pa.array(SPLITS)))
    rows = rows.sort_by([(c, "ascending") for c in ("entry", "order", "id")]).combine_chunks()
    each, found = _per_shard(recipe, shard_bytes), []
    group = np.stack([rows[c].to_numpy() for c in ("entry", "order")])
    edges = [0, *(np.flatnonzero((np.diff(group) != 0).any(axis=0)) + 1).tolist(), rows.num_rows]
    for start, stop in pairwise(edges):
        for first in range(start, stop, each):
            part = rows.slice(first, min(each, stop - first))
            decides = part.select(["id", "cls"]).append_column("there", pc.is_valid(part["offset"]))
            found.append(Slot(part["split"][0].as_py(), part, digest_table(decides)))
    return found


def _per_shard(recipe: Mapping[str, Any], shard_bytes: int) -> int:
    """How many samples a shard takes: exactly what fits of raw ones, of JPEGs what fits of photographs on average."""
    area = recipe["size"] ** 2
    if recipe["format"] == "raw":
        bytes_each = HEADER + area * recipe["channels"]
    else:
        bytes_each = 640 + int(area * np.interp(recipe["quality"], *_DENSITY))
    need = tar.member_length(bytes_each) + tar.member_length(8)
    return max(1, (shard_bytes - len(tar.END)) // need)


_DENSITY = (30, 50, 75, 85, 90, 95, 100), (0.1, 0.13, 0.2, 0.27, 0.33, 0.47, 0.9)
"""JPEG qualities, and bytes per pixel of photographs at them (measured at 160 and 224 pixels, 4:2:0)."""
