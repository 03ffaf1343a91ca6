"""How long work reports itself: a callable that is told (done, total, what); the caller decides how it looks."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int, str], None]
"""Called with units done, units in total (0 when unknown) and what is being done."""


def silent(done: int, total: int, what: str) -> None:
    """A progress receiver that shows nothing."""
