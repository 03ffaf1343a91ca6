"""Plots from a verdict's data: each kind is drawn, sides of unlike size as shares, and what is malformed says so."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.quality.report import distributions, figures, lines, matrix
from sevenfold.quality.report.figures import Figure

from .conftest import DATA, HOSTILE

KINDS = ("histograms", "bars", "matrix", "curve", "series")


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_drawn_on_the_page_and_alone(kind: str) -> None:
    (figure,) = figures.figures({kind: DATA[kind]})
    assert "<svg" in figures.on_page(figure) and "The numbers" in figures.on_page(figure)
    alone = ET.fromstring(figures.standalone(figure))
    assert alone.tag == "{http://www.w3.org/2000/svg}svg" and float(alone.attrib["width"]) <= figures.WIDEST


@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_alone_with_hostile_words_is_still_xml(kind: str) -> None:
    (figure,) = figures.figures({kind: DATA[kind]})
    named = dataclasses.replace(figure, title=HOSTILE, series=(HOSTILE, HOSTILE))
    assert not list(ET.fromstring(figures.standalone(named)).iter("{http://www.w3.org/2000/svg}script"))


json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-1e300, 1e300) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ("name", "edges", "now", "reference", "names", "series", "rows", "columns", "values", "points", "fit", "limits")
    ), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), json)
def test_data_of_any_shape_never_breaks_the_page(kind: str, data: Any) -> None:
    for figure in figures.figures({kind: data}):
        assert isinstance(figures.on_page(figure), str)


def test_what_cannot_be_drawn_says_which_and_why() -> None:
    (figure,) = figures.figures({"histograms": [{"name": "x", "edges": [0, 1], "now": [1, 2], "reference": None}]})
    assert figure.note == "The data of `histograms` cannot be drawn: ValueError 2 edges for 2 bins."
    assert "<svg" not in figures.on_page(figure)


def rows(figure: Figure) -> list[tuple[str, ...]]:
    return list(figure.rows)


def test_histograms_are_shares_of_either_side() -> None:
    (figure,) = distributions.histograms(DATA["histograms"])
    assert rows(figure) == [("0 to 1", "75.0 %", "25.0 %"), ("1 to 2", "25.0 %", "75.0 %")]


def test_an_open_bin_is_as_wide_as_its_neighbour() -> None:
    given = {"name": "x", "edges": [float("-inf"), 0, 2, float("inf")], "now": [1, 1, 2], "reference": None}
    assert [row[0] for row in rows(distributions.histograms([given])[0])] == ["−2 to 0", "0 to 2", "2 to 4"]


def test_bars_of_unlike_sizes_become_shares_and_of_like_sizes_stay_counts() -> None:
    unlike = distributions.bars(DATA["bars"])
    assert rows(unlike)[0] == ("coat", "42.9 %", "75.0 %") and "Shares" in unlike.note
    like = distributions.bars({"names": ["a"], "series": {"now": [7], "reference": [7]}})
    assert rows(like) == [("a", "7", "7")]


def test_many_bars_keep_those_that_moved_most() -> None:
    names = [f"n{i}" for i in range(100)]
    before = [10] * 100
    drawn = distributions.bars({"names": names, "series": {"now": [*before[:-1], 90], "reference": before}})
    assert len(drawn.rows) == distributions.MOST_BARS and drawn.rows[-1][0] == "n99"


def test_a_large_matrix_keeps_the_rows_with_the_most_beside_the_diagonal() -> None:
    names = [f"n{i}" for i in range(40)]
    values = [[100.0 if i == j else 0.0 for j in range(40)] for i in range(40)]
    values[37][2] = 9.0
    drawn = matrix.matrix({"rows": names, "columns": names, "values": values})
    assert len(drawn.rows) == matrix.MOST and "n37" in [row[0] for row in drawn.rows] and "most telling" in drawn.note


def test_points_outside_their_limits_are_counted_and_marked() -> None:
    drawn = lines.series(DATA["series"])
    assert drawn.note.startswith("1 of 3 lie outside") and drawn.body.count("mark out") == 1
    assert drawn.rows[1][2] == "outside"


def test_a_curve_over_decades_has_a_log_axis_and_says_so() -> None:
    assert "logarithmic" in lines.curve(DATA["curve"]).note
    near = {"points": [[1, 1], [2, 2]], "fit": [], "target": None}
    assert lines.curve(near).note == ""
