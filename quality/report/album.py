"""The album: every picture of a page as a thumbnail, all of a size that keeps them within the page's budget."""

from __future__ import annotations

import base64
import io
import warnings
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sevenfold.quality.report.markup import Html

if TYPE_CHECKING:
    from PIL import Image

BUDGET = 2_300_000
"""Characters that all thumbnails of a page may take together."""
THUMBNAIL = 96
LOSSLESS_UP_TO = 40
STEPS = ((THUMBNAIL, 80, True), (THUMBNAIL, 60, False), (64, 60, False), (48, 50, False))
"""(side in pixels, JPEG quality, tiny pictures kept pixel by pixel), tried in order until all fit."""
MOST_PIXELS = 50_000_000


class Album:
    """Thumbnails of a page's pictures: `album[data]` is a data URI, or None for what cannot or may not be shown.

    Parameters
    ----------
    images : the encoded bytes of every picture as often as it is shown, the most important first: where even the
        smallest thumbnails do not fit the budget, the last ones are left out.
    """

    def __init__(self, images: Iterable[bytes] = (), budget: int = BUDGET) -> None:
        self.often = Counter(images)
        self.made: dict[bytes, Html | None] = {}
        for size, quality, lossless in STEPS:
            self.made = {data: thumbnail(data, size, quality, lossless=lossless) for data in self.often}
            if self._total() <= budget:
                return
        room = budget
        for data, uri in self.made.items():
            room -= len(uri or "") * self.often[data]
            if room < 0:
                self.made[data] = None

    def _total(self) -> int:
        return sum(len(uri or "") * self.often[data] for data, uri in self.made.items())

    def __getitem__(self, data: bytes) -> Html | None:
        return self.made[data] if data in self.made else thumbnail(data)


def thumbnail(data: bytes, size: int = THUMBNAIL, quality: int = 80, *, lossless: bool = True) -> Html | None:
    """A data URI of at most `size` x `size` pixels, or None when the bytes are no image (or too big to open safely).

    `lossless`: pictures of at most 40 pixels a side are kept pixel by pixel.
    """
    made = shrunk(data, size, quality, lossless=lossless)
    return made and Html(f"data:image/{made[0]};base64,{base64.b64encode(made[1]).decode()}")


def preview(data: bytes, most: int = 65_536) -> bytes:
    """What a page keeps of a picture until it is drawn: the bytes of a small one, a smaller one of a large one."""
    if len(data) <= most:
        return data
    made = shrunk(data, 2 * THUMBNAIL, 90)
    return made[1] if made else b""


def shrunk(data: bytes, size: int, quality: int, *, lossless: bool = False) -> tuple[str, bytes] | None:
    """("png" or "jpeg", bytes) of a smaller copy, upright, as grey or RGB; None when the bytes are no image."""
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as opened:
                if opened.width * opened.height > MOST_PIXELS:
                    return None
                opened.draft("RGB", (2 * size, 2 * size))
                image = ImageOps.exif_transpose(opened)
                if image.mode.startswith(("I", "F")):
                    image = _stretched(image)
                elif image.mode not in ("L", "RGB"):
                    image = _on_grey(image.convert("RGBA"))
                image.thumbnail((size, size))
                out = io.BytesIO()
                kind = "png" if lossless and max(image.size) <= LOSSLESS_UP_TO else "jpeg"
                image.save(out, kind, **({"optimize": True} if kind == "png" else {"quality": quality}))
    # a hostile or broken file may raise nearly anything in a decoder; a report must not fail on it
    except (OSError, ValueError, TypeError, SyntaxError, ArithmeticError, LookupError, Image.DecompressionBombError):
        return None
    return kind, out.getvalue()


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
