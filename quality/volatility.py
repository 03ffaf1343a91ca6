"""Volatility: is it still true? Drift of properties, labels and model outputs against a reference; never blocking.

Two things must speak at once, a corrected p-value and an effect size: p-values alone always fire at large n, and
divergences alone always fire at small n. Each side is cut to a fixed budget, chosen by a hash of the id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from sevenfold.quality import policy as limits
from sevenfold.quality.context import Check, Context
from sevenfold.quality.predictions import probabilities
from sevenfold.quality.two_sample import Shift, count_shift, shifts, subsample
from sevenfold.quality.verdict import Verdict, missing


def variable_drift(
    now: Mapping[str, np.ndarray],
    ids: Sequence[str],
    before: Mapping[str, np.ndarray],
    reference_ids: Sequence[str],
    *,
    check: str,
    subject: str,
    reference: str,
    policy: limits.Volatility,
) -> Verdict:
    """Two-sample tests of every variable with false discovery control; the core of the two checks below.

    Parameters
    ----------
    now, before : variable -> float [n] and float [m], in the order of ``ids`` and ``reference_ids``; NaN is left out.
    """
    alpha, thresholds = policy.alpha, _thresholds(policy)
    chosen, old = subsample(ids, policy.sample_budget), subsample(reference_ids, policy.sample_budget)
    x = {k: _known(v[chosen]) for k, v in now.items() if k in before}
    y = {k: _known(v[old]) for k, v in before.items() if k in now}
    usable = [k for k in x if min(len(x[k]), len(y[k])) >= policy.min_n]
    common = {"v": "volatility", "check": check, "subject": subject, "reference": reference, "n": len(chosen)}
    if not usable:
        return Verdict(
            **common,  # type: ignore[arg-type]
            result="not_measurable",
            thresholds=thresholds,
            message=f"{len(ids)} samples against {len(reference_ids)} of {reference}: a test needs "
            f"{policy.min_n} on both sides.",
            remedy="Wait for more samples, or judge several batches together.",
        )
    found = shifts({k: x[k] for k in usable}, {k: y[k] for k in usable}, alpha=alpha)
    fired = [s for s in found if s.adjusted <= alpha and s.distance >= policy.warn_effect]
    top = (fired or found)[0]
    result = "pass" if not fired else "fail" if top.distance >= policy.fail_effect else "warn"
    said = ", ".join(f"{s.name} {_direction(s)} (D {s.distance:.2f}, delta {s.delta:+.2f})" for s in fired[:5])
    more = f" and {len(fired) - 5} more" if len(fired) > 5 else ""
    return Verdict(
        **common,  # type: ignore[arg-type]
        result=result,
        statistic=top.distance,
        statistic_name=f"largest KS distance ({top.name})",
        interval=top.interval,
        effect=top.distance,
        p=top.adjusted,
        thresholds=thresholds,
        message=(
            f"{len(fired)} of {len(found)} moved against {reference}: {said}{more}; corrected p {_p(top.adjusted)}."
            if fired
            else f"None of {len(found)} moved against {reference} by {policy.warn_effect:g} or more beyond chance; the "
            f"largest distance is {top.distance:.2f} ({top.name}, corrected p {_p(top.adjusted)})."
        ),
        remedy="Look at the samples listed; label some of them and retrain when accuracy on them is lower."
        if fired
        else "",
        findings=_most_shifted(now, ids, before, fired),
    )


def property_drift(
    properties: pa.Table,
    reference_properties: pa.Table,
    *,
    subject: str,
    reference: str,
    policy: limits.Volatility,
) -> Verdict:
    """Drift of measured content properties (``id`` + float columns) against the reference's."""
    now, before = _columns(properties), _columns(reference_properties)
    return variable_drift(
        now,
        properties["id"].to_pylist(),
        before,
        reference_properties["id"].to_pylist(),
        check="property_drift",
        subject=subject,
        reference=reference,
        policy=policy,
    )


def output_drift(
    probs: np.ndarray,
    ids: Sequence[str],
    reference_probs: np.ndarray,
    reference_ids: Sequence[str],
    *,
    classes: Sequence[str],
    subject: str,
    reference: str,
    policy: limits.Volatility,
) -> Verdict:
    """Drift of one model's softmax outputs float [n, k] against float [m, k] (BBSD, Lipton 2018, Rabanser 2019).

    Both sides must be out of sample for the model. Findings: the samples whose outputs are unusual for the reference.
    """
    now = {f"p({c})": probs[:, i] for i, c in enumerate(classes)}
    before = {f"p({c})": reference_probs[:, i] for i, c in enumerate(classes)}
    return variable_drift(
        now, ids, before, reference_ids, check="output_drift", subject=subject, reference=reference, policy=policy
    )


def label_shift(
    rows: pa.Table, reference_rows: pa.Table, *, subject: str, reference: str, policy: limits.Volatility
) -> Verdict:
    """Do the classes come in other shares? G-test with a null of pooled permutations, and total variation.

    The effect is the total variation in excess of what two draws of these sizes show by chance, so that it does not
    grow as n shrinks. Findings: the samples of the classes whose share rose by more than two standard errors.
    """
    now = [(i, c) for i, c in zip(rows["id"].to_pylist(), rows["label"].to_pylist(), strict=True) if c is not None]
    old = [
        (i, c)
        for i, c in zip(reference_rows["id"].to_pylist(), reference_rows["label"].to_pylist(), strict=True)
        if c is not None
    ]
    thresholds = _thresholds(policy)
    common = {"v": "volatility", "check": "label_shift", "subject": subject, "reference": reference}
    if min(len(now), len(old)) < policy.min_n:
        return Verdict(
            **common,  # type: ignore[arg-type]
            result="not_measurable",
            n=len(now),
            thresholds=thresholds,
            message=f"{len(now)} labels against {len(old)} of {reference}: a test needs {policy.min_n} on both sides.",
            remedy="Wait for more labels, or judge several batches together.",
        )
    x = [now[i][1] for i in subsample([i for i, _ in now], policy.sample_budget)]
    y = [old[i][1] for i in subsample([i for i, _ in old], policy.sample_budget)]
    names = sorted(set(x) | set(y))
    a, b = np.array([x.count(c) for c in names]), np.array([y.count(c) for c in names])
    test = count_shift(a, b)
    moved = a / a.sum() - b / b.sum()
    fired = test.p <= policy.alpha and test.effect >= policy.warn_effect
    order = np.argsort(-np.abs(moved), kind="stable")[:5]
    said = ", ".join(f"{names[i]} {b[i] / b.sum():.1%} -> {a[i] / a.sum():.1%}" for i in order)
    share = (a + b) / (a + b).sum()
    noise = np.sqrt(share * (1 - share) * (1 / a.sum() + 1 / b.sum()))
    up = [names[i] for i in np.argsort(-moved, kind="stable") if moved[i] > 2 * noise[i]] if fired else []
    return Verdict(
        **common,  # type: ignore[arg-type]
        result="pass" if not fired else "fail" if test.effect >= policy.fail_effect else "warn",
        n=len(x),
        statistic=test.variation,
        statistic_name="total variation of class shares",
        interval=test.interval,
        effect=test.effect,
        p=test.p,
        thresholds=thresholds,
        message=f"Class shares differ from {reference} by a total variation of {test.variation:.2f} "
        f"({test.chance:.2f} is chance at this size), p {_p(test.p)}; "
        + ("moved most: " if fired else "largest moves: ")
        + said
        + ".",
        remedy="Check whether the source changed what it sends; weight or balance the classes before training."
        if fired
        else "",
        findings=tuple(i for c in up for i, label in now if label == c),
    )


def _most_shifted(
    now: Mapping[str, np.ndarray], ids: Sequence[str], before: Mapping[str, np.ndarray], fired: Sequence[Shift]
) -> tuple[str, ...]:
    """All samples outside the reference's central 95 % of a moved variable, the farthest (in its spread) first."""
    excess = np.zeros(len(ids))
    for shift in fired:
        known = _known(before[shift.name])
        low, high = np.quantile(known, [0.025, 0.975])
        spread = (high - low) or float(np.std(known)) or 1.0
        values = now[shift.name]
        excess = np.fmax(excess, np.fmax(low - values, values - high) / spread)
    order = np.argsort(-excess, kind="stable")
    return tuple(ids[i] for i in order if excess[i] > 0)


def _columns(table: pa.Table) -> dict[str, np.ndarray]:
    return {
        name: table[name].to_numpy().astype(np.float64)
        for name in table.column_names
        if pa.types.is_floating(table[name].type) or pa.types.is_integer(table[name].type)
    }


def _thresholds(policy: limits.Volatility) -> dict[str, float]:
    return {
        "alpha": policy.alpha,
        "warn_effect": policy.warn_effect,
        "fail_effect": policy.fail_effect,
        "min_n": float(policy.min_n),
    }


def _direction(shift: Shift) -> str:
    return "rose" if shift.delta > 0.05 else "fell" if shift.delta < -0.05 else "changed its spread"


def _p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def _known(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _properties(context: Context) -> Verdict:
    fresh, reference = context.fresh, context.reference
    return property_drift(
        fresh.properties,
        reference.properties if reference else fresh.properties.slice(0, 0),
        subject=context.subject,
        reference=context.reference_name or "the reference",
        policy=context.policy.volatility,
    )


def _labels(context: Context) -> Verdict:
    fresh, reference = context.fresh, context.reference
    return label_shift(
        fresh.rows,
        reference.rows if reference else fresh.rows.slice(0, 0),
        subject=context.subject,
        reference=context.reference_name or "the reference",
        policy=context.policy.volatility,
    )


def _outputs(context: Context) -> Verdict:
    now, before = context.fresh.predictions, context.reference.predictions if context.reference else None
    if now is None or before is None:
        return missing(
            "volatility",
            "output_drift",
            context.subject,
            "One model's out-of-sample outputs on both sides are needed.",
            "Score this version and its reference with the same model.",
        )
    return output_drift(
        probabilities(now, context.classes),
        now["id"].to_pylist(),
        probabilities(before, context.classes),
        before["id"].to_pylist(),
        classes=context.classes,
        subject=context.subject,
        reference=context.reference_name or "the reference",
        policy=context.policy.volatility,
    )


CHECKS = (
    Check("volatility", "property_drift", _properties),
    Check("volatility", "label_shift", _labels),
    Check("volatility", "output_drift", _outputs, ("version",)),
)
