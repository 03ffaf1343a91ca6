"""The report's picture grids: quarantined inputs, review queues, drifted samples beside their reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality.report import Grid, quarantine_grid, queue_grid, sample_grid, suspected_grid
from sevenfold.quality.verdict import from_table
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import QUARANTINE
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project
from sevenfold.storage.records import Batch, Version
from sevenfold.storage.sources import InputError, open_source

TILES = 30
EACH_REASON = 6
"""Quarantined inputs shown for each reason."""


def quarantine(lake: Lake, project: Project, batches: Sequence[Batch] | None = None) -> Grid | None:
    """A few inputs of each reason, over some batches (None: all); pictures come from the sources, if still there."""
    images: dict[str, bytes] = {}
    chosen: list[dict[str, Any]] = []
    total = 0
    seen: Counter[str] = Counter()
    for batch in lake.batches(project.dataset) if batches is None else batches:
        rows = lake.quarantine(project.dataset, batch.batch).to_pylist()
        total += len(rows)
        mine = []
        for row in rows:
            seen[row["reason"]] += 1
            if seen[row["reason"]] <= EACH_REASON:
                mine.append(row)
        images |= from_source(batch, [row["path"] for row in mine])
        chosen += mine
    if not total:
        return None
    grid = quarantine_grid(pa.Table.from_pylist(chosen, schema=QUARANTINE), images, "Set aside, with the reason.")
    return replace(grid, total=total)


def queue(lake: Lake, project: Project, line: Sequence[Version], kind: str) -> Grid | None:
    """The newest queue of a kind along a line of versions, with what review said of it; None when none was mined."""
    for version in reversed(line):
        name = f"{kind}-{version.name}"
        if name not in lake.queues(project.dataset):
            continue
        table = lake.queue(project.dataset, name)
        shown = table.filter(pc.equal(table["kind"], "suspected_label")) if kind == "suspected" else table
        truth = _reviewed(lake, project, name)
        samples = lake.samples_of(version.content_id)
        images = pictures(lake, samples, _first(shown))
        if kind == "suspected":
            return suspected_grid(shown, images, f"Labels that look wrong in {version.name}.", truth=truth, limit=TILES)
        what = "uncertain samples of the pool" if kind == "hard" else "as many of the pool at random, for comparison"
        return queue_grid(shown, images, f"{version.name}: {what}.", truth=truth, score="uncertainty", limit=TILES)
    return None


def drifted(lake: Lake, project: Project, version: Version) -> tuple[Grid | None, Grid | None]:
    """(samples of the newest batch that a volatility check warned about, samples of what it was compared with)."""
    for batch in sorted(lake.batches(project.dataset), key=lambda b: b.times["landed"], reverse=True):
        table = lake.verdicts(project.dataset, batch.batch)
        fired = (
            [v for v in from_table(table) if v.v == "volatility" and v.result in ("warn", "fail")]
            if table is not None
            else []
        )
        if not fired:
            continue
        told = next((v for v in reversed(fired) if v.data.get("examples")), fired[-1])  # the newest come last
        samples = lake.samples_of(version.content_id)
        mine = samples.filter(pc.equal(samples["batch"], batch.batch))
        if not mine.num_rows or not told.reference:
            continue
        before = lake.samples(project.dataset, told.reference)
        shown = told.data.get("examples", {})
        mine, before = (_chosen(t, shown.get(k, ())) for t, k in ((mine, "now"), (before, "reference")))
        return (
            sample_grid(mine, pictures(lake, mine, _ids(mine)), f"{batch.batch}: {told.message}", limit=TILES),
            sample_grid(before, pictures(lake, before, _ids(before)), f"From {told.reference}.", limit=TILES),
        )
    return None, None


def from_source(batch: Batch, paths: Sequence[str]) -> dict[str, bytes]:
    """The bytes of inputs that can still be read; a source that moved away shows none."""
    if not paths:
        return {}
    found: dict[str, bytes] = {}
    try:
        source = open_source(batch.source, batch.kind)
    except SevenfoldError:
        return {}
    for path in paths:
        try:
            found[path] = source.read(path)
        except (InputError, SevenfoldError, KeyError, OSError):
            continue
    return found


def _reviewed(lake: Lake, project: Project, queue: str) -> dict[str, str]:
    """Sample id -> the label that reviews of this queue settled on."""
    found: dict[str, str] = {}
    for review in lake.reviews(project.dataset):
        if queue in review.queues:
            overlay = lake.overlay(review.overlay)
            found |= {i: x for i, x in zip(overlay["id"].to_pylist(), overlay["label"].to_pylist(), strict=True) if x}
    return found


def pictures(lake: Lake, samples: pa.Table, ids: Sequence[str]) -> dict[str, bytes]:
    """Image bytes of those of the ids that are among a version's samples."""
    rows = samples.filter(pc.is_in(samples["id"], pa.array(ids, pa.string())))
    return dict(zip(rows["id"].to_pylist(), lake.read_images(rows), strict=True))


def _first(table: pa.Table) -> list[str]:
    return table.sort_by("rank").slice(0, TILES)["id"].to_pylist()


def _chosen(samples: pa.Table, ids: Sequence[str]) -> pa.Table:
    """The samples that a verdict shows as examples, in its order; all of them where it names none that is here."""
    place = pc.index_in(pa.array(ids, pa.string()), value_set=samples["id"].combine_chunks()).drop_null()
    return samples.take(place) if len(place) else samples


def _ids(samples: pa.Table) -> list[str]:
    return samples.slice(0, TILES)["id"].to_pylist()
