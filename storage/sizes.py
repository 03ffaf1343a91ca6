"""Bytes as people write and read them: `50GB` and `1.5TiB` to numbers, numbers to `34.1 GB`."""

from __future__ import annotations

import re

from sevenfold.storage.errors import SevenfoldError


def bytes_of(text: str, where: str = "", *, least: int = 0) -> int:
    """Bytes of `50GB`, `500 MB`, `1.5TB`, `1GiB` or `1000`; SevenfoldError for anything else or below `least`."""
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(?:([kmgt])(i?))?b?", text.strip().lower())
    if match:
        count = int(float(match[1]) * (1024 if match[3] else 1000) ** (1 + "kmgt".index(match[2]) if match[2] else 0))
        if count >= least:
            return count
    raise SevenfoldError(
        f"{text!r} is no size", where=where, expected="a number and MB, GB or TB", do="for example 50GB"
    )


def setting(count: int) -> str:
    """Bytes as :func:`bytes_of` reads them, rounded up."""
    return f"{-(-count // 10**6)}MB" if count >= 10**6 else str(count)


def said(count: int) -> str:
    """Bytes for people: 1.2 TB, 34.1 GB, 2.0 MB; small ones exactly."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count:,} bytes"
