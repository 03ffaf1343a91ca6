"""The app: global options, the commands by group, and exit codes that a script can rely on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sevenfold.pipelines.cli import (
    branches,
    data,
    embed,
    forecast,
    judge,
    keep,
    learn,
    plan,
    present,
    review,
    takedown,
    tune,
    twins,
    variants,
    versions,
)
from sevenfold.pipelines.cli.codes import INTERRUPTED, OK, report
from sevenfold.pipelines.cli.console import example
from sevenfold.pipelines.cli.session import Session

_ANYWHERE = {"--lake": True, "--dataset": True, "--debug": False}
"""Global options that may also stand after the command; True: takes a value."""


class Commands(TyperGroup):
    """Maps every way in which a command can end to its exit code, and takes global options anywhere."""

    def main(  # type: ignore[override]  # the arguments not named here are passed on
        self, args: Sequence[str] | None = None, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Run a command line and exit; with `standalone_mode` false return the exit code instead."""
        words = hoist(list(sys.argv[1:] if args is None else args)) or ["--help"]
        try:
            result = super().main(args=words, standalone_mode=False, **extra)
            code = result if isinstance(result, int) else OK
            if code == INTERRUPTED:  # the parser makes this of Ctrl-C, without a word
                report(KeyboardInterrupt(), debug=False)
        except SystemExit:
            raise
        except BaseException as error:
            code = report(error, debug="--debug" in words)
        if standalone_mode:
            sys.exit(code)
        return code


def hoist(words: list[str]) -> list[str]:
    """Move the global options to the front: `log --dataset pets` is `--dataset pets log`. Stops at `--`."""
    front, rest = [], []
    until = words.index("--") if "--" in words else len(words)
    i = 0
    while i < until:
        name, equals, _ = words[i].partition("=")
        takes = _ANYWHERE.get(name)
        if takes is None:
            rest.append(words[i])
        else:
            front.append(words[i])
            if takes and not equals and i + 1 < until:
                i += 1
                front.append(words[i])
        i += 1
    return [*front, *rest, *words[until:]]


app = typer.Typer(
    name="sevenfold",
    cls=Commands,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog=example(
        "sevenfold demo",
        "sevenfold init && sevenfold ingest photos/ && sevenfold check && sevenfold commit -m first",
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        from sevenfold import __version__

        print(f"sevenfold {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    lake: Annotated[
        str | None,
        typer.Option(
            help="The lake: a folder or s3://bucket/prefix; else SEVENFOLD_LAKE, else the nearest sevenfold.toml."
        ),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="The dataset; else the one in sevenfold.toml.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """A data engine for deep learning: versions, seven verdicts, training, mining and a gate, in one loop.

    --lake, --dataset and --debug may stand before or after the command. Exit codes: 0 fine, 1 a check failed or the
    gate refused, 2 a warning with --strict, 3 a usage error or a crash.
    """
    context.obj = Session(lake, dataset, debug)


for module, panel in (
    (data, "Data"),
    (takedown, "Data"),
    (versions, "Versions"),
    (branches, "Versions"),
    (variants, "Versions"),
    (keep, "Keeping"),
    (judge, "Judging"),
    (twins, "Judging"),
    (learn, "Learning"),
    (embed, "Learning"),
    (forecast, "Learning"),
    (plan, "Learning"),
    (tune, "Learning"),
    (review, "Learning"),
    (present, "Showing"),
):
    for name, function, shown in module.COMMANDS:
        app.command(name, epilog=shown, rich_help_panel=panel, no_args_is_help=False)(function)
