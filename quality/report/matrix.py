"""A matrix of values as a heat map: given label by likely label, annotator by annotator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sevenfold.quality.report import plot
from sevenfold.quality.report.figures import Figure
from sevenfold.quality.report.format import number, percent, shorten
from sevenfold.quality.report.markup import Html, el, join

MOST = 20
WITH_NUMBERS = 12
SIZE = 400.0


def matrix(one: Mapping[str, Any]) -> Figure:
    """Rows down, columns across. With equal names on both sides the diagonal is grey: what lies beside it is the news.

    Past 20 names, those whose cells beside the diagonal are largest.
    """
    rows, columns = [str(r) for r in one["rows"]], [str(c) for c in one["columns"]]
    values = [[float(v) if v is not None else 0.0 for v in line] for line in one["values"]]
    if len(values) != len(rows) or any(len(line) != len(columns) for line in values):
        raise ValueError(f"values are not {len(rows)} by {len(columns)}")
    square, note = rows == columns, ""
    if max(len(rows), len(columns)) > MOST:
        note = f"The most telling of {len(rows):,} rows and {len(columns):,} columns."
        keep_rows = _largest([_beside(line, i if square else None) for i, line in enumerate(values)])
        sums = [_beside([line[j] for line in values], j if square else None) for j in range(len(columns))]
        keep_columns = keep_rows if square else _largest(sums)
        values = [[values[i][j] for j in keep_columns] for i in keep_rows]
        rows, columns = [rows[i] for i in keep_rows], [columns[j] for j in keep_columns]
    flat = [abs(v) for i, line in enumerate(values) for j, v in enumerate(line) if not (square and i == j)]
    top = max(flat, default=0.0) or 1.0
    whole = all(v.is_integer() for line in values for v in line)
    share = not whole and all(0 <= v <= 1 for line in values for v in line)
    show = (lambda v: percent(v, 0)) if share else number
    left = plot.margin(rows, 14)
    cell = min((SIZE - left) / max(len(columns), 1), 44.0)
    head = 12 + 6.2 * min(max((len(c) for c in columns), default=1), 12)
    parts: list[Html] = []
    for j, name in enumerate(columns):
        x = left + (j + 0.5) * cell
        parts.append(el("text", shorten(name, 12), transform=f"translate({x + 4:.1f} {head - 4:.1f}) rotate(-55)",
                        class_="name"))  # fmt: skip
    for i, line in enumerate(values):
        y = head + i * cell
        parts.append(plot.label(left - 8, round(y + cell / 2 + 4, 1), shorten(rows[i], 14), anchor="end", kind="name"))
        for j, v in enumerate(line):
            same = square and i == j
            strength = 0.16 if same else round(0.06 + 0.94 * min(abs(v) / top, 1.0), 3) if v else 0.03
            hint = el("title", f"{rows[i]}, {columns[j]}: {show(v)}")
            parts.append(el("rect", hint, x=round(left + j * cell + 0.75, 2), y=round(y + 0.75, 2),
                            width=round(cell - 1.5, 2), height=round(cell - 1.5, 2), rx=2,
                            class_="cell same" if same else "cell", fill_opacity=strength))  # fmt: skip
            if v and len(columns) <= WITH_NUMBERS:
                on = " on" if strength > 0.55 else ""
                at = round(left + (j + 0.5) * cell, 1)
                parts.append(plot.label(at, round(y + cell / 2 + 4, 1), show(v), anchor="middle", kind=f"tick{on}"))
    title = str(one.get("title") or "matrix")
    table = tuple((rows[i], *(show(v) for v in line)) for i, line in enumerate(values))
    width = max(left + cell * len(columns) + 8 + 4.5 * min(len(columns[-1]) if columns else 0, 12), 300.0)
    return Figure(title, join(parts), width, head + cell * len(rows) + 6, (), ("", *columns), table, note, wide=True)


def _beside(line: list[float], diagonal: int | None) -> float:
    return sum(abs(v) for j, v in enumerate(line) if j != diagonal)


def _largest(sums: list[float]) -> list[int]:
    return sorted(sorted(range(len(sums)), key=lambda i: -sums[i])[:MOST])
