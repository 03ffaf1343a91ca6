"""The command check: what is judged, against what, and the exit code that a CI system goes by."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sevenfold.pipelines.cli import verdicts as shown
from sevenfold.pipelines.cli.console import example, print_json, progress, say
from sevenfold.pipelines.cli.outputs import Outputs, Subject, one_subject, write_text
from sevenfold.pipelines.cli.session import Session, session
from sevenfold.storage.errors import SevenfoldError

if TYPE_CHECKING:
    from sevenfold.quality.policy import Policy
    from sevenfold.quality.verdict import Verdict
    from sevenfold.storage.project import Project


def check(
    context: typer.Context,
    subject: Annotated[
        str | None,
        typer.Argument(
            help="A batch, a version (v3, main, a tag), or a folder, zip or table in no lake; else every batch not "
            "judged yet."
        ),
    ] = None,
    policy: Annotated[Path | None, typer.Option(help="A policy file instead of the project's.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 2 when a check warns.")] = False,
    baseline: Annotated[
        str | None,
        typer.Option(help="No worse than: a version, a batch, or a file of --write-baseline; only what is new fails."),
    ] = None,
    write_baseline: Annotated[
        Path | None, typer.Option(help="Write what was found as a baseline for later checks.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Of a folder in no lake: another one, to compare with for drift.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write SARIF 2.1.0, for code scanning.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write JSON (docs/ci.md); - prints it instead.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as one HTML page.")] = None,
    findings: Annotated[Path | None, typer.Option(help="Write all findings as one Parquet table.")] = None,
    github: Annotated[
        bool, typer.Option("--github", help="Print annotations, and append to $GITHUB_STEP_SUMMARY.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="A row for every check.")] = False,
) -> None:
    """Judge batches before they may be committed, a version by all seven Vs, or a folder that is in no lake.

    Verdicts about batches and versions are kept in the lake; a folder is only read. A batch that fails a blocking check
    is rejected: fix it and check again, or land it anew. Model-based checks of a version need `sevenfold score` first.

    Exit codes: 0 pass, 1 a check failed (whether or not it blocks), 2 one warned under --strict, 3 one crashed, or the
    command was wrong.
    """
    from sevenfold.quality.scorecard import exit_code

    at = session(context)
    outputs = Outputs(junit=junit, sarif=sarif, json=json, html=html, findings=findings, github=github)
    todo = _subjects(at, subject)
    outputs.verify(len(todo), also=write_baseline)
    if write_baseline is not None and len(todo) != 1:
        raise one_subject(len(todo), "--write-baseline")
    limits = _policy(at, policy) if todo else None
    against = baseline or (limits.baseline if limits else None)
    # before anything is judged: of a version against itself, the verdicts of then count
    old = _baseline(at, against, None if baseline else _policy_folder(at, policy)) if against and todo else []
    with ExitStack() as open_until_written:
        with redirect_stdout(sys.stderr):  # your own check may print, and stdout may be a JSON document
            found = [_judged(at, *which, limits, reference, open_until_written) for which in todo]
        if write_baseline is not None:
            _write_baseline(found[0], write_baseline)
        if against and limits:
            found = [s.against(old, name=against, tolerance=limits.baseline_tolerance) for s in found]
        code = exit_code([v for s in found for v in s.verdicts], strict=strict)
        document = outputs.write(found, code=code, strict=strict, baseline=against)
    if json is not None and str(json) == "-":
        print_json(document)
        raise typer.Exit(code)
    for s in found:
        title = f"{s.name}: {s.status}" if s.status else s.name
        (shown.show_table if verbose else shown.show_terse)(title, s.verdicts, s.named)
    if not found:
        say("nothing to check: every batch has been judged (name one to judge it again)")
    elif "admitted" in {s.status for s in found}:
        say(f'next: sevenfold commit -m "what it brings"{at.same}')
    raise typer.Exit(code)


def _subjects(at: Session, subject: str | None) -> list[tuple[str, str]]:
    """(name, batch, version or source) of what is to be judged."""
    if subject is None:
        return [(b.batch, "batch") for b in at.lake.batches(at.dataset) if b.status == "landed"]
    plain = "://" in subject or Path(subject).exists()
    if plain and ("/" in subject or subject in (".", "..")):
        return [(subject, "source")]
    try:
        batches = [b.batch for b in at.lake.batches(at.dataset)]
        if subject in batches:
            return [(subject, "batch")]
        return [(at.lake.version(at.dataset, subject).name, "version")]
    except SevenfoldError as error:
        if plain:
            return [(subject, "source")]
        if "no sevenfold.toml" in error.found or "no lake" in error.found:
            raise SevenfoldError(
                f"there is nothing called {subject!r} here, and no lake",
                where=str(Path.cwd()),
                expected="a folder, zip or table of images; or a batch or version of a lake",
                do="check the path, or give --lake",
            ) from None
        there = ", ".join(batches) or "none"
        raise SevenfoldError(
            f"{subject!r} is neither a batch nor a version of {at.dataset}, nor a folder here",
            where=at.lake.store.url,
            expected=f"a batch ({there}) or {error.expected or 'a version'}",
            do="see `sevenfold batches` and `sevenfold log`",
        ) from None


def _judged(
    at: Session, name: str, kind: str, limits: Policy | None, reference: str | None, stack: ExitStack
) -> Subject:
    """Judge one; a temporary lake stays on the stack, since the outputs read from it."""
    from sevenfold.assets.judging import judge_batch, judge_version

    if reference is not None and kind != "source":
        raise SevenfoldError(
            "--reference is for a folder that is in no lake",
            where=name,
            expected="a batch is compared with the newest version, a version with its parent",
            do="leave --reference out; for `no worse than a version` give --baseline",
        )
    with progress(f"checking {name}") as report:
        if kind == "source":
            from sevenfold.assets.folders import judged_source

            judging = judged_source(name, _project(at), reference=reference, policy=limits, progress=report)
            judged = stack.enter_context(judging)
            return Subject.of(judged.lake, judged.project, judged.batch, kind, judged.verdicts, name)
        if kind == "batch":
            found = judge_batch(at.lake, at.project, name, policy=limits, progress=report)
        else:
            found = judge_version(at.lake, at.project, name, policy=limits, progress=report)
    return Subject.of(at.lake, at.project, name, kind, found)


def _project(at: Session) -> Project | None:
    """The project of this folder, if there is one; a lake need not be."""
    from sevenfold.storage import project as projects

    if at.lake_option is None and not any(
        (folder / projects.FILE).exists() for folder in (Path.cwd(), *Path.cwd().parents)
    ):
        return None
    return at.project


def _policy(at: Session, file: Path | None) -> Policy:
    from sevenfold.assets.judging import policy_of
    from sevenfold.quality.checks import names
    from sevenfold.quality.policy import load_policy

    if file is not None:
        return load_policy(file, names=names())
    project = _project(at)
    return policy_of(project) if project else load_policy(None)


def _policy_folder(at: Session, file: Path | None) -> Path | None:
    """The folder of the policy file, from which a baseline file named in it is found."""
    if file is not None:
        return file.parent
    project = _project(at)
    return project.path("policy").parent if project else None


def _baseline(at: Session, name: str, folder: Path | None) -> Sequence[Verdict]:
    """The verdicts of a baseline file, or the stored ones of a batch or version."""
    from sevenfold.quality.baseline import from_json
    from sevenfold.quality.scorecard import Scorecard

    file = Path(name) if folder is None else folder / name
    if file.is_file():
        return from_json(file.read_bytes(), where=str(file))
    if file.suffix == ".json":
        raise SevenfoldError(
            "there is no such baseline", where=str(file), do=f"write it: sevenfold check ... --write-baseline {name}"
        )
    batches = {b.batch for b in at.lake.batches(at.dataset)}
    subject = name if name in batches else at.lake.version(at.dataset, name).name
    card = Scorecard.of(at.lake.verdicts(at.dataset, subject), subject=subject)
    if not card.verdicts:
        raise SevenfoldError(
            f"{subject} was never judged, so it is no baseline",
            where=at.lake.store.url,
            do=f"judge it first: sevenfold check {subject}{at.same}",
        )
    return card.verdicts


def _write_baseline(found: Subject, path: Path) -> None:
    from sevenfold.quality.baseline import to_json

    write_text(path, to_json(found.verdicts, subject=found.name, at=time.time()))


CHECK = (
    "check",
    check,
    example(
        "sevenfold check",
        "sevenfold check v3 --strict --junit checks.xml --html v3.html",
        "sevenfold check ./images --policy policy.yaml --github --sarif checks.sarif",
        "sevenfold check ./images --baseline baseline.json",
    ),
)
