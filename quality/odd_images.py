"""Odd images: very dark, bright, blurry, flat, or of an odd size or aspect, beside what is usual in this very data.

Limits made for photographs fire on nothing, or on everything, at 28 or 32 pixels. So each limit is drawn from the
reference's own distribution (or the subject's, without one): on a log scale the tail beyond the 5 % quantile is taken
as exponential, its slope read from the quantiles 1 % and 5 %, and the limit is where a share of ``odd_alpha`` would lie
beyond. A few percent of odd images do not move these quantiles far (the slope is held below twice that of the quantiles
5 % and 25 %), and where all images are alike a limit lies at least a factor away from the median.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.intervals import wilson
from sevenfold.quality import policy as limits
from sevenfold.quality.context import Check, Context
from sevenfold.quality.verdict import Verdict, missing

LEAST = 50
"""Fewer samples than this have no tails."""

_SURE = 1.64
"""Standard errors of its tail's slope that a reference is given: a small one warned of two batches in five without."""

_SHOWN = 30
_ENOUGH = 500_000
_LEVEL = 1 / 255
_TINY = 1e-12

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Kind:
    """One way to be odd: `measure` gives a positive number that is small for odd images, float64 [n].

    `factor`: the least factor below the median that is odd; `shown`: the measured column that a note tells.
    """

    name: str
    measure: Callable[[Columns], np.ndarray]
    factor: float
    shown: str


def _ratio(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    return over / np.maximum(under, _LEVEL)


KINDS = (
    Kind("very dark", lambda c: c["brightness"] + _LEVEL / 4, 3.0, "brightness"),
    Kind("very bright", lambda c: 1 - c["brightness"] + _LEVEL / 4, 3.0, "brightness"),
    Kind("flat", lambda c: c["contrast"] + _LEVEL / 4, 3.0, "contrast"),
    Kind("blurry", lambda c: _ratio(c["sharpness"], c["contrast"]) + _LEVEL / 4, 2.0, "sharpness"),
    Kind("very narrow", lambda c: c["aspect"], 1.5, "aspect"),
    Kind("very wide", lambda c: 1 / c["aspect"], 1.5, "aspect"),
    Kind("very small", lambda c: c["area"], 2.0, "pixels"),
    Kind("very large", lambda c: 1 / c["area"], 2.0, "pixels"),
)
"""What is looked for. Blur is sharpness over contrast: a smooth sky is flat, not blurred."""


def limit_of(measured: np.ndarray, factor: float, alpha: float, sure: float = 0.0) -> float:
    """The log of the value below which a share of about ``alpha`` of float64 [n], all positive, is expected.

    The slope comes from the lowest twentieth of the values, which gives it a standard error of 1 / sqrt(n / 20) of
    itself; it is taken larger by ``sure`` of them, which matters where others are held to a small reference's limit.
    Every k-th value is enough where there are millions: rows lie in the order of their digests, which is no order.
    """
    some = measured[:: max(1, len(measured) // _ENOUGH)]
    low, near, quarter, middle = np.log(np.quantile(some, [0.01, 0.05, 0.25, 0.5]))
    slope = min((near - low) / math.log(5), 2 * (quarter - near) / math.log(5))
    slope *= 1 + sure / math.sqrt(0.05 * len(measured))
    return float(min(near - slope * math.log(0.05 / alpha), middle - math.log(factor)))


def odd_images(
    rows: pa.Table,
    properties: pa.Table,
    *,
    subject: str,
    policy: limits.Variety,
    reference_rows: pa.Table | None = None,
    reference_properties: pa.Table | None = None,
    reference: str | None = None,
) -> Verdict:
    """The share of images that are odd in some way; warns when its lower bound exceeds ``max_odd_share``.

    Findings: all of them, the farthest beyond its limit first, with what is odd.

    Parameters
    ----------
    rows, properties : id, width, height; id and the measured float columns. They are joined by id; a value that is
        not known (null, NaN, infinite) is not odd.
    """
    rows, properties = _together(rows, properties)
    n = properties.num_rows
    if reference_rows is not None and reference_properties is not None:
        reference_rows, reference_properties = _together(reference_rows, reference_properties)
    own = reference_properties is None or reference_properties.num_rows < LEAST or reference_rows is None
    if n == 0 or (own and n < LEAST):
        why = f"{n} images have no distribution of their own to be odd in: {LEAST} are needed, or a reference."
        return missing("variety", "odd_images", subject, why)
    mine = _Measured(rows, properties)
    usual = mine if own else _Measured(reference_rows, reference_properties)
    beyond = np.full(n, -np.inf, np.float32)
    told: dict[int, list[str]] = {}
    counts: dict[str, int] = {}
    for kind in KINDS:
        here = _positive(kind.measure(mine))
        there = here if own else _positive(kind.measure(usual))
        there = there[~np.isnan(there)]
        if len(there) < LEAST:
            continue
        limit = limit_of(there, kind.factor, policy.odd_alpha, 0.0 if own else _SURE)
        odd = np.flatnonzero(here < math.exp(limit))
        counts[kind.name] = len(odd)
        beyond[odd] = np.maximum(beyond[odd], limit - np.log(here[odd]))
        shares = _shares(there, here[odd])
        values = mine["area" if kind.shown == "pixels" else kind.shown][odd].tolist()
        for i, share, shown in zip(odd.tolist(), shares, values, strict=True):
            value = _number(shown)
            told.setdefault(i, []).append(f"{kind.name} ({kind.shown} {value}, {share} of the reference)")
    found = np.array(sorted(told, key=lambda i: (-beyond[i], i)), dtype=np.int64)
    share, interval = len(found) / n, wilson(len(found), n)
    high = interval[0] > policy.max_odd_share
    ids = properties["id"].take(pa.array(found)).to_pylist()
    said = ", ".join(f"{k} {name}" for name, k in counts.items() if k)
    return Verdict(
        v="variety",
        check="odd_images",
        subject=subject,
        result="warn" if high else "pass",
        statistic=share,
        statistic_name="share of images unlike the others in light, sharpness, size or shape",
        interval=interval,
        n=n,
        thresholds={"max_odd_share": policy.max_odd_share, "odd_alpha": policy.odd_alpha},
        reference=None if own else reference,
        message=f"{len(found):,} of {n:,} images are odd beside {'one another' if own else reference}"
        + (f": {said}." if said else "."),
        remedy="Look at the images listed; exclude what shows nothing." if high else "",
        findings=tuple(ids),
        notes=tuple("; ".join(told[i]) for i in found.tolist()),
        data={
            "bars": {"title": "Odd images", "names": list(counts), "series": {"now": list(counts.values())}},
            "examples": {"title": "Odd images", "now": ids[:_SHOWN], "reference": []},
        },
    )


def _together(rows: pa.Table, properties: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Both tables' rows of the samples that both have, in the order of `properties`."""
    if rows["id"].equals(properties["id"]):  # the rule
        return rows, properties
    place = pc.index_in(properties["id"], value_set=rows["id"].combine_chunks())
    return rows.take(place.drop_null()), properties.filter(pc.is_valid(place))


def _positive(measured: np.ndarray) -> np.ndarray:
    """float64 [n] that has a logarithm, or is NaN where nothing is known."""
    return np.where(np.isfinite(measured), np.maximum(measured, _TINY), np.nan)


class _Measured(Mapping[str, np.ndarray]):
    """The measured columns as arrays, each made when it is asked for: all at once are a gigabyte at 10^7 rows."""

    def __init__(self, rows: pa.Table, properties: pa.Table) -> None:
        self._rows, self._properties = rows, properties

    def __getitem__(self, name: str) -> np.ndarray:
        if name == "area":
            area = self._rows["width"].to_numpy() * self._rows["height"].to_numpy().astype(np.float64)
            return np.maximum(area, _TINY)
        found = np.asarray(self._properties[name].to_numpy())
        return np.maximum(found, _TINY) if name == "aspect" else found  # also measured the other way round

    def __iter__(self) -> Iterator[str]:
        return iter((*self._properties.column_names, "area"))

    def __len__(self) -> int:
        return self._properties.num_columns + 1


def _shares(usual: np.ndarray, values: np.ndarray) -> list[str]:
    """The share of the reference at or below each value, in words."""
    if not len(values):
        return []
    tail = np.sort(usual[usual <= values.max()])
    below = np.searchsorted(tail, values, side="right") / len(usual)
    return [f"{s:.2%}" if s >= 5e-5 else "none" if s == 0 else "less than 0.01%" for s in below.tolist()]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _odd(context: Context) -> Verdict:
    reference = context.reference
    return odd_images(
        context.rows,
        context.properties,
        subject=context.subject,
        policy=context.policy.variety,
        reference_rows=reference.rows if reference else None,
        reference_properties=reference.properties if reference else None,
        reference=context.reference_name,
    )


CHECKS = (Check("variety", "odd_images", _odd),)
