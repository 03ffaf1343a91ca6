"""A curve with its fit, interval and target; a series over time with its limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sevenfold.quality.report import plot
from sevenfold.quality.report.figures import Figure
from sevenfold.quality.report.format import number
from sevenfold.quality.report.markup import Html, el, join

WIDTH, HEIGHT = 460.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, WIDTH - 14, 12.0, HEIGHT - 46
EARLIEST = 5e8
"""Numbers above it are read as unix seconds: 1985."""

Point = tuple[float, ...]


def curve(one: Mapping[str, Any]) -> Figure:
    """Points, the fitted line with its interval as a band, the target as a dashed line; a log axis when x spans 20x."""
    points = _points(one["points"], 2)
    fit = _points(one.get("fit") or [], 4)
    target = one.get("target")
    if not points and not fit:
        raise ValueError("no points")
    xs = [p[0] for p in (*points, *fit)]
    ys = [p[1] for p in points] + [v for p in fit for v in p[1:4]] + ([float(target)] if target is not None else [])
    log = min(xs) > 0 and max(xs) > 20 * min(xs)
    x, parts = _x_axis(xs, log)
    y, lines = _y_axis(ys)
    parts += lines
    if fit:
        ahead = [f"{x(p[0])},{y(p[3])}" for p in fit]
        back = [f"{x(p[0])},{y(p[2])}" for p in reversed(fit)]
        parts.append(el("polygon", points=" ".join((*ahead, *back)), class_="band s2"))
        parts.append(el("polyline", points=" ".join(f"{x(p[0])},{y(p[1])}" for p in fit), class_="line s2"))
    if target is not None:
        parts.append(plot.rule(LEFT, y(float(target)), RIGHT, y(float(target)), "limit fail"))
        above = y(float(target)) - 6
        parts.append(plot.label(RIGHT, round(above, 1), f"target {number(float(target))}", anchor="end", kind="value"))
    parts += [plot.marker(0, x(p[0]), y(p[1]), 4.5, f"{number(p[0])}: {number(p[1])}") for p in points]
    parts += _titles(one)
    rows = [("measured", number(p[0]), number(p[1]), "") for p in points]
    rows += [("fitted", number(p[0]), number(p[1]), f"{number(p[2])} to {number(p[3])}") for p in fit]
    head = ("", str(one.get("x_name", "x")), str(one.get("y_name", "y")), "interval")
    names = ("measured", "fitted, with interval") if fit else ("measured",)
    return Figure(str(one.get("title") or "curve"), join(parts), WIDTH, HEIGHT, names, head, tuple(rows),
                  "The horizontal axis is logarithmic." if log else "", wide=True)  # fmt: skip


def series(one: Mapping[str, Any]) -> Figure:
    """Points in order, joined, and the limits between which they are expected; what lies outside is marked red."""
    points = sorted(_points(one["points"], 2))
    if not points:
        raise ValueError("no points")
    limits = [float(v) for v in one["limits"] if v is not None] if one.get("limits") else []
    low, high = (one["limits"][0], one["limits"][1]) if one.get("limits") else (None, None)
    x, parts = _x_axis([p[0] for p in points], log=False)
    y, lines = _y_axis([p[1] for p in points] + limits)
    parts += lines
    for limit in limits:
        parts.append(plot.rule(LEFT, y(limit), RIGHT, y(limit), "limit fail"))
    parts.append(el("polyline", points=" ".join(f"{x(p[0])},{y(p[1])}" for p in points), class_="line s1"))
    show = _moments([p[0] for p in points])
    for p in points if len(points) <= 200 else [p for p in points if _outside(p[1], low, high)]:
        out = _outside(p[1], low, high)
        hint = el("title", f"{show(p[0])}: {number(p[1])}")
        kind = "mark out" if out else "mark s1"
        parts.append(el("circle", hint, cx=x(p[0]), cy=y(p[1]), r=5 if out else 3.4, class_=kind))
    parts += _titles(one)
    rows = tuple((show(p[0]), number(p[1]), "outside" if _outside(p[1], low, high) else "") for p in points[-200:])
    n = sum(_outside(p[1], low, high) for p in points)
    note = f"{n} of {len(points):,} lie outside the limits (dashed)." if limits else ""
    head = (str(one.get("x_name", "time")), str(one.get("y_name", "value")), "")
    return Figure(str(one.get("title") or "series"), join(parts), WIDTH, HEIGHT, (), head, rows, note, wide=True)


def _points(given: Sequence[Sequence[float]], width: int) -> list[Point]:
    """Rows of `width` finite numbers; others are left out."""
    rows = [tuple(math.nan if v is None else float(v) for v in row[:width]) for row in given]
    if any(len(row) != width for row in rows):
        raise ValueError(f"a point has fewer than {width} numbers")
    return [row for row in rows if all(math.isfinite(v) for v in row)]


def _outside(value: float, low: float | None, high: float | None) -> bool:
    return (low is not None and value < low) or (high is not None and value > high)


def _x_axis(xs: Sequence[float], log: bool) -> tuple[Callable[[float], float], list[Html]]:
    lo, hi = min(xs), max(xs)
    if log:
        inner = plot.linear(math.log10(lo), math.log10(hi), LEFT + 10, RIGHT - 10)
        marks = [m * 10.0**e for e in range(math.floor(math.log10(lo)), math.ceil(math.log10(hi)) + 1) for m in (1, 3)]
        at: Callable[[float], float] = lambda v: inner(math.log10(v))  # noqa: E731
    else:
        at = plot.linear(lo, hi, LEFT + 10, RIGHT - 10)
        marks = plot.ticks(lo, hi, 5)
    show = _moments(xs)
    parts = [plot.rule(LEFT, BOTTOM, RIGHT, BOTTOM, "axis")]
    for mark in (m for m in marks if lo <= m <= hi):
        parts.append(plot.rule(at(mark), BOTTOM, at(mark), BOTTOM + 4, "axis"))
        parts.append(plot.label(at(mark), BOTTOM + 18, show(mark), anchor="middle"))
    return at, parts


def _y_axis(ys: Sequence[float]) -> tuple[Callable[[float], float], list[Html]]:
    lo, hi = min(ys), max(ys)
    if lo > 0 and lo < 0.5 * hi:
        lo = 0.0
    scale = plot.ticks(lo, hi, 5) if hi > lo else plot.ticks(lo - 0.5 * (abs(lo) or 1), hi + 0.5 * (abs(hi) or 1), 3)
    at = plot.linear(scale[0], scale[-1], BOTTOM, TOP)
    parts = [part for t in scale for part in (plot.rule(LEFT, at(t), RIGHT, at(t)),
             plot.label(LEFT - 8, at(t) + 4, number(t), anchor="end"))]  # fmt: skip
    return at, parts


def _titles(one: Mapping[str, Any]) -> list[Html]:
    across, up = str(one.get("x_name", "")).removesuffix(" (unix time)"), str(one.get("y_name", ""))
    middle = f"translate(14 {(TOP + BOTTOM) / 2:g}) rotate(-90)"
    return [plot.label((LEFT + RIGHT) / 2, BOTTOM + 38, across, anchor="middle", kind="title"),
            el("text", up, class_="title", text_anchor="middle", transform=middle)]  # fmt: skip


def _moments(xs: Sequence[float]) -> Callable[[float], str]:
    """Unix seconds as dates (or times of one day), other numbers as they are."""
    if min(xs) < EARLIEST:
        return number
    pattern = "%H:%M" if max(xs) - min(xs) < 2 * 86400 else "%d %b" if max(xs) - min(xs) < 300 * 86400 else "%b %Y"
    return lambda v: datetime.fromtimestamp(v, UTC).strftime(pattern)
