"""Velocity of arrivals: batches per window within control limits, and whether the pipeline keeps up with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sevenfold.intervals import mean_interval
from sevenfold.quality import policy as limits
from sevenfold.quality.verdict import Verdict, missing

_TAIL = 0.00135
"""Each side's chance beyond three standard deviations of a normal: Shewhart's limits, as chances."""

_SETTLED = ("committed", "rejected")


@dataclass(frozen=True)
class Windows:
    """Full windows of one width that end at `now`, oldest first, from the first landing on.

    Parameters
    ----------
    ends : float64 [w], unix seconds; arrived, settled : int64 [w], batches; busy : float64 [w], seconds of work.
    members : per window the ids of the batches that landed in it.
    """

    ends: np.ndarray
    arrived: np.ndarray
    settled: np.ndarray
    busy: np.ndarray
    members: tuple[tuple[str, ...], ...]


def windows_of(records: Sequence[Mapping[str, Any]], now: float, width: float) -> Windows:
    """Batches per window. The window with the first landing is left out: what came before it is not known."""
    landed = [(float(r["times"]["landed"]), r) for r in records if r["times"].get("landed") is not None]
    first = min((t for t, _ in landed), default=now)
    count = max(0, int((now - first) // width))
    members: list[list[str]] = [[] for _ in range(count)]
    arrived, settled, busy = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count)

    def place(t: float) -> int | None:
        back = int((now - t) // width)
        return count - 1 - back if 0 <= back < count else None

    for t, r in landed:
        if (at := place(t)) is not None:
            arrived[at] += 1
            busy[at] += sum(float(s) for s in r.get("seconds", {}).values())
            members[at].append(str(r["batch"]))
        done = next((float(r["times"][s]) for s in _SETTLED if r["times"].get(s) is not None), None)
        if done is not None and (at := place(done)) is not None:
            settled[at] += 1
    ends = now - width * np.arange(count - 1, -1, -1, dtype=np.float64)
    return Windows(ends, arrived, settled, busy, tuple(tuple(m) for m in members))


def control_limits(counts: np.ndarray) -> tuple[float, float, str]:
    """(low, high, kind) for the next count after int [w], w >= 2.

    A c chart with the limits of the predictive distribution, which is negative binomial when the rate of a Poisson
    stream is known from w windows only; or, when the counts vary more than a Poisson stream's (index of dispersion,
    1 %), an individuals chart: mean +- 2.66 mean moving range (Shewhart; Montgomery 2012).
    """
    from scipy.stats import chi2, nbinom

    w, total = len(counts), float(counts.sum())
    mean = total / w
    spread = float(((counts - mean) ** 2).sum() / mean) if mean > 0 else 0.0
    if mean > 0 and chi2.sf(spread, w - 1) < 0.01:
        reach = 2.66 * float(np.abs(np.diff(counts)).mean())
        return max(0.0, mean - reach), mean + reach, "individuals"
    next_count = nbinom(total + 0.5, w / (w + 1))
    low, high = float(next_count.ppf(_TAIL)), float(next_count.isf(_TAIL))
    return low, high, "c"


def _silence(before: np.ndarray, empty: int) -> float:
    """The chance of so many windows without an arrival after those of int [w], for a Poisson stream."""
    w = len(before)
    return float((w / (w + empty)) ** (before.sum() + 0.5))


def arrivals(records: Sequence[Mapping[str, Any]], *, now: float, subject: str, policy: limits.Velocity) -> Verdict:
    """Batches that landed in the newest full window, against the control limits of all windows before it.

    Warns outside of them, and when so many windows in a row without any are as unlikely. Findings: the batches of a
    window with too many. Not measurable below ``min_windows``.
    """
    seen = windows_of(records, now, policy.window_seconds)
    w = len(seen.arrived)
    thresholds = {"window_seconds": policy.window_seconds, "min_windows": float(policy.min_windows)}
    if w <= policy.min_windows or seen.arrived.sum() < policy.min_windows:
        why = (
            f"{int(seen.arrived.sum())} batches landed in {w} full windows; control limits need {policy.min_windows} "
            f"batches in more than {policy.min_windows} windows."
        )
        return missing("velocity", "arrivals", subject, why)
    empty = int(np.argmax(seen.arrived[::-1] > 0))  # windows since the last landing
    before = seen.arrived[: w - max(empty, 1)]
    if len(before) < policy.min_windows:
        before = seen.arrived[:-1]
    low, high, kind = control_limits(before)
    newest = int(seen.arrived[-1])
    many, few = newest > high, newest < low or _silence(before, empty) < _TAIL
    return Verdict(
        v="velocity",
        check="arrivals",
        subject=subject,
        result="warn" if many or few else "pass",
        statistic=float(newest),
        statistic_name="batches that landed in the newest window",
        n=w,
        effect=newest - float(before.mean()),
        thresholds=thresholds,
        message=f"{newest} batches landed in the newest window"
        + (f", and none in the {empty} newest" if empty > 1 else "")
        + f"; the {len(before)} before had {before.mean():.1f} on average, which makes {low:.3g} to {high:.3g} usual "
        f"({kind} chart).",
        remedy="See whether the source stopped delivering." if few else "See what sent so many." if many else "",
        findings=tuple(f"batch:{b}" for b in seen.members[-1]) if many else (),
        data={
            "series": {
                "title": "Arrivals",
                "x_name": "end of the window",
                "y_name": "batches landed",
                "points": [[float(t), int(k)] for t, k in zip(seen.ends[-200:], seen.arrived[-200:], strict=True)],
                "limits": [low, high],
            }
        },
    )


def capacity(records: Sequence[Mapping[str, Any]], *, now: float, subject: str, policy: limits.Velocity) -> Verdict:
    """Whether more arrives than is worked off: the share of the time spent on batches, and growth of what waits.

    Fails when the share's lower bound exceeds ``max_utilisation``, or when more batches land per window than are
    committed or rejected (the interval of the difference is above 0) and more than ``max_backlog_batches`` wait.
    """
    seen = windows_of(records, now, policy.window_seconds)
    w = len(seen.arrived)
    if w < policy.min_windows or seen.arrived.sum() < policy.min_windows:
        why = f"{int(seen.arrived.sum())} batches in {w} full windows; {policy.min_windows} of both are needed."
        return missing("velocity", "capacity", subject, why)
    shares = seen.busy / policy.window_seconds
    share = float(shares.mean())
    low, high = mean_interval(shares)
    growth = (seen.arrived - seen.settled)[-policy.min_windows :].astype(np.float64)
    more = mean_interval(growth) if growth.std() > 0 else (float(growth.mean()), float(growth.mean()))
    waiting = [
        str(r["batch"])
        for r in sorted(records, key=lambda r: float(r["times"].get("landed") or now))
        if not any(r["times"].get(s) is not None for s in _SETTLED)
    ]
    busy = low > policy.max_utilisation
    growing = more[0] > 0 and len(waiting) > policy.max_backlog_batches
    over = busy or growing
    return Verdict(
        v="velocity",
        check="capacity",
        subject=subject,
        result="fail" if over else "pass",
        statistic=share,
        statistic_name="share of the time spent on the batches that arrive",
        interval=(max(0.0, low), max(share, high)),
        n=w,
        effect=float(growth.mean()),
        thresholds={
            "max_utilisation": policy.max_utilisation,
            "max_backlog_batches": float(policy.max_backlog_batches),
            "window_seconds": policy.window_seconds,
        },
        message=f"Batches take {share:.1%} of the time; in each of the last {len(growth)} windows {growth.mean():+.2g} "
        f"more land than are settled ({more[0]:+.2g} to {more[1]:+.2g}), {len(waiting)} wait.",
        remedy="Give ingest and checks more workers, or land less." if over else "",
        findings=tuple(f"batch:{b}" for b in waiting) if growing else (),
    )
