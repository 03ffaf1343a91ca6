"""A small report with every section, made of pictures drawn here."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from sevenfold.quality.report import model as m
from sevenfold.quality.verdict import VS, Verdict

HOSTILE = "<script>alert('x')</script>\"&"


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
    results = ("pass", "warn", "fail", "not_measurable", "pass", "fail", "warn")
    verdicts = tuple(
        verdict(v, r, message="see `sevenfold show`", statistic=0.04, statistic_name="share", interval=(0.03, 0.06),
                n=1200, thresholds={"warn_share": 0.05, "fail_share": 0.15}, reference="v1", remedy="Review them.",
                findings=("a" * 64, "b" * 64) if r == "fail" else ())
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
        commands=(m.Command("sevenfold log", "the versions"),),
    )  # fmt: skip
