"""What becomes of each measured input: sample, alias of a sample, or quarantine. Pure, in columns. See invariant 3."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage.index import ALIASES, LANDING, PROPERTIES, QUARANTINE
from sevenfold.storage.sources import Input

_SPLIT_SALT = b"sevenfold split 1"
_KEEPER = ("test", "val", "train", "pool")
"""Which of several copies in one batch is the sample: evaluation splits first, so that nothing is trained on them."""


def split_of(pixel_digest: str) -> str:
    """train (80 %), val (10 %) or test (10 %) by a salted hash of the pixels: a picture always lands alike."""
    share = int.from_bytes(hashlib.sha256(_SPLIT_SALT + pixel_digest.encode()).digest()[:8], "big") / 2**64
    return "train" if share < 0.8 else "val" if share < 0.9 else "test"


def resolve(
    inputs: Sequence[Input],
    measured: pa.Table,
    bad: Sequence[tuple[int, str, str]],
    classes: Sequence[str] | None,
    root: str,
) -> tuple[pa.Table, pa.Table, pa.Table, pa.Table]:
    """(landing rows, properties, aliases, quarantine) of a batch, each in an order of its own content.

    Parameters
    ----------
    measured : rows of measure.MEASURED with `input`, the place among `inputs`.
    bad : (place among `inputs`, reason, detail) of those that could not be measured.
    classes : the ontology; None or empty takes any label.
    """
    aside = [_set_aside(inputs[i], reason, detail, root) for i, reason, detail in bad]
    items = [inputs[i] for i in measured["input"].to_pylist()]
    splits = [
        "pool" if item.label is None else item.split or split_of(digest)
        for item, digest in zip(items, measured["pixel_digest"].to_pylist(), strict=True)
    ]
    table = measured.append_column("label", pa.array([item.label for item in items], pa.string()))
    table = table.append_column("split", pa.array(splits, pa.string()))
    table = table.append_column("path", pa.array([item.path for item in items], pa.string()))

    if classes:
        inside = pc.or_kleene(pc.is_null(table["label"]), pc.is_in(table["label"], value_set=pa.array(list(classes))))
        outside = table.filter(pc.invert(inside))
        for (i, label), key in zip(_pairs(outside, "label"), outside["id"].to_pylist(), strict=True):
            detail = f"the label is {label!r}, not one of the {len(set(classes))} declared classes (id {key})"
            aside.append(_set_aside(inputs[i], "label_outside_ontology", detail, root))
        table = _only(table, inside)

    labels = table.select(["id", "label"]).group_by("id").aggregate([("label", "count_distinct"), ("label", "max")])
    place = pc.index_in(table["id"], value_set=labels["id"].combine_chunks())
    clash = pc.greater(pc.take(labels["label_count_distinct"], place), 1)
    clashing = _pairs(table.filter(clash), "id")
    said: dict[str, set[str]] = defaultdict(set)
    for i, group in clashing:
        said[group] |= {inputs[i].label or ""} - {""}
    for i, group in clashing:
        detail = f"the same image is labelled {' and '.join(sorted(said[group]))} in one batch (id {group})"
        aside.append(_set_aside(inputs[i], "contradictory", detail, root))
    table = _only(table.append_column("group_label", pc.take(labels["label_max"], place)), pc.invert(clash))

    rank = pc.index_in(table["split"], value_set=pa.array(_KEEPER))
    order = pc.sort_indices(
        table.select(["id", "path"]).append_column("rank", rank),
        sort_keys=[("id", "ascending"), ("rank", "ascending"), ("path", "ascending")],
    )
    first = _starts(pc.take(table["id"], order))
    kept, others = table.take(order.filter(pa.array(first))), table.take(order.filter(pa.array(~first)))
    rows = kept.drop_columns(["label"]).rename_columns({"group_label": "label"})
    aliases = others.select(["id", "path", "label"]).append_column(
        "reason", pa.array(["same bytes twice in this batch"] * others.num_rows, pa.string())
    )
    aside.sort(key=lambda q: (q["path"], q["reason"], q["label"] or ""))
    return (
        rows.select(LANDING.names).cast(LANDING),
        kept.select(["id", *PROPERTIES]),
        aliases.sort_by([("path", "ascending"), ("label", "ascending")]).cast(ALIASES),
        pa.Table.from_pylist(aside, schema=QUARANTINE),
    )


def _only(table: pa.Table, wanted: pa.ChunkedArray) -> pa.Table:
    """The wanted rows; of most batches they are all, and a copy of a million rows is a quarter of a gigabyte."""
    return table if pc.all(wanted, min_count=0).as_py() else table.filter(wanted)


def _pairs(table: pa.Table, column: str) -> list[tuple[int, str]]:
    """(place among the inputs, value) of every row."""
    return list(zip(table["input"].to_pylist(), table[column].to_pylist(), strict=True))


def _starts(ids: pa.ChunkedArray) -> np.ndarray:
    """bool [n]: where a run of equal ids begins."""
    first = np.ones(len(ids), bool)
    if len(ids) > 1:
        first[1:] = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)).to_numpy(zero_copy_only=False)
    return first


def _set_aside(item: Input, reason: str, detail: str, root: str) -> dict[str, Any]:
    return {
        "path": item.path, "reason": reason, "detail": detail, "label": item.label, "split": item.split,
        "source": root, "bytes": item.bytes,
    }  # fmt: skip
