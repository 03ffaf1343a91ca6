"""Numbers and words as people read them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

NONE = "–"


def number(value: float | int | None) -> str:
    """Three significant digits, thousands grouped, no exponent unless tiny: 12,345 / 0.0312 / 4.1e-07."""
    if value is None:
        return NONE
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if float(value).is_integer() and abs(value) < 1e15:
        return minus(f"{int(value):,}")
    if abs(value) >= 1000:
        return minus(f"{value:,.0f}")
    if abs(value) < 1e-4:
        return minus(f"{value:.1e}")
    return minus(f"{value:.3g}")


def minus(shown: str) -> str:
    """A true minus sign, which is as wide as a digit."""
    return shown.replace("-", "−", 1) if shown.startswith("-") else shown


def percent(value: float | None, digits: int = 1) -> str:
    """0.8132 -> "81.3 %"."""
    return NONE if value is None or math.isnan(value) else minus(f"{100 * value:.{digits}f}") + " %"


def measured(name: str, value: float) -> str:
    """A number with the unit that its name tells: shares as per cent, seconds as a span, others plain."""
    if "share" in name and abs(value) <= 1:
        return number(float(f"{100 * value:.3g}")) + " %"
    if name.endswith("seconds"):
        return span(value)
    return number(value)


def without_unit(name: str) -> str:
    """The name in words, without the unit that `measured` writes beside the number."""
    return name.replace("_", " ").removesuffix(" seconds").removesuffix(" share")


def span(seconds: float) -> str:
    """3.2 s, 12 min, 5 h, 7 days."""
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if abs(seconds) >= 2 * size:
            return f"{number(round(seconds / size, 1))} {unit}"
    return f"{number(float(f'{seconds:.3g}'))} s"


def points(value: float) -> str:
    """A signed difference of two shares in percentage points."""
    return minus(f"{100 * value:+.1f}")


def count(n: int, noun: str, plural: str = "") -> str:
    """1 sample, 2 samples."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def moment(seconds: float) -> str:
    """Unix seconds -> "30 November 2026, 11:32 UTC"."""
    when = datetime.fromtimestamp(seconds, UTC)
    return f"{when.day} {when:%B %Y, %H:%M} UTC"


def short_key(key: str) -> str:
    """A sample id by its first twelve digits (which the lake accepts for it), a path by its last two parts."""
    if len(key) == 64 and all(c in "0123456789abcdef" for c in key):
        return key[:12]
    parts = key.replace("\\", "/").rstrip("/").split("/")
    return shorten("/".join(parts[-2:]), 40)


def shorten(value: str, length: int) -> str:
    """Keep both ends: the end of a path says more than its middle."""
    if len(value) <= length:
        return value
    head = (length - 1) // 2
    return f"{value[:head]}…{value[-(length - 1 - head) :]}"
