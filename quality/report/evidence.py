"""The evidence below a verdict: its plots, and pictures of its worst findings, pairs and examples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sevenfold.quality.report import figures, grids, plot
from sevenfold.quality.report.album import Album
from sevenfold.quality.report.format import count
from sevenfold.quality.report.markup import Html, el, join
from sevenfold.quality.report.model import Facts, Tile

if TYPE_CHECKING:
    from sevenfold.quality.verdict import Verdict

WORST = 12
"""Findings of each check that are shown with their picture."""
MOST_PAIRS = 100
OPEN_PAIRS = 20
MOST_EXAMPLES = 18
_GROUP = re.compile(r"^(slice|class|batch|column|split|annotator|run|rule|suite|model|version):")
"""Keys of what has no picture: many samples together."""


def wanted(verdict: Verdict) -> tuple[list[str], list[str]]:
    """The keys whose pictures the page shows for a verdict: (its subject's, its reference's)."""
    mine = pictured(verdict)
    for one, other, _ in pairs(verdict.data):
        mine += [one, other]
    now, before = examples(verdict.data)
    return list(dict.fromkeys([*mine, *now])), before


def pictured(verdict: Verdict) -> list[str]:
    """The worst findings that may have a picture; none where pairs tell the same, not twice where examples do."""
    if pairs(verdict.data):
        return []
    found = (key for key in verdict.findings if not _GROUP.match(key))
    return [key for key, _ in zip(found, range(WORST), strict=False)]


def pairs(data: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(key, key, note) of the pairs to draw, as far as they are of the documented shape."""
    given = data.get("pairs")
    rows = given if isinstance(given, list | tuple) else []
    whole = (row for row in rows if isinstance(row, list | tuple) and len(row) >= 2)
    return [(str(row[0]), str(row[1]), str(row[2]) if len(row) > 2 else "") for row in whole][:MOST_PAIRS]


def examples(data: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Keys of (now, reference), as far as they are of the documented shape."""
    given = data.get("examples")
    if not isinstance(given, Mapping):
        return [], []
    sides = (given.get(name) for name in ("now", "reference"))
    now, before = ([str(k) for k in s][:MOST_EXAMPLES] if isinstance(s, list | tuple) else [] for s in sides)
    return now, before


def evidence(verdict: Verdict, pictures: Mapping[str, bytes], known: Mapping[str, Fact], album: Album) -> Html | None:
    """Plots, pairs, examples, worst findings; None when there is none of them."""
    parts = [
        _figures(verdict),
        _pairs(verdict, pictures, known, album),
        _examples(verdict, pictures, known, album),
        _worst(verdict, pictures, known, album),
        _groups(verdict),
    ]
    return join(parts) if any(parts) else None


def _figures(verdict: Verdict) -> Html | None:
    """The plots; histograms that share their series have one legend."""
    drawn = figures.figures(verdict.data)
    if not drawn:
        return None
    alike = {one.series for one in drawn if one.series}
    shared = len(drawn) > 1 and len(alike) == 1 and len(max(alike)) > 1
    legend = plot.legend(max(alike), square=True) if shared else None
    made = (figures.on_page(one, legend=not shared) for one in drawn)
    return el("div", legend, el("div", *made, class_="figures"), class_="block")


class Fact:
    """Label, split, path and note of one key."""

    __slots__ = ("label", "note", "path", "split")

    def __init__(self, label: str | None, split: str | None, path: str | None, note: str | None) -> None:
        self.label, self.split, self.path, self.note = label, split, path, note


NOTHING = Fact(None, None, None, None)


def by_key(facts: Facts, keys: set[str]) -> dict[str, Fact]:
    """The facts of some keys."""
    return {
        key: Fact(label, split, path, note)
        for key, label, split, path, note in zip(
            facts.keys, facts.labels, facts.splits, facts.paths, facts.notes, strict=True
        )
        if key in keys
    }


def _tile(key: str, pictures: Mapping[str, bytes], known: Mapping[str, Fact], note: str = "") -> Tile:
    fact = known.get(key, NOTHING)
    words = note or fact.note or ""
    where = " · ".join(one for one in (fact.label, fact.split) if one)
    missing = "cannot be shown" if fact.note else "no preview"
    return Tile(key, pictures.get(key), title=where, lines=(words,) if words else (), missing=missing)


def _worst(verdict: Verdict, pictures: Mapping[str, bytes], known: Mapping[str, Fact], album: Album) -> Html | None:
    keys = [key for key in pictured(verdict) if key in pictures or key in known]
    if not keys or set(keys) <= set(examples(verdict.data)[0]):
        return None
    notes = _notes(verdict, set(keys))
    tiles = [_tile(key, pictures, known, notes.get(key, "")) for key in keys]
    n = len(verdict.findings)
    said = f"The first {len(tiles)} of {n:,} findings" if n > len(tiles) else count(n, "finding")
    return _block(said, grids.strip(tiles, album, name=f"Findings of {verdict.check}"))


def _notes(verdict: Verdict, keys: set[str]) -> dict[str, str]:
    """What the verdict says of some of its findings."""
    both = zip(verdict.findings, verdict.notes, strict=False)
    return {key: note for key, note in both if key in keys}


def _pairs(verdict: Verdict, pictures: Mapping[str, bytes], known: Mapping[str, Fact], album: Album) -> Html | None:
    given = pairs(verdict.data)
    if not given:
        return None
    drawn = [
        el("li", el("span", *(grids.tile(_tile(key, pictures, known), album) for key in (one, other)), class_="twins"),
           el("span", note, class_="line") if note else None, class_="twin")
        for one, other, note in given
    ]  # fmt: skip
    total = len(verdict.data["pairs"])
    said = f"The first {len(given)} of {total:,} pairs" if total > len(given) else count(total, "pair")
    open_, rest = drawn[:OPEN_PAIRS], drawn[OPEN_PAIRS:]
    more = el("details", el("summary", f"{len(rest)} more"), el("ul", *rest, class_="pairs"), class_="folded")
    shown = join((el("ul", *open_, class_="pairs"), more if rest else None))
    return _block(f"{said}, side by side", shown)


def _examples(verdict: Verdict, pictures: Mapping[str, bytes], known: Mapping[str, Fact], album: Album) -> Html | None:
    now, before = examples(verdict.data)
    sides = [(title, keys) for title, keys in (("Now", now), (f"Reference {verdict.reference or ''}".strip(), before))
             if keys]  # fmt: skip
    if not sides:
        return None
    notes = _notes(verdict, set(now))
    columns = []
    for name, keys in sides:
        tiles = [_tile(key, pictures, known, notes.get(key, "")) for key in keys]
        columns.append(el("div", el("h5", name), grids.strip(tiles, album, name=name, narrow=True), class_="side"))
    title = str(verdict.data["examples"].get("title") or "Examples")
    return _block(title, el("div", *columns, class_="pair" if len(sides) > 1 else None))


def _groups(verdict: Verdict) -> Html | None:
    """Offending slices, classes, columns: by name, the first of them."""
    found = [(i, key) for i, key in enumerate(verdict.findings[:2000]) if _GROUP.match(key)]
    if not found:
        return None
    items = (el("li", el("code", key), el("span", verdict.notes[i], class_="line") if verdict.notes else None)
             for i, key in found[:WORST])  # fmt: skip
    more = el("li", f"and {len(found) - WORST:,} more", class_="quiet") if len(found) > WORST else None
    return _block(count(len(found), "finding"), el("ul", *items, more, class_="groups"))


def _block(title: str, content: Html) -> Html:
    return el("div", el("h4", title), content, class_="block")


def shown_images(verdicts: Sequence[Verdict], pictures: Mapping[str, bytes]) -> list[bytes]:
    """The images that `evidence` will show, as often as it shows them."""
    found = []
    for verdict in verdicts:
        mine, before = wanted(verdict)
        found += [pictures[key] for key in (*mine, *before) if key in pictures]
    return found
