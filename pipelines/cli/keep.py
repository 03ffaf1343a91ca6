"""Commands that keep a lake sound: verify, gc."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sevenfold.pipelines.cli.codes import FAILED
from sevenfold.pipelines.cli.console import example, print_json, print_table, progress, say
from sevenfold.pipelines.cli.data import Json
from sevenfold.pipelines.cli.session import Session, session
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.sizes import bytes_of

if TYPE_CHECKING:
    from sevenfold.storage.gc import Garbage
    from sevenfold.storage.repair import Repair
    from sevenfold.storage.verified import Finding, Report

_SHOWN = 40
"""Rows of a printed table; --json prints them all."""

_OF_A_FILE = 5
"""Findings of one file that are printed: a file with lost samples has one for each of them."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def verify(
    context: typer.Context,
    ref: Annotated[
        str | None, typer.Argument(help="A version (v3), branch, tag or date; without it every version of the lake.")
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Decode every image too, and compare its pixels.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Put damaged files back from cache, sources or other shards, or set aside.")
    ] = False,
    exclude: Annotated[
        bool, typer.Option("--exclude", help="With --repair: commit a version without the samples that are lost.")
    ] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Of hashing and decoding; else one per core.")] = None,
    json: Json = False,
) -> None:
    """Check shards, indexes and overlays against their digests and each other; exit 1 when anything is wrong.

    Every byte is hashed and every tar header compared with the index. Damage is named by shard, member and byte.
    """
    if exclude and not repair:
        raise SevenfoldError("--exclude without --repair", do="give both: what can be put back is put back first")
    from sevenfold.storage import repair as repairing
    from sevenfold.storage.verify import verify as look

    at = session(context)
    datasets = [at.dataset] if ref or at.dataset_option else at.lake.datasets()
    store, mended, made = at.lake.store, [], []
    with progress("verifying") as report:
        found = look(store, datasets, ref, deep=deep, threads=threads, progress=report)
        before = found
        if repair and not found.clean:
            mended = repairing.repair(store, at.lake.datasets(), found.findings, progress=report)
            if exclude:
                made = repairing.exclude(store, mended)
            found = look(store, datasets, ref, deep=deep, threads=threads, progress=report)
    versions = {f"{v.dataset}/{branch}": v.name for branch, v in made}
    if json:
        told = {**_totals(found), "findings": [dataclasses.asdict(f) for f in found.findings]}
        if repair:
            told |= {"repairs": [dataclasses.asdict(r) for r in mended], "excluded_in": versions}
        print_json(told)
    else:
        _show(before)
        for r in mended:
            say(f"{r.outcome}: {r.key}", "bold")
            say(f"    {r.detail}")
        if mended:
            say("after the repair:" if found.clean else "still wrong after the repair:", "bold")
            _show(found)
            _lost(mended, versions, at, ref)
        if not repair and not found.clean:
            say(f"next: sevenfold verify{' ' + ref if ref else ''} --repair{at.same}")
    if not found.clean:
        raise typer.Exit(FAILED)


def _totals(report: Report) -> dict[str, Any]:
    rate = report.bytes / 1e6 / report.seconds if report.seconds else None
    fields = ("versions", "indexes", "overlays", "shards", "variants", "samples", "bytes", "seconds", "deep")
    return {"clean": report.clean, **{f: getattr(report, f) for f in fields}, "megabytes_per_second": rate}


def _show(report: Report) -> None:
    from sevenfold.storage.verified import CACHE

    rate = _totals(report)["megabytes_per_second"] or 0.0
    derived = f", and {report.variants:,} variants" if report.variants else ""
    say(
        f"{report.shards:,} shards, {report.indexes:,} indexes and {report.overlays:,} overlays of {report.versions:,} "
        f"versions{derived}: {report.bytes / 1e6:,.1f} MB in {report.seconds:.1f} s ({rate:,.0f} MB/s)"
        f"{', every image decoded' if report.deep else ''}"
    )
    if report.clean:
        say("nothing is wrong", "green")
        return
    shown, said = Counter[str](), 0
    for f in report.findings:
        shown[f.key] += 1
        if shown[f.key] > _OF_A_FILE or said == _SHOWN:
            continue
        said += 1
        copy = " (this machine's copy)" if f.where == CACHE else ""
        say(f"{f.problem}: {f.key}{copy}", "bold red")
        say(f"    {''.join(f'{x}: ' for x in (f.member, _place(f)) if x)}{f.detail}")
    if len(report.findings) > said:
        say(f"{len(report.findings) - said:,} more findings: --json")
    versions = sorted({v for f in report.findings for v in f.versions})
    say(f"{len(report.findings):,} findings; versions touched: {', '.join(versions) or 'none that can be read'}")


def _lost(mended: list[Repair], made: dict[str, str], at: Session, ref: str | None) -> None:
    lost = [sample for r in mended for _, sample in r.lost]
    for branch, version in made.items():
        say(f"{branch} is at {version}, without what is lost")
    if lost and not made:
        query = "select * from quarantine where reason = 'lost'"
        say(f'{len(lost):,} samples are lost; what they were: sevenfold query "{query}"')
        say(f"to go on without them: sevenfold verify{' ' + ref if ref else ''} --repair --exclude{at.same}")


def _place(finding: Finding) -> str:
    """The bytes [byte, end) as the first and the last of them."""
    if finding.byte is None:
        return ""
    if finding.end in (None, finding.byte + 1):
        return f"byte {finding.byte}"
    return f"bytes {finding.byte}-{finding.end - 1}"


def gc(
    context: typer.Context,
    delete: Annotated[bool, typer.Option("--delete", help="Delete what is listed; without it nothing is.")] = False,
    grace: Annotated[str, typer.Option(help="Younger files stay: 30m, 12h, 7d.")] = "7d",
    alone: Annotated[
        bool, typer.Option("--alone", help="Promise that no other process writes: allows a grace under an hour.")
    ] = False,
    cache: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Instead: shrink this machine's copies of a bucket to this size."),
    ] = None,
    json: Json = False,
) -> None:
    """List the files that no version, batch, review or running reader needs, and delete them with --delete.

    All versions of all datasets are roots, whether a branch holds them or not. When one cannot be read, nothing is
    deleted.
    """
    from sevenfold.storage import gc as collecting

    seconds = duration(grace)
    at = session(context)
    with progress("looking for garbage") as report:
        if cache is None:
            found = collecting.gc(at.lake.store, grace=seconds, delete=delete, alone=alone, progress=report)
        else:
            found = collecting.evict(at.lake.store, bytes_of(cache, "--cache"), delete=delete)
    total = sum(g.bytes for g in found)
    if json:
        print_json({"deleted": delete, "files": [dataclasses.asdict(g) for g in found], "bytes": total})
        return
    if found:
        print_table(["file", "bytes", "age", "why"], [_garbage(g) for g in found[:_SHOWN]], right=["bytes", "age"])
    if len(found) > _SHOWN:
        say(f"{len(found) - _SHOWN:,} more files: --json")
    what = f"{len(found):,} files, {total / 1e6:,.1f} MB"
    if not found:
        say("there is nothing to delete")
    else:
        say(f"deleted {what}" if delete else f"{what}; nothing was deleted: --delete does")


def _garbage(garbage: Garbage) -> list[Any]:
    age = garbage.age
    unit = next((u for u in ("d", "h", "m") if age >= 2 * _UNITS[u]), "s")
    return [garbage.key, garbage.bytes, f"{age / _UNITS[unit]:.0f} {unit}", garbage.reason]


def duration(text: str) -> float:
    """Seconds of `7d`, `12h`, `30m`, `90s` or `0`."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)", text.strip().lower())
    if match is None or (not match[2] and float(match[1])):
        raise SevenfoldError(f"{text!r} is no length of time", expected="a number and s, m, h, d or w: 7d")
    return float(match[1]) * _UNITS.get(match[2], 1.0)


COMMANDS = (
    (
        "verify",
        verify,
        example("sevenfold verify", "sevenfold verify v3 --deep", "sevenfold verify --repair --exclude"),
    ),
    ("gc", gc, example("sevenfold gc", "sevenfold gc --delete --grace 14d", "sevenfold gc --cache 20GB --delete")),
)
