"""The verdict: what one check found about one subject, with everything needed to act on it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa

from sevenfold.storage.errors import SevenfoldError

VS = ("validity", "variety", "veracity", "value", "volume", "volatility", "velocity")
"""The seven verdict families, in the order in which they are shown."""

RESULTS = ("pass", "warn", "fail", "not_measurable", "crashed")
"""What a check can say. ``not_measurable`` is never a failure: there was too little to judge by.

``crashed`` says nothing about the data: the check itself broke.
"""

SCHEMA = pa.schema(
    [
        ("v", pa.string()),
        ("check", pa.string()),
        ("subject", pa.string()),
        ("result", pa.string()),
        ("blocking", pa.bool_()),
        ("statistic", pa.float64()),
        ("statistic_name", pa.string()),
        ("lower", pa.float64()),
        ("upper", pa.float64()),
        ("n", pa.int64()),
        ("effect", pa.float64()),
        ("p", pa.float64()),
        ("thresholds", pa.string()),
        ("reference", pa.string()),
        ("message", pa.string()),
        ("remedy", pa.string()),
        ("findings", pa.list_(pa.string())),
        ("notes", pa.list_(pa.string())),
        ("data", pa.string()),
        ("at", pa.float64()),
    ]
)
"""One row per verdict; ``thresholds`` and ``data`` are JSON, ``at`` the unix time of the check run (or null)."""


@dataclass(frozen=True)
class Verdict:
    """One check's answer.

    Parameters
    ----------
    v : one of :data:`VS`.
    check : the check's name, unique within its V.
    subject : what was judged: a batch id or a version such as ``v3``.
    result : one of :data:`RESULTS`.
    blocking : a ``fail`` stops what follows: admission for a batch, promotion for a version.
    statistic, statistic_name : the number measured and its name with unit.
    interval : (low, high) confidence interval of the statistic, or of the effect where there is one.
    n : how many samples (inputs, runs, steps) the statistic rests on.
    effect, p : effect size and multiplicity-corrected p-value, for tests.
    thresholds : the limits that the result was read against, by policy key.
    reference : the version compared with.
    message, remedy : what was found, and what to do about it, in plain words.
    findings : all offending keys (sample ids; input paths for quarantine), the worst first where there is an order.
    notes : what is wrong with each finding, in a few words; empty, or as many as findings.
    data : what plots are drawn from, as JSON, by kind of plot: histograms, bars, matrix, curve, series, pairs, examples
        (their shapes: quality/README.md).

    Raises
    ------
    ValueError
        For an unknown V or result, a number that is not finite, or notes that do not go with the findings.
    """

    v: str
    check: str
    subject: str
    result: str
    blocking: bool = False
    statistic: float | None = None
    statistic_name: str = ""
    interval: tuple[float, float] | None = None
    n: int = 0
    effect: float | None = None
    p: float | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    reference: str | None = None
    message: str = ""
    remedy: str = ""
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.v not in VS:
            raise ValueError(f"v is {self.v!r}; expected one of {', '.join(VS)}")
        if self.result not in RESULTS:
            raise ValueError(f"result is {self.result!r}; expected one of {', '.join(RESULTS)}")
        if not self.check or not self.subject:
            raise ValueError("a verdict needs a check and a subject")
        for name in ("statistic", "effect", "p"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else _finite(name, value))
        if self.interval is not None:
            low, high = self.interval
            pair = (_finite("interval", low), _finite("interval", high))
            if pair[0] > pair[1]:
                raise ValueError(f"interval is {pair}; its low end is above its high end")
            object.__setattr__(self, "interval", pair)
        object.__setattr__(self, "n", int(self.n))
        object.__setattr__(self, "blocking", bool(self.blocking))
        object.__setattr__(self, "thresholds", {str(k): _finite(k, x) for k, x in self.thresholds.items()})
        object.__setattr__(self, "findings", tuple(str(f) for f in self.findings))
        object.__setattr__(self, "notes", tuple(str(f) for f in self.notes))
        if self.notes and len(self.notes) != len(self.findings):
            raise ValueError(f"{len(self.notes)} notes for {len(self.findings)} findings")


def blocks(verdicts: Iterable[Verdict]) -> bool:
    """Whether any blocking check failed: a batch is not admitted, a version is not promoted."""
    return any(v.blocking and v.result == "fail" for v in verdicts)


def missing(v: str, check: str, subject: str, message: str, remedy: str = "") -> Verdict:
    """A verdict ``not_measurable``: what is lacking, and what would bring it."""
    return Verdict(v, check, subject, "not_measurable", message=message, remedy=remedy)


def to_table(verdicts: Sequence[Verdict], *, at: float | None = None) -> pa.Table:
    """Verdicts as a table of :data:`SCHEMA`; ``at`` is the unix time of the check run, from the caller's clock."""
    rows = []
    for v in verdicts:
        row = {f.name: getattr(v, f.name) for f in fields(v)}
        low_high = row.pop("interval") or (None, None)
        row |= {"lower": low_high[0], "upper": low_high[1], "at": at, "findings": list(v.findings)}
        row["thresholds"] = json.dumps(v.thresholds, sort_keys=True)
        row["notes"] = list(v.notes)
        row["data"] = json.dumps(v.data, sort_keys=True, allow_nan=False)
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def from_table(table: pa.Table) -> list[Verdict]:
    """The verdicts of a table, in row order; columns that this release does not know are ignored.

    Raises
    ------
    SevenfoldError
        When a column is missing.
    """
    missing = [name for name in SCHEMA.names if name not in table.column_names and name != "at"]
    if missing:
        raise SevenfoldError(
            f"the table has no column {', '.join(missing)}",
            where="verdicts",
            expected=f"the columns {', '.join(SCHEMA.names)}",
            do="run the checks again to write verdicts of this release",
        )
    verdicts = []
    for row in table.select([name for name in SCHEMA.names if name != "at"]).to_pylist():
        low, high = row.pop("lower"), row.pop("upper")
        row["interval"] = None if low is None or high is None else (low, high)
        row["thresholds"] = json.loads(row["thresholds"] or "{}")
        row["data"] = json.loads(row["data"] or "{}")
        row["findings"] = tuple(row["findings"] or ())
        row["notes"] = tuple(row["notes"] or ())
        verdicts.append(Verdict(**row))
    return verdicts


def _finite(name: str, value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}; a verdict holds finite numbers (None when there is none)")
    return number
