"""Results as people see them: an icon told apart by shape, a word, a colour; and which of several counts."""

from __future__ import annotations

from collections.abc import Sequence

from sevenfold.quality.report.markup import Html, el

WORST_FIRST = ("crashed", "fail", "warn", "pass", "not_measurable")
WORDS = {
    "crashed": "crashed",
    "fail": "fail",
    "warn": "warning",
    "pass": "pass",
    "not_measurable": "not measurable",
    "none": "not judged",
}
_SHAPES = {
    "crashed": "M8 9l4 3-4 3 M13 16h4",
    "fail": "M8.5 8.5l7 7 M15.5 8.5l-7 7",
    "warn": "M12 7.5v6 M12 16.4v.2",
    "pass": "M7.5 12.5l3 3 6-7",
    "not_measurable": "M9.3 9.6a2.8 2.8 0 1 1 4 2.6c-.9.4-1.3.9-1.3 1.8 M12 16.6v.2",
    "none": "M8.5 12h7",
}
_ROUND = "M12 3a9 9 0 1 1 0 18a9 9 0 1 1 0-18z"
_FRAMES = {
    "crashed": "M3.5 4.5h17v15h-17z",
    "fail": "M8.3 3h7.4L21 8.3v7.4L15.7 21H8.3L3 15.7V8.3z",
    "warn": "M12 2.8L22 20.2H2z",
}


def status_icon(result: str, size: int = 20) -> Html:
    """A circle, triangle, octagon or square with its sign."""
    result = result if result in _SHAPES else "none"
    return el(
        "svg", el("path", d=_FRAMES.get(result, _ROUND), class_="frame"), el("path", d=_SHAPES[result], class_="sign"),
        viewBox="0 0 24 24", width=size, height=size, class_=f"status-icon {result}", aria_hidden="true",
    )  # fmt: skip


def status(result: str) -> Html:
    """Icon and word."""
    return el("span", status_icon(result, 16), WORDS.get(result, result), class_=f"status {result}")


def worst(results: Sequence[str]) -> str:
    """The worst measured result; "not measurable" only when nothing could be measured, "none" when nothing ran."""
    return next((word for word in WORST_FIRST if word in results), "none")
