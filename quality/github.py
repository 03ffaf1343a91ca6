"""GitHub's two places for results: annotations (workflow commands on stdout) and the step summary (Markdown).

GitHub shows at most 10 annotations of a kind per step and takes at most 1 MiB of summary per step; the cap here is 10
in all, failures before warnings, and the summary tells the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality.verdict import VS, Verdict

MOST = 10
"""Annotations of one step."""

MOST_LISTED = 50
"""Findings that the summary lists for each check."""

MOST_BYTES = 1_000_000
"""Of a summary: GitHub drops one of more than 1 MiB whole."""

_KINDS = {"crashed": "error", "fail": "error", "warn": "warning"}
_ORDER = ("crashed", "fail", "warn", "pass", "not_measurable")

Locate = Callable[[Mapping[str, Any]], str]


def annotate(verdicts: Sequence[Verdict], findings: pa.Table, locate: Locate, *, most: int = MOST) -> list[str]:
    """Workflow commands `::error file=...,title=...::message`, the worst first, `most` at the most.

    Each check that crashed, failed or warned is told once with its worst finding's file; what room is left goes to
    their further findings in turn.

    Parameters
    ----------
    findings : of the verdicts (quality.findings.FINDINGS); what the baseline knows is not annotated.
    locate : a finding -> the path of its file, relative to the checkout.
    """
    told = sorted((x for x in verdicts if x.result in _KINDS), key=lambda x: _ORDER.index(x.result))
    rows = [_of(findings, x, most) for x in told]
    lines: list[str] = []
    for turn in range(most):
        for verdict, mine in zip(told, rows, strict=True):
            if (turn == 0 or turn < len(mine)) and len(lines) < most:
                lines.append(_annotation(verdict, mine[turn] if turn < len(mine) else None, locate, turn))
    return lines


def summary(
    verdicts: Sequence[Verdict], findings: pa.Table, locate: Locate, *, title: str, most: int = MOST_LISTED
) -> str:
    """A Markdown page for $GITHUB_STEP_SUMMARY: a table by V, then each check that did not pass with its findings."""
    lines = [f"## {_plain(title)}", "", "| V | check | result | value | findings |", "|---|---|---|---|---|"]
    for x in sorted(verdicts, key=lambda x: VS.index(x.v)):
        value = "" if x.statistic is None else f"{x.statistic:.4g} {x.statistic_name}"
        result = x.result.replace("_", " ") + (" (blocking)" if x.blocking and x.result == "fail" else "")
        strong = "**" if x.result in _KINDS else ""
        cells = [x.v, x.check.replace("_", " "), f"{strong}{result}{strong}", _plain(value), str(len(x.findings) or "")]
        lines.append("| " + " | ".join(cells) + " |")
    for x in sorted((x for x in verdicts if x.result in _KINDS), key=lambda x: _ORDER.index(x.result)):
        lines += ["", f"### {x.v}: {x.check.replace('_', ' ')} ({x.result})", "", _plain(x.message)]
        if x.remedy:
            lines += ["", f"What to do: {_plain(x.remedy)}"]
        mine = _of(findings, x, most)
        if mine:
            lines += ["", "| finding | what | label | split |", "|---|---|---|---|"]
            lines += [
                f"| {_plain(_name(row, locate))} | {_plain(row['note'] or '')} | {_plain(row['label'] or '')} "
                f"| {_plain(row['split'] or '')} |"
                for row in mine
            ]
        left = len(x.findings) - len(mine)
        if left:
            lines += ["", f"{left:,} more of {len(x.findings):,} (`--findings FILE` has them all)"]
    return _cut("\n".join(lines) + "\n")


def escape_message(text: str) -> str:
    """The text of a workflow command, which is one line."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """The value of a workflow command's property, which ends at a comma or at ``::``."""
    return escape_message(text).replace(":", "%3A").replace(",", "%2C")


def _annotation(verdict: Verdict, row: Mapping[str, Any] | None, locate: Locate, turn: int) -> str:
    name = f"{verdict.v}.{verdict.check}"
    kept = {"title": f"{name} ({verdict.subject})"}
    if row is not None and row["path"]:
        kept = {"file": locate(row), **kept}
    about = "" if row is None else f"{row['note'] or 'found'}: {row['path'] or row['key']}"
    text = about if turn else ". ".join(part for part in (verdict.message.rstrip("."), about) if part)
    properties = ",".join(f"{key}={escape_property(value)}" for key, value in kept.items())
    return f"::{_KINDS[verdict.result]} {properties}::{escape_message(text or name)}"


def _of(findings: pa.Table, verdict: Verdict, most: int) -> list[dict[str, Any]]:
    """The worst findings of a verdict, without those that the baseline knows."""
    findings = findings.filter(pc.invert(pc.fill_null(findings["known"], False)))
    mask = pc.and_(pc.equal(findings["check"], verdict.check), pc.equal(findings["v"], verdict.v))
    mine = findings.filter(pc.and_(mask, pc.equal(findings["subject"], verdict.subject)))
    return mine.slice(0, most).to_pylist()


def _name(row: Mapping[str, Any], locate: Locate) -> str:
    return locate(row) if row["path"] else row["key"]


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    for sign in "\\`*_[]|<>":
        text = text.replace(sign, "&lt;" if sign == "<" else "&gt;" if sign == ">" else "\\" + sign)
    return " ".join(text.split())


def _cut(text: str) -> str:
    data = text.encode()
    if len(data) <= MOST_BYTES:
        return text
    kept = data[:MOST_BYTES].decode(errors="ignore").rpartition("\n")[0]
    return f"{kept}\n\nThe rest is left out: a summary holds at most 1 MiB.\n"
