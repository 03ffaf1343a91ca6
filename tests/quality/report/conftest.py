"""A small report with every section, made of pictures drawn here."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sevenfold.quality.report import model as m
from sevenfold.quality.verdict import VS, Verdict

HOSTILE = "<script>alert('x')</script>\"&"


DATA: dict[str, Any] = {
    "histograms": [{"name": "brightness", "edges": [0, 1, 2], "now": [3, 1], "reference": [1, 3]}],
    "bars": {"title": "Classes", "names": ["coat", "shoe"], "series": {"now": [3, 4], "reference": [30, 10]}},
    "matrix": {"title": "Given by likely", "rows": ["coat", "shoe"], "columns": ["coat", "shoe"],
               "values": [[9, 2], [1, 8]]},
    "curve": {"title": "Error", "x_name": "samples", "y_name": "error", "points": [[100, 0.4], [1000, 0.2]],
              "fit": [[100, 0.4, 0.3, 0.5], [3000, 0.1, 0.05, 0.2]], "target": 0.1},
    "series": {"title": "Arrivals", "x_name": "day", "y_name": "inputs", "limits": [2, 9],
               "points": [[1.79e9, 4], [1.7901e9, 12], [1.7902e9, 5]]},
    "pairs": [["a" * 64, "c" * 64, "distance 0.1"]],
    "examples": {"title": "What moved", "now": ["a" * 64], "reference": ["c" * 64]},
}  # fmt: skip
"""One of each kind of plot."""


def png(seed: int = 0, size: int = 28, mode: str = "L") -> bytes:
    """A noise picture; noise compresses worst."""
    shape = (size, size, 3) if mode == "RGB" else (size, size)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def verdict(v: str = "validity", result: str = "pass", **more: object) -> Verdict:
    return Verdict(v=v, check=str(more.pop("check", "one_check")), subject="v2", result=result, **more)  # type: ignore[arg-type]


def grid(n: int = 3, **tile: object) -> m.Grid:
    return m.Grid(tuple(m.Tile(f"{i:064x}", png(i), **tile) for i in range(n)), "What these are.", total=n + 5)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def full() -> m.Report:
    results = ("pass", "warn", "fail", "not_measurable", "crashed", "fail", "warn")
    verdicts = tuple(
        verdict(v, r, message="see `sevenfold show`", statistic=0.04, statistic_name="share", interval=(0.03, 0.06),
                n=1200, thresholds={"warn_share": 0.05, "fail_share": 0.15}, reference="v1", remedy="Review them.",
                findings=("a" * 64, "b" * 64) if r == "fail" else (), notes=("torn", "") if r == "fail" else (),
                data=DATA if r == "fail" else {})
        for v, r in zip(VS, results, strict=True)
    )  # fmt: skip
    epochs = tuple((float(e), 0.6 + 0.05 * e) for e in range(1, 5))
    return m.Report(
        dataset="clothes", version="v2", content_id="c" * 64, created=1_796_038_338.0,
        summary=("Two batches came in.", "v2 was committed."), verdicts=verdicts,
        batches=(m.BatchCounts("batch-1", "committed", 10, 7, 1, 2, reasons={"truncated": 2}),
                 m.BatchCounts("batch-2", "committed", 10, 9, 0, 0)),
        quarantine=m.Grid((m.Tile("in/broken.png", b"not a picture", "truncated", missing="cannot be shown"),)),
        balance=(m.ClassBalance("v1", {"coat": 5, "shoe": 3}), m.ClassBalance("v2", {"coat": 9, "shoe": 8, "hat": 1})),
        suspected=grid(change=("coat", "shirt"), lines=("confidence 93 %",), review="confirmed", agreed=True),
        hard=grid(title="coat"), control=grid(title="shoe"), drifted=grid(title="hat"), reference=grid(title="cap"),
        curves=(m.Curve("run-1", "mined", epochs), m.Curve("run-2", "random", epochs)),
        arms=(m.Arm("mined", {0: 0.86, 1: 0.87}), m.Arm("random", {0: 0.85, 1: 0.86})), arms_note="Within noise.",
        steps=(m.StepTimes("run-1", {"data": 1.0, "forward": 8.0, "backward": 15.0, "optimizer": 2.0}, 0.04, 120),),
        decision=m.Decision(True, "Drift in two windows.", (m.Reason("Two windows drifted.", True),)),
        gate=m.Gate(False, "champion", "net 1", "net 2",
                    (m.Reason("The hat slice lost 4 points.", False), "A plain reason."),
                    (m.GateSlice("hat", 400, 0.9, 0.86, (0.87, 0.93), (0.82, 0.89), False),)),
        lineage=m.Lineage((m.Node("b1", "batch", "b1"), m.Node("v1", "version", "v1"), m.Node("m1", "model", "net 1")),
                          (m.Edge("b1", "v1"), m.Edge("v1", "m1", "trained"))),
        pictures={"a" * 64: png(1), "c" * 64: png(2)},
        facts=m.Facts(("a" * 64, "c" * 64), ("coat", None), ("train", "test"), ("in/a.png", "in/c.png"), (None, "cut")),
        changes=m.Changes("v1", {"added": 3, "relabelled": 2}, (10, 13), (m.Flow("relabelled", "coat", "shoe", 2),),
                          (m.ClassBalance("v2", {"coat": 9}), m.ClassBalance("v1", {"coat": 5})), grid(title="coat")),
        commands=(m.Command("sevenfold log", "the versions"),),
    )  # fmt: skip
