"""How long work reports itself: a callable that is told (done, total, what); the caller decides how it looks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

Progress = Callable[[int, int, str], None]
"""Called with units done, units in total (0 when unknown) and what is being done."""


def silent(done: int, total: int, what: str) -> None:
    """A progress receiver that shows nothing."""


class Pace:
    """How fast a stage of work goes, from its last reports: what is done per second, and how long the rest will take.

    A stage ends when the total changes or less is done than before. Its first report counts nothing as done by it: what
    an earlier try left behind was not done in this one's time.
    """

    def __init__(self, window: float = 30.0) -> None:
        self._window = window
        self._total = 0
        self._now = 0.0
        self._reports: deque[tuple[float, int]] = deque()

    def report(self, done: int, total: int, seconds: float) -> None:
        """Take note of a progress report at a time (any clock that only rises, in seconds)."""
        if total != self._total or (self._reports and done < self._reports[-1][1]):
            self._reports.clear()
            self._total = total
        self._reports.append((seconds, done))
        while len(self._reports) > 2 and self._reports[1][0] <= seconds - self._window:
            self._reports.popleft()

    def tick(self, seconds: float) -> None:
        """Note that it is this late: without reports the rate falls, and the time left grows."""
        self._now = seconds

    @property
    def rate(self) -> float | None:
        """Units per second over the last seconds; None when there is nothing to tell from yet."""
        if not self._reports:
            return None
        (began, first), (ended, last) = self._reports[0], self._reports[-1]
        took = max(ended, self._now) - began
        return (last - first) / took if took > 0 and last > first else None

    @property
    def left(self) -> float | None:
        """Seconds until everything is done, at that rate; None when total or rate is unknown."""
        rate = self.rate
        return (self._total - self._reports[-1][1]) / rate if rate and self._total else None
