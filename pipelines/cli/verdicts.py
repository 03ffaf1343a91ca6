"""Verdicts on a terminal: a line per V, or a row per check; then what did not pass, in plain words with its remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sevenfold.pipelines.cli.console import MARKS, print_table, say, stdout, visible
from sevenfold.quality.report.status import WORST_FIRST

if TYPE_CHECKING:
    from sevenfold.quality.verdict import Verdict

WIDE = 140
"""Columns of the terminal below which the table of verdicts leaves out what the messages under it say again."""

MOST_KEYS = 3
"""Findings that are shown of each check; --findings FILE has them all."""

Named = Callable[[Sequence[str]], Sequence[str]]
"""Finding keys -> what a person calls them, in their order."""


def show_terse(title: str, verdicts: Sequence[Verdict], named: Named = list) -> None:
    """A line per V: its worst result and why; then what failed or warned."""
    from sevenfold.quality.verdict import VS

    say(title, "bold")
    for v in VS:
        mine = [x for x in verdicts if x.v == v]
        if not mine:
            say(f"  {v:<11} {'-':<15} not judged", "dim")
            continue
        worst = min((x.result for x in mine), key=WORST_FIRST.index)
        at = [x for x in mine if x.result == worst]
        say(f"  {v:<11} {_word(worst):<15} {_reason(worst, at, mine)}", MARKS[worst])
    _details(verdicts, named)
    counts = {r: sum(x.result == r for x in verdicts) for r in WORST_FIRST}
    told = ", ".join(f"{n} {_word(r)}" for r, n in counts.items() if n) or "no check ran"
    say(told + (" (--verbose says what those lack)" if counts["not_measurable"] else ""))
    say()


def show_table(title: str, verdicts: Sequence[Verdict], named: Named = list) -> None:
    """A row per check by V, then what did not pass, and what could not be measured."""
    from sevenfold.quality.verdict import VS

    rows, last = [], ""
    for v in sorted(verdicts, key=lambda x: VS.index(x.v)):
        interval = f"{v.interval[0]:.3g} ... {v.interval[1]:.3g}" if v.interval else ""
        rows.append(
            [
                v.v if v.v != last else "", v.check, (_word(v.result), MARKS[v.result]),
                "" if v.statistic is None else f"{v.statistic:.4g}", interval, v.statistic_name,
                str(len(v.findings)) if v.findings else "", 
            ]
        )  # fmt: skip
        last = v.v
    columns = ["V", "check", "result", "value", "95 % interval", "of what", "findings"]
    if stdout().width < WIDE:  # a narrow terminal would cut every cell to pieces
        columns, rows = [*columns[:4], columns[6]], [[*row[:4], row[6]] for row in rows]
    print_table(columns, rows, title=title, right=["value", "findings"])
    _details(verdicts, named)
    missing = [v for v in verdicts if v.result == "not_measurable"]
    if missing:
        say("not measurable:", "dim")
    for v in missing:
        said = " ".join(filter(None, [v.message, v.remedy]))
        say(f"  {v.v}.{v.check}: {visible(said)}", "dim")
    say()


def _details(verdicts: Sequence[Verdict], named: Named) -> None:
    for x in sorted(verdicts, key=lambda x: WORST_FIRST.index(x.result)):
        if x.result not in ("crashed", "fail", "warn"):
            continue
        blocking = " (blocking)" if x.blocking and x.result == "fail" else ""
        say(f"{x.result.upper()} {x.v}.{x.check}{blocking}", MARKS[x.result])
        say(f"  {visible(x.message)}")
        if x.remedy:
            say(f"  what to do: {visible(x.remedy)}")
        for i, key in enumerate(named(x.findings[:MOST_KEYS])):
            say(f"    {visible(key)}{f': {visible(x.notes[i])}' if x.notes else ''}", "dim")
        if len(x.findings) > MOST_KEYS:
            say(f"    and {len(x.findings) - MOST_KEYS:,} more (--findings FILE)", "dim")


def _reason(worst: str, at: Sequence[Verdict], mine: Sequence[Verdict]) -> str:
    if worst == "pass":
        lacking = len(mine) - len(at)
        checks = f"{len(at)} {'check' if len(at) == 1 else 'checks'}"
        return f"{checks}, not measurable: {lacking}" if lacking else checks
    if worst == "not_measurable":
        return at[0].message if len(at) == 1 else f"{len(at)} checks lack their input"
    return ", ".join(x.check.replace("_", " ") for x in at)


def _word(result: str) -> str:
    return result.replace("_", " ")
