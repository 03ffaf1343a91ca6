"""Image grids: thumbnails upscaled by the browser; what cannot be decoded becomes a tile of words."""

from __future__ import annotations

from collections.abc import Sequence

from sevenfold.quality.report.album import Album
from sevenfold.quality.report.format import count, short_key
from sevenfold.quality.report.markup import Html, el, prose
from sevenfold.quality.report.model import Grid, Tile

MOST_TILES = 60


def grid(content: Grid, *, name: str, album: Album | None = None, narrow: bool = False) -> Html:
    """One grid; at most 60 tiles are drawn and the page says how many there are."""
    album = album or Album()
    tiles = content.tiles[:MOST_TILES]
    total = max(content.total or 0, len(content.tiles))
    shown = f"{len(tiles):,} of {total:,} shown." if total > len(tiles) else f"{count(total, 'picture')}."
    caption = el("p", prose(f"{content.caption} ".lstrip()), el("span", shown, class_="quiet"), class_="lead")
    return el("div", caption, strip(tiles, album, name=name, narrow=narrow))


def strip(tiles: Sequence[Tile], album: Album, *, name: str, narrow: bool = False) -> Html:
    """The tiles alone."""
    made = (el("li", tile(one, album), class_="tile") for one in tiles)
    return el("ul", *made, class_=f"tiles{' narrow' if narrow else ''}", aria_label=name)


def pair(sides: Sequence[tuple[str, Grid]], album: Album | None = None) -> Html:
    """Titled grids side by side, to compare; one alone takes the whole width."""
    columns = (
        el("div", el("h3", title), grid(content, name=title, album=album, narrow=len(sides) > 1), class_="side")
        for title, content in sides
    )
    return el("div", *columns, class_="pair" if len(sides) > 1 else None)


def tile(content: Tile, album: Album) -> Html:
    """One picture with its caption."""
    source = album[content.image] if content.image else None
    alternative = content.title or (" to ".join(content.change) if content.change else content.key)
    if source:
        picture = el("img", src=source, alt=alternative, width=96, height=96, class_="picture")
    else:
        picture = el("span", _icon_broken(), el("span", content.missing), class_="picture absent")
    lines = [el("span", line, class_="line") for line in content.lines]
    if content.change:
        given, suggested = content.change
        arrow = el("span", " → ", class_="arrow", aria_label=" suggested ")
        lines.insert(0, el("span", el("del", given), arrow, el("ins", suggested), class_="title"))
    elif content.title:
        lines.insert(0, el("span", content.title, class_="title"))
    if content.review:
        tone = {True: "pass", False: "fail", None: "none"}[content.agreed]
        mark = {True: "✓ ", False: "✕ ", None: ""}[content.agreed]
        lines.append(el("span", mark + content.review, class_=f"review {tone}"))
    key = el("code", short_key(content.key), title=content.key, class_="key")
    return el("span", picture, el("span", *lines, key, class_="caption"), class_="framed")


def _icon_broken() -> Html:
    shape = el("path", d="M3 5h18v14H3z M3 16l5-5 3 3 M13 12l2-2 6 6 M12 3l-2 5 4 3-3 4 2 6")
    return el("svg", shape, viewBox="0 0 24 24", width=28, height=28, class_="icon", aria_hidden="true")
