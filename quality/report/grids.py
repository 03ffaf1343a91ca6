"""Image grids: thumbnails as data URIs, upscaled by the browser; what cannot be decoded becomes a tile of words."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sevenfold.quality.report.format import count, short_key
from sevenfold.quality.report.markup import Html, el, prose
from sevenfold.quality.report.model import Grid, Tile

if TYPE_CHECKING:
    from PIL import Image

MOST_TILES = 60
THUMBNAIL = 96
LOSSLESS_UP_TO = 40
MOST_PIXELS = 50_000_000


def thumbnail(data: bytes) -> Html | None:
    """A data URI of at most 96 x 96 pixels, or None when the bytes are no image (or one too big to open safely)."""
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as opened:
                if opened.width * opened.height > MOST_PIXELS:
                    return None
                opened.draft("RGB", (2 * THUMBNAIL, 2 * THUMBNAIL))
                image = ImageOps.exif_transpose(opened)
                if image.mode.startswith(("I", "F")):
                    image = _stretched(image)
                elif image.mode not in ("L", "RGB"):
                    image = _on_grey(image.convert("RGBA"))
                image.thumbnail((THUMBNAIL, THUMBNAIL))
                out = io.BytesIO()
                if max(image.size) <= LOSSLESS_UP_TO:
                    kind = "png"
                    image.save(out, "PNG", optimize=True)
                else:
                    kind = "jpeg"
                    image.save(out, "JPEG", quality=80)
    # a hostile or broken file may raise nearly anything in a decoder; a report must not fail on it
    except (OSError, ValueError, TypeError, SyntaxError, ArithmeticError, LookupError, Image.DecompressionBombError):
        return None
    return Html(f"data:image/{kind};base64,{base64.b64encode(out.getvalue()).decode()}")


def _stretched(image: Image.Image) -> Image.Image:
    """Integers or floats of any range to 8-bit grey, darkest to lightest."""
    import numpy as np
    from PIL import Image

    values = np.nan_to_num(np.asarray(image, dtype=np.float64), posinf=0.0, neginf=0.0)
    lo, hi = values.min(), values.max()
    return Image.fromarray(((values - lo) * (255.0 / ((hi - lo) or 1.0))).astype(np.uint8))


def _on_grey(image: Image.Image) -> Image.Image:
    """Transparent parts become grey, so that black and white drawings both stay visible."""
    from PIL import Image

    ground = Image.new("RGB", image.size, (128, 128, 128))
    ground.paste(image, mask=image.getchannel("A"))
    return ground


def grid(content: Grid, *, name: str, narrow: bool = False) -> Html:
    """One grid; at most 60 tiles are drawn and the page says how many there are."""
    tiles = content.tiles[:MOST_TILES]
    total = max(content.total or 0, len(content.tiles))
    shown = f"{len(tiles):,} of {total:,} shown." if total > len(tiles) else f"{count(total, 'picture')}."
    caption = el("p", prose(f"{content.caption} ".lstrip()), el("span", shown, class_="quiet"), class_="lead")
    return el(
        "div", caption, el("ul", *map(tile, tiles), class_=f"tiles{' narrow' if narrow else ''}", aria_label=name)
    )


def pair(sides: Sequence[tuple[str, Grid]]) -> Html:
    """Titled grids side by side, to compare; one alone takes the whole width."""
    columns = (
        el("div", el("h3", title), grid(content, name=title, narrow=len(sides) > 1), class_="side")
        for title, content in sides
    )
    return el("div", *columns, class_="pair" if len(sides) > 1 else None)


def tile(content: Tile) -> Html:
    """One picture with its caption."""
    source = thumbnail(content.image) if content.image else None
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
    return el("li", picture, el("span", *lines, key, class_="caption"), class_="tile")


def _icon_broken() -> Html:
    shape = el("path", d="M3 5h18v14H3z M3 16l5-5 3 3 M13 12l2-2 6 6 M12 3l-2 5 4 3-3 4 2 6")
    return el("svg", shape, viewBox="0 0 24 24", width=28, height=28, class_="icon", aria_hidden="true")
