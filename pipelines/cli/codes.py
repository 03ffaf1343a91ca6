"""Exit codes, and how an exception becomes one: found, where, expected, what to do on stderr, no traceback."""

from __future__ import annotations

import errno
import os
import sys
import traceback

import typer

from sevenfold.pipelines.cli.console import visible
from sevenfold.storage.errors import SevenfoldError

OK, FAILED, WARNED, BROKEN = 0, 1, 2, 3
"""Fine; a check failed or the gate refused; a warning under --strict; a usage error or a crash."""

INTERRUPTED = 130
"""Ctrl-C, as shells count it."""

CLOSED = 141
"""Nobody reads the output any more, as shells count it."""

UsageProblem: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
"""What the parser raises. It exits 2 by itself, which here means a warning."""


def report(error: BaseException, *, debug: bool) -> int:
    """Print an exception for a person and return the exit code."""
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        _say("interrupted; what was written stays whole, run the command again to go on")
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):  # whoever read the output went away: `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED
    if debug and not isinstance(error, UsageProblem):
        traceback.print_exception(error)
    elif isinstance(error, SevenfoldError):
        _say(error.found, where=error.where, expected=error.expected, do=error.do)
    elif isinstance(error, UsageProblem):
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "sevenfold"
        _say(error.format_message(), do=f"see `{path} --help`")  # type: ignore[attr-defined]
    elif isinstance(error, OSError) and error.strerror:  # the machine's doing: a full disk, no right to write
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        do = "make room there" if full else "see to it"
        _say(error.strerror, where=str(error.filename or ""), do=f"{do} and run the command again")
    else:
        _say(
            f"unexpected {type(error).__name__}: {' '.join(str(error).split()) or 'no message'}; "
            "run again with --debug for the traceback"
        )
    return BROKEN


def _say(found: str, *, where: str = "", expected: str = "", do: str = "") -> None:
    found, where, expected, do = ("\n".join(map(visible, t.split("\n"))) for t in (found, where, expected, do))
    lines = [f"error: {found}"]
    for name, text in (("where", where), ("expected", expected), ("what to do", do)):
        if text:
            lines.append(f"  {name + ':':<12}{text}")
    print("\n".join(lines), file=sys.stderr)
