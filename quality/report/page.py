"""The page: puts the sections in order and wraps them in a document that may load nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any

from sevenfold.quality.report import changes, charts, evidence, findings, grids, lineage, outcome, scorecard, verdicts
from sevenfold.quality.report.album import Album
from sevenfold.quality.report.format import moment
from sevenfold.quality.report.markup import Html, el, join, prose
from sevenfold.quality.report.model import Grid, Report


@dataclass(frozen=True)
class Section:
    """One section: its group in the contents, anchor, heading, data (falsy: left out) and what draws the data."""

    group: str
    anchor: str
    heading: str
    data: Any
    draw: Callable[[Any], Html | None]


def sections(report: Report, album: Album) -> list[Section]:
    """All sections in their order: the verdicts, what came in, what was doubted, what was learned, what was decided."""
    r = report
    hard = (("Hard examples", r.hard), ("Random control", r.control))
    drift = (("The drifted batch", r.drifted), ("The reference", r.reference))
    offending = tuple(verdict for verdict in r.verdicts if verdict.findings)
    seven = partial(verdicts.details, pictures=r.pictures, facts=r.facts, album=album)
    grid = partial(grids.grid, album=album)
    pair = partial(grids.pair, album=album)
    return [
        Section("", "summary", "What happened", r.summary, _summary),
        Section("", "scorecard", "Scorecard", r.verdicts, scorecard.front),
        Section("", "verdicts", "The seven Vs", r.verdicts, seven),
        Section("Data", "changes", "What changed", r.changes, partial(changes.changes, album=album)),
        Section("Data", "ingest", "What came in", r.batches, outcome.reconciliation),
        Section("Data", "quarantine", "Quarantine", r.quarantine, partial(grid, name="Quarantine")),
        Section("Data", "balance", "Class balance", r.balance, charts.class_balance),
        Section("Doubts", "suspected", "Suspected labels", r.suspected, partial(grid, name="Suspected labels")),
        Section("Doubts", "hard", "Hard examples, random control", _any(hard), pair),
        Section("Doubts", "drift", "Drift beside its reference", _any(drift), pair),
        Section("Training", "curves", "Learning curves", r.curves, charts.learning_curves),
        Section("Training", "arms", "Accuracy by seed", r.arms, partial(charts.arms, note=r.arms_note)),
        Section("Training", "steps", "Where a training step's time goes", r.steps, charts.step_times),
        Section("Decisions", "decision", "Retrain decision", r.decision, outcome.decision),
        Section("Decisions", "gate", "The gate", r.gate, outcome.gate),
        Section("Decisions", "lineage", "Lineage", r.lineage, lineage.draw),
        Section("Details", "findings", "Findings", offending,
                partial(findings.findings, facts=r.facts, whole=r.findings_at)),
        Section("Details", "next", "Try next", r.commands, outcome.commands),
    ]  # fmt: skip


def _any(sides: tuple[tuple[str, Grid | None], ...]) -> list[tuple[str, Grid]]:
    """The sides of a comparison that are there."""
    return [(title, content) for title, content in sides if content]


def album_of(report: Report) -> Album:
    """Thumbnails of every picture on the page: those beside the verdicts first."""
    r = report
    shown = (r.changes.examples if r.changes else None, r.quarantine, r.suspected, r.hard, r.control, r.drifted,
             r.reference)  # fmt: skip
    images = evidence.shown_images(r.verdicts, r.pictures)
    for grid in filter(None, shown):
        images += [tile.image for tile in grid.tiles[: grids.MOST_TILES] if tile.image]
    return Album(images)


def render(report: Report) -> str:
    """The whole report as one HTML document that loads nothing: no network, no fonts, no scripts but its own.

    Pure: the same report gives the same text. Write it as UTF-8; it opens from disk, follows the reader's light or
    dark setting and prints.
    """
    present = [section for section in sections(report, album_of(report)) if section.data]
    style, script = _asset("style.css"), _asset("findings.js")
    title = report.title or f"{report.dataset} {report.version}"
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = el(
        "head", el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", f"{title} · Sevenfold report"), el("style", Html(style)),
    )  # fmt: skip
    body = el(
        "body", el("a", "Skip to the report", href="#main", class_="skip"), _contents(present),
        el("main", _heading(report, title), *(_section(section) for section in present), _footer(report), id="main"),
        el("script", Html(script)),
    )  # fmt: skip
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}\n"


def _heading(report: Report, title: str) -> Html:
    digest = "Digest" if report.kind == "batch" else "Content id"
    facts = (("Dataset", report.dataset), (report.kind.capitalize(), report.version),
             (digest, el("code", report.content_id)), ("Written", moment(report.created)))  # fmt: skip
    pairs = (el("div", el("dt", name), el("dd", value)) for name, value in facts)
    return el("header", el("p", _mark(), "Sevenfold report", class_="brand"), el("h1", title), el("dl", *pairs))


def _mark() -> Html:
    steps = ((i, abs(3 - i)) for i in range(7))
    bars = (el("rect", x=1 + 3.2 * i, y=3 + 1.6 * n, width=2.2, height=18 - 3.2 * n, rx=1) for i, n in steps)
    return el("svg", *bars, viewBox="0 0 24 24", width=20, height=20, class_="logo", aria_hidden="true")


def _contents(present: list[Section]) -> Html:
    groups = dict.fromkeys(section.group for section in present)
    lists = (
        join((el("p", group) if group else None,
              el("ul", *(el("li", el("a", s.heading, href=f"#{s.anchor}")) for s in present if s.group == group))))
        for group in groups
    )  # fmt: skip
    return el("nav", *lists, aria_label="Contents")


def _section(section: Section) -> Html:
    return el("section", el("h2", section.heading), section.draw(section.data), id=section.anchor)


def _summary(sentences: tuple[str, ...]) -> Html:
    return el("ol", *(el("li", prose(sentence)) for sentence in sentences), class_="summary")


def _footer(report: Report) -> Html:
    said = f"Written by Sevenfold on {moment(report.created)} from {report.dataset} {report.version}. "
    return el("footer", el("p", said, "This page is one file and loads nothing from the network."))


def _asset(name: str) -> str:
    return files("sevenfold.quality.report").joinpath(name).read_text(encoding="utf-8")


def _digest(inline: str) -> str:
    """The source expression that allows exactly this inline text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}"
