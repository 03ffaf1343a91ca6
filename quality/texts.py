"""Numbers and categories that describe a column of texts, so that a change of captions can be tested like any other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SCRIPTS = (
    "Latin", "Cyrillic", "Greek", "Arabic", "Hebrew", "Devanagari", "Han", "Hiragana", "Katakana", "Hangul", "Thai",
)  # fmt: skip
"""Unicode scripts that are told apart; a text is of the one that most of its letters belong to, else "other"."""


def is_text(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a column holds free text: strings, mostly different, of two words or more on average."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return False
    known = column.drop_null()
    if len(known) == 0 or len(pc.unique(known)) <= len(known) // 2:
        return False
    return bool(pc.mean(_words(known)).as_py() >= 2)


def describe(column: pa.Array | pa.ChunkedArray) -> dict[str, Any]:
    """characters and words (float [n], NaN for null), script (strings [n]) of each text."""
    known = pc.fill_null(column, "")
    there = column.is_valid()
    missing = ~np.asarray(there)
    lengths = {"characters": pc.utf8_length(known), "words": _words(known)}
    out: dict[str, Any] = {}
    for name, values in lengths.items():
        numbers = np.asarray(values, dtype=np.float64)
        numbers[missing] = np.nan
        out[name] = numbers
    letters = np.stack([np.asarray(pc.count_substring_regex(known, rf"\p{{{script}}}")) for script in SCRIPTS])
    names = np.array([*SCRIPTS, "other"], dtype=object)
    out["script"] = names[np.where(letters.max(axis=0) > 0, letters.argmax(axis=0), len(SCRIPTS))]
    return out


def _words(column: pa.Array | pa.ChunkedArray) -> Any:
    return pc.count_substring_regex(column, r"\S+")
