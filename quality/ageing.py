"""What changes with time: labels between two versions, and accuracy from older to newer batches; never blocking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.intervals import wilson
from sevenfold.quality import policy as limits
from sevenfold.quality.context import Check, Context
from sevenfold.quality.drifted import result
from sevenfold.quality.keys64 import places
from sevenfold.quality.verdict import Verdict, missing

_SHOWN = 20  # classes of the matrix


def label_change(
    rows: pa.Table, reference_rows: pa.Table, *, subject: str, reference: str, policy: limits.Volatility
) -> Verdict:
    """The share of the samples in both versions whose label is another one now, with Wilson's interval.

    A label given where there was none, or taken away, is a change too; none on both sides is not counted. Findings: the
    samples, those of the commonest change first.
    """
    place = places(rows["id"], reference_rows["id"])
    both = np.flatnonzero(place >= 0)
    label = rows["label"].take(pa.array(both))
    before = reference_rows["label"].take(pa.array(place[both]))
    some = pc.or_(label.is_valid(), before.is_valid())
    both, label, before = both[np.asarray(some)], label.filter(some), before.filter(some)
    n = len(both)
    thresholds = {"warn_label_change": policy.warn_label_change, "fail_label_change": policy.fail_label_change}
    if n < policy.min_n:
        return Verdict(
            "volatility",
            "label_change",
            subject,
            "not_measurable",
            n=n,
            reference=reference,
            thresholds=thresholds,
            message=f"{n} labelled samples are in {reference} too; {policy.min_n} are needed.",
        )
    changed = pc.not_equal(pc.fill_null(label, ""), pc.fill_null(before, ""))
    label, before = label.filter(changed), before.filter(changed)
    ids = rows["id"].take(pa.array(both[np.asarray(changed)]))
    counts = _transitions(before, label)
    low, high = wilson(len(ids), n)
    share = len(ids) / n
    found = result(low, policy.warn_label_change, policy.fail_label_change)
    told = ", ".join(f"{a} -> {b} ({k})" for (a, b), k in list(counts.items())[:5])
    kinds = list(counts)
    wanted = [f"{a} -> {b}" for a, b in kinds]
    words = pc.binary_join_element_wise(pc.fill_null(before, "(none)"), pc.fill_null(label, "(none)"), " -> ")
    rank = pc.index_in(words, value_set=pa.array(wanted, words.type)).to_numpy()
    order = pa.array(np.argsort(rank, kind="stable"))
    return Verdict(
        "volatility",
        "label_change",
        subject,
        found,
        n=n,
        reference=reference,
        thresholds=thresholds,
        statistic=share,
        statistic_name="share of common samples with another label",
        interval=(low, high),
        effect=share,
        message=f"{len(ids)} of {n} samples that {reference} has too carry another label now ({share:.1%}, 95 % "
        f"interval {low:.1%} to {high:.1%})" + (f"; most often {told}." if told else "."),
        remedy="Check that these changes are corrections; score models of both versions on the same labels."
        if found != "pass"
        else "",
        findings=tuple(ids.take(order).to_pylist()),
        notes=tuple(words.take(order).to_pylist()),
        data={"matrix": _matrix(counts, reference, subject)} if counts else {},
    )


def accuracy_by_age(
    correct: np.ndarray,
    ids: pa.Array | pa.ChunkedArray,
    batches: pa.Array | pa.ChunkedArray,
    arrived: Mapping[str, float],
    *,
    subject: str,
    policy: limits.Volatility,
) -> Verdict:
    """Is accuracy on the newest samples lower than on those before? Newcombe's interval of the difference.

    Parameters
    ----------
    correct : bool [n], whether an out-of-sample prediction equals the label; ids, batches : [n], the sample's.
    arrived : batch -> unix time at which it landed; samples of other batches are left out.

    The newest window is the newest batch, and those before it until ``min_n`` samples are in it. It must fall by
    ``warn_accuracy_fall`` and the interval must exclude 0. Findings: the window's wrongly predicted samples.
    """
    codes = pc.index_in(batches, value_set=pa.array(sorted(arrived, key=lambda b: (arrived[b], b)), pa.string()))
    rank = pc.fill_null(codes, -1).to_numpy()
    names = sorted(arrived, key=lambda b: (arrived[b], b))
    n = np.bincount(rank[rank >= 0], minlength=len(names))
    right = np.bincount(rank[rank >= 0], weights=correct[rank >= 0], minlength=len(names)).astype(np.int64)
    first = len(names)
    while first > 0 and n[first:].sum() < policy.min_n:
        first -= 1
    a, b = int(n[first:].sum()), int(n[:first].sum())
    thresholds = {
        "alpha": policy.alpha,
        "min_n": float(policy.min_n),
        "warn_accuracy_fall": policy.warn_accuracy_fall,
        "fail_accuracy_fall": policy.fail_accuracy_fall,
    }
    if min(a, b) < policy.min_n:
        return Verdict(
            "volatility",
            "accuracy_by_age",
            subject,
            "not_measurable",
            n=a + b,
            thresholds=thresholds,
            message=f"Out-of-sample predictions of {a + b} labelled samples in {int((n > 0).sum())} batches: "
            f"{policy.min_n} new ones and {policy.min_n} older ones are needed.",
            remedy="Score a version of at least two batches.",
        )
    now, before = int(right[first:].sum()), int(right[:first].sum())
    difference = now / a - before / b
    low, high = newcombe(now, a, before, b, 1 - policy.alpha)
    p = two_proportions(now, a, before, b)
    fall = -difference if high < 0 else 0.0
    found = result(fall, policy.warn_accuracy_fall, policy.fail_accuracy_fall)
    wrong = np.flatnonzero((rank >= first) & ~correct)
    window = ", ".join(names[i] for i in range(first, len(names)) if n[i])
    return Verdict(
        "volatility",
        "accuracy_by_age",
        subject,
        found,
        n=a + b,
        reference=None,
        thresholds=thresholds,
        statistic=difference,
        statistic_name="accuracy on the newest samples minus on those before",
        interval=(low, high),
        effect=fall,
        p=p,
        message=f"Accuracy is {now / a:.1%} on the {a} newest samples ({window}) and {before / b:.1%} on the {b} "
        f"before: {difference:+.1%}, 95 % interval {low:+.1%} to {high:+.1%}.",
        remedy="Label and train on more of the newest samples." if found != "pass" else "",
        findings=tuple(ids.take(pa.array(wrong)).to_pylist()) if found != "pass" else (),
        notes=tuple(f"wrong, in {name}" for name in batches.take(pa.array(wrong)).to_pylist())
        if found != "pass"
        else (),
        data={
            "series": {
                "title": "Accuracy by arrival",
                "x_name": "landed (unix time)",
                "y_name": "accuracy",
                "points": [[arrived[names[i]], right[i] / n[i]] for i in range(len(names)) if n[i]],
                "limits": list(wilson(before, b)),
            }
        },
    )


def newcombe(k: int, n: int, j: int, m: int, confidence: float = 0.95) -> tuple[float, float]:
    """Interval of k/n - j/m from Wilson's two (Newcombe 1998, method 10)."""
    p, q = k / n, j / m
    (a, b), (c, d) = wilson(k, n, confidence), wilson(j, m, confidence)
    return p - q - float(np.hypot(p - a, d - q)), p - q + float(np.hypot(b - p, q - c))


def two_proportions(k: int, n: int, j: int, m: int) -> float:
    """Fisher's exact two-sided p of k of n against j of m."""
    from scipy.stats import fisher_exact

    return float(fisher_exact([[k, n - k], [j, m - j]])[1])


def _transitions(before: pa.ChunkedArray, label: pa.ChunkedArray) -> dict[tuple[str, str], int]:
    """(old, new) -> how often, the commonest first."""
    pairs = pa.table({"a": pc.fill_null(before, "(none)"), "b": pc.fill_null(label, "(none)")})
    rows = pairs.group_by(["a", "b"]).aggregate([([], "count_all")]).to_pylist()
    rows.sort(key=lambda r: (-r["count_all"], r["a"], r["b"]))
    return {(r["a"], r["b"]): r["count_all"] for r in rows}


def _matrix(counts: Mapping[tuple[str, str], int], reference: str, subject: str) -> dict[str, Any]:
    names = sorted({name for pair in list(counts)[:_SHOWN] for name in pair})
    return {
        "title": f"Labels of {reference} (rows) and of {subject} (columns)",
        "rows": names,
        "columns": names,
        "values": [[counts.get((a, b), 0) for b in names] for a in names],
    }


def _label_change(context: Context) -> Verdict:
    if context.reference is None:
        why = "There is no reference version."
        return missing("volatility", "label_change", context.subject, why, "Commit a next version; this is the first.")
    return label_change(
        context.rows,
        context.reference.rows,
        subject=context.subject,
        reference=context.reference.subject,
        policy=context.policy.volatility,
    )


def _accuracy_by_age(context: Context) -> Verdict:
    predictions, rows = context.predictions, context.rows
    arrived = _arrivals(context.records)
    if predictions is None or not arrived or "batch" not in rows.column_names:
        return missing(
            "volatility",
            "accuracy_by_age",
            context.subject,
            "Out-of-sample predictions and the times of arrival are needed.",
            "Score this version with `sevenfold score`.",
        )
    place = pc.index_in(predictions["id"], value_set=rows["id"].combine_chunks())
    label = rows["label"].take(place.combine_chunks())
    usable = pc.and_(place.is_valid(), label.is_valid())
    predictions, label = predictions.filter(usable), label.filter(usable)
    batches = rows["batch"].take(place.filter(usable).combine_chunks())
    return accuracy_by_age(
        np.asarray(pc.equal(predictions["predicted"], label)),
        predictions["id"],
        batches,
        arrived,
        subject=context.subject,
        policy=context.policy.volatility,
    )


def _arrivals(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    times = {str(r["batch"]): r.get("times", {}).get("landed") for r in records}
    return {batch: float(t) for batch, t in times.items() if t is not None}


CHECKS = (
    Check("volatility", "label_change", _label_change, ("version",)),
    Check("volatility", "accuracy_by_age", _accuracy_by_age, ("version",)),
)
"""The checks of what changes with time."""
