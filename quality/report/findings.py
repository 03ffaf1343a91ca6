"""The findings: every offending key with what found it, and a box to filter them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sevenfold.quality.report.format import count
from sevenfold.quality.report.markup import Html, el, join, table
from sevenfold.quality.report.scorecard import status

if TYPE_CHECKING:
    from sevenfold.quality.verdict import Verdict


def findings(verdicts: Sequence[Verdict], *, limit: int = 2000, whole: str = "") -> Html | None:
    """The offending keys of all verdicts with a filter box; past `limit` rows, where the whole list lies.

    The room is shared out evenly: a check with few findings shows them all, however many another one has.
    """
    offending = sorted((v for v in verdicts if v.findings), key=lambda v: len(v.findings))
    total, room = sum(len(v.findings) for v in offending), limit
    shown: list[tuple[Verdict, str]] = []
    for left, verdict in zip(range(len(offending), 0, -1), offending, strict=True):
        part = verdict.findings[: max(room // left, 1)]
        room -= len(part)
        shown += [(verdict, key) for key in part]
    if not shown:
        return None
    rows = ((el("code", key), v.v, v.check.replace("_", " "), status(v.result)) for v, key in shown)
    note = f"{count(total, 'finding')} of {count(len(offending), 'check')}."
    if len(shown) < total:
        note += f" {len(shown):,} of them are listed here" + (f"; all of them are in {whole}." if whole else ".")
    printed = el("p", "The first 100 are printed.", class_="printed") if len(shown) > 100 else None
    box = el(
        "p", el("label", "Filter ", el("input", type="search", id="filter", placeholder="part of a key, check or V",
                                       autocomplete="off", spellcheck="false")),
        el("output", f"{len(shown):,} shown", id="filtered", for_="filter"), class_="filter", hidden=True,
    )  # fmt: skip
    return join((el("p", note, class_="lead"), printed, box, el("div", table(("key", "V", "check", "verdict"), rows,
                 caption="Findings"), id="finding-rows")))  # fmt: skip
