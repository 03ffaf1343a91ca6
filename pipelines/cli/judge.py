"""Commands that judge: check (check.py), profile-suite (profile.py), gate, promote."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sevenfold.pipelines.cli.check import CHECK
from sevenfold.pipelines.cli.codes import FAILED, OK
from sevenfold.pipelines.cli.console import example, print_json, print_table, progress, say
from sevenfold.pipelines.cli.data import Json
from sevenfold.pipelines.cli.profile import PROFILE
from sevenfold.pipelines.cli.session import session
from sevenfold.storage.errors import SevenfoldError

if TYPE_CHECKING:
    from sevenfold.assets.gating import Outcome


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
    CHECK,
    PROFILE,
    ("gate", gate, example("sevenfold gate classifier/2")),
    (
        "promote",
        promote,
        example(
            "sevenfold promote classifier/2", 'sevenfold promote classifier/2 --force --reason "fixes the night shift"'
        ),
    ),
)
