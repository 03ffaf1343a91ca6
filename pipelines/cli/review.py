"""Commands around review: mine the queues, hand them to people, take their decisions back."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sevenfold.pipelines.cli.console import example, print_json, print_table, progress, say
from sevenfold.pipelines.cli.data import Json
from sevenfold.pipelines.cli.session import Session, session
from sevenfold.storage.errors import SevenfoldError

if TYPE_CHECKING:
    import pyarrow as pa

    from sevenfold.assets.reviewing import Decision


def mine(
    context: typer.Context,
    ref: Annotated[str, typer.Argument(help="A scored version.")] = "main",
    size: Annotated[int, typer.Option(min=1, help="Rows of the hard queue and of its random control.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    run: Annotated[str | None, typer.Option(help="Whose predictions; else the newest that scored the version.")] = None,
    top: Annotated[int, typer.Option(min=0, help="Rows of each queue to print.")] = 5,
    json: Json = False,
) -> None:
    """Choose what people should look at next: suspected labels, hard samples, and as many at random for comparison."""
    from sevenfold.assets.mining import label_errors, mine

    at = session(context)
    with progress(f"mining {ref}"):
        queues = mine(at.lake, at.project, ref, run, size, seed)
        producer, estimate = label_errors(at.lake, at.project, ref, run)
    if json:
        errors = {k: getattr(estimate, k) for k in ("n", "errors", "low", "high", "measurable")}
        listed = {name: table.to_pylist() for name, table in queues.items()}
        print_json({"producer": producer, "label_errors": errors, "queues": listed})
        return
    say(f"by {producer}: {estimate}")
    path_of = _paths(at.lake.samples(at.dataset, ref))
    for name, table in queues.items():
        if not table.num_rows:
            why = "no label looks wrong" if name.startswith("suspected") else "the pool has no unlabelled sample"
            say(f"{name}: empty, {why}")
            continue
        kinds = ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in _kinds(table).items())
        rows = table.slice(0, top).to_pylist()
        many = f"{table.num_rows} {'row' if table.num_rows == 1 else 'rows'}"
        print_table(
            ["rank", "id", "path", "label", "suggestion", "score"],
            [[r["rank"], r["id"][:12], path_of.get(r["id"]), r["label"], r["suggestion"], r["score"]] for r in rows],
            title=f"{name}: {many}{f' ({kinds})' if kinds else ''}",
            right=["rank", "score"],
        )
    first = next((name for name, table in queues.items() if table.num_rows), None)
    if first:
        say(f"next: sevenfold review {first} --export {first}.csv")


def review(
    context: typer.Context,
    queue: Annotated[str | None, typer.Argument(help="A queue, such as suspected-v1.")] = None,
    export: Annotated[Path | None, typer.Option(help="Write the queue as a CSV for people.")] = None,
    images: Annotated[
        Path | None, typer.Option(help="With --export: also write the pictures into this folder.")
    ] = None,
    decisions: Annotated[
        Path | None,
        typer.Option("--import", metavar="FILE", help="Read decisions: a CSV with id and label or exclude."),
    ] = None,
    twins: Annotated[
        bool, typer.Option("--exclude-twins", help="Exclude copies of val and test pictures in train and pool.")
    ] = False,
    reviewer: Annotated[str | None, typer.Option(help="Who decided; else your user name.")] = None,
    name: Annotated[str | None, typer.Option(help="The review's name; else the file's.")] = None,
    ref: Annotated[str, typer.Option(help="The version or branch that the decisions are about.")] = "main",
    branch: Annotated[str, typer.Option(help="The branch whose next version carries them.")] = "main",
    new_classes: Annotated[bool, typer.Option("--new-classes", help="Take labels that are no class yet.")] = False,
    commit: Annotated[bool, typer.Option("--commit", help="Commit the decisions at once.")] = False,
    message: Annotated[str | None, typer.Option("--message", "-m", help="The commit's message.")] = None,
    json: Json = False,
) -> None:
    """Show a queue, export it for people, or import what they decided as an overlay of the next version.

    In the CSV fill `label` with the true label (for a suspected label that was right, repeat it), or `exclude` with
    yes; a row with neither is not decided. A labelled pool sample moves to train.
    """
    at = session(context)
    if twins:
        found = _twins(at, ref)
        title = name or f"twins-{at.lake.version(at.dataset, ref).name}"
        _record(at, found, title, queue, reviewer, ref, branch, new_classes, commit, message, json)
    elif decisions is not None:
        found = _read(decisions)
        _record(at, found, name or decisions.stem, queue, reviewer, ref, branch, new_classes, commit, message, json)
    elif queue is None:
        _list(at, json)
    elif export is not None:
        _export(at, queue, export, images, json)
    else:
        _show(at, queue, json)


def _list(at: Session, json: bool) -> None:
    from sevenfold.assets.mining import queue_names

    found = {name: at.lake.queue(at.dataset, name) for name in queue_names(at.lake, at.project)}
    if json:
        print_json({name: table.num_rows for name, table in found.items()})
    elif not found:
        say("no queue yet: sevenfold score, then sevenfold mine")
    else:
        rows = [[name, t.num_rows, ", ".join(f"{n} {k}" for k, n in _kinds(t).items())] for name, t in found.items()]
        print_table(["queue", "rows", "kinds"], rows, right=["rows"])


def _show(at: Session, queue: str, json: bool) -> None:
    from sevenfold.assets.reviewing import queue_samples

    table = at.lake.queue(at.dataset, queue)
    if json:
        print_json(table.to_pylist())
        return
    path_of = _paths(queue_samples(at.lake, at.dataset, table)) if table.num_rows else {}
    rows = [
        [r["rank"], r["kind"], r["id"][:12], path_of.get(r["id"]), r["label"], r["suggestion"], r["score"]]
        for r in table.slice(0, 50).to_pylist()
    ]
    print_table(["rank", "kind", "id", "path", "label", "suggestion", "score"], rows, right=["rank", "score"])
    if table.num_rows > len(rows):
        say(f"{table.num_rows - len(rows):,} more")
    say(f"next: sevenfold review {queue} --export {queue}.csv")


def _export(at: Session, queue: str, path: Path, images: Path | None, json: bool) -> None:
    from sevenfold.assets.reviewing import export_images, export_queue

    table = at.lake.queue(at.dataset, queue)
    count = export_queue(at.lake, at.dataset, queue, table, path)
    shown = export_images(at.lake, at.dataset, table, images) if images is not None else 0
    if json:
        print_json({"queue": queue, "file": str(path), "rows": count, "images": shown})
        return
    say(f"wrote {count:,} rows to {path}" + (f" and {shown:,} pictures to {images}" if images else ""))
    say(f"fill `label` or `exclude`, then: sevenfold review --import {path} --commit")


def _read(path: Path) -> list[Decision]:
    from sevenfold.assets.reviewing import read_decisions

    decided = read_decisions(path)
    if not decided:
        raise SevenfoldError(
            "no row is decided", where=str(path), expected="a label or exclude = yes in some row", do="fill them in"
        )
    return decided


def _twins(at: Session, ref: str) -> list[Decision]:
    from sevenfold.assets.reviewing import exclude_twins
    from sevenfold.assets.twinning import cross_split

    with progress(f"comparing the splits of {ref}") as report:
        decided = exclude_twins(cross_split(at.lake, at.project, ref, progress=report))
    if not decided:
        raise SevenfoldError(
            f"{ref} has no picture of val or test in another split",
            where=at.dataset,
            do="there is nothing to exclude",
        )
    return decided


def _record(
    at: Session, decided: list[Decision], title: str, queue: str | None, reviewer: str | None, ref: str, branch: str,
    new_classes: bool, commit: bool, message: str | None, json: bool,
) -> None:  # fmt: skip
    from sevenfold.assets.committing import commit as make
    from sevenfold.assets.reviewing import decisions_to_overlay

    if queue is not None:
        at.lake.queue(at.dataset, queue)
    version = at.lake.version(at.dataset, ref)
    who = reviewer or getpass.getuser()
    reviewed = decisions_to_overlay(
        at.lake.samples_of(version.content_id),
        decided,
        at.lake.manifest(version.content_id).classes,
        reviewer=who,
        reason=f"review {title}",
        new_classes=new_classes,
    )
    counts = dict(reviewed.counts)
    queues = [queue] if queue else sorted({d.queue for d in decided if d.queue})
    _, new = at.lake.add_review(at.dataset, title, reviewed.overlay, branch=branch, queues=queues, reviewer=who)
    made, moved = None, False
    if commit:
        with progress("committing") as report:
            made, moved = make(
                at.lake, at.project, message=message or f"review {title} by {who}", branch=branch, progress=report,
                provenance={"by": "sevenfold review"},
            )  # fmt: skip
    if json:
        found = {"review": title, "decisions": len(decided), "counts": counts, "version": made and made.name}
        print_json({**found, "new": new or moved})
        return
    if not new:
        say(f"the review {title} was recorded before, with the same decisions", "yellow")
    say(f"{len(decided):,} decisions by {who}: " + ", ".join(f"{n:,} {what}" for what, n in counts.items()))
    if made and not moved:
        say(f"nothing to commit: {branch} is at {made.name}, which holds it; to decide again give it another --name")
    elif made:
        say(f"{made.name} on {branch}: {made.content_id[:12]}", "bold")
        say(f"next: sevenfold diff {version.name} {made.name}, sevenfold train {made.name}")
    else:
        say(f"kept as the review {title}; next: sevenfold commit -m {title!r}")


def _kinds(table: pa.Table) -> dict[str, int]:
    return {row["values"]: row["counts"] for row in table["kind"].value_counts().to_pylist()}


def _paths(samples: pa.Table) -> dict[str, str]:
    return dict(zip(samples["id"].to_pylist(), samples["path"].to_pylist(), strict=True))


COMMANDS = (
    ("mine", mine, example("sevenfold mine v3 --size 200")),
    (
        "review",
        review,
        example(
            "sevenfold review suspected-v3 --export todo.csv --images todo/",
            "sevenfold review --import todo.csv --reviewer ada --commit",
        ),
    ),
)
