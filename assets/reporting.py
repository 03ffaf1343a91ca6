"""The report of a version: every section filled from what the lake holds, written as one self-contained HTML page."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sevenfold.assets import comparing, evidence, picturing, trained
from sevenfold.assets.mining import SUSPECTED, queue_names
from sevenfold.assets.tracing import ancestors, batch_lineage, lineage
from sevenfold.quality.report import Command, Report, batch_counts
from sevenfold.quality.report.evidence import pictured
from sevenfold.quality.scorecard import Scorecard
from sevenfold.quality.verdict import Verdict
from sevenfold.storage import files
from sevenfold.storage.lake import Lake
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.project import Project
from sevenfold.storage.records import Batch, Version

MOST_VERSIONS = 3
"""How many versions share a chart: this one and those before it."""


def build_report(
    lake: Lake,
    project: Project,
    ref: str = "main",
    *,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
    **extras: Any,
) -> Report:
    """Fill the report of a version; `extras` are fields of Report that win over what the lake says (decision, ...)."""
    report = progress or silent
    version = lake.version(project.dataset, ref)
    line = ancestors(lake, version)
    shown = line[-MOST_VERSIONS:]
    report(1, 4, "reading verdicts and runs")
    card = Scorecard.of(lake.verdicts(project.dataset, version.name), subject=version.name)
    arms, note = trained.arms(lake, project, line)
    page = Report(
        dataset=project.dataset,
        version=version.name,
        content_id=version.content_id,
        created=clock(),
        verdicts=card.verdicts,
        batches=tuple(batch_counts(b) for b in lake.batches(project.dataset)),
        balance=tuple(trained.balance(lake, v) for v in shown),
        curves=tuple(c for v in shown for c in trained.curves(lake, v)),
        arms=arms,
        arms_note=note,
        steps=tuple(s for v in shown for s in trained.steps(lake, v))[-4:],
        gate=trained.gate(lake, project),
        lineage=lineage(lake, project, version),
        commands=_commands(lake, project, line),
        findings_at=str(Path("checks") / project.dataset / version.name / "*.parquet"),
    )
    report(2, 4, "collecting pictures")
    drifted, reference = picturing.drifted(lake, project, version)
    page = replace(
        page,
        **_evidence(lake, project, version, page.verdicts),
        quarantine=picturing.quarantine(lake, project),
        suspected=picturing.queue(lake, project, line, "suspected"),
        hard=picturing.queue(lake, project, line, "hard"),
        control=picturing.queue(lake, project, line, "random"),
        drifted=drifted,
        reference=reference,
    )
    page = replace(page, summary=_summary(lake, page, version))
    report(4, 4, "drawing")
    return replace(page, **extras)


def write_report(
    lake: Lake,
    project: Project,
    ref: str = "main",
    *,
    out: Path | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
    **extras: Any,
) -> Path:
    """Write the page and return its path: `out`, else reports/<dataset>-<version>.html beside sevenfold.toml.

    A batch has no loop to tell of: its scorecard is written instead.
    """
    from sevenfold.quality.report import render

    if ref in {b.batch for b in lake.batches(project.dataset)}:
        return write_scorecard(lake, project, ref, out=out, clock=clock)
    page = build_report(lake, project, ref, progress=progress, clock=clock, **extras)
    path = out or project.folder / "reports" / f"{project.dataset}-{page.version}.html"
    files.replace(path.absolute(), render(page).encode())
    return path


def _summary(lake: Lake, page: Report, version: Version) -> tuple[str, ...]:
    """What there is to say, a sentence for each section that has something."""
    samples = lake.samples_of(version.content_id)
    splits: dict[str, int] = {r["values"]: r["counts"] for r in samples["split"].value_counts().to_pylist()}
    told = ", ".join(f"{splits[s]:,} {s}" for s in ("train", "val", "test", "pool") if s in splits)
    said = [f"{version.name} of {page.dataset} holds {samples.num_rows:,} samples: {told}."]
    inputs, bad = (sum(getattr(b, k) for b in page.batches) for k in ("inputs", "quarantined"))
    said.append(f"{len(page.batches)} batches brought {inputs:,} inputs; {bad:,} were set aside with a reason.")
    results = [v.result for v in page.verdicts]
    if results:
        count = {r: results.count(r) for r in ("pass", "warn", "fail", "not_measurable")}
        said.append(
            f"{len(results)} checks: {count['pass']} pass, {count['warn']} warn, {count['fail']} fail, "
            f"{count['not_measurable']} could not be measured"
            + (f", {crashed} crashed." if (crashed := results.count("crashed")) else ".")
        )
    else:
        said.append(f"No check has judged it yet: sevenfold check {version.name}.")
    if page.arms_note:
        said.append(page.arms_note[0].upper() + page.arms_note[1:])
    if page.gate:
        verb = "was promoted over" if page.gate.promoted else "was refused in favour of"
        said.append(f"{page.gate.challenger} {verb} {page.gate.champion}.")
    return tuple(said)


def _commands(lake: Lake, project: Project, line: list[Version]) -> tuple[Command, ...]:
    mined = [v for v in line if f"{SUSPECTED}-{v.name}" in queue_names(lake, project, v)]
    queue = f"sevenfold review {SUSPECTED}-{mined[-1].name} --export todo.csv --images todo/" if mined else ""
    return (
        Command(f"sevenfold show {line[-1].name}", "what the version is made of"),
        *([Command(queue, "labels to look at")] if queue else []),
        Command('sevenfold query "select reason, count(*) from quarantine group by 1"', "why inputs were set aside"),
        Command("sevenfold ui", "every run and check in Dagster"),
    )


def write_scorecard(
    lake: Lake,
    project: Project,
    subject: str,
    verdicts: Sequence[Verdict] | None = None,
    *,
    out: Path | None = None,
    clock: Callable[[], float] = time.time,
) -> Path:
    """Write the scorecard of a batch or a version as one HTML page and return its path.

    Parameters
    ----------
    subject : a batch id, or what names a version (v3, main, a tag). A plain folder is a batch of a temporary lake.
    verdicts : what the page is to show; None: the newest that the lake holds about the subject.
    out : the file; else reports/<dataset>-<subject>.html beside sevenfold.toml.
    """
    from sevenfold.quality.report import render

    page = build_scorecard(lake, project, subject, verdicts, clock=clock)
    path = (out or project.folder / "reports" / f"{project.dataset}-{page.version}.html").absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    files.hand_out(path, render(page).encode())
    return path


def build_scorecard(
    lake: Lake,
    project: Project,
    subject: str,
    verdicts: Sequence[Verdict] | None = None,
    *,
    clock: Callable[[], float] = time.time,
) -> Report:
    """The page of `write_scorecard`: verdicts with their evidence, what came in, what changed, where it came from."""
    batch = next((b for b in lake.batches(project.dataset) if b.batch == subject), None)
    version = None if batch else lake.version(project.dataset, subject)
    name = batch.batch if batch else version.name if version else subject
    if verdicts is None:
        verdicts = Scorecard.of(lake.verdicts(project.dataset, name), subject=name).verdicts
    page = Report(
        dataset=project.dataset,
        version=name,
        content_id=batch.digest if batch else version.content_id if version else "",
        kind="batch" if batch else "version",
        created=clock(),
        verdicts=tuple(verdicts),
        findings_at=str(Path("checks") / project.dataset / name / "*.parquet"),
    )
    return _batch_part(lake, project, page, batch) if batch else _version_part(lake, project, page)


def _batch_part(lake: Lake, project: Project, page: Report, batch: Batch) -> Report:
    pictures, facts = evidence.of_batch(lake, project, batch, page.verdicts)
    reference = evidence.reference_of(lake, project, page.verdicts)
    aside = set(lake.quarantine(project.dataset, batch.batch)["path"].to_pylist())
    told = any(key in aside for verdict in page.verdicts for key in pictured(verdict))  # beside their verdict
    return replace(
        page,
        pictures=pictures,
        facts=facts,
        changes=comparing.of_batch(lake, project, batch, reference) if reference else None,
        batches=(batch_counts(batch),),
        quarantine=None if told else picturing.quarantine(lake, project, [batch]),
        lineage=batch_lineage(lake, project, batch),
    )


def _version_part(lake: Lake, project: Project, page: Report) -> Report:
    version = lake.version(project.dataset, page.version)
    batches = [lake.batch(project.dataset, name) for name in lake.manifest(version.content_id).batch_ids]
    return replace(
        page,
        **_evidence(lake, project, version, page.verdicts),
        batches=tuple(batch_counts(b) for b in batches),
        quarantine=picturing.quarantine(lake, project, batches),
        lineage=lineage(lake, project, version),
    )


def _evidence(lake: Lake, project: Project, version: Version, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The fields that stand beside a version's verdicts; it is compared with what they were read against."""
    pictures, facts = evidence.of_version(lake, project, version, verdicts)
    reference = evidence.reference_of(lake, project, verdicts)
    if reference is None and version.parents:
        reference = lake.version(project.dataset, f"v{version.parents[0]}")
    if reference and reference.number == version.number:
        reference = None
    changes = comparing.of_version(lake, version, reference) if reference else None
    return {"pictures": pictures, "facts": facts, "changes": changes}
