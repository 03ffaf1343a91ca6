"""Charts and lineage: ticks cover their range, labels do not collide, graphs run from left to right."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.quality.report import charts, gauge, lineage, outcome, plot
from sevenfold.quality.report import format as fmt
from sevenfold.quality.report import model as m
from sevenfold.quality.report.markup import prose
from sevenfold.quality.verdict import Verdict

ordinary = st.floats(-1e6, 1e6, allow_nan=False)


@given(ordinary, st.floats(1e-3, 1e6), st.integers(2, 10))
def test_ticks_are_few_even_and_cover_the_range(lo: float, span: float, about: int) -> None:
    found = plot.ticks(lo, lo + span, about)
    assert found[0] <= lo + 1e-6 * span and found[-1] >= lo + span * (1 - 1e-6)
    assert 2 <= len(found) <= 2 * about + 3
    steps = [b - a for a, b in pairwise(found)]
    assert max(steps) - min(steps) <= 1e-6 * max(abs(lo), span)


@given(st.lists(ordinary, max_size=12), st.floats(1, 100))
def test_labels_keep_their_distance_and_order(wanted: list[float], gap: float) -> None:
    placed = plot.spread_out(wanted, gap)
    ranked = sorted(placed)
    assert all(b - a >= gap - 1e-6 for a, b in pairwise(ranked))
    assert [placed[i] for i in sorted(range(len(wanted)), key=lambda i: wanted[i])] == ranked


def test_labels_that_fit_stay_where_they_are() -> None:
    assert plot.spread_out([10.0, 50.0, 30.0], 15) == [10.0, 50.0, 30.0]


@st.composite
def graphs(draw: st.DrawFn) -> m.Lineage:
    n = draw(st.integers(1, 9))
    nodes = tuple(m.Node(f"n{i}", "version", f"n{i}") for i in range(n))
    pairs = st.tuples(st.integers(0, n), st.integers(0, n - 1))  # n itself is an unknown node
    return m.Lineage(nodes, tuple(m.Edge(f"n{a}", f"n{b}") for a, b in draw(st.lists(pairs, max_size=20))))


@given(graphs())
def test_any_graph_runs_from_left_to_right(graph: m.Lineage) -> None:
    edges = lineage.forward(graph.nodes, graph.edges)
    column = lineage.columns(graph.nodes, edges)
    assert all(column[edge.source] < column[edge.target] for edge in edges)
    assert set(column) == {node.key for node in graph.nodes} and min(column.values()) >= 0
    slots = lineage.order(column, edges)
    assert all(key in slots[at] for key, at in column.items())
    assert str(lineage.draw(graph)).count("<rect") == len(graph.nodes)


def test_late_batches_stand_beside_what_they_join() -> None:
    nodes = [m.Node(key, "batch", key) for key in ("b1", "b2", "v1", "m1", "v2")]
    edges = [m.Edge("b1", "v1"), m.Edge("v1", "m1"), m.Edge("m1", "v2"), m.Edge("b2", "v2")]
    assert lineage.columns(nodes, edges) == {"b1": 0, "v1": 1, "m1": 2, "v2": 3, "b2": 2}


def test_an_edge_passes_around_the_boxes_between() -> None:
    column = {"a": 0, "b": 1, "c": 2}
    slots = lineage.order(column, [m.Edge("a", "b"), m.Edge("b", "c"), m.Edge("a", "c")])
    assert [len(slot) for slot in slots] == [1, 2, 1]


def test_many_classes_show_the_commonest_and_the_rarest() -> None:
    drawn = charts.class_balance([m.ClassBalance("v1", {f"class {i:03d}": i + 1 for i in range(200)})])
    svg = drawn[drawn.index("<svg") : drawn.index("</figure>")].partition("<details")[0]
    assert "class 199" in svg and "class 000" in svg and "class 100" not in svg
    assert "15 commonest and 15 rarest of 200" in drawn


def test_charts_of_nothing_say_so() -> None:
    assert "No epoch" in charts.learning_curves([m.Curve("r", "g", ())])
    assert "No seed" in charts.arms([m.Arm("mined", {})])
    assert "no seed finished" in charts.arms([m.Arm("mined", {0: 0.9}), m.Arm("random", {})])
    assert "<svg" in charts.class_balance([m.ClassBalance("v1", {})])
    assert "<svg" in charts.step_times([m.StepTimes("run", {})])


def test_a_mean_stops_where_the_shortest_run_stops() -> None:
    drawn = charts.learning_curves([m.Curve("a", "g", ((1.0, 0.5), (2.0, 0.7))), m.Curve("b", "g", ((1.0, 0.6),))])
    assert "g · 55.0 %" in drawn


def test_a_truncated_axis_is_admitted() -> None:
    assert "The vertical axis starts at" in charts.learning_curves([m.Curve("a", "g", ((1.0, 0.8), (2.0, 0.9)))])
    assert "starts at" not in charts.learning_curves([m.Curve("a", "g", ((1.0, 0.0), (2.0, 0.9)))])


def test_a_slice_nobody_could_measure_is_a_dash() -> None:
    gate = m.Gate(True, "champion", "a", "b", slices=(m.GateSlice("rare", 3, None, None),))
    assert "–" in outcome.gate(gate)


def measured(statistic: float, interval: tuple[float, float] | None, **thresholds: float) -> Verdict:
    return Verdict("value", "gain", "v1", "pass", statistic=statistic, statistic_name="share of pairs",
                   interval=interval, thresholds=thresholds)  # fmt: skip


def test_the_gauge_draws_only_limits_of_the_statistics_own_scale() -> None:
    assert gauge.gauge(measured(0.1, (0.0, 0.2), alpha=0.01, min_n=50)) is None
    assert gauge.gauge(measured(9.9, (9.8, 10.0), max_share=0.05)) is None  # a share beside a count
    assert gauge.gauge(measured(2, None, max_hash_bits=6)) is None  # of something else
    drawn = gauge.gauge(measured(0.1, (0.0, 0.2), warn_share=0.3, min_n=50.0))
    assert drawn is not None and drawn.count('class="limit warn"') == 1 and "50" not in drawn.partition("</title>")[0]


def test_the_gauge_shows_the_effect_where_the_limits_are_about_it() -> None:
    drift = Verdict("volatility", "drift", "v1", "fail", statistic=3, effect=0.6, interval=(0.5, 0.7),
                    thresholds={"warn_effect": 0.1, "fail_effect": 0.25})  # fmt: skip
    assert "<title>0.6, between 0.5 and 0.7; warn effect 0.1, fail effect 0.25</title>" in str(gauge.gauge(drift))


def test_an_interval_of_another_number_is_not_drawn() -> None:
    assert 'class="whisker"' not in str(gauge.gauge(measured(5, (0.5, 0.7), max_pairs=3)))


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [("share of inputs", 0.02201, "2.2 %"), ("max_rejected_share", 0.01, "1 %"), 
     ("max_freshness_seconds", 604800, "7 days"),
     ("p95 seconds", 3.2, "3.2 s"), ("min_slice", 385, "385"), ("share of what", 3, "3")],
)  # fmt: skip
def test_numbers_come_with_the_unit_of_their_name(name: str, value: float, shown: str) -> None:
    assert fmt.measured(name, value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0, "0"), (12345, "12,345"), (1234.5, "1,234"), (0.03124, "0.0312"), (4.1e-7, "4.1e-07"),
     (-0.5, "−0.5"), (math.nan, "not a number"), (math.inf, "∞")],
)  # fmt: skip
def test_numbers_read_well(value: float | None, shown: str) -> None:
    assert fmt.number(value) == shown


def test_keys_are_shortened_to_what_still_tells_them_apart() -> None:
    assert fmt.short_key("0f" * 32) == "0f" * 6
    assert fmt.short_key("inbox/batch/coat/a.png") == "coat/a.png"


def test_backticks_are_code_and_a_lone_one_is_itself() -> None:
    assert prose("run `a < b` now") == "run <code>a &lt; b</code> now"
    assert prose("a ` b") == "a ` b"
