"""One self-contained HTML report: `render(report)` over frozen dataclasses; no lake, no network, no clock."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    **dict.fromkeys(
        (
            "Arm",
            "BatchCounts",
            "Changes",
            "ClassBalance",
            "Command",
            "Curve",
            "Decision",
            "Edge",
            "Facts",
            "Flow",
            "Gate",
            "GateSlice",
            "Grid",
            "Lineage",
            "Node",
            "Reason",
            "Report",
            "StepTimes",
            "Tile",
        ),
        "sevenfold.quality.report.model",
    ),
    **dict.fromkeys(
        (
            "batch_counts",
            "class_balance",
            "curve",
            "gate",
            "quarantine_grid",
            "queue_grid",
            "sample_grid",
            "step_times",
            "suspected_grid",
        ),
        "sevenfold.quality.report.builders",
    ),
    "render": "sevenfold.quality.report.page",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'sevenfold.quality.report' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
