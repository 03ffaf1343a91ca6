"""The findings: every offending key with what found it, packed for the page's script, which filters and pages them."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sevenfold.quality.report.format import NONE, count, short_key
from sevenfold.quality.report.markup import Html, el, join, table
from sevenfold.quality.report.model import Facts
from sevenfold.quality.report.status import WORST_FIRST, status

if TYPE_CHECKING:
    from sevenfold.quality.verdict import Verdict

PAGE = 100
BUDGET = 1_900_000
"""Characters that the packed list may take."""
NOTE = 300
"""Characters of a note that the list keeps."""
MOST = 200_000
"""Findings that a page lists at most, however well they pack."""


def findings(verdicts: Sequence[Verdict], facts: Facts | None = None, *, whole: str = "") -> Html | None:
    """The list with its filters; `whole` says where all findings lie, for when the page holds only a part.

    The room is shared out evenly: a check with few findings has them all here, however many another one has. Without
    scripts the first 100 rows are there.
    """
    facts = facts or Facts()
    ranked = (v for v in verdicts if v.findings)
    offending = sorted(ranked, key=lambda v: (WORST_FIRST.index(v.result), len(v.findings)))
    if not offending:
        return None
    total, most = sum(len(v.findings) for v in offending), MOST
    packed, shown = _packed(offending, facts, most)
    while len(packed) > BUDGET and sum(shown) > len(offending):
        most = int(min(most, sum(shown)) * 0.9 * BUDGET / len(packed))
        packed, shown = _packed(offending, facts, most)
    note = f"{count(total, 'finding')} of {count(len(offending), 'check')}."
    if sum(shown) < total:
        note += f" {sum(shown):,} of them are listed here" + (f"; all of them are in {whole}." if whole else ".")
    first = _first(offending, shown, facts)
    printed = el("p", f"The first {len(first)} are printed.", class_="printed") if total > len(first) else None
    names = ("check", "key", "label", "split", "path", "note")
    return join((
        el("p", note, class_="lead"), printed, _controls(offending, facts),
        el("div", table(names, first, caption="Findings"), id="finding-rows"),
        el("script", Html(packed), type="application/gzip", id="finding-data"),
    ))  # fmt: skip


def share_out(sizes: Sequence[int], room: int) -> list[int]:
    """How many of each: what the small ones leave over goes to the large ones; at least one of each."""
    given = [0] * len(sizes)
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    for left, i in zip(range(len(sizes), 0, -1), order, strict=True):
        given[i] = min(sizes[i], max(room // left, 1))
        room -= given[i]
    return given


def _packed(offending: Sequence[Verdict], facts: Facts, most: int) -> tuple[str, list[int]]:
    """(gzip of compact JSON in base64, findings held of each check).

    The JSON: `checks` [[v, check, result, [key number ...], [note number ...]]], `keys`, `paths` a string for each key,
    `label`, `split` for each key a number into `labels`, `splits`; `notes` the strings that note numbers mean.
    """
    shown = share_out([len(v.findings) for v in offending], most)
    known = {key: i for i, key in enumerate(facts.keys)}
    number: dict[str, int] = {}
    notes: dict[str, int] = {"": 0}
    checks = []
    for verdict, n in zip(offending, shown, strict=True):
        at = [number.setdefault(key, len(number)) for key in verdict.findings[:n]]
        said = verdict.notes[:n] or [_own_note(facts, known.get(key)) for key in verdict.findings[:n]]
        checks.append(
            [verdict.v, verdict.check, verdict.result, at, [notes.setdefault(s[:NOTE], len(notes)) for s in said]]
        )
    places = [known.get(key) for key in number]
    labels, label = _coded([None if i is None else facts.labels[i] for i in places])
    splits, split = _coded([None if i is None else facts.splits[i] for i in places])
    paths = [("" if i is None else facts.paths[i]) or "" for i in places]
    content: dict[str, Any] = {
        "checks": checks,
        "keys": [key[:12] if _is_id(key) else key for key in number],
        "paths": ["" if path == key else path for path, key in zip(paths, number, strict=True)],
        "labels": labels, "label": label, "splits": splits, "split": split, "notes": list(notes),
    }  # fmt: skip
    data = json.dumps(content, separators=(",", ":"), ensure_ascii=True).encode()
    return base64.b64encode(gzip.compress(data, 6, mtime=0)).decode(), shown


def _coded(values: Sequence[str | None]) -> tuple[list[str], list[int]]:
    names: dict[str, int] = {"": 0}
    codes = [names.setdefault(value or "", len(names)) for value in values]
    return list(names), codes


def _own_note(facts: Facts, place: int | None) -> str:
    return "" if place is None else facts.notes[place] or ""


def _is_id(key: str) -> bool:
    return len(key) == 64 and short_key(key) == key[:12]


def _first(offending: Sequence[Verdict], shown: Sequence[int], facts: Facts) -> list[tuple[Html | str, ...]]:
    """The first page: the same rows that the script shows first."""
    known = {key: i for i, key in enumerate(facts.keys)}
    rows: list[tuple[Html | str, ...]] = []
    for verdict, n in zip(offending, shown, strict=True):
        for at, key in enumerate(verdict.findings[: min(n, PAGE - len(rows))]):
            i = known.get(key)
            label, split, path = ("", "", "") if i is None else (facts.labels[i], facts.splits[i], facts.paths[i])
            note = (verdict.notes[at] if verdict.notes else _own_note(facts, i))[:NOTE]
            named = el("span", status(verdict.result), el("span", verdict.check.replace("_", " ")), class_="found-by")
            code = el("code", short_key(key) if _is_id(key) else key, title=key)
            rows.append((named, code, label or NONE, split or NONE, path or NONE if path != key else NONE, note))
    return rows


def _controls(offending: Sequence[Verdict], facts: Facts) -> Html:
    """The filter boxes; hidden until the script has opened the list."""

    def choice(name: str, title: str, options: Sequence[tuple[str, str]]) -> Html:
        made = (el("option", word, value=value) for value, word in (("", "all"), *options))
        return el("label", f"{title} ", el("select", *made, id=f"by-{name}"))

    checks = [(f"{v.v}.{v.check}", f"{v.v}: {v.check.replace('_', ' ')} ({len(v.findings):,})") for v in offending]
    labels = sorted({x for x in facts.labels if x})[:1000]
    splits = sorted({x for x in facts.splits if x})
    return el(
        "div",
        el("label", "Filter ", el("input", type="search", id="filter", placeholder="part of a key, label, path, note",
                                  autocomplete="off", spellcheck="false")),
        choice("check", "Check", checks),
        choice("label", "Label", [(x, x) for x in labels]) if labels else None,
        choice("split", "Split", [(x, x) for x in splits]) if splits else None,
        el("output", "", id="filtered", for_="filter"),
        el("span", el("button", "‹ back", type="button", id="page-back"),
           el("button", "next ›", type="button", id="page-next"), class_="pager"),
        class_="filter", id="finding-filter", role="search", hidden=True,
    )  # fmt: skip
