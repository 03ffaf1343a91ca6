"""How the command line shows things: tables and text on stdout, progress on stderr, JSON for programs."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from sevenfold.storage.progress import Progress

MARKS = {"pass": "green", "warn": "yellow", "fail": "bold red", "not_measurable": "dim", "crashed": "bold magenta"}
"""The colour of each verdict; its word is always printed too."""


_STEERING = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def example(*lines: str) -> str:
    """The end of a command's help: one line each, as typed."""
    return "\n\n".join(["[bold]Example[/bold]", *(line.replace("[", r"\[") for line in lines)])


def stdout() -> Console:
    """The console for results. Into a pipe or a file lines are as long as they need to be."""
    return _console(stderr=False)


def stderr() -> Console:
    """The console for progress and remarks."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else max(160, shutil.get_terminal_size((160, 24)).columns)
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def say(text: str = "", style: str | None = None) -> None:
    """A line on stdout, or several; see :func:`visible`."""
    console = stdout()
    console.print("\n".join(map(visible, text.split("\n"))), style=style, soft_wrap=not console.is_terminal)


def visible(text: str) -> str:
    """Text of the data's (a file name, a caption) as one line that commands nothing.

    Control characters, which may steer a terminal or turn the text around, are shown as escapes; and what the runner of
    GitHub's workflows would take for a command (`::error::` at the beginning of a line, `##[error]`) is broken up.
    """
    shown = _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text).replace("##[", "#\\x23[")
    return shown if not shown.lstrip().startswith("::") else shown.replace(":", "\\x3a", 1)


def print_json(value: Any) -> None:
    """One JSON document on stdout, keys in the order given. NaN and infinities, which JSON lacks, are null."""
    print(json.dumps(finite(value), indent=2, ensure_ascii=False, default=str, allow_nan=False))


def finite(value: Any) -> Any:
    """The value with null for every NaN and infinity within it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(v) for key, v in value.items()}
    return [finite(v) for v in value] if isinstance(value, list | tuple) else value


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str = "", right: Sequence[str] = ()
) -> None:
    """A plain table on stdout; `right` names the columns of numbers. A cell may be (text, style)."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(c[0]), style=c[1]) if type(c) is tuple else Text(visible(_cell(c))) for c in row))
    stdout().print(table)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):  # a rate or a time of Unix in powers of ten tells nobody anything
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
    return str(value)


def date(seconds: float | None) -> str:
    """Unix seconds as local time, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds is not None else ""


@contextmanager
def progress(what: str, *, every: float = 5.0, clock: Callable[[], float] = time.monotonic) -> Iterator[Progress]:
    """Show that work goes on, on stderr: a live bar on a terminal, else a line every few seconds.

    Yields the callable that the rooms report to; work that never reports is shown by its time alone.
    """
    shown = _Bar(what, clock) if sys.stderr.isatty() else _Lines(what, every, clock)
    try:
        yield shown.update
    finally:
        shown.close()


class _Bar:
    """A rich bar that leaves nothing behind."""

    def __init__(self, what: str, clock: Callable[[], float]) -> None:
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        from sevenfold.storage.progress import Pace

        self._pace, self._clock = Pace(), clock
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[count]}", markup=False),
            TextColumn("{task.fields[pace]}", markup=False),
            TimeElapsedColumn(),
            console=stderr(),
            transient=True,
        )
        self._task = self._bars.add_task(what, total=None, pace="", count="")
        self._bars.start()

    def update(self, done: int, total: int, what: str) -> None:
        self._pace.report(done, total, self._clock())
        shown = ", ".join(_pace(self._pace.rate, self._pace.left))
        count = f"{done:,}/{total:,}" if total else f"{done:,}" if done else ""
        self._bars.update(self._task, completed=done, total=total or None, description=what, pace=shown, count=count)

    def close(self) -> None:
        self._bars.stop()


class _Lines:
    """A line every few seconds from a thread of its own, so that silent work shows too; quick work prints nothing."""

    def __init__(self, what: str, every: float, clock: Callable[[], float]) -> None:
        from sevenfold.storage.progress import Pace

        self._state: tuple[int, int, str] = (0, 0, what)
        self._pace, self._guard = Pace(), threading.Lock()
        self._clock, self._every, self._began = clock, every, clock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._thread.start()

    def update(self, done: int, total: int, what: str) -> None:
        with self._guard:
            self._state = (done, total, what)
            self._pace.report(done, total, self._clock())

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _tick(self) -> None:
        while not self._over.wait(self._every):
            with self._guard:
                self._pace.tick(self._clock())
                state, rate, left = self._state, self._pace.rate, self._pace.left
            print(progress_line(*state, self._clock() - self._began, rate, left), file=sys.stderr, flush=True)


def progress_line(
    done: int, total: int, what: str, seconds: float, rate: float | None = None, left: float | None = None
) -> str:
    """One line of progress: `measuring: 12,000 of 60,000 (20%), 1,500/s, 32 s left, 14 s`."""
    parts = [what]
    if total:
        parts.append(f": {done:,} of {total:,} ({done / total:.0%})")
    elif done:
        parts.append(f": {done:,}")
    return ", ".join(["".join(parts), *_pace(rate, left), f"{seconds:.0f} s"])


def _pace(rate: float | None, left: float | None) -> list[str]:
    """`1,500/s` and `32 s left`, `5 min left` or `2.1 h left`, as far as they are known."""
    words = [] if rate is None else [f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"]
    if left is not None and left < 90:
        words.append(f"{left:.0f} s left")
    elif left is not None:
        words.append(f"{left / 60:.0f} min left" if left < 5400 else f"{left / 3600:.1f} h left")
    return words
