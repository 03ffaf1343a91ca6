"""Captions: columns of texts. Empty or damaged ones, those that are said of several images, lengths and languages.

Damage is U+FFFD, control characters, and UTF-8 that was read as Latin-1 or Windows-1252 ("cafÃ©").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.intervals import wilson
from sevenfold.quality import languages
from sevenfold.quality import policy as limits
from sevenfold.quality.verdict import Verdict, missing

_OF_CONTROLS = "\u20ac\u201a\u0192\u201e\u2020\u2021\u02c6\u2030\u2039\u02dc\u2122\u203a"
"""Some bytes of 80 to 9F in Windows-1252; not those that may follow a capital by rights: quotes, dashes, letters."""

DAMAGE = (
    ("a replaced character (U+FFFD)", "\ufffd"),
    (
        "UTF-8 read as Latin-1",
        f"[\u00c2\u00c3][\u0080-\u00bf{_OF_CONTROLS}\u0160\u0152\u017d\u0161\u0153\u017e\u0178]"
        f"|[\u00c4\u00c5\u00d0\u00d1][\u0080-\u009f\u00a1-\u00a9\u00ac-\u00b6\u00b8\u00b9\u00bc-\u00bf{_OF_CONTROLS}]"
        "|\u00e2[\u20ac\u0080-\u0082]|\u00ef\u00bb\u00bf",
    ),
    ("a control character", "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]"),
)
"""(what it is called, the pattern that shows it)."""

LENGTHS = (0, 1, 2, 3, 5, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1 << 16)
"""Edges of the histogram of lengths, in words."""

SEEN = 5000
"""Captions whose language is told, spread evenly over all."""

COUNTED = 200_000
"""Captions whose words are counted, likewise."""

_LISTED = 20
"""Characters of a caption that a note quotes."""


def damage(column: pa.ChunkedArray) -> list[tuple[str, np.ndarray]]:
    """(what, bool [n]) of every kind of damage that some value shows, and of empty values first."""
    empty = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(column), ""), True)
    found = [("empty", empty.to_numpy(zero_copy_only=False))]
    for what, pattern in DAMAGE:
        hit = pc.fill_null(pc.match_substring_regex(column, pattern), False)
        found.append((what, hit.to_numpy(zero_copy_only=False)))
    return [(what, mask) for what, mask in found if mask.any()]


def readable(table: pa.Table | None, names: Sequence[str], *, subject: str, policy: limits.Validity) -> Verdict:
    """The share of captions that are empty or damaged; warns above `max_damaged_captions`. Findings: their ids."""
    check = ("validity", "captions", subject)
    if table is None or not names:
        return missing(*check, "No column of the metadata holds texts.")
    notes: dict[str, str] = {}
    told, bad = [], np.zeros(table.num_rows, bool)
    for name in names:
        for what, mask in damage(table[name]):
            told.append(f"{int(mask.sum()):,} of {name} {'are empty' if what == 'empty' else f'show {what}'}")
            bad |= mask
            for i in table["id"].filter(pa.array(mask)).to_pylist():
                notes.setdefault(i, f"{name}: {what}")
    count, n = int(bad.sum()), table.num_rows
    share = count / n if n else 0.0
    return Verdict(
        *check,
        result="not_measurable" if not n else "warn" if share > policy.max_damaged_captions else "pass",
        statistic=share,
        statistic_name="share of captions that are empty or damaged",
        interval=wilson(count, n),
        n=n,
        thresholds={"max_damaged_captions": policy.max_damaged_captions},
        message=f"{count:,} of {n:,} samples have an empty or damaged caption"
        + (f": {'; '.join(told)}." if told else "."),
        remedy="Write the table as UTF-8 from its origin again; text that was decoded wrongly once is not always "
        "recoverable."
        if count
        else "",
        findings=tuple(notes),
        notes=tuple(notes.values()),
        data={"histograms": [_lengths(name, table[name]) for name in names[:4]]},
    )


def repeats(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """(bool [n]: another row has exactly this text; bool [n]: it has once case, spaces and marks are left out).

    By 64-bit hashes, which two texts share by chance about once in 10^5 columns of 10^7.
    """
    import duckdb

    plain = r"regexp_replace(lower(t), '[\s\p{P}\p{S}]+', '', 'g')"
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.register("texts", pa.table({"t": column}))
        found = connection.execute(
            f"SELECT hash(t) AS a, hash(p) AS b, coalesce(p = '', true) AS no FROM (SELECT t, {plain} AS p FROM texts)"
        )
        hashes = found.fetchnumpy()
    silent = np.asarray(hashes["no"], bool)
    return _twice(np.asarray(hashes["a"]), silent), _twice(np.asarray(hashes["b"]), silent)


def _twice(hashes: np.ndarray, silent: np.ndarray) -> np.ndarray:
    ordered = np.sort(hashes[~silent])
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    return np.isin(hashes, twice) & ~silent


def repeated(
    table: pa.Table | None,
    names: Sequence[str],
    reference: pa.Table | None,
    *,
    subject: str,
    name: str | None,
    policy: limits.Variety,
) -> Verdict:
    """The share of captions that are said of another sample too; warns above `max_repeated_captions`.

    Findings: their ids, exact repeats first. The data has lengths in words and languages (see `languages`).
    """
    check = ("variety", "captions", subject)
    if table is None or not names or not table.num_rows:
        return missing(*check, "No column of the metadata holds texts.")
    n, told = table.num_rows, []
    notes: dict[str, str] = {}
    worst, count = 0.0, 0
    for column in names:
        exact, alike = repeats(table[column])
        filled = n - table[column].null_count
        told.append(f"{column}: {int(exact.sum()):,} exactly, {int(alike.sum()):,} but for case, spaces and marks")
        if filled and alike.sum() / filled > worst:
            worst, count = alike.sum() / filled, int(alike.sum())
        for mask, note in ((exact, "said of others too"), (alike & ~exact, "said of others too, but for marks")):
            hit = table.filter(pa.array(mask)).select(["id", column])
            for i, said in zip(hit["id"].to_pylist(), hit[column].to_pylist(), strict=True):
                notes.setdefault(i, f"{column}: {note}: {said[:_LISTED]}")
    speaking = _languages(table[names[0]])
    most = ", ".join(f"{k} {v / max(1, sum(speaking.values())):.0%}" for k, v in list(speaking.items())[:4])
    return Verdict(
        *check,
        result="warn" if worst > policy.max_repeated_captions else "pass",
        statistic=float(worst),
        statistic_name="share of captions that are said of another sample too",
        interval=wilson(count, n),
        n=n,
        thresholds={"max_repeated_captions": policy.max_repeated_captions},
        reference=name if reference is not None else None,
        message=f"Repeated captions, {'; '.join(told)}. Languages of {names[0]} by script and small words: {most}.",
        remedy="See whether the captions listed are templates; a model learns them by heart." if worst else "",
        findings=tuple(notes),
        notes=tuple(notes.values()),
        data={"bars": _language_bars(names[0], speaking, reference)},
    )


def lengths(column: pa.ChunkedArray) -> np.ndarray:
    """Words of every text, int64 [n]; of a script without spaces, its characters. A null has 0."""
    unspaced = pc.match_substring_regex(column, r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]")
    counted = pc.if_else(unspaced, pc.utf8_length(column), pc.count_substring_regex(column, r"\S+"))
    return pc.fill_null(counted, 0).to_numpy(zero_copy_only=False).astype(np.int64)


def _lengths(name: str, column: pa.ChunkedArray) -> dict[str, Any]:
    counts, _ = np.histogram(lengths(_spread(column, COUNTED)), bins=np.array(LENGTHS))
    return {"name": f"{name}, words", "edges": list(LENGTHS), "now": counts.tolist(), "reference": None}


def _languages(column: pa.ChunkedArray) -> dict[str, int]:
    return languages.shares(t for t in _spread(column, SEEN).to_pylist() if t)


def _spread(column: pa.ChunkedArray, most: int) -> pa.ChunkedArray:
    """At most so many values, spread evenly."""
    if len(column) <= most:
        return column
    return column.take(pa.array(np.linspace(0, len(column) - 1, most).astype(np.int64)))


def _language_bars(column: str, now: dict[str, int], reference: pa.Table | None) -> dict[str, Any]:
    there = reference is not None and column in reference.column_names and reference.num_rows
    before = _languages(reference[column].cast(pa.string())) if there and reference is not None else None
    names = list(dict.fromkeys([*now, *(before or {})]))[:12]
    series = {"now": [now.get(n, 0) / max(1, sum(now.values())) for n in names]}
    if before:
        series["reference"] = [before.get(n, 0) / max(1, sum(before.values())) for n in names]
    return {"title": f"languages of {column}", "names": names, "series": series}
