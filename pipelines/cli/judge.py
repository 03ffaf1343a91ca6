"""Commands that judge: check, gate, promote."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sevenfold.pipelines.cli.codes import FAILED, OK
from sevenfold.pipelines.cli.console import MARKS, example, print_json, print_table, progress, say, stdout
from sevenfold.pipelines.cli.data import Json
from sevenfold.pipelines.cli.session import Session, session
from sevenfold.storage.errors import SevenfoldError

if TYPE_CHECKING:
    from sevenfold.assets.gating import Outcome
    from sevenfold.quality.verdict import Verdict


def check(
    context: typer.Context,
    subject: Annotated[
        str | None, typer.Argument(help="A batch, or a version (v3, main, a tag); else every batch not judged yet.")
    ] = None,
    policy: Annotated[Path | None, typer.Option(help="A policy file instead of the project's.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 2 when a check warns.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML for a CI system.")] = None,
    json: Json = False,
) -> None:
    """Judge batches before they may be committed, or a version by all seven Vs; verdicts are kept in the lake.

    A batch that fails a blocking check is rejected: fix it and check again, or land it anew. Model-based checks of a
    version need `sevenfold score` first. Exit code 1 when a check failed.
    """
    from sevenfold.quality.scorecard import Scorecard, exit_code

    at = session(context)
    found = {name: _judged(at, name, kind, policy) for name, kind in _subjects(at, subject)}
    verdicts = [v for group in found.values() for v in group]
    if junit is not None:
        from sevenfold.quality.junit import junit_xml

        junit.parent.mkdir(parents=True, exist_ok=True)
        junit.write_text(junit_xml(verdicts, name=f"sevenfold {at.dataset}"), encoding="utf-8")
    status = {b.batch: b.status for b in at.lake.batches(at.dataset)}
    code = exit_code(verdicts, strict=strict)
    if json:
        cards = [{**Scorecard.of(v, subject=name).to_dict(), "status": status.get(name)} for name, v in found.items()]
        print_json({"exit_code": code, "subjects": cards})
    else:
        for name, group in found.items():
            show_verdicts(f"{name}: {status[name]}" if name in status else name, group)
        if not found:
            say("nothing to check: every batch has been judged (name one to judge it again)")
        elif "admitted" in {status.get(name) for name in found}:
            say(f'next: sevenfold commit -m "what it brings"{at.same}')
    raise typer.Exit(code)


WIDE = 140
"""Columns of the terminal below which the table of verdicts leaves out what the messages under it say again."""


def show_verdicts(title: str, verdicts: list[Verdict]) -> None:
    """A table by V, then what did not pass, in plain words with its remedy."""
    rows, last = [], ""
    for v in sorted(verdicts, key=lambda x: _order(x.v)):
        interval = f"{v.interval[0]:.3g} ... {v.interval[1]:.3g}" if v.interval else ""
        rows.append(
            [
                v.v if v.v != last else "", v.check, (v.result.replace("_", " "), MARKS[v.result]),
                "" if v.statistic is None else f"{v.statistic:.4g}", interval, v.statistic_name,
                str(len(v.findings)) if v.findings else "", 
            ]
        )  # fmt: skip
        last = v.v
    columns = ["V", "check", "result", "value", "95 % interval", "of what", "findings"]
    if stdout().width < WIDE:  # a narrow terminal would cut every cell to pieces
        columns, rows = [*columns[:4], columns[6]], [[*row[:4], row[6]] for row in rows]
    print_table(columns, rows, title=title, right=["value", "findings"])
    for v in verdicts:
        if v.result in ("warn", "fail"):
            say(f"{v.result.upper()} {v.v}.{v.check}{' (blocking)' if v.blocking and v.result == 'fail' else ''}",
                MARKS[v.result])  # fmt: skip
            say(f"  {v.message}")
            if v.remedy:
                say(f"  what to do: {v.remedy}")
    missing = [v for v in verdicts if v.result == "not_measurable"]
    if missing:
        say("not measurable:", "dim")
    for v in missing:
        say(f"  {v.v}.{v.check}: {v.message}", "dim")
    say()


def gate(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="The challenger: a name (its newest), name/3 or name@alias.")],
    against: Annotated[str, typer.Option(help="The alias, or the model, that it has to beat.")] = "champion",
    json: Json = False,
) -> None:
    """Compare a challenger with the champion on the same held-out samples and say what the gate would decide.

    Nothing moves: `sevenfold promote` does. Exit code 1 when the gate refuses.
    """
    from sevenfold.assets.gating import compare

    at = session(context)
    with progress("testing both models") as report:
        outcome = compare(at.lake, at.project, model, against=against, progress=report)
    _show_gate(outcome, json)
    raise typer.Exit(OK if outcome.promoted else FAILED)


def promote(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="The challenger: a name (its newest), name/3 or name@alias.")],
    alias: Annotated[str, typer.Option(help="The alias to move.")] = "champion",
    force: Annotated[bool, typer.Option("--force", help="Move it although the gate refuses; needs --reason.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why, recorded with the alias.")] = None,
    json: Json = False,
) -> None:
    """Point the alias at a model if the gate lets it pass, or if forced; the decision is recorded either way."""
    from sevenfold.assets.gating import run_gate

    if force and not (reason or "").strip():
        raise SevenfoldError(
            "--force without --reason", expected="a reason that is recorded", do='add --reason "why this model"'
        )
    at = session(context)
    who = f"{getpass.getuser()} (sevenfold promote)"
    with progress("testing both models") as report:
        outcome = run_gate(
            at.lake, at.project, model, alias=alias, force=(reason or "") if force else "", by=who, progress=report
        )
    _show_gate(outcome, json)
    raise typer.Exit(OK if outcome.moved else FAILED)


def _subjects(at: Session, subject: str | None) -> list[tuple[str, str]]:
    """(name, batch or version) of what is to be judged."""
    batches = at.lake.batches(at.dataset)
    if subject is None:
        return [(b.batch, "batch") for b in batches if b.status == "landed"]
    if subject in {b.batch for b in batches}:
        return [(subject, "batch")]
    try:
        return [(at.lake.version(at.dataset, subject).name, "version")]
    except SevenfoldError as error:
        there = ", ".join(b.batch for b in batches) or "none"
        raise SevenfoldError(
            f"{subject!r} is neither a batch nor a version of {at.dataset}",
            where=at.lake.store.url,
            expected=f"a batch ({there}) or {error.expected or 'a version'}",
            do="see `sevenfold batches` and `sevenfold log`",
        ) from None


def _judged(at: Session, name: str, kind: str, policy: Path | None) -> list[Verdict]:
    from sevenfold.assets.judging import judge_batch, judge_version
    from sevenfold.quality.policy import load_policy

    limits = load_policy(policy) if policy is not None else None
    with progress(f"checking {name}") as report:
        if kind == "batch":
            return judge_batch(at.lake, at.project, name, policy=limits, progress=report)
        return judge_version(at.lake, at.project, name, policy=limits, progress=report)


def _order(v: str) -> int:
    from sevenfold.quality.verdict import VS

    return VS.index(v)


def _show_gate(outcome: Outcome, json: bool) -> None:
    if json:
        print_json({**vars(outcome), "reasons": list(outcome.reasons), "slices": list(outcome.slices)})
        return
    against = outcome.champion or f"no {outcome.alias} yet"
    if outcome.challenger == outcome.champion:
        say(f"{outcome.challenger} is the {outcome.alias} already; it got there because:", "green")
        for reason in outcome.reasons:
            say(f"  - {reason}")
        return
    say(f"{outcome.challenger} against {against}, on the test split of {outcome.version}", "bold")
    rows = [
        [
            s["slice"] + (" (new)" if s["new"] else ""), s["n"], _accuracy(s, "champion"), _accuracy(s, "challenger"),
            "" if s["difference"] is None else f"{s['difference']:+.1%}", s["verdict"].replace("_", " "),
        ]
        for s in outcome.slices
    ]  # fmt: skip
    if rows:
        print_table(
            ["slice", "n", "champion", "challenger", "difference", "verdict"], rows,
            right=["n", "champion", "challenger", "difference"],
        )  # fmt: skip
    say("the gate lets it pass" if outcome.promoted else "refused", "green" if outcome.promoted else "bold red")
    for reason in outcome.reasons:
        say(f"  - {reason}")
    if outcome.moved:
        say(f"{outcome.alias} points at {outcome.challenger}{' (forced)' if outcome.forced else ''}", "green")
    elif outcome.promoted:
        say(f"next: sevenfold promote {outcome.challenger}")


def _accuracy(row: Mapping[str, Any], who: str) -> str:
    value, low, high = (row[f"{who}{part}"] for part in ("", "_low", "_high"))
    return "" if value is None else f"{value:.1%} ({low:.1%} to {high:.1%})"


COMMANDS = (
    ("check", check, example("sevenfold check", "sevenfold check v3 --strict --junit checks.xml")),
    ("gate", gate, example("sevenfold gate classifier/2")),
    (
        "promote",
        promote,
        example(
            "sevenfold promote classifier/2", 'sevenfold promote classifier/2 --force --reason "fixes the night shift"'
        ),
    ),
)
