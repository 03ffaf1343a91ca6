"""The command that erases samples for good: shows what it would touch, and does so only when told to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sevenfold.pipelines.cli.console import date, example, print_json, print_table, progress, say
from sevenfold.pipelines.cli.data import Json
from sevenfold.pipelines.cli.session import Session, session
from sevenfold.storage.errors import SevenfoldError

if TYPE_CHECKING:
    from sevenfold.storage.takedown import Takedown
    from sevenfold.storage.traces import Traces

SHOWN = 10
"""Ids, sources and pages that are listed by name; --json lists all."""


def takedown(
    context: typer.Context,
    key: Annotated[
        str | None,
        typer.Argument(metavar="ID|PATH", help="An id or its first 8 digits, or a path in its source."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="A condition on the columns of samples_all, of any version.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; it stays in the lake. Needed with --yes.")] = "",
    twins: Annotated[bool, typer.Option("--twins", help="Also all other samples with the same pixels.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Erase. Without it nothing is changed.")] = False,
    finish: Annotated[bool, typer.Option("--finish", help="End takedowns that were interrupted.")] = False,
    json: Json = False,
) -> None:
    """Erase samples for good: bytes, rows, labels and paths, from every version and all that was made of them.

    Shows what would be touched; --yes does it. Versions keep their content ids and their other samples. The samples'
    ids, your reason and the date stay, and keep them from being ingested again.
    """
    from sevenfold.storage import takedown as taking

    at = session(context)
    store = at.lake.store
    if finish:
        with progress("ending what was begun") as report:
            done = taking.finish(store, progress=report)
        if json:
            print_json([_record(t) for t in done])
            return
        say("there was nothing to end" if not done else f"ended: {', '.join(t.digest[:12] for t in done)}")
        return
    request = taking.Request(key, where, twins)
    if yes:
        if not reason.strip():
            raise SevenfoldError("a takedown needs a reason", do="say why: --reason TEXT")
        with progress("ending what was begun") as report:
            taking.finish(store, progress=report)
    with progress("looking through the lake"):
        found = taking.find(store, request)
    if isinstance(found, taking.Takedown):
        _already(found, json)
        return
    pages = _pages(at, found)
    if not yes:
        if json:
            print_json({"dry_run": True, **_plan(found), "reports": pages})
            return
        _show(found, pages)
        say("nothing was changed; to erase this, say --yes and --reason", "bold")
        return
    with progress("erasing") as report:
        taken = taking.carry_out(store, request, found, reason, progress=report)
    if json:
        print_json({"dry_run": False, **_plan(found), **_record(taken), "reports": pages})
        return
    _show(found, pages)
    say(f"erased: takedown {taken.digest[:12]} of {len(taken.ids):,} samples", "bold")


def _already(done: Takedown, json: bool) -> None:
    if json:
        print_json({"dry_run": False, "done_before": True, **_record(done)})
        return
    say(f"taken down before, on {date(done.time)}: {done.reason} (takedown {done.digest[:12]})")
    say("nothing is left to erase")


def _show(found: Traces, pages: list[str]) -> None:
    from sevenfold.storage.variants import command

    say(f"{len(found.ids):,} samples: {_few(found.ids)}", "bold")
    if found.versions:
        rows = [[v["dataset"], v["version"], v["content_id"][:12], v["samples"]] for v in found.versions]
        print_table(["dataset", "version", "content", "samples"], rows, right=["samples"])
    kinds = _counts(found)
    print_table(["what is erased", "files", "rows", "bytes"], kinds, right=["files", "rows", "bytes"])
    if found.models:
        words = {True: "yes", False: "no: evaluated or held out", None: "its run is gone: suppose so"}
        rows = [[m["model"], m["content_id"][:12], words[m["trained"]]] for m in found.models]
        print_table(["model of these versions", "content", "trained on them"], rows)
        say("models are not changed: what they learned stays in them; train again without the samples if it must not")
    datasets = {v["content_id"]: v["dataset"] for v in found.versions}
    for key in found.variants:
        _, content, name = key.removesuffix(".json").split("/")
        again = command(content, name, datasets.get(content))
        say(f"the variant {name} of {content[:12]} is deleted whole; make it again with {again}", "yellow")
    if found.twins:
        say(f"{len(found.twins):,} other samples have the same pixels: --twins takes them too", "yellow")
    if found.readers:
        say(
            f"{found.readers} readers hold leases: they may miss these samples, and the old shards, from now on",
            "yellow",
        )
    sources = sorted({source for source, _ in found.places})
    if sources:
        say(f"the sources are not touched, delete the files there yourself: {_few(sources)}", "yellow")
    if pages:
        say(f"pages that may show them, write them again or delete them: {_few(pages)}", "yellow")


def _counts(found: Traces) -> list[list[Any]]:
    kinds: list[list[Any]] = [
        ["shards (rewritten)", len(found.shards), None, sum(found.shards.values())],
        ["indexes (rewritten)", len(found.indexes), sum(found.indexes.values()), None],
        ["overlays (rewritten)", len(found.overlays), sum(found.overlays.values()), None],
    ]
    held = sum(len(shards) for shards in found.variants.values())
    kinds += [["variants (deleted: make them again)", len(found.variants) + held, None, None]] if found.variants else []
    for name in ("samples", "aliases", "quarantined"):
        counts = [b[name] for b in found.batches if b[name]]
        kinds.append([f"landings: {name}", len(counts), sum(counts), None])
    for folder in ("queues", "signals", "predictions"):
        rows = [n for key, n in found.tables.items() if key.startswith(f"{folder}/")]
        kinds.append([folder, len(rows), sum(rows), None])
    kinds += [["verdicts that quote a path", len(found.verdicts), None, None]]
    kinds += [["unfinished and interim files", len(found.caches), None, None]]
    return [row for row in kinds if row[1]]


def _plan(found: Traces) -> dict[str, Any]:
    return {
        "ids": list(found.ids),
        "twins": list(found.twins),
        "versions": list(found.versions),
        "shards": dict(found.shards),
        "indexes": dict(found.indexes),
        "overlays": dict(found.overlays),
        "variants": {key: list(shards) for key, shards in found.variants.items()},
        "batches": list(found.batches),
        "tables": dict(found.tables),
        "verdicts": list(found.verdicts),
        "caches": list(found.caches),
        "models": list(found.models),
        "readers": found.readers,
        "places": [{"source": s, "path": p} for s, p in found.places],
    }


def _record(done: Takedown) -> dict[str, Any]:
    return {
        "takedown": done.digest, "ids": list(done.ids), "reason": done.reason, "time": done.time,
        "versions": list(done.versions), "models": list(done.models),
    }  # fmt: skip


def _pages(at: Session, found: Traces) -> list[str]:
    """Reports in the lake and beside sevenfold.toml of the datasets that had the samples."""
    datasets = {v["dataset"] for v in found.versions}
    folder: Path = at.project.folder / "reports"
    beside = sorted(str(p) for d in datasets for p in folder.glob(f"{d}-*.html"))
    return [*found.reports, *beside]


def _few(names: Any) -> str:
    listed = list(names)
    more = f" and {len(listed) - SHOWN:,} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more


COMMANDS = (
    (
        "takedown",
        takedown,
        example(
            "sevenfold takedown cat/0042.png",
            'sevenfold takedown 3f9a51c07d22 --reason "consent withdrawn" --twins --yes',
            "sevenfold takedown --where \"path like 'alice/%'\" --reason request-17 --yes",
        ),
    ),
)
