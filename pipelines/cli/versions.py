"""Commands about versions: commit, log, show, diff, query."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sevenfold.pipelines.cli.answers import write_rows
from sevenfold.pipelines.cli.console import date, example, print_json, print_table, progress, say
from sevenfold.pipelines.cli.data import Json, counted
from sevenfold.pipelines.cli.session import Session, session
from sevenfold.storage.errors import SevenfoldError

if TYPE_CHECKING:
    from sevenfold.storage.records import Version

Ref = Annotated[str, typer.Argument(help="A version (v3), branch, tag, date (2026-05-01) or a content id's start.")]


def commit(
    context: typer.Context,
    message: Annotated[str, typer.Option("--message", "-m", help="What this version brings.")],
    branch: Annotated[str, typer.Option(help="The branch to move.")] = "main",
    start: Annotated[str | None, typer.Option("--from", metavar="REF", help="Where a new branch begins.")] = None,
    json: Json = False,
) -> None:
    """Make a branch's next version: shards of every admitted batch that it lacks, and the reviews that wait for it."""
    from sevenfold.assets.committing import commit as make

    at = session(context)
    with progress("committing") as report:
        version, made = make(
            at.lake, at.project, message=message, branch=branch, start=start,
            provenance={"by": "sevenfold commit"}, progress=report,
        )  # fmt: skip
    found = _facts(at, version)
    if json:
        print_json({**found, "new": made})
        return
    if not made:
        say(f"nothing to commit: {branch} is at {version.name} already")
        _waiting(at)
        return
    say(f"{version.name} on {branch}: {version.content_id[:12]}", "bold")
    sizes = f"{found['samples']:,} samples, {found['shards']} shards, {found['bytes']:,} bytes"
    say(f"  {sizes}, {_splits(found['splits'])}")
    _known_before(at, version)
    train = f", sevenfold train {version.name}{at.same}" if found["splits"].get("train") else ""
    say(f"next: sevenfold check {version.name}{at.same}{train}")


def log(context: typer.Context, json: Json = False) -> None:
    """List the versions, newest first, with the branches and tags that point at them."""
    at = session(context)
    found = at.lake.versions(at.dataset)[::-1]
    if json:
        print_json([_version(at, v) for v in found])
        return
    if not found:
        say(f"{at.dataset} has no version yet: ingest, check, commit")
    rows = [
        [
            v.name, v.content_id[:12], ", ".join(f"v{p}" for p in v.parents), date(v.provenance.get("time")),
            ", ".join(_refs(at, v)), v.message + (" (redacted)" if at.lake.redacted(v.content_id) else ""),
        ]
        for v in found
    ]  # fmt: skip
    if rows:
        print_table(["version", "content", "parents", "time", "refs", "message"], rows)


def show(context: typer.Context, ref: Ref = "main", json: Json = False) -> None:
    """Show what a version is made of: classes, batches, shards, overlays and how many samples of each kind."""
    at = session(context)
    version = at.lake.version(at.dataset, ref)
    found = _facts(at, version)
    if json:
        print_json(found)
        return
    say(f"{version.name} of {at.dataset}: {version.message}", "bold")
    say(f"  content id  {version.content_id}")
    say(f"  parents     {', '.join(found['parents']) or 'none'}; refs {', '.join(found['refs']) or 'none'}")
    say(f"  made        {date(version.provenance.get('time'))}")
    for taken in found["redacted"]:
        say(f"  redacted    {date(taken['time'])}: {taken['reason']} (takedown {taken['takedown'][:12]})", "yellow")
    say(f"  samples     {found['samples']:,} of {found['stored']:,} stored: {_splits(found['splits'])}")
    say(f"  shards      {found['shards']} ({found['bytes']:,} bytes), {found['overlays']} overlays")
    print_table(
        ["batch", "samples", "shards", "digest"],
        [
            [
                f"{b['batch']} ({', '.join(b['holds'])})" if "holds" in b else b["batch"],
                b["samples"],
                b["shards"],
                b["digest"][:12],
            ]
            for b in found["batches"]
        ],
        right=["samples", "shards"],
    )
    if found["variants"]:
        from sevenfold.pipelines.cli.variants import say_variants

        say_variants(found["variants"])
    splits = list(found["splits"])
    rows = [[name, *(counts.get(s, 0) for s in splits)] for name, counts in found["classes"].items()]
    print_table(["class", *splits], rows, right=splits)


def diff(
    context: typer.Context,
    before: Annotated[str, typer.Argument(metavar="A", help="The version compared with.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The version looked at.")],
    rows: Annotated[Path | None, typer.Option(help="Write every changed sample to this Parquet file.")] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Print the query of the changed samples instead.")] = False,
    json: Json = False,
) -> None:
    """Count what changed from one version to another: added, removed, relabelled, moved, reweighted.

    The samples themselves: --rows, or the query that --sql prints, for `sevenfold query`.
    """
    at = session(context)
    names = [at.lake.version(at.dataset, ref).name for ref in (before, after)]
    if sql:
        from sevenfold.storage.diff import diff_sql

        print(diff_sql(at.dataset, *names))
        return
    found = at.lake.diff(at.dataset, before, after)
    if rows is not None:
        write_rows(found["rows"], rows)
    if json:
        print_json({"before": names[0], "after": names[1], **found["counts"]})
        return
    say(f"{names[0]} -> {names[1]}", "bold")
    print_table(["change", "samples"], list(found["counts"].items()), right=["samples"])
    if rows is not None:
        say(f"wrote {found['rows'].num_rows:,} rows to {rows}")


def query(
    context: typer.Context,
    sql: Annotated[str | None, typer.Argument(help="One SELECT over the lake's views.")] = None,
    as_of: Annotated[
        str, typer.Option("--as-of", metavar="REF", help="The version that `samples` is: v3, a branch, tag or date.")
    ] = "main",
    named: Annotated[str | None, typer.Option("--example", metavar="NAME", help="Ask a named question.")] = None,
    examples: Annotated[bool, typer.Option("--examples", help="List the named questions.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json: Json = False,
    parquet: Annotated[Path | None, typer.Option(help="Write the answer to this file.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows of the table to print; 0: all.")] = 100,
) -> None:
    """Ask the lake in SQL (DuckDB, read-only). `samples` is main's newest version, or the one of --as-of.

    Views: samples, samples_all, scored, this_version, versions, shards, batches, landed, aliases, metadata,
    annotations, quarantine, signals, predictions, verdicts, findings, queues, reviews, overlays, tombstones, runs,
    steps, models.
    """
    from sevenfold.storage.questions import QUESTIONS, question

    if examples:
        if json:
            print_json([{"name": q.name, "question": q.question, "sql": q.sql.strip()} for q in QUESTIONS])
            return
        print_table(["name", "question"], [[q.name, q.question] for q in QUESTIONS])
        return
    if (sql is None) == (named is None):
        raise SevenfoldError(
            "there is no query" if sql is None else "there is a query and --example",
            expected="one of the two: a SELECT, or --example NAME",
            do="see `sevenfold query --examples`",
        )
    from sevenfold.pipelines.cli import answers
    from sevenfold.storage.query import stream

    at = session(context)
    with stream(at.lake.store, sql or question(named or "").sql, at.dataset, as_of) as answer:
        if parquet is not None:
            rows = answers.write_parquet(answer, parquet, at.lake.store.folder)
            say(f"wrote {rows:,} rows to {parquet}")
        elif json:
            answers.print_json_rows(answer)
        elif csv:
            answers.print_csv(answer)
        else:
            answers.show(answer, limit)


def _refs(at: Session, version: Version) -> list[str]:
    kinds = (at.lake.refs(at.dataset, kind) for kind in ("branches", "tags"))
    return [name for refs in kinds for name, number in refs.items() if number == version.number]


def _version(at: Session, version: Version) -> dict[str, Any]:
    return {
        "version": version.name,
        "content_id": version.content_id,
        "parents": [f"v{p}" for p in version.parents],
        "message": version.message,
        "refs": _refs(at, version),
        "redacted": [
            {"takedown": t.digest, "time": t.time, "reason": t.reason} for t in at.lake.redacted(version.content_id)
        ],
        "provenance": version.provenance,
    }


def _facts(at: Session, version: Version) -> dict[str, Any]:
    from sevenfold.storage.lineage import facts_of
    from sevenfold.storage.redactions import current, opened

    manifest = opened(at.lake.manifest(version.content_id), current(at.lake.store))
    samples = at.lake.samples_of(version.content_id)
    counted = samples.group_by(["label", "split"], use_threads=False).aggregate([([], "count_all")]).to_pylist()
    splits: dict[str, int] = {}
    classes: dict[str, dict[str, int]] = {name: {} for name in manifest.classes}
    for row in sorted(counted, key=lambda r: (_ORDER.get(r["split"], 9), r["label"] or "")):
        n = row["count_all"]
        splits[row["split"]] = splits.get(row["split"], 0) + n
        classes.setdefault(row["label"] or "(unlabelled)", {})[row["split"]] = n
    return {
        **_version(at, version),
        "dataset": version.dataset,
        "samples": samples.num_rows,
        "stored": manifest.stored,
        "splits": splits,
        "classes": classes,
        "batches": [
            {
                "batch": b["batch"],
                "digest": b["digest"],
                "samples": b["samples"],
                "shards": len(b["shards"]),
                **({"holds": list(b["holds"])} if "holds" in b else {}),
            }
            for b in manifest.batches
        ],
        "shards": len(manifest.shards),
        "bytes": sum(s["bytes"] for s in manifest.shards),
        "overlays": len(manifest.overlays),
        "variants": [facts_of(v) for v in at.lake.variants(version.content_id)],
    }


_ORDER = {"train": 0, "val": 1, "test": 2, "pool": 3}


def _splits(splits: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in splits.items())


def _known_before(at: Session, version: Version) -> None:
    """What the version's new batches brought that the branch had: it changes nothing, and a new label waits."""
    parents = (at.lake.manifest(at.lake.version(at.dataset, f"v{p}").content_id) for p in version.parents)
    old = {batch for manifest in parents for batch in manifest.batch_ids}
    for entry in at.lake.manifest(version.content_id).batches:
        name = entry["batch"]
        if "holds" in entry or name in old:  # what compaction put together is no landing
            continue
        batch = at.lake.batch(at.dataset, name)
        relabels = batch.counts["relabels"]
        if relabels or batch.counts["aliases"] or not batch.counts["samples"]:
            say(f"  {name}: {counted(batch.counts)}")
        if relabels:
            say(f"  {relabels:,} of them are known samples with another label; theirs stay until you decide:", "yellow")
            say(f"      sevenfold review relabels-{name} --export todo.csv", "yellow")


def _waiting(at: Session) -> None:
    waiting = [b.batch for b in at.lake.batches(at.dataset) if b.status == "landed"]
    if waiting:
        say(f"not checked yet: {', '.join(waiting)} (sevenfold check)")


COMMANDS = (
    (
        "commit",
        commit,
        example('sevenfold commit -m "june photos"', "sevenfold commit -m trial --branch trial --from v3"),
    ),
    ("log", log, example("sevenfold log")),
    ("show", show, example("sevenfold show v3 --json")),
    ("diff", diff, example("sevenfold diff v2 v3 --rows changed.parquet", "sevenfold diff v2 v3 --sql")),
    (
        "query",
        query,
        example(
            'sevenfold query "select label, count(*) from samples group by 1 order by 2 desc"',
            "sevenfold query --example class-balance",
            'sevenfold query "select * from scored where label <> predicted" --as-of 2026-05-01 --parquet it.parquet',
        ),
    ),
)
