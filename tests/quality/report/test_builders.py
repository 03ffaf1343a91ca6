"""Builders: the lake's tables become the report's dataclasses."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa

from sevenfold.quality.report import builders
from sevenfold.quality.report import model as m

QUEUE = pa.table({
    "id": ["b" * 64, "a" * 64, "c" * 64], "rank": [1, 0, 2], "score": [0.8, 0.95, 0.7],
    "label": ["coat", "shirt", "bag"], "suggestion": ["shirt", "dress", "shoe"],
})  # fmt: skip


def test_class_balance_keeps_the_classes_order_and_counts_the_unlabelled() -> None:
    samples = pa.table({"label": pa.array(["b", "a", None, "b"], pa.string())})
    found = builders.class_balance("v1", samples, classes=("b", "a", "z"))
    assert list(found.counts.items()) == [("b", 2), ("a", 1), ("z", 0), ("(unlabelled)", 1)]


def test_quarantine_shows_one_of_each_reason_first() -> None:
    reasons = ["truncated"] * 5 + ["not_an_image"]
    table = pa.table({
        "path": [f"p{i}" for i in range(6)], "reason": reasons, "detail": ["d"] * 6,
        "label": pa.array(["coat", None] * 3, pa.string()),
    })  # fmt: skip
    grid = builders.quarantine_grid(table, {"p5": b"x"}, limit=2)
    assert [tile.key for tile in grid.tiles] == ["p0", "p5"]
    assert grid.total == 6 and grid.tiles[1].image == b"x" and grid.tiles[1].title == "not an image"
    assert grid.tiles[0].lines == ("d", "label: coat")


def test_suspected_labels_come_in_rank_order_with_what_review_said() -> None:
    truth = {"a" * 64: "dress", "b" * 64: "coat", "c" * 64: "hat"}
    first, second, third = builders.suspected_grid(QUEUE, {}, truth=truth).tiles
    assert (first.change, first.review, first.agreed) == (("shirt", "dress"), "label was wrong", True)
    assert (second.review, second.agreed) == ("label was right", False)
    assert (third.review, third.agreed) == ("is hat", False)
    assert builders.suspected_grid(QUEUE, {}).tiles[0].review is None


def test_a_queue_tells_whether_the_prediction_was_right() -> None:
    first, second, third = builders.queue_grid(QUEUE, {}, truth={"a" * 64: "dress", "b" * 64: "bag"}).tiles
    assert (first.title, first.review, first.agreed) == ("dress", "right", True)
    assert (second.review, second.agreed) == ("is bag", False)
    assert third.review is None and third.lines == ("score 0.70",)


def test_a_sample_grid_says_how_many_there_are() -> None:
    samples = pa.table({"id": ["a", "b", "c"], "label": pa.array(["x", None, "y"], pa.string())})
    grid = builders.sample_grid(samples, {"a": b"1"}, limit=2)
    assert [(t.title, t.image) for t in grid.tiles] == [("x", b"1"), ("(unlabelled)", None)]
    assert grid.total == 3


def test_batch_counts_take_a_batch_record() -> None:
    counts = {"inputs": 11, "samples": 7, "aliases": 1, "relabels": 1, "quarantined": 2}
    batch = SimpleNamespace(batch="b1", status="committed", counts=counts, reasons={"truncated": 2})
    found = builders.batch_counts(batch)
    assert found == m.BatchCounts("b1", "committed", 11, 7, 1, 2, 1, {"truncated": 2})
    assert found.reconciles


def test_a_curve_skips_epochs_that_were_not_evaluated() -> None:
    history = [{"epoch": 1, "val_accuracy": 0.5}, {"epoch": 2, "val_accuracy": None}, {"epoch": 3, "val_accuracy": 0.7}]
    assert builders.curve("r", "mined", history) == m.Curve("r", "mined", ((1.0, 0.5), (3.0, 0.7)))


def test_step_times_leave_out_the_warm_up_and_name_what_no_phase_explains() -> None:
    steps = pa.table({
        "step": [0, 1, 2], "data": [9.0, 0.001, 0.003], "forward": [9.0, 0.004, 0.004], "backward": [9.0, 0.010, 0.010],
        "optimizer": [9.0, 0.002, 0.002], "total": [40.0, 0.019, 0.021],
    })  # fmt: skip
    found = builders.step_times("run", steps)
    assert {name: round(ms, 6) for name, ms in found.phases.items()} == {
        "data": 2.0, "forward": 4.0, "backward": 10.0, "optimizer": 2.0, "other": 2.0,
    }  # fmt: skip
    assert found.idle_share is not None and round(found.idle_share, 6) == 0.1
    assert found.steps == 2
    assert builders.step_times("run", steps.slice(0, 1)).steps == 1
    assert builders.step_times("run", steps.slice(0, 0)).idle_share is None


def test_the_gates_table_becomes_slices_with_their_word() -> None:
    numbers = {"champion_low": 0.8, "champion_high": 0.9, "challenger_low": 0.7, "challenger_high": 0.8,
               "difference_low": None, "difference_high": None}  # fmt: skip
    rows = [{"slice": "old", "new": False, "n": 400, "champion": 0.85, "challenger": 0.75, "verdict": "regressed"},
            {"slice": "new", "new": True, "n": 9, "champion": 0.85, "challenger": 0.75,
             "verdict": "not_measurable"}]  # fmt: skip
    found = builders.gate(False, ["It lost."], pa.Table.from_pylist([row | numbers for row in rows]),
                          alias="champion", champion="a", challenger="b")  # fmt: skip
    assert found.reasons == ("It lost.",)
    assert [(s.ok, s.note) for s in found.slices] == [(False, "regressed"), (None, "not measurable, new")]
    assert found.slices[0].champion_interval == (0.8, 0.9) and found.slices[0].difference_interval is None
