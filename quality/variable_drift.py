"""Are variables distributed as they were? Numbers and categories of two sets of samples, in one test of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from sevenfold.quality import drifted
from sevenfold.quality import policy as limits
from sevenfold.quality.drifted import floats, known
from sevenfold.quality.sampling import seed_of, subsample
from sevenfold.quality.two_sample import Shift, shifts
from sevenfold.quality.verdict import Verdict

Ids: TypeAlias = "Sequence[str] | pa.Array | pa.ChunkedArray"
Columns = Mapping[str, Any]
"""Name -> values in the order of the ids: a float or integer column is numeric, one of strings or bools categories.
Either a NumPy array (float, or object with strings and None) or a column of Arrow."""


def variable_drift(
    now: Columns,
    ids: Ids,
    before: Columns,
    reference_ids: Ids,
    *,
    check: str,
    subject: str,
    reference: str,
    policy: limits.Volatility,
    what: str = "",
) -> Verdict:
    """Are the variables distributed as they were? The core of property, output and metadata drift.

    Numeric ones by KS distance, categories by the G-test, all under one null of pooled permutations with family-wise
    control. A variable with fewer than ``policy.min_n`` known values on a side is left out. Findings: all samples
    outside the reference's central range of a moved variable, or in a category that became commoner.
    """
    ids, reference_ids = _strings(ids), _strings(reference_ids)
    chosen, old = subsample(ids, policy.sample_budget), subsample(reference_ids, policy.sample_budget)
    both = [k for k in now if k in before]
    x, y = {k: compared(now[k], chosen) for k in both}, {k: compared(before[k], old) for k in both}
    usable = [k for k in both if x[k].dtype == y[k].dtype and min(_count(x[k]), _count(y[k])) >= policy.min_n]
    thresholds = drifted.thresholds(policy)
    if not usable:
        return drifted.too_few(check, subject, reference, len(ids), len(reference_ids), policy, what or "samples")
    x, y = {k: x[k] for k in usable}, {k: y[k] for k in usable}
    seed = seed_of(ids.take(pa.array(chosen)), reference_ids.take(pa.array(old)))
    found = shifts(x, y, alpha=policy.alpha, seed=seed)
    fired = [s for s in found if s.adjusted <= policy.alpha and s.effect >= policy.warn_effect]
    fired.sort(key=lambda s: -s.effect)
    top = (fired or found)[0]
    moved = drifted.outside({k: now[k] for k in usable}, y, x, fired)
    findings = tuple(ids.take(pa.array(moved.rows)).to_pylist())
    data: dict[str, Any] = {"histograms": drifted.histograms(x, y, fired or found[:3])}
    categorical = next((s for s in (fired or found) if s.kind == "categorical"), None)
    if categorical is not None:
        moves = drifted.share_moves(x[categorical.name], y[categorical.name])
        data["bars"] = drifted.bars(f"Shares of {categorical.name}", moves)
    if fired:
        likely = reference_ids.take(pa.array(old[drifted.typical(y, fired)])).to_pylist()
        data["examples"] = drifted.examples(f"Most shifted, beside typical samples of {reference}", findings, likely)
    unit = "KS distance" if top.kind == "numeric" else "total variation"
    return Verdict(
        "volatility",
        check,
        subject,
        drifted.result(top.effect if fired else 0.0, policy.warn_effect, policy.fail_effect),
        n=len(chosen),
        reference=reference,
        thresholds=thresholds,
        statistic=top.distance,
        statistic_name=f"{unit} of {top.name}",
        interval=top.interval,
        effect=top.effect,
        p=top.adjusted,
        message=_message(found, fired, x, y, reference),
        remedy="Look at the samples listed; label some of them and retrain when accuracy on them is lower."
        if fired
        else "",
        findings=findings,
        notes=moved.notes,
        data={k: v for k, v in data.items() if v},
    )


def _message(
    found: Sequence[Shift],
    fired: Sequence[Shift],
    x: Mapping[str, np.ndarray],
    y: Mapping[str, np.ndarray],
    reference: str,
) -> str:
    top = (fired or found)[0]
    if not fired:
        return (
            f"None of {len(found)} moved against {reference} beyond chance and by enough to matter; most unusual is "
            f"{top.name} ({_size(top)}, corrected p {drifted.p_words(top.adjusted)})."
        )
    told = "; ".join(f"{drifted.said(s, x[s.name], y[s.name])} ({_size(s)})" for s in fired[:5])
    more = f"; and {len(fired) - 5} more" if len(fired) > 5 else ""
    return (
        f"{len(fired)} of {len(found)} moved against {reference}: {told}{more}. "
        f"Corrected p {drifted.p_words(max(s.adjusted for s in fired))}."
    )


def _size(shift: Shift) -> str:
    return f"{'D' if shift.kind == 'numeric' else 'w'} {shift.effect:.2f} beyond chance"


def _strings(ids: Ids) -> pa.Array | pa.ChunkedArray:
    return ids if isinstance(ids, (pa.Array, pa.ChunkedArray)) else pa.array(ids, pa.string())


def compared(column: Any, rows: np.ndarray) -> np.ndarray:
    """The chosen values: float64 [k] with NaN, or object [k] with strings and None."""
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        part = column.take(pa.array(rows))
        if is_number(part.type):
            return floats(part)
        return np.array(part.cast(pa.string()).to_pylist(), dtype=object)
    part = column[rows]
    return part.astype(np.float64) if part.dtype.kind in "fiu" else part.astype(object)


def _count(values: np.ndarray) -> int:
    return len(known(values)) if values.dtype.kind == "f" else len(values)


def is_number(kind: pa.DataType) -> bool:
    """Whether a column is compared as numbers."""
    return pa.types.is_floating(kind) or pa.types.is_integer(kind)
