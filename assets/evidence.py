"""What a scorecard shows beside its verdicts: pictures of findings, pairs and examples; labels, splits and paths."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

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
CHUNK = 32
"""Files read before they shrink to previews: photographs are large."""


def of_version(
    lake: Lake, project: Project, version: Version, verdicts: Sequence[Verdict]
) -> tuple[dict[str, bytes], Facts]:
    """Pictures (key -> image bytes) and facts of what the verdicts about a version name."""
    samples = lake.samples_of(version.content_id)
    batches = [lake.batch(project.dataset, name) for name in lake.manifest(version.content_id).batch_ids]
    mine, before = _wanted(verdicts)
    found = _of_samples(lake, samples, mine)
    for batch in batches:
        found |= _quarantined(lake, project, batch, [key for key in mine if key not in found])
    return _complete(lake, project, verdicts, samples, batches, found, [*mine, *before])


def of_batch(lake: Lake, project: Project, batch: Batch, verdicts: Sequence[Verdict]) -> tuple[dict[str, bytes], Facts]:
    """The same of a batch: its pictures come from its source, or from shards once it is committed."""
    rows = lake.batch_rows(project.dataset, batch.batch)
    mine, before = _wanted(verdicts)
    holding = _holding(lake, project, batch) if batch.status == "committed" else None
    found = _of_samples(lake, lake.samples_of(holding.content_id), mine) if holding else {}
    todo = rows.filter(pc.is_in(rows["id"], pa.array([key for key in mine if key not in found], pa.string())))
    found |= _of_source(batch, todo["path"].to_pylist(), todo["id"].to_pylist())
    found |= _quarantined(lake, project, batch, [key for key in mine if key not in found])
    return _complete(lake, project, verdicts, rows, [batch], found, [*mine, *before])


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


def _complete(
    lake: Lake, project: Project, verdicts: Sequence[Verdict], rows: pa.Table, batches: Sequence[Batch],
    found: dict[str, bytes], shown: Sequence[str],
) -> tuple[dict[str, bytes], Facts]:  # fmt: skip
    """With what only the reference has (examples of it, the other side of a pair), and the facts of all."""
    tables = [rows.select(list(KNOWN))]
    missing = [key for key in shown if key not in found]
    reference = reference_of(lake, project, verdicts) if missing else None
    if reference:
        samples = lake.samples_of(reference.content_id)
        older = _of_samples(lake, samples, missing)
        found |= older
        tables.append(samples.filter(pc.is_in(samples["id"], pa.array(list(older), pa.string()))).select(list(KNOWN)))
    aside = [lake.quarantine(project.dataset, batch.batch) for batch in batches]
    keys = {*shown, *(key for v in verdicts for key in v.findings[:MOST])}
    return found, _facts(keys, pa.concat_tables(tables), aside)


def _of_samples(lake: Lake, samples: pa.Table, keys: Sequence[str]) -> dict[str, bytes]:
    """Previews of those of the keys that are among the samples, a few files in memory at a time."""
    found: dict[str, bytes] = {}
    for at in range(0, len(keys), CHUNK):
        found |= {key: preview(data) for key, data in pictures(lake, samples, keys[at : at + CHUNK]).items()}
    return found


def _of_source(batch: Batch, paths: Sequence[str], ids: Sequence[str] | None = None) -> dict[str, bytes]:
    """Previews of inputs by path; with `ids`, by id, and only of files that have not changed since they landed."""
    found: dict[str, bytes] = {}
    for at in range(0, len(paths), CHUNK):
        part = paths[at : at + CHUNK]
        read = from_source(batch, part)
        for path, key in zip(part, part if ids is None else ids[at : at + CHUNK], strict=True):
            if path in read and (ids is None or digest_bytes(read[path]) == key):
                found[key] = preview(read[path])
    return found


def _quarantined(lake: Lake, project: Project, batch: Batch, keys: Sequence[str]) -> dict[str, bytes]:
    """Pictures of those keys that are paths of quarantined inputs and can still be read."""
    if not keys or not batch.counts["quarantined"]:
        return {}
    there = set(lake.quarantine(project.dataset, batch.batch)["path"].to_pylist())
    return _of_source(batch, [key for key in keys if key in there])


def _facts(keys: Collection[str], rows: pa.Table, aside: Sequence[pa.Table]) -> Facts:
    """Of every key that is a sample's id, or the path of an input in quarantine (which tells why it is there)."""
    if not keys:
        return Facts()
    asked = pa.array(sorted(keys), pa.string())
    mine = rows.filter(pc.is_in(rows["id"], asked)).to_pydict()
    notes: list[str | None] = [None] * len(mine["id"])
    for quarantine in aside:
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
