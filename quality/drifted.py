"""What a drift verdict shows: plain words, histograms, the samples that moved and typical ones to hold them against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality import policy as limits
from sevenfold.quality.two_sample import Shift
from sevenfold.quality.verdict import Verdict

EXAMPLES = 12
"""Pictures on each side."""

_BINS = 24
_FAR = 1e300  # beyond it the width of a bin would be infinite
_SHOWN = 6  # variables with a histogram
_BARS = 30  # categories drawn
_CENTRAL = (0.025, 0.975)  # the reference's central range


@dataclass(frozen=True)
class Moved:
    """Samples outside the reference's central range, worst first: row numbers int64 [r] and what is wrong with each."""

    rows: np.ndarray
    notes: tuple[str, ...]


def said(shift: Shift, x: np.ndarray, y: np.ndarray) -> str:
    """One variable's move in words: direction and size, from its compared values now (x) and before (y)."""
    if shift.kind == "categorical":
        return f"{shift.name}: " + ", ".join(share_words(share_moves(x, y))[:5])
    x, y = known(x), known(y)
    if abs(shift.delta) > 0.05:
        direction = "rose" if shift.delta > 0 else "fell"
        return f"{shift.name} {direction}: median {number(np.median(y))} -> {number(np.median(x))}"
    (a, b), (c, d) = np.quantile(y, _CENTRAL), np.quantile(x, _CENTRAL)
    change = "spread out" if d - c > b - a else "narrowed" if d - c < b - a else "changed its shape"
    return f"{shift.name} {change}: its central 95 % {number(a)} to {number(b)} -> {number(c)} to {number(d)}"


def share_moves(x: np.ndarray, y: np.ndarray) -> list[tuple[str | None, int, int, int, int]]:
    """(category, its count now, of n, its count before, of m), the largest move of a share first."""
    names = sorted({*x.tolist(), *y.tolist()}, key=lambda c: (c is None, str(c)))
    counts = [(c, int((x == c).sum()), len(x), int((y == c).sum()), len(y)) for c in names]
    return sorted(counts, key=lambda r: -abs(r[1] / r[2] - r[3] / r[4]))


def share_words(moves: Sequence[tuple[str | None, int, int, int, int]]) -> list[str]:
    """`coat 10.0% -> 20.0%` for each."""
    return [f"{'(none)' if c is None else c} {b / m:.1%} -> {a / n:.1%}" for c, a, n, b, m in moves]


def risen(moves: Sequence[tuple[str | None, int, int, int, int]], *, sign: int = 1) -> list[str | None]:
    """Categories whose share rose (fell, for sign -1) by more than two standard errors, largest move first."""
    out = []
    for c, a, n, b, m in moves:
        share = (a + b) / (n + m)
        if sign * (a / n - b / m) > 2 * np.sqrt(share * (1 - share) * (1 / n + 1 / m)):
            out.append(c)
    return out


def outside(
    now: Mapping[str, Any], before: Mapping[str, np.ndarray], x: Mapping[str, np.ndarray], moved: Sequence[Shift]
) -> Moved:
    """All samples outside the reference's central 95 % of a moved variable, or in a category that became commoner.

    Parameters
    ----------
    now : name -> all values, a column of Arrow or an array [n]; before, x : the values compared, [m] and [k].

    A sample's rank is its distance from that range in units of the range, by the variable in which it is farthest.
    """
    excess = which = None
    names: dict[int, tuple[Shift, tuple[float, float], dict[str | None, str]]] = {}
    for i, shift in enumerate(moved):
        column = now[shift.name]
        if shift.kind == "categorical":
            distance, words = _commoner(column, share_moves(x[shift.name], before[shift.name]))
            names[i] = (shift, (0.0, 0.0), words)
        else:
            y = known(before[shift.name])
            low, high = (float(q) for q in np.quantile(y, _CENTRAL))
            spread = (high - low) or float(np.std(y)) or 1.0
            values = floats(column)
            distance = np.fmax(low - values, values - high) / spread
            names[i] = (shift, (low, high), {})
        distance = np.nan_to_num(distance.astype(np.float32), nan=-1.0, posinf=3e38, neginf=-1.0)
        if excess is None:
            excess, which = distance, np.zeros(len(distance), np.int32)
        else:
            assert which is not None
            more = distance > excess
            excess[more], which[more] = distance[more], i
    if excess is None or which is None:
        return Moved(np.zeros(0, np.int64), ())
    rows = np.flatnonzero(excess > 0)
    rows = rows[np.argsort(-excess[rows], kind="stable")]
    return Moved(rows, tuple(_notes(now, rows, which[rows], names)))


def typical(before: Mapping[str, np.ndarray], moved: Sequence[Shift]) -> np.ndarray:
    """The compared reference samples nearest the median of every moved variable: row numbers, at most EXAMPLES."""
    far: np.ndarray | None = None
    for shift in moved:
        if shift.kind == "categorical":
            continue
        y = before[shift.name]
        low, middle, high = np.nanquantile(y, [_CENTRAL[0], 0.5, _CENTRAL[1]])
        distance = np.nan_to_num(np.abs(y - middle) / ((high - low) or 1.0), nan=np.inf)
        far = distance if far is None else np.maximum(far, distance)
    if far is None:
        size = len(next(iter(before.values()))) if before else 0
        return np.arange(min(EXAMPLES, size))
    return np.argsort(far, kind="stable")[:EXAMPLES]


def histograms(
    x: Mapping[str, np.ndarray], y: Mapping[str, np.ndarray], shown: Sequence[Shift]
) -> list[dict[str, Any]]:
    """Of the first numeric ones to show, now beside the reference."""
    numeric = [s.name for s in shown if s.kind == "numeric"][:_SHOWN]
    return [histogram(name, known(x[name]), known(y[name])) for name in numeric]


def histogram(name: str, now: np.ndarray, before: np.ndarray) -> dict[str, Any]:
    """Both sides on common edges; values beyond these count in the outermost bin."""
    now, before = now.astype(np.float64), before.astype(np.float64)
    low, high = (float(q) for q in np.quantile(np.concatenate([now, before]), [0.005, 0.995]))
    low, high = max(low, -_FAR), min(high, _FAR)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, _BINS + 1)
    counts = [np.histogram(np.clip(side, low, high), edges)[0].tolist() for side in (now, before)]
    return {"name": name, "edges": [float(e) for e in edges], "now": counts[0], "reference": counts[1]}


def bars(title: str, moves: Sequence[tuple[str | None, int, int, int, int]]) -> dict[str, Any]:
    """Shares now beside the reference: the 30 that moved most."""
    shown = moves[:_BARS]
    return {
        "title": title,
        "names": ["(none)" if c is None else str(c) for c, *_ in shown],
        "series": {"now": [a / n for _, a, n, _, _ in shown], "reference": [b / m for _, _, _, b, m in shown]},
    }


def examples(title: str, now: Sequence[str], reference: Sequence[str]) -> dict[str, Any]:
    """Ids of pictures to draw side by side."""
    return {"title": title, "now": list(now[:EXAMPLES]), "reference": list(reference[:EXAMPLES])}


def floats(column: Any) -> np.ndarray:
    """A column of Arrow, or an array, as float64 [n] with NaN for null; not copied where it need not be."""
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(**_copying(column)))
    return np.asarray(column, dtype=np.float64)


def known(values: np.ndarray) -> np.ndarray:
    """Without NaN and infinities."""
    return values[np.isfinite(values)]


def number(value: float) -> str:
    """Three significant digits."""
    return f"{value:.3g}"


def p_words(p: float) -> str:
    """A p-value as a reader wants it."""
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def _commoner(
    column: Any, moves: Sequence[tuple[str | None, int, int, int, int]]
) -> tuple[np.ndarray, dict[str | None, str]]:
    """How much commoner each sample's category became (0: not), and the words for it."""
    up = risen(moves)
    share = {c: (a / n, b / m) for c, a, n, b, m in moves}
    words = {c: w for (c, *_), w in zip(moves, share_words(moves), strict=True) if c in up}
    column = column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column.tolist(), pa.string())
    weight = np.array([*((share[c][0] - share[c][1]) for c in up), 0.0])
    codes = pc.index_in(column, value_set=pa.array(up, column.type), skip_nulls=False)
    return weight[pc.fill_null(codes, len(up)).to_numpy(**_copying(codes))], words


def _copying(column: Any) -> dict[str, bool]:
    return {"zero_copy_only": False} if isinstance(column, pa.Array) else {}


def _notes(
    now: Mapping[str, Any],
    rows: np.ndarray,
    which: np.ndarray,
    names: Mapping[int, tuple[Shift, tuple[float, float], dict[str | None, str]]],
) -> list[str]:
    """A few words per finding: which variable, its value, the reference's range."""
    notes = np.full(len(rows), "", dtype=object)
    for i, (shift, (low, high), words) in names.items():
        mine = np.flatnonzero(which == i)
        if not len(mine):
            continue
        column = now[shift.name]
        if shift.kind == "categorical":
            column = column if isinstance(column, np.ndarray) else np.asarray(column.take(pa.array(rows[mine])), object)
            values = column.tolist() if len(column) == len(mine) else column[rows[mine]].tolist()
            notes[mine] = [f"{shift.name} {words.get(v, v)}" for v in values]
        else:
            end = f" (reference {number(low)} to {number(high)})"
            notes[mine] = [f"{shift.name} {v:.3g}{end}" for v in floats(column)[rows[mine]].tolist()]
    return notes.tolist()


def thresholds(policy: limits.Volatility) -> dict[str, float]:
    """What every drift verdict was read against."""
    names = ("alpha", "warn_effect", "fail_effect", "min_n")
    return {name: float(getattr(policy, name)) for name in names}


def result(effect: float, warn: float, fail: float) -> str:
    """pass, warn or fail by the effect alone: give 0 where the test did not speak."""
    return "fail" if effect >= fail else "warn" if effect >= warn else "pass"


def too_few(check: str, subject: str, reference: str, n: int, m: int, policy: limits.Volatility, what: str) -> Verdict:
    """The verdict where a test would not be worth its name."""
    message = f"{n} {what} against {m} of {reference}: a test needs {policy.min_n} on both sides."
    remedy = f"Wait for more {what}, or judge several batches together."
    if not n:
        message = (
            f"There are no new {what} since {reference}: there is nothing to compare with it."
            if m
            else f"There are no {what}."
        )
    elif not m:
        message = f"{n} {what}, and {reference} has none to compare them with."
        remedy = "Commit a version; what comes after it is compared with it."
    return Verdict(
        "volatility",
        check,
        subject,
        "not_measurable",
        reference=reference,
        n=n,
        thresholds=thresholds(policy),
        message=message,
        remedy=remedy,
    )
