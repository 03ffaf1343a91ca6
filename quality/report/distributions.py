"""Histograms and bars: now beside the reference, as shares where the sides differ in size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sevenfold.quality.report import plot
from sevenfold.quality.report.figures import Figure
from sevenfold.quality.report.format import number, percent, shorten
from sevenfold.quality.report.markup import Html, el, join

WIDTH, HEIGHT = 310.0, 160.0
MOST_HISTOGRAMS = 24
MOST_BARS = 24


def histograms(given: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """A small figure for each: bars are the subject, the line is the reference; heights are shares of either side."""
    drawn = [_histogram(one) for one in given[:MOST_HISTOGRAMS]]
    if len(given) > MOST_HISTOGRAMS:
        rest = ", ".join(str(one["name"]) for one in given[MOST_HISTOGRAMS:])
        drawn.append(Figure("and more", Html(""), 0, 0, note=f"Not drawn: {rest}."))
    return drawn


def _histogram(one: Mapping[str, Any]) -> Figure:
    edges = _finite_edges([float(e) for e in one["edges"]])
    now, before = _shares(one["now"]), _shares(one["reference"]) if one.get("reference") else None
    if len(edges) != len(now) + 1 or (before is not None and len(before) != len(now)):
        raise ValueError(f"{len(edges)} edges for {len(now)} bins")
    top = max([*now, *(before or ()), 1e-9])
    scale = plot.ticks(0, top, 3)
    left, right, upper, lower = 46.0, WIDTH - 8, 8.0, HEIGHT - 26
    x, y = plot.linear(edges[0], edges[-1], left, right), plot.linear(0, scale[-1], lower, upper)
    digits = 0 if all(abs(100 * t - round(100 * t)) < 1e-6 for t in scale) else 1
    parts = [part for t in scale for part in (plot.rule(left, y(t), right, y(t)),
             plot.label(left - 6, y(t) + 4, percent(t, digits), anchor="end"))]  # fmt: skip
    for i, share in enumerate(now):
        hint = el("title", f"{number(edges[i])} to {number(edges[i + 1])}: {percent(share)}")
        wide = max(x(edges[i + 1]) - x(edges[i]) - 1, 0.6)
        parts.append(el("rect", hint, x=x(edges[i]), y=y(share), width=round(wide, 2),
                        height=round(lower - y(share), 2), class_="fill s1 soft"))  # fmt: skip
    if before is not None:
        steps = [f"M{x(edges[0])} {lower}"]
        steps += [f"V{y(share)}H{x(edges[i + 1])}" for i, share in enumerate(before)]
        parts.append(el("path", d=f"{''.join(steps)}V{lower}", class_="line s2"))
    parts.append(plot.rule(left, lower, right, lower, "axis"))
    marks = [t for t in plot.ticks(edges[0], edges[-1], 4) if edges[0] <= t <= edges[-1]]
    parts += [plot.label(x(t), lower + 17, number(t), anchor="middle") for t in marks]
    names = ("now", "reference") if before is not None else ("now",)
    rows = tuple(
        (f"{number(edges[i])} to {number(edges[i + 1])}", percent(now[i]), *([percent(before[i])] if before else ()))
        for i in range(len(now))
    )
    title = str(one["name"]).replace("_", " ")
    return Figure(title, join(parts), WIDTH, HEIGHT, names, ("from, to", *names), rows)


def _shares(counts: Sequence[float]) -> list[float]:
    total = float(sum(counts))
    return [float(c) / total if total else 0.0 for c in counts]


def _finite_edges(edges: list[float]) -> list[float]:
    """Open ends (infinite edges) become as wide as their neighbour."""
    inner = [e for e in edges if math.isfinite(e)]
    if len(inner) < 2:
        raise ValueError("fewer than two finite edges")
    if not math.isfinite(edges[0]):
        edges = [2 * inner[0] - inner[1], *edges[1:]]
    if not math.isfinite(edges[-1]):
        edges = [*edges[:-1], 2 * inner[-1] - inner[-2]]
    return edges


def bars(one: Mapping[str, Any]) -> Figure:
    """A row per name with a bar per series, the largest differences (or values) first where there are too many rows.

    Counts of two sides of unlike size are drawn as shares, or nothing could be compared.
    """
    names = [str(name) for name in one["names"]]
    series = {str(k): [float(v) for v in values] for k, values in one["series"].items() if values is not None}
    if any(len(values) != len(names) for values in series.values()):
        raise ValueError("a series has another length than the names")
    totals = [sum(values) for values in series.values()]
    counts = all(v >= 0 and v.is_integer() for values in series.values() for v in values)
    as_share = counts and len(totals) > 1 and min(totals) > 0 and max(totals) > 1.2 * min(totals)
    if as_share:
        series = {k: [v / (sum(values) or 1) for v in values] for k, values in series.items()}
    note = "Shares of either side." if as_share else ""
    order = list(range(len(names)))
    if len(names) > MOST_BARS:
        sides = list(series.values())
        weight = (lambda i: abs(sides[0][i] - sides[1][i])) if len(sides) > 1 else (lambda i: abs(sides[0][i]))
        order = sorted(sorted(order, key=lambda i: -weight(i))[:MOST_BARS])
        told = "largest differences" if len(sides) > 1 else "largest"
        note = f"{note} The {MOST_BARS} {told} of {len(names):,}.".lstrip()
    small = all(0 <= v <= 1 for values in series.values() for v in values) and (as_share or not counts)
    show = (lambda v: percent(v)) if small else number
    lo = min(0.0, *(v for values in series.values() for v in values)) if names else 0.0
    hi = max([0.0, *(v for values in series.values() for v in values)])
    scale = plot.ticks(lo, hi or 1.0, 3)
    whole = all(abs(100 * t - round(100 * t)) < 1e-6 for t in scale)
    tick = (lambda v: percent(v, 0 if whole else 1)) if small else number
    shown = [names[i] for i in order]
    wide = len(order) > 6
    width = 480.0 if wide else WIDTH
    left, right = plot.margin(shown, 14), width - 52
    thick = 10.0
    row = thick * len(series) + 9
    bottom = 6 + row * len(order)
    x = plot.linear(scale[0], scale[-1], left, right)
    parts = [plot.vertical_grid(scale, x, 2, bottom, tick)]
    for r, i in enumerate(order):
        y = 8 + r * row
        parts.append(plot.label(left - 8, y + thick * len(series) / 2 + 4, shorten(names[i], 14), anchor="end",
                                kind="name"))  # fmt: skip
        for s, (name, values) in enumerate(series.items()):
            start, stop = sorted((x(0.0), x(values[i])))
            hint = el("title", f"{names[i]}, {name}: {show(values[i])}")
            parts.append(el("rect", hint, x=start, y=y + s * thick, width=round(max(stop - start, 0.6), 2),
                            height=thick - 1.5, class_=f"fill {plot.series(s)}"))  # fmt: skip
            parts.append(plot.label(stop + 4, y + s * thick + 8, show(values[i]), kind="value small"))
    rows = tuple((names[i], *(show(values[i]) for values in series.values())) for i in order)
    title = str(one.get("title") or "bars")
    return Figure(title, join(parts), width, bottom + 24, tuple(series), ("", *series), rows, note, wide)
