"""Commands that bring data in: init, ingest, batches, quarantine, withdraw."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sevenfold.pipelines.cli.console import date, example, print_json, print_table, progress, say
from sevenfold.pipelines.cli.session import session
from sevenfold.storage.errors import SevenfoldError

if TYPE_CHECKING:
    from sevenfold.storage.records import Batch

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program.")]


def init(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="The project's folder, made if absent.")] = Path(),
    classes: Annotated[
        str | None, typer.Option(help="Allowed labels, by commas; others go to quarantine. Without it any are taken.")
    ] = None,
    json: Json = False,
) -> None:
    """Start a project: sevenfold.toml, policy.yaml, suite.json and an empty lake. Existing files are left alone."""
    from sevenfold.pipelines.cli.starter import write_project
    from sevenfold.storage import Lake
    from sevenfold.storage import project as projects

    at = session(context)
    names = [c.strip() for c in (classes or "").split(",") if c.strip()]
    if at.lake_option and "://" in at.lake_option:
        Lake.create(at.lake_option)  # what cannot be reached is told before anything is written here
    made = write_project(folder, dataset=at.dataset_option, lake=at.lake_option, classes=names)
    project = projects.load(folder / projects.FILE)
    lake = project.create_lake()
    if json:
        print_json({"folder": str(project.folder), "lake": lake.store.url, "dataset": project.dataset, "files": made})
        return
    for name, new in made.items():
        say(f"{'wrote' if new else 'kept '} {folder / name}")
    say(f"lake  {lake.store.url}, dataset {project.dataset}")
    here = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    say(f"next: {here}sevenfold ingest <a folder of class folders, a zip, a table, tars or a bucket>")


def ingest(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            help="A folder (or s3://bucket/prefix) of class folders, a zip of them, a CSV, JSONL or Parquet table, "
            "WebDataset tars, or idx."
        ),
    ] = None,
    batch: Annotated[str | None, typer.Option(help="The batch's id; else made from the name and the content.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="folder, bucket, zip, csv, jsonl, parquet, webdataset or idx; else guessed.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="A table (csv, jsonl, parquet) of labels, by path or file name.")
    ] = None,
    label_column: Annotated[str | None, typer.Option(help="The column of --labels; else label, class ...")] = None,
    annotations: Annotated[
        Path | None, typer.Option(help="A table of what several people said: path, annotator, label.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that decode; else as in sevenfold.toml.")
    ] = None,
    retry_quarantine: Annotated[
        str | None, typer.Option(metavar="BATCH", help="Read this batch's quarantined inputs again, after a fix.")
    ] = None,
    json: Json = False,
) -> None:
    """Land a source as one batch: decode and measure every image once, set the bad ones aside, copy nothing.

    Labels are folder names, or what a table or the tars say; top folders called train, val, test or pool are splits.
    What was guessed is printed. docs/sources.md lists every kind, and what becomes of hostile or damaged input.
    """
    if (source is None) == (retry_quarantine is None):
        raise SevenfoldError(
            "there is no source" if source is None else "there is a source and --retry-quarantine",
            expected="one of the two: a source to land, or --retry-quarantine BATCH",
            do="see `sevenfold ingest --help`",
        )
    if labels is None and label_column is not None:
        raise SevenfoldError("there is a --label-column and no --labels", do="name the table too")
    if retry_quarantine is not None and (labels or annotations):
        raise SevenfoldError(
            "a retry reads the tables that the batch was landed with", do="leave --labels and --annotations out"
        )
    from sevenfold.storage.allocator import keep_memory
    from sevenfold.storage.sources import Table

    at = session(context)
    project = at.project
    lake = at.lake
    count = workers or project.workers
    keep_memory()
    with progress("listing the source") as report:
        if retry_quarantine is not None:
            landed, new = lake.retry_quarantine(
                at.dataset, retry_quarantine, accepts=project.decode, workers=count, progress=report
            )
        else:
            assert source is not None
            landed, new = lake.ingest(
                source, at.dataset, batch, kind=kind, classes=project.classes or None, workers=count, progress=report,
                accepts=project.decode, labels=Table(labels.absolute(), label_column) if labels else None,
                annotations=Table(annotations.absolute()) if annotations else None,
            )  # fmt: skip
    examples = _examples(lake.quarantine(at.dataset, landed.batch))
    seconds = landed.seconds.get("ingest", 0.0)
    rate = landed.counts["inputs"] / seconds if seconds else None
    if json:
        print_json({**_record(landed), "new": new, "images_per_second": rate, "examples": examples})
        return
    for note in landed.notes:
        say(f"guessed: {note}")
    say(f"batch {landed.batch}{'' if new else ' (landed before, unchanged: nothing was read again)'}", "bold")
    say(f"  {counted(landed.counts)}")
    if not landed.counts["inputs"] - landed.counts["quarantined"]:
        say("  nothing of it can be used", "red")
    if new and rate is not None:
        say(f"  {seconds:.1f} s, {rate:,.0f} images/s, {count} {'process' if count == 1 else 'processes'}")
    for reason, number in sorted(landed.reasons.items(), key=lambda pair: (-pair[1], pair[0])):
        say(f"  {number:,} {reason}", "yellow")
        for line in examples[reason]:
            say(f"      {line['path']}: {line['detail']}")
    if landed.status == "landed":
        say(f"next: sevenfold check {landed.batch}{at.same}")


def batches(context: typer.Context, json: Json = False) -> None:
    """List the landed batches with their status and counts."""
    at = session(context)
    found = at.lake.batches(at.dataset)
    if json:
        print_json([_record(b) for b in found])
        return
    names = ("inputs", "samples", "aliases", "relabels", "quarantined")
    rows = [[b.batch, b.status, *(b.counts[n] for n in names), date(b.times.get("landed")), b.source] for b in found]
    print_table(["batch", "status", *names, "landed", "source"], rows, right=names)


def quarantine(
    context: typer.Context,
    batch: Annotated[str, typer.Argument(help="The batch's id.")],
    limit: Annotated[int, typer.Option(min=0, help="Rows to print; 0: all.")] = 50,
    json: Json = False,
) -> None:
    """List the inputs of a batch that were set aside, with the reason."""
    at = session(context)
    landed = at.lake.batch(at.dataset, batch)
    table = at.lake.quarantine(at.dataset, batch)
    shown = table.slice(0, limit or table.num_rows).to_pylist()
    if json:
        print_json(table.to_pylist())
        return
    if not table.num_rows:
        say(f"nothing of {batch} was set aside")
        return
    print_table(
        ["path", "reason", "detail", "label"], [[r["path"], r["reason"], r["detail"], r["label"]] for r in shown]
    )
    if len(shown) < table.num_rows:
        say(f"{table.num_rows - len(shown):,} more: --limit 0")
    if shown:
        whole = " (the batch is rejected: all of its source lands again)" if landed.status == "rejected" else ""
        say(f"after a fix: sevenfold ingest --retry-quarantine {batch}{whole}")


def withdraw(
    context: typer.Context,
    batch: Annotated[str, typer.Argument(help="The batch's id.")],
    reason: Annotated[str, typer.Option(help="Why; kept among the batch's notes.")],
    json: Json = False,
) -> None:
    """Leave a landed or admitted batch out of the next commits, for instance when its source is gone.

    Undo it by checking the batch again. A committed batch is taken out by excluding its samples, or by a rollback.
    """
    at = session(context)
    record = at.lake.withdraw(at.dataset, batch, reason)
    if json:
        print_json(_record(record))
        return
    say(f"{record.batch}: {record.status}; no commit takes it up (undo: sevenfold check {record.batch})")


_LANDED = ("samples", "aliases", "quarantined")


def _record(batch: Batch) -> dict[str, Any]:
    return {
        "batch": batch.batch,
        "dataset": batch.dataset,
        "status": batch.status,
        "source": batch.source,
        "kind": batch.kind,
        "digest": batch.digest,
        "counts": batch.counts,
        "reasons": batch.reasons,
        "notes": list(batch.notes),
        "times": batch.times,
        "seconds": batch.seconds,
    }


def counted(counts: Mapping[str, int]) -> str:
    """`201 inputs = 1 samples + 0 aliases + 200 relabels + 0 quarantined`; relabels come with a commit."""
    names = ("samples", "aliases", "relabels", "quarantined") if counts["relabels"] else _LANDED
    parts = " + ".join(f"{counts[name]:,} {name}" for name in names)
    return f"{counts['inputs']:,} inputs = {parts}"


def _examples(table: Any, each: int = 3) -> dict[str, list[dict[str, str]]]:
    """The first few inputs of each quarantine reason."""
    found: dict[str, list[dict[str, str]]] = {}
    for path, reason, detail in zip(*(table[c].to_pylist() for c in ("path", "reason", "detail")), strict=True):
        lines = found.setdefault(reason, [])
        if len(lines) < each:
            lines.append({"path": path, "detail": detail})
    return found


COMMANDS = (
    ("init", init, example("sevenfold init pets --classes cat,dog")),
    (
        "ingest",
        ingest,
        example(
            "sevenfold ingest photos.zip --batch june",
            "sevenfold ingest s3://bucket/photos",
            "sevenfold ingest images --labels labels.csv --label-column breed",
            "sevenfold ingest --retry-quarantine june",
        ),
    ),
    ("batches", batches, example("sevenfold batches --json")),
    ("quarantine", quarantine, example("sevenfold quarantine june --limit 10")),
    ("withdraw", withdraw, example('sevenfold withdraw june --reason "the disk is gone"')),
)
