"""Pairs of pictures side by side as one PNG, each with a line of words beneath: to see whether they are twins."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

SHOWN = 100
"""Pairs on a page, the best first."""

_TILE, _GAP, _LINE = 72, 10, 12


def pair_grid(first: np.ndarray, second: np.ndarray, words: Sequence[str], *, columns: int = 10) -> bytes:
    """A PNG of n pairs, uint8 [n, h, w, 3] each, `columns` to a row; `words`: n short captions."""
    wide, high = 2 * _TILE + 2 + _GAP, _TILE + _LINE + _GAP
    rows = -(-len(words) // columns)
    page = Image.new("RGB", (max(1, min(columns, len(words))) * wide + _GAP, max(1, rows) * high + _GAP), "white")
    draw = ImageDraw.Draw(page)
    for i, caption in enumerate(words):
        left, top = _GAP + (i % columns) * wide, _GAP + (i // columns) * high
        for side, pixels in enumerate((first[i], second[i])):
            tile = Image.fromarray(np.ascontiguousarray(pixels)).resize((_TILE, _TILE), Image.Resampling.NEAREST)
            page.paste(tile, (left + side * (_TILE + 2), top))
        draw.text((left, top + _TILE), caption[: 2 * _TILE // 6], fill="black", font_size=9)
    out = io.BytesIO()
    page.save(out, "PNG", optimize=True)
    return out.getvalue()
