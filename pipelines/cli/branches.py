"""Commands about the names and the shape of versions: tag, branch, merge, rollback, compact, urls, lineage."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sevenfold.pipelines.cli.answers import write_rows
from sevenfold.pipelines.cli.console import date, example, print_json, print_table, progress, say
from sevenfold.pipelines.cli.data import Json
from sevenfold.pipelines.cli.session import Session, session
from sevenfold.pipelines.cli.variants import say_variants
from sevenfold.pipelines.cli.versions import Ref

if TYPE_CHECKING:
    from sevenfold.storage.lineage import Lineage
    from sevenfold.storage.merge import MergeConflict


def tag(
    context: typer.Context, name: Annotated[str, typer.Argument(help="The tag's name.")], ref: Ref = "main",
) -> None:  # fmt: skip
    """Give a version a name for good: a tag does not move."""
    at = session(context)
    say(f"{name} -> {at.lake.tag(at.dataset, name, ref).name}")


def branch(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The new branch; without it the branches are listed.")] = None,
    ref: Ref = "main",
    json: Json = False,
) -> None:
    """Start a branch at a version, or list the branches."""
    at = session(context)
    if name is not None:
        number = at.lake.branch(at.dataset, name, ref).number
        found = {name: number}
    else:
        found = at.lake.refs(at.dataset, "branches")
    if json:
        print_json({k: f"v{v}" for k, v in found.items()})
        return
    for k, v in found.items():
        say(f"{k} -> v{v}")


def merge(
    context: typer.Context,
    ref: Annotated[str, typer.Argument(help="What to bring in: a branch, version, tag or date.")],
    into: Annotated[str, typer.Option(help="The branch that takes it in.")] = "main",
    message: Annotated[str | None, typer.Option("--message", "-m", help="What this version brings.")] = None,
    rows: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the samples of a conflict to this Parquet file.")
    ] = None,
    json: Json = False,
) -> None:
    """Bring the batches and edits of a version into a branch: additions, and edits that contradict none of the branch.

    Anything else is refused with the list of conflicting samples (exit code 3), and nothing is changed.
    """
    from sevenfold.storage.merge import MergeConflict

    at = session(context)
    before = at.lake.version(at.dataset, into)
    try:
        version, made = at.lake.merge(at.dataset, ref, into, message=message, provenance={"by": "sevenfold merge"})
    except MergeConflict as conflict:
        _show_conflicts(conflict, rows, json)
        raise
    if json:
        facts = {
            "version": version.name,
            "content_id": version.content_id,
            "parents": [f"v{p}" for p in version.parents],
        }
        print_json({**facts, "branch": into, "before": before.name, "new": made})
    elif version == before:
        say(f"nothing to merge: {into} is at {version.name}, which has {ref} already")
    else:
        both = version.parents[0] == before.number and len(version.parents) > 1
        how = f"v{version.parents[0]} and v{version.parents[1]}" if both else "moved forward, nothing to combine"
        say(f"{version.name} on {into}: {how} ({_undo(before.name, into)})", "bold")


def _show_conflicts(conflict: MergeConflict, rows: Path | None, json: bool) -> None:
    """The conflicting samples as a file and on stdout; the error itself goes to stderr."""
    table = conflict.conflicts
    if rows is not None:
        write_rows(table, rows)
    if json:
        print_json({"error": conflict.found, "conflicts": table.to_pylist()})
    elif rows is not None:
        say(f"wrote {table.num_rows:,} conflicts to {rows}")


def rollback(
    context: typer.Context,
    ref: Annotated[str, typer.Argument(help="The version to go back to.")],
    branch: Annotated[str, typer.Option(help="The branch to move.")] = "main",
) -> None:
    """Point a branch back at an older version. Nothing is deleted: the way forward stays in the log."""
    at = session(context)
    old = at.lake.version(at.dataset, branch)
    new = at.lake.rollback(at.dataset, ref, branch)
    say(f"{branch}: {old.name} -> {new.name} ({_undo(old.name, branch)})")


def _undo(before: str, branch: str) -> str:
    return f"undo: sevenfold rollback {before}" + ("" if branch == "main" else f" --branch {branch}")


def compact(
    context: typer.Context,
    branch: Annotated[str, typer.Option(help="The branch whose newest version is compacted.")] = "main",
    message: Annotated[str, typer.Option("--message", "-m", help="What to say of the new version.")] = "compacted",
    json: Json = False,
) -> None:
    """Rewrite a branch's small shards as full ones with its overlays baked in, as a new version of the same samples.

    Images that are excluded lose their bytes in the new version. Older versions keep their shards.
    """
    at = session(context)
    before = at.lake.version(at.dataset, branch)
    with progress("compacting") as report:
        version, made = at.lake.compact(
            at.dataset, branch, message=message, provenance={"by": "sevenfold compact"}, progress=report
        )
    sizes = [_sizes(at, v.content_id) for v in (before, version)]
    if json:
        facts = {"version": version.name, "content_id": version.content_id, "branch": branch, "new": made}
        print_json({**facts, "before": {"version": before.name, **sizes[0]}, "after": sizes[1]})
        return
    if not made:
        say(f"nothing to compact: {version.name} on {branch} is as compact as it can be")
        return
    say(f"{version.name} on {branch}: {version.content_id[:12]}", "bold")
    for name in ("shards", "bytes", "overlays"):
        say(f"  {name:<9} {sizes[0][name]:,} -> {sizes[1][name]:,}")
    names = [v.name for v in at.lake.variants(before.content_id)]
    if names:
        listed = ", ".join(names)
        say(f"the variants {listed} are of {before.name}; {version.name} wants its own: sevenfold materialize")
    say(f"next: sevenfold diff {before.name} {version.name}, sevenfold urls {version.name}")


def _sizes(at: Session, content_id: str) -> dict[str, int]:
    manifest = at.lake.manifest(content_id)
    return {
        "shards": len(manifest.shards),
        "bytes": sum(s["bytes"] for s in manifest.shards),
        "overlays": len(manifest.overlays),
    }


def urls(
    context: typer.Context,
    ref: Ref = "main",
    split: Annotated[str, typer.Option(help="train, val, test or pool.")] = "train",
    variant: Annotated[
        str | None, typer.Option(metavar="NAME", help="The shards of this variant instead, edits baked in.")
    ] = None,
    json: Json = False,
) -> None:
    """Print where a version's shards lie, one a line, for stock WebDataset readers.

    A version with overlays is refused, since those readers see only what is in the shards: compact first.
    The numbers in `.cls` are places in the list `classes` that --json prints. WebDataset knows no s3:// of its own:
    give it "pipe:aws s3 cp URL -" for each.
    """
    at = session(context)
    found = at.lake.urls(at.dataset, ref, split, variant=variant)
    if json:
        version = at.lake.version(at.dataset, ref)
        classes = list(at.lake.manifest(version.content_id).classes)
        told = {"variant": variant} if variant else {}
        print_json({"version": version.name, "split": split, **told, "classes": classes, "urls": found})
        return
    if not found:
        print(f"{ref} has no samples in {split}", file=sys.stderr)
    for url in found:
        print(url)


def lineage(context: typer.Context, ref: Ref = "main", json: Json = False) -> None:
    """Show what a version came from, batches, reviews and versions, and which runs and models came of it."""
    at = session(context)
    found = at.lake.lineage(at.dataset, ref)
    if json:
        import dataclasses

        print_json(dataclasses.asdict(found))
        return
    say(f"{found.version} of {found.dataset}: {found.content_id}", "bold")
    say(f"  refs {', '.join(found.refs) or 'none'}")
    _show_lineage(found)


def _show_lineage(found: Lineage) -> None:
    rows: list[list[Any]] = []
    for v in found.ancestors:
        told = v["provenance"]
        made = [told.get("by"), told.get("run"), told.get("code"), (told.get("config") or "")[:12]]
        rows.append([v["version"], ", ".join(v["parents"]), date(told.get("time")), *made, v["message"]])
    print_table(["version", "parents", "time", "by", "run", "code", "config", "message"], rows)
    print_table(
        ["batch", "in", "landed", "samples", "kind", "source"],
        [
            [b["batch"], b["version"], date(b.get("landed")), b.get("counts", {}).get("samples"), b.get("kind"),
             b.get("source")]
            for b in found.batches
        ],
        right=["samples"],
    )  # fmt: skip
    if found.edits:
        print_table(
            ["edits", "in", "rows", "reviewers", "reviews", "queues"],
            [
                [
                    e["overlay"][:12],
                    e["version"],
                    e["rows"],
                    *(", ".join(e[k]) for k in ("reviewers", "reviews", "queues")),
                ]
                for e in found.edits
            ],
            right=["rows"],
        )
    if found.variants:
        say_variants(found.variants)
    if found.runs:
        print_table(["run", "seed"], [[r["run_id"], r.get("seed")] for r in found.runs])
    if found.models:
        print_table(
            ["model", "run", "registered", "accuracy on test"],
            [
                [
                    f"{m['name']}/{m['number']}",
                    m["run_id"],
                    date(m["created"]),
                    m["metrics"].get("test", {}).get("accuracy"),
                ]
                for m in found.models
            ],
            right=["accuracy on test"],
        )
    else:
        say("no model has seen it")


COMMANDS = (
    ("tag", tag, example("sevenfold tag release-1 v3")),
    ("branch", branch, example("sevenfold branch trial v3")),
    ("merge", merge, example("sevenfold merge trial", "sevenfold merge trial --into main --rows conflicts.parquet")),
    ("rollback", rollback, example("sevenfold rollback v2")),
    ("compact", compact, example("sevenfold compact")),
    ("urls", urls, example("sevenfold urls v4 --split train", "sevenfold urls v4 --variant 160-jpeg")),
    ("lineage", lineage, example("sevenfold lineage v3 --json")),
)
