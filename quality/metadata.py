"""Metadata: the user's own columns. Are they whole and as they were, do they vary, and are captions readable and apart?

Drift of columns is volatility's. Ranges that somebody knows in advance belong into the Great Expectations suite; here
the reference version is what a column is compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.intervals import wilson
from sevenfold.quality import captions
from sevenfold.quality import policy as limits
from sevenfold.quality.columns import Column, described
from sevenfold.quality.context import Check, Context
from sevenfold.quality.verdict import Verdict, missing

MIN_N = 50
"""Rows on either side below which a column is not compared."""

_RARE = 0.01
"""The chance below which unknown categories are more than rare ones that the reference happened to miss."""

_NOVEL = 0.05
"""Unknown values expected where the reference has no value that is there once: a closed list, and a little doubt."""

_SKEWED = 5
"""A tail so many times as long above the median as below it is a long one."""

_BARS = 12
"""Columns or languages that a plot shows."""


@dataclass(frozen=True)
class Change:
    """What is wrong with a column: `weight` 2 fails, 1 warns; the note; the rows that show it, bool [n] or None."""

    column: str
    weight: int
    note: str
    rows: np.ndarray | None = None


def changes(table: pa.Table, reference: pa.Table, policy: limits.Validity) -> list[Change]:
    """What became of the reference's columns: gone, of another type, emptier, with unknown categories, out of range.

    Parameters
    ----------
    table, reference : id and columns.

    More nulls count when the share rose by `max_null_rise` and the 95 % intervals of the shares do not meet. A number
    is out of range when it is beyond the reference's ends by more than `range_margin` of their distance: a larger
    sample reaches a little further by itself.
    """
    now, before = described(table), described(reference)
    found: list[Change] = []
    for name, old in before.items():
        new = now.get(name)
        if old.kind == "empty" or old.n < MIN_N:
            continue
        if new is None:
            found.append(Change(name, 2, "the column is gone"))
            continue
        if _type(table[name].type) != _type(reference[name].type) and new.kind != "empty":
            found.append(Change(name, 2, f"{_type(table[name].type)}, was {_type(reference[name].type)}"))
            continue
        if new.n < MIN_N:
            continue
        found += _emptier(new, old, policy)
        if new.kind == "empty":
            continue
        if old.kind in ("category", "bool"):
            found += _unknown(name, table[name], new, old, policy)
        if old.kind == "number":
            found += _outside(name, table[name], reference[name], old, policy)
    return sorted(found, key=lambda c: (-c.weight, -(int(c.rows.sum()) if c.rows is not None else 0), c.column))


def _emptier(new: Column, old: Column, policy: limits.Validity) -> list[Change]:
    share, was = new.nulls / new.n, old.nulls / old.n
    if share - was <= policy.max_null_rise or wilson(new.nulls, new.n)[0] <= wilson(old.nulls, old.n)[1]:
        return []
    return [Change(new.name, 1, f"{share:.1%} is null, was {was:.1%}")]


def _unknown(name: str, column: pa.ChunkedArray, new: Column, old: Column, policy: limits.Validity) -> list[Change]:
    known = pa.array(list(old.values or {}), pa.string())
    strange = pc.and_(pc.is_valid(column), pc.invert(pc.is_in(column.cast(pa.string()), value_set=known)))
    rows = strange.to_numpy(zero_copy_only=False)
    count = int(rows.sum())
    if not count or count <= policy.max_unknown_share * new.n or not _beyond_rare(count, new, old):
        return []
    some = pc.unique(column.filter(strange)).cast(pa.string()).to_pylist()
    shown = ", ".join(repr(v[:30]) for v in some[:3]) + (f" and {len(some) - 3} more" if len(some) > 3 else "")
    return [Change(name, 1, f"{count:,} values that the reference does not know: {shown}", rows)]


def _beyond_rare(count: int, new: Column, old: Column) -> bool:
    """Whether so many unknown values are more (1 %) than the rare values bring that a sample of this size misses.

    The reference's values that are there once tell how often the next one is new (Good 1953); that share is itself
    uncertain, so the count is beta-binomial.
    """
    from scipy.stats import betabinom

    once, known = sum(k == 1 for k in (old.values or {}).values()), old.n - old.nulls
    return bool(betabinom.sf(count - 1, new.n - new.nulls, once + _NOVEL, known - once) < _RARE)


def _ends(column: pa.ChunkedArray, low: float, high: float, margin: float) -> tuple[float, float]:
    """Where far outside begins. Of a positive column with a long upper tail (incomes, sizes) that end is in logs."""
    middle = float(pc.quantile(column, 0.5)[0].as_py())
    slack = margin * (high - low)
    if low > 0 and high - middle > _SKEWED * (middle - low):
        return low - slack, max(high + slack, high * (high / middle) ** (2 * margin))
    return low - slack, high + slack


def _outside(
    name: str, column: pa.ChunkedArray, before: pa.ChunkedArray, old: Column, policy: limits.Validity
) -> list[Change]:
    assert old.low is not None and old.high is not None
    if not np.isfinite([old.low, old.high]).all():
        return []
    least, most = _ends(before.cast(pa.float64(), safe=False), old.low, old.high, policy.range_margin)
    column = column.cast(pa.float64(), safe=False)
    out = pc.or_(pc.less(column, least), pc.greater(column, most))
    rows = pc.fill_null(out, False).to_numpy(zero_copy_only=False)
    count = int(rows.sum())
    if not count:
        return []
    return [Change(name, 1, f"{count:,} values far outside {old.low:g} to {old.high:g}", rows)]


def _type(kind: pa.DataType) -> str:
    """number, bool, text, or Arrow's name: whole numbers that become fractions are no change."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    return "bool" if pa.types.is_boolean(kind) else str(kind)


def columns(
    table: pa.Table | None, reference: pa.Table | None, *, subject: str, name: str | None, policy: limits.Validity
) -> Verdict:
    """Whether the columns still are what the reference's were (see `changes`); a column gone or retyped fails.

    Findings: `column:NAME` of each, the worst first, then the ids of all samples that show an unknown or far value.
    """
    check = ("validity", "columns", subject)
    if table is None and reference is None:
        return missing(*check, "There is no metadata.")
    if table is None or not table.num_rows:
        return missing(*check, "Nothing here has metadata; the reference has.", "Land the table with its columns.")
    if reference is None or reference.num_rows < MIN_N:
        return missing(*check, f"There is no reference with metadata of {MIN_N} samples to compare with.")
    found = changes(table, reference, policy)
    rows: dict[str, str] = {}
    for change in found:
        if change.rows is not None:
            hit = table.filter(pa.array(change.rows))
            said = pc.binary_join_element_wise(pa.scalar(change.column), hit[change.column].cast(pa.string()), " ")
            rows |= {i: note for i, note in zip(hit["id"].to_pylist(), said.to_pylist(), strict=True) if i not in rows}
    names = [c.column for c in found]
    told = "; ".join(f"{c.column}: {c.note}" for c in found[:10])
    before = [n for n in reference.column_names if n != "id"]
    new = [n for n in table.column_names if n not in reference.column_names]
    return Verdict(
        *check,
        result="fail" if any(c.weight == 2 for c in found) else "warn" if found else "pass",
        statistic=float(len(set(names))),
        statistic_name="columns that are not as they were",
        n=table.num_rows,
        thresholds={
            "max_null_rise": policy.max_null_rise,
            "max_unknown_share": policy.max_unknown_share,
            "range_margin": policy.range_margin,
        },
        reference=name,
        message=f"{len(set(names))} of {len(before)} columns are not as in the reference"
        + (f": {told}." if told else ".")
        + (f" New: {', '.join(new[:10])}." if new else ""),
        remedy="Mend the table that came with the images and land it as a new batch." if found else "",
        findings=(*(f"column:{n}" for n in names), *rows),
        notes=(*(c.note for c in found), *rows.values()) if found else (),
        data=_nulls(described(table), described(reference)),
    )


def _nulls(now: Mapping[str, Column], before: Mapping[str, Column]) -> dict[str, Any]:
    names = sorted(now, key=lambda n: -now[n].nulls / max(1, now[n].n))[:_BARS]
    if not names:
        return {}
    old = [before[n].nulls / max(1, before[n].n) if n in before else 0.0 for n in names]
    series = {"now": [now[n].nulls / max(1, now[n].n) for n in names], "reference": old}
    return {"bars": {"title": "share of nulls", "names": names, "series": series}}


def varying(table: pa.Table | None, reference: pa.Table | None, *, subject: str, name: str | None) -> Verdict:
    """Whether columns vary: a constant one warns, and so does one that was categories and is now unique to its row.

    Findings: `column:NAME`.
    """
    check = ("variety", "columns", subject)
    if table is None or table.num_rows < MIN_N:
        return missing(*check, f"There is no metadata of {MIN_N} samples.")
    now = described(table)
    before = described(reference) if reference is not None else {}
    found: dict[str, str] = {}
    for column in now.values():
        filled = column.n - column.nulls
        constant = len(column.values) == 1 if column.values is not None else column.low == column.high is not None
        if filled >= MIN_N and constant:
            value = next(iter(column.values)) if column.values else f"{column.low:g}"
            found[column.name] = f"constant: {value[:60]}"
        elif column.kind == "empty":
            found[column.name] = "nothing but nulls"
        elif column.kind == "identifier" and column.name in before and before[column.name].kind == "category":
            found[column.name] = (
                f"nearly every value is another; the reference had {len(before[column.name].values or ())}"
            )
    apart = [c.name for c in now.values() if c.kind == "identifier" and c.name not in found]
    told = "; ".join(f"{n}: {note}" for n, note in list(found.items())[:10])
    kinds = [c for c in now.values() if c.values is not None]
    plot = sorted(kinds, key=lambda c: -len(c.values or ()))[:_BARS]
    return Verdict(
        *check,
        result="warn" if found else "pass",
        statistic=float(len(found)),
        statistic_name="columns that say nothing",
        n=table.num_rows,
        reference=name if before else None,
        message=f"{len(found)} of {len(now)} columns say nothing"
        + (f": {told}." if told else ".")
        + (f" Identifiers: {', '.join(apart[:10])}." if apart else ""),
        remedy="Leave the columns listed out of the table, or see why they do not vary." if found else "",
        findings=tuple(f"column:{n}" for n in found),
        notes=tuple(found.values()),
        data={
            "bars": {
                "title": "different values",
                "names": [c.name for c in plot],
                "series": {"now": [float(len(c.values or ())) for c in plot]},
            }
        }
        if plot
        else {},
    )


def texts_of(table: pa.Table | None) -> list[str]:
    """The columns that hold texts (captions)."""
    return [c.name for c in described(table).values() if c.kind == "text"] if table is not None else []


def _before(context: Context) -> pa.Table | None:
    return context.reference.metadata if context.reference else None


def _fresh(context: Context) -> pa.Table | None:
    """The metadata of samples that the reference does not have, where there is something to compare it with."""
    return context.metadata if _before(context) is None else context.fresh("metadata")


def _columns(context: Context) -> Verdict:
    return columns(
        _fresh(context),
        _before(context),
        subject=context.subject,
        name=context.reference_name,
        policy=context.policy.validity,
    )


def _varying(context: Context) -> Verdict:
    return varying(context.metadata, _before(context), subject=context.subject, name=context.reference_name)


def _readable(context: Context) -> Verdict:
    return captions.readable(
        context.metadata, texts_of(context.metadata), subject=context.subject, policy=context.policy.validity
    )


def _repeated(context: Context) -> Verdict:
    return captions.repeated(
        context.metadata,
        texts_of(context.metadata),
        _before(context),
        subject=context.subject,
        name=context.reference_name,
        policy=context.policy.variety,
    )


def _where_any(run: Callable[[Context], Verdict]) -> Callable[[Context], Sequence[Verdict]]:
    """A check that has nothing to say of a dataset without metadata: most have none."""

    def asked(context: Context) -> Sequence[Verdict]:
        none = context.metadata is None and _before(context) is None
        return () if none else (run(context),)

    return asked


CHECKS = (
    Check("validity", "columns", _where_any(_columns)),
    Check("validity", "captions", _where_any(_readable)),
    Check("variety", "columns", _where_any(_varying)),
    Check("variety", "captions", _where_any(_repeated)),
)
