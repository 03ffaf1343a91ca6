"""The small grammar of the charts: scales, ticks, axes, marks and legends as SVG that follows the page's colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sevenfold.quality.report.markup import Html, el, join

SERIES = 6
DASHES = (None, "7 4", "2 3", "9 3 2 3", "4 2", "1 4")


def series(index: int) -> str:
    """The CSS class of the index-th colour (they repeat after six)."""
    return f"s{index % SERIES + 1}"


def linear(lo: float, hi: float, start: float, stop: float) -> Callable[[float], float]:
    """Map [lo, hi] to [start, stop]; a range of no width lands in the middle."""
    span = hi - lo
    if span <= 0:
        return lambda _: (start + stop) / 2
    return lambda value: round(start + (value - lo) / span * (stop - start), 2)


def ticks(lo: float, hi: float, about: int = 5, *, whole: bool = False) -> list[float]:
    """Round numbers (1, 2, 2.5, 5 times a power of ten) that cover [lo, hi]; `whole` keeps to integers."""
    span = hi - lo
    if not math.isfinite(span) or span <= 0:
        return [lo]
    raw = span / max(about, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    if whole:
        step = max(1.0, math.ceil(step))
    first, last = math.floor(lo / step + 1e-9), math.ceil(hi / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def label(x: float, y: float, content: str, *, anchor: str = "start", kind: str = "tick") -> Html:
    """One line of text; kind is a class of the style sheet: tick, name, value, title."""
    return el("text", content, x=x, y=y, text_anchor=anchor, class_=kind)


def rule(x1: float, y1: float, x2: float, y2: float, kind: str = "gridline", dash: str | None = None) -> Html:
    """One straight line."""
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind, stroke_dasharray=dash)


def vertical_grid(values: Sequence[float], x: Callable[[float], float], top: float, bottom: float,
                  show: Callable[[float], str]) -> Html:  # fmt: skip
    """Grid lines down the plot with tick labels below."""
    return join(
        part
        for value in values
        for part in (rule(x(value), top, x(value), bottom), label(x(value), bottom + 16, show(value), anchor="middle"))
    )


def marker(index: int, x: float, y: float, size: float = 4.5, hint: str = "") -> Html:
    """A mark whose shape differs by series too, so that colour is not the only signal."""
    title = el("title", hint) if hint else None
    r = size
    match index % 4:
        case 0:
            return el("circle", title, cx=x, cy=y, r=r, class_=f"mark {series(index)}")
        case 1:
            return el("rect", title, x=x - r, y=y - r, width=2 * r, height=2 * r, class_=f"mark {series(index)}")
        case 2:
            corners = f"{x},{y - r * 1.2} {x + r * 1.15},{y + r * 0.9} {x - r * 1.15},{y + r * 0.9}"
        case _:
            corners = f"{x},{y - r * 1.3} {x + r * 1.3},{y} {x},{y + r * 1.3} {x - r * 1.3},{y}"
    return el("polygon", title, points=corners, class_=f"mark {series(index)}")


def margin(names: Sequence[str], most: int = 20) -> float:
    """Room for the row names left of a plot, about 7.4 pixels a character."""
    return 18 + 7.4 * max((min(len(name), most) for name in names), default=0)


def legend(names: Sequence[str], *, square: bool = False) -> Html:
    """Names with their marks, above the plot, in HTML so that it wraps."""

    def key(index: int) -> Html:
        swatch = (
            el("rect", x=1, y=1, width=12, height=12, rx=2, class_=f"fill {series(index)}")
            if square
            else marker(index, 7, 7, 5)
        )
        return el("svg", swatch, viewBox="0 0 14 14", width=14, height=14, aria_hidden="true")

    return el("ul", *(el("li", key(i), name) for i, name in enumerate(names)), class_="legend")


def drawing(content: Html, width: float, height: float, *, says: str) -> Html:
    """The frame around a chart: scales with the page, scrolls sideways on narrow screens, reads as one image."""
    svg = el(
        "svg", el("title", says), content,
        viewBox=f"0 0 {width:g} {height:g}", width=f"{width:g}", height=f"{height:g}", role="img", class_="chart",
    )  # fmt: skip
    return el("div", svg, class_="scroll")


def spread_out(wanted: Sequence[float], gap: float) -> list[float]:
    """Move label positions apart until neighbours are at least `gap` away, each as near its wish as the rest allows."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    groups: list[list[float]] = []  # [mean wish of the group's first place, members]
    members: list[list[int]] = []
    for i in order:
        groups.append([wanted[i], 1.0])
        members.append([i])
        while len(groups) > 1 and groups[-2][0] + groups[-2][1] * gap > groups[-1][0]:
            (a, n), (b, m) = groups[-2], groups[-1]
            groups[-2:] = [[(a * n + (b - n * gap) * m) / (n + m), n + m]]
            members[-2:] = [members[-2] + members[-1]]
    placed = [0.0] * len(wanted)
    for (start, _), inside in zip(groups, members, strict=True):
        for place, i in enumerate(inside):
            placed[i] = start + place * gap
    return placed
