"""What a version or a batch changes against its reference, as the report draws it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.assets.picturing import pictures
from sevenfold.quality.report import Changes, Flow, Grid, Tile, class_balance
from sevenfold.storage.diff import diff
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project
from sevenfold.storage.records import Batch, Version

MOST_FLOWS = 20
EACH = 6
"""Pictures of each kind of change."""
SHOWN = ("relabelled", "moved", "removed", "added")


def of_version(lake: Lake, version: Version, reference: Version) -> Changes:
    """Samples added, removed, relabelled, moved to another split; classes of both."""
    after, before = lake.samples_of(version.content_id), lake.samples_of(reference.content_id)
    found = diff(before, after)
    rows = found["rows"]
    counted = rows.group_by(["change", "before", "after"]).aggregate([([], "count_all")]).to_pylist()
    told = [row for row in counted if row["change"] != "added"]  # the classes tell what was added
    ranked = sorted(told, key=lambda r: (-r["count_all"], str(r["before"]), str(r["after"])))
    flows = tuple(Flow(r["change"], r["before"] or "", r["after"] or "", r["count_all"]) for r in ranked[:MOST_FLOWS])
    tiles: list[Tile] = []
    for change in SHOWN:
        some = rows.filter(pc.equal(rows["change"], change)).slice(0, EACH)
        images = pictures(lake, before if change == "removed" else after, some["id"].to_pylist())
        tiles += [_tile(row, images.get(row["id"])) for row in some.to_pylist()]
    balance = tuple(class_balance(v.name, t, lake.manifest(v.content_id).classes)
                    for v, t in ((version, after), (reference, before)))  # fmt: skip
    examples = Grid(tuple(tiles), "", sum(found["counts"].values()))
    return Changes(reference.name, found["counts"], (before.num_rows, after.num_rows), flows, balance, examples)


def of_batch(lake: Lake, project: Project, batch: Batch, reference: Version) -> Changes:
    """Samples that are new, known or proposed under another label; classes of the batch beside the reference's."""
    rows, before = lake.batch_rows(project.dataset, batch.batch), lake.samples_of(reference.content_id)
    fresh = rows.filter(pc.invert(pc.is_in(rows["id"], before["id"].combine_chunks())))
    classes = lake.manifest(reference.content_id).classes
    unknown = _labels(fresh) - _labels(before)
    counts = {"new samples": fresh.num_rows, "known already": batch.counts["aliases"],
              "other label proposed": batch.counts["relabels"], "new classes": len(unknown)}  # fmt: skip
    flows = _by(fresh, "label", unknown, "new class")
    balance = (class_balance(batch.batch, rows, classes), class_balance(reference.name, before, classes))
    return Changes(reference.name, counts, (before.num_rows, before.num_rows + fresh.num_rows), flows, balance)


def _labels(rows: pa.Table) -> set[str]:
    return {label for label in pc.unique(rows["label"]).to_pylist() if label is not None}


def _by(rows: pa.Table, column: str, names: Iterable[str], change: str) -> tuple[Flow, ...]:
    wanted = set(names)
    counted = Counter({r["values"]: r["counts"] for r in rows[column].value_counts().to_pylist()
                       if r["values"] in wanted})  # fmt: skip
    return tuple(Flow(change, "", name, n) for name, n in counted.most_common(MOST_FLOWS))


def _tile(row: dict[str, str | None], image: bytes | None) -> Tile:
    key, change, before, after = str(row["id"]), str(row["change"]), row["before"], row["after"]
    if before and after:
        return Tile(key, image, change=(before, after), lines=(change,))
    return Tile(key, image, title=before or after or "", lines=(change,))
