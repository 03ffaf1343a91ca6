"""What a scorecard shows beside its verdicts: pictures of findings, pairs and examples; labels, splits and paths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.assets.picturing import from_source, pictures
from sevenfold.quality.report import Facts
from sevenfold.quality.report.album import preview
from sevenfold.quality.report.evidence import wanted
from sevenfold.quality.report.findings import MOST
from sevenfold.quality.verdict import Verdict
from sevenfold.storage.canonical import digest_bytes
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project
from sevenfold.storage.records import Batch, Version

KNOWN = ("id", "label", "split", "path")


def of_version(
    lake: Lake, project: Project, version: Version, verdicts: Sequence[Verdict]
) -> tuple[dict[str, bytes], Facts]:
    """Pictures (key -> image bytes) and facts of what the verdicts about a version name."""
    samples = lake.samples_of(version.content_id)
    batches = [lake.batch(project.dataset, name) for name in lake.manifest(version.content_id).batch_ids]
    facts = _facts(verdicts, samples, [(b, lake.quarantine(project.dataset, b.batch)) for b in batches])
    mine, before = _wanted(verdicts)
    found = pictures(lake, samples, mine)
    for batch in batches:
        found |= _quarantined(lake, project, batch, [key for key in mine if key not in found])
    return _with_reference(lake, project, verdicts, found, mine, before), facts


def of_batch(lake: Lake, project: Project, batch: Batch, verdicts: Sequence[Verdict]) -> tuple[dict[str, bytes], Facts]:
    """The same of a batch: its pictures come from its source, or from shards once it is committed."""
    rows = lake.batch_rows(project.dataset, batch.batch)
    facts = _facts(verdicts, rows, [(batch, lake.quarantine(project.dataset, batch.batch))])
    mine, before = _wanted(verdicts)
    found: dict[str, bytes] = {}
    if batch.status == "committed":
        holding = _holding(lake, project, batch)
        found = pictures(lake, lake.samples_of(holding.content_id), mine) if holding else {}
    todo = rows.filter(pc.is_in(rows["id"], pa.array([key for key in mine if key not in found], pa.string())))
    read = from_source(batch, todo["path"].to_pylist())
    for key, path in zip(todo["id"].to_pylist(), todo["path"].to_pylist(), strict=True):
        if path in read and digest_bytes(read[path]) == key:  # the file may have changed since
            found[key] = read[path]
    found |= _quarantined(lake, project, batch, [key for key in mine if key not in found])
    return _with_reference(lake, project, verdicts, found, mine, before), facts


def reference_of(lake: Lake, project: Project, verdicts: Iterable[Verdict]) -> Version | None:
    """The version that the verdicts were read against; None when they name none that exists."""
    for name in dict.fromkeys(v.reference for v in verdicts if v.reference):
        try:
            return lake.version(project.dataset, name)
        except SevenfoldError:
            continue
    return None


def _wanted(verdicts: Sequence[Verdict]) -> tuple[list[str], list[str]]:
    sides = [wanted(verdict) for verdict in verdicts]
    return (list(dict.fromkeys(key for mine, _ in sides for key in mine)),
            list(dict.fromkeys(key for _, before in sides for key in before)))  # fmt: skip


def _with_reference(
    lake: Lake, project: Project, verdicts: Sequence[Verdict], found: dict[str, bytes], mine: Sequence[str],
    before: Sequence[str],
) -> dict[str, bytes]:  # fmt: skip
    """Also what only the reference has: examples of it, the other side of a pair."""
    missing = [key for key in (*mine, *before) if key not in found]
    reference = reference_of(lake, project, verdicts) if missing else None
    if reference:
        found |= pictures(lake, lake.samples_of(reference.content_id), missing)
    return {key: preview(data) for key, data in found.items()}


def _quarantined(lake: Lake, project: Project, batch: Batch, keys: Sequence[str]) -> dict[str, bytes]:
    """Pictures of those keys that are paths of quarantined inputs and can still be read."""
    if not keys or not batch.counts["quarantined"]:
        return {}
    there = set(lake.quarantine(project.dataset, batch.batch)["path"].to_pylist())
    return from_source(batch, [key for key in keys if key in there])


def _facts(verdicts: Sequence[Verdict], rows: pa.Table, set_aside: Sequence[tuple[Batch, pa.Table]]) -> Facts:
    """Of every key among findings, pairs and examples, as far as it is a sample's id or a quarantined input's path."""
    keys = {key for v in verdicts for key in v.findings[:MOST]} | {k for side in _wanted(verdicts) for k in side}
    if not keys:
        return Facts()
    asked = pa.array(sorted(keys), pa.string())
    mine = rows.filter(pc.is_in(rows["id"], asked)).select(list(KNOWN)).to_pydict()
    notes: list[str | None] = [None] * len(mine["id"])
    for _, quarantine in set_aside:
        bad = quarantine.filter(pc.is_in(quarantine["path"], asked)).to_pydict()
        mine["id"] += bad["path"]
        for name in ("label", "split", "path"):
            mine[name] += bad[name]
        notes += [": ".join(filter(None, (r.replace("_", " "), d)))
                  for r, d in zip(bad["reason"], bad["detail"], strict=True)]  # fmt: skip
    return Facts(mine["id"], mine["label"], mine["split"], mine["path"], notes)


def _holding(lake: Lake, project: Project, batch: Batch) -> Version | None:
    """The newest version that holds a batch."""
    held = (v for v in reversed(lake.versions(project.dataset)) if batch.batch in lake.manifest(v.content_id).batch_ids)
    return next(held, None)
