"""A starter suite from a reference: schema, nulls, sets and ranges, with tolerances from the reference's own numbers.

The reference passes it, and so does a fresh draw from the same distribution (the tolerances leave room for chance);
what has other columns, classes, modes or sizes, or values far out of the range, fails. A shifted middle only warns:
drift is judged by volatility, with a test.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from sevenfold.quality.frame import metrics

MOST_VALUES = 200
"""A column of more different values is no set of categories."""

RARE = 10
"""A category seen less often than this says that others went unseen: the column gets no set rule."""

LEAST = 30
"""Samples below which no range is drawn from quantiles."""

_FIXED = ("id", "path", "pixel_digest")
_SETS = ("mode", "format", "split", "ext")
_SIZES = ("width", "height", "channels")
_SKIPPED = ("phash", "bytes", "batch", "shard", "offset", "size", "weight", "components", "slot")
_QUANTILES = ("q01", "q30", "q50", "q70", "q99")


def profile(
    rows: pa.Table,
    properties: pa.Table | None = None,
    metadata: pa.Table | None = None,
    *,
    classes: Sequence[str] = (),
    name: str,
) -> dict[str, Any]:
    """A suite (see quality.suite.load_suite) that describes the samples.

    Parameters
    ----------
    rows, properties, metadata : the reference's samples, its measured floats and the user's own columns, by id.
    classes : the labels that may occur; empty takes those that do.
    name : what the reference is called.
    """
    expectations = [_between("rows", 1, None, "critical", "There is at least one sample.")]
    expectations += _of_rows(rows, classes)
    for table in (properties, metadata):
        if table is not None:
            taken = {*rows.column_names, *(properties.column_names if table is metadata and properties else ())}
            for field in table.schema:
                if field.name not in taken:
                    expectations += _of_column(field, rows, table)
    notes = (
        f"Made from {name} ({rows.num_rows:,} samples) with tolerances from its own statistics; edit freely. A metric "
        "is rows or <column>_<nulls|nullshare|min|max|mean|q01 ... q99|distinct|values|type>."
    )
    return {"name": f"profile-{name}", "notes": notes, "expectations": expectations}


def suite_text(suite: dict[str, Any]) -> str:
    """The suite as JSON, an expectation per line."""
    import json

    lines = ",\n".join(f"    {json.dumps(e, ensure_ascii=False)}" for e in suite["expectations"])
    head = ",\n".join(f"  {json.dumps(k)}: {json.dumps(suite[k], ensure_ascii=False)}" for k in ("name", "notes"))
    return f'{{\n{head},\n  "expectations": [\n{lines}\n  ]\n}}\n'


def _of_rows(rows: pa.Table, classes: Sequence[str]) -> list[dict[str, Any]]:
    there = set(rows.column_names)
    asked = [f"{c}_{r}" for c in (*_FIXED, *_SETS, "label") for r in ("type", "nulls") if c in there]
    asked += [f"{c}_{r}" for c in _SIZES for r in ("min", "max") if c in there]
    asked += [f"{c}_values" for c in (*_SETS, "label") if c in there]
    found = metrics(asked, rows)
    made = []
    for column in (c for c in (*_FIXED, *_SETS, "label") if c in there):
        made.append(_in_set(f"{column}_type", [found[f"{column}_type"]], f"The type of {column}."))
        made += _nulls(column, found[f"{column}_nulls"], rows.num_rows)
    for column in (c for c in _SETS if c in there):
        made += _values(column, found[f"{column}_values"].strip("|").split("|"))
    labels = list(classes) or [x for x in found.get("label_values", "").strip("|").split("|") if x]
    if labels:
        made += _values("label", labels)
    for column in (c for c in _SIZES if c in there and found[f"{c}_min"] is not None):
        low, high = found[f"{column}_min"], found[f"{column}_max"]
        if column == "channels" or low == high:  # one size is a rule; of several, half and double are still usual
            made += _range(column, low, high, "critical")
        else:
            made += _range(column, max(1, low // 2), high * 2, "critical")
    return made


def _of_column(field: pa.Field, rows: pa.Table, table: pa.Table) -> list[dict[str, Any]]:
    column, kind = field.name, field.type
    if pa.types.is_nested(kind) or column in _SKIPPED:
        return []
    asked = [f"{column}_{r}" for r in ("type", "nulls")]
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    asked += [f"{column}_{r}" for r in ("min", "max", *_QUANTILES)] if number else []
    found = metrics(asked, rows, table)
    made = [_in_set(f"{column}_type", [found[f"{column}_type"]], f"The type of {column}.")]
    made += _nulls(column, found[f"{column}_nulls"], rows.num_rows)
    there = rows.num_rows - found[f"{column}_nulls"]
    if number and there >= LEAST:
        spread = found[f"{column}_q99"] - found[f"{column}_q01"]
        # a constant has no spread: a twentieth of itself is still the same
        room = spread or 0.05 * abs(found[f"{column}_max"]) or 1e-6
        made += _range(column, found[f"{column}_min"] - room, found[f"{column}_max"] + room, "critical")
        if spread:
            slack = 0.01 * spread
            low, high = found[f"{column}_q30"] - slack, found[f"{column}_q70"] + slack
            note = f"The median of {column} lies in the middle of the reference."
            made.append(_between(f"{column}_q50", _short(low, -1), _short(high, 1), "warning", note))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_boolean(kind):
        counts = table[column].drop_null().value_counts()
        often = [(c["values"].as_py(), c["counts"].as_py()) for c in counts] if len(counts) <= MOST_VALUES else []
        if often and min(n for _, n in often) >= RARE:
            made += _values(column, [str(v).lower() if isinstance(v, bool) else str(v) for v, _ in often])
    return made


def _nulls(column: str, nulls: int, n: int) -> list[dict[str, Any]]:
    if nulls == 0:
        return [_between(f"{column}_nulls", None, 0, "critical", f"Every sample has {column}.")]
    share = nulls / max(n, 1)
    if nulls == n:
        return []
    # three standard errors of a batch of a hundred: a small batch must not fail by chance
    most = min(1.0, share + 3 * (share * (1 - share) / 100) ** 0.5 + 0.01)
    note = f"The share of samples without {column} is about that of the reference ({share:.3g})."
    return [_between(f"{column}_nullshare", None, _short(most), "critical", note)]


def _values(column: str, values: Sequence[str]) -> list[dict[str, Any]]:
    listed = sorted(set(values))
    if not listed or len(listed) > MOST_VALUES * 5 or any("|" in v for v in listed):
        return []
    regex = rf"^\|(?:(?:{'|'.join(re.escape(v) for v in listed)})\|)*$"
    note = f"Every {column} is one of: {', '.join(listed)}."
    return [
        {"type": "expect_column_values_to_match_regex", "kwargs": {"column": f"{column}_values", "regex": regex},
         "severity": "critical", "notes": note}
    ]  # fmt: skip


def _range(column: str, low: float, high: float, severity: str) -> list[dict[str, Any]]:
    least, most = _short(low, -1), _short(high, 1)
    return [
        _between(f"{column}_min", least, None, severity, f"No {column} is below {least:g}."),
        _between(f"{column}_max", None, most, severity, f"No {column} is above {most:g}."),
    ]


def _between(metric: str, low: float | None, high: float | None, severity: str, notes: str) -> dict[str, Any]:
    kwargs: dict[str, Any] = {"column": metric}
    kwargs |= {"min_value": low} if low is not None else {}
    kwargs |= {"max_value": high} if high is not None else {}
    return {
        "type": "expect_column_values_to_be_between", "kwargs": kwargs, "severity": severity, "notes": notes,
    }  # fmt: skip


def _in_set(metric: str, values: list[str], notes: str) -> dict[str, Any]:
    kwargs = {"column": metric, "value_set": values}
    return {
        "type": "expect_column_values_to_be_in_set", "kwargs": kwargs, "severity": "critical", "notes": notes,
    }  # fmt: skip


def _short(value: float, side: int = 0) -> float:
    """A number that a person can read: four digits, rounded outwards where a side is given (-1: down, 1: up)."""
    if isinstance(value, int):
        return value
    text = float(f"{value:.4g}")
    if (side < 0 and text > value) or (side > 0 and text < value):
        text += side * abs(value) * 1e-3 or side * 1e-9
    return float(f"{text:.6g}")
