"""The diff to the reference: what was added, removed, relabelled, moved, and how the classes shifted."""

from __future__ import annotations

from collections.abc import Sequence

from sevenfold.quality.report import distributions, figures, grids
from sevenfold.quality.report.album import Album
from sevenfold.quality.report.format import NONE, number
from sevenfold.quality.report.markup import Html, el, join, table
from sevenfold.quality.report.model import Changes, ClassBalance

MOST_FLOWS = 20


def changes(made: Changes, album: Album) -> Html:
    """Counts as tiles, the commonest changes as a table, classes side by side, a few of the samples."""
    before, after = made.samples
    told = [("samples", f"{number(before)} → {number(after)}")] if before or after else []
    told += [(name.replace("_", " "), number(n)) for name, n in made.counts.items()]
    tiles = el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in told), class_="tally-tiles")
    lead = el("p", f"Compared with {made.reference}.", class_="lead")
    flows = made.flows[:MOST_FLOWS]
    rows = ((one.change, one.before or NONE, one.after or NONE, number(one.n)) for one in flows)
    listed = table(("change", "from", "to", "samples"), rows, caption="The commonest changes", numeric=(3,))
    parts = [
        lead, tiles,
        join((el("h3", "From what to what"), listed)) if flows else None,
        _classes(made.balance) if made.balance else None,
        join((el("h3", "A few of them"), grids.grid(made.examples, name="Changed samples", album=album)))
        if made.examples and made.examples.tiles else None,
    ]  # fmt: skip
    return el("div", *parts, class_="changes")


def _classes(balance: Sequence[ClassBalance]) -> Html:
    names = list(dict.fromkeys(name for one in balance for name in one.counts))
    data = {"title": "Samples of each class", "names": names,
            "series": {one.version: [one.counts.get(name, 0) for name in names] for one in balance}}  # fmt: skip
    return join((el("h3", "Classes"), figures.on_page(distributions.bars(data))))
