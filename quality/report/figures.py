"""From `Verdict.data` to figures: which key is drawn how, on the page or as an SVG file that stands alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sevenfold.quality.report import plot
from sevenfold.quality.report.markup import Html, el, join, numbers, prose

LIGHT = (
    "text{font-family:'Liberation Sans',Arial,sans-serif;fill:#1c2024}.tick,.value,.title{fill:#565d66;font-size:12px}"
    ".name{font-size:12.5px}.heading{font-size:14px;font-weight:bold}.gridline{stroke:#e0e0d9}.axis{stroke:#565d66}"
    ".line{fill:none;stroke-width:2.2}.band{opacity:.2}.mark{stroke:#fff}.limit{stroke-width:1.6}"
    ".limit.warn{stroke:#8a5a00;stroke-dasharray:5 3}.limit.fail{stroke:#b3261e;stroke-dasharray:5 3}.out{fill:#b3261e}"
    ".s1.fill,.s1.mark,.s1.band{fill:#3566c9}.s1.line{stroke:#3566c9}"
    ".s2.fill,.s2.mark,.s2.band{fill:#b9640f}.s2.line{stroke:#b9640f}.cell{fill:#3566c9}.cell.same{fill:#6c7580}"
    ".on{fill:#fff}"
)
"""The figures' own style where the page's sheet is not there: light, on white."""


WIDEST = 380
"""Pixels that a figure that stands alone takes: as much as the dialog in which Dagster shows it has."""


@dataclass(frozen=True)
class Figure:
    """One drawing: its title, what is drawn at which size, the series' names, the numbers behind it.

    `head`, `rows`: the table that is folded away below the drawing. `note`: what the reader must know.
    """

    title: str
    body: Html
    width: float
    height: float
    series: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    note: str = ""
    wide: bool = False


def figures(data: Mapping[str, Any]) -> list[Figure]:
    """The figures of a verdict's data; what is not of the documented shape becomes a figure that says so."""
    from sevenfold.quality.report import distributions, lines, matrix

    kinds: tuple[tuple[str, Callable[[Any], Sequence[Figure]]], ...] = (
        ("histograms", distributions.histograms),
        ("bars", lambda one: [distributions.bars(one)]),
        ("matrix", lambda one: [matrix.matrix(one)]),
        ("curve", lambda one: [lines.curve(one)]),
        ("series", lambda one: [lines.series(one)]),
    )
    found: list[Figure] = []
    for key, draw in kinds:
        if not data.get(key):
            continue
        try:
            found += draw(data[key])
        # the data may come from a user's own check: the page says what it cannot draw and goes on
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            found.append(unreadable(key, error))
    return found


def unreadable(key: str, error: Exception) -> Figure:
    """What stands where a plot cannot be drawn."""
    return Figure(key, Html(""), 0, 0, note=f"The data of `{key}` cannot be drawn: {type(error).__name__} {error}.")


def on_page(figure: Figure, *, legend: bool = True) -> Html:
    """The figure in HTML, in the page's colours, at most as wide as its column."""
    caption = el("figcaption", prose(figure.note)) if figure.note else None
    if not figure.body:
        return el("figure", el("h4", figure.title), caption, class_="figure")
    svg = el("svg", el("title", figure.title), figure.body, viewBox=f"0 0 {figure.width:g} {figure.height:g}",
             width=f"{figure.width:g}", role="img", class_="chart fluid")  # fmt: skip
    table = numbers(figure.head, figure.rows, caption=figure.title) if figure.rows else None
    names = plot.legend(figure.series, square=True) if legend and len(figure.series) > 1 else None
    return el("figure", el("h4", figure.title), names, svg, caption, table,
              class_="figure wide" if figure.wide else "figure")  # fmt: skip


def standalone(figure: Figure) -> str:
    """The figure as one SVG document with its title, legend and style inside."""
    top = 24 + (20 if len(figure.series) > 1 else 0)
    parts: list[Html] = [el("style", Html(LIGHT)), el("rect", width="100%", height="100%", fill="#fff"),
                         plot.label(8, 17, figure.title, kind="heading")]  # fmt: skip
    at = 8.0
    for i, name in enumerate(figure.series if len(figure.series) > 1 else ()):
        parts.append(el("rect", x=at, y=27, width=11, height=11, class_=f"fill {plot.series(i)}"))
        parts.append(plot.label(at + 16, 37, name, kind="name"))
        at += 34 + 7.2 * len(name)
    parts.append(el("g", figure.body, transform=f"translate(0 {top})"))
    width, height = figure.width, figure.height + top
    scale = min(1.0, WIDEST / width)
    return el("svg", join(parts), xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:g} {height:g}",
              width=f"{width * scale:.0f}", height=f"{height * scale:.0f}")  # fmt: skip
