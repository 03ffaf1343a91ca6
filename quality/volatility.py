"""Volatility: is it still true? Drift of properties, labels and model outputs against a reference; never blocking.

Two things must speak at once, a p-value from pooled permutations over all variables of a check and an effect size:
p-values alone always fire at large n, and divergences alone always fire at small n. Each side is cut to a fixed budget,
chosen by a hash of the id. The other checks of this V are in metadata_drift, embedding_drift and ageing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sevenfold.quality import ageing, drifted, embedding_drift, metadata_drift
from sevenfold.quality import policy as limits
from sevenfold.quality.context import Check, Context
from sevenfold.quality.predictions import probabilities
from sevenfold.quality.sampling import seed_of, subsample
from sevenfold.quality.two_sample import shifts
from sevenfold.quality.variable_drift import Ids, compared, is_number, variable_drift
from sevenfold.quality.verdict import Verdict, missing


def property_drift(
    properties: pa.Table, reference_properties: pa.Table, *, subject: str, reference: str, policy: limits.Volatility
) -> Verdict:
    """Drift of measured content properties (``id`` + float columns) against the reference's."""
    return variable_drift(
        _numeric(properties),
        properties["id"],
        _numeric(reference_properties),
        reference_properties["id"],
        check="property_drift",
        subject=subject,
        reference=reference,
        policy=policy,
    )


def output_drift(
    probs: np.ndarray,
    ids: Ids,
    reference_probs: np.ndarray,
    reference_ids: Ids,
    *,
    classes: Sequence[str],
    subject: str,
    reference: str,
    policy: limits.Volatility,
) -> Verdict:
    """Drift of one model's softmax outputs float [n, k] against float [m, k] (BBSD, Lipton 2018, Rabanser 2019).

    Both sides must be out of sample for the model. Findings: the samples whose outputs are unusual for the reference.
    """
    return variable_drift(
        {f"p({c})": probs[:, i] for i, c in enumerate(classes)},
        ids,
        {f"p({c})": reference_probs[:, i] for i, c in enumerate(classes)},
        reference_ids,
        check="output_drift",
        subject=subject,
        reference=reference,
        policy=policy,
    )


def label_shift(
    rows: pa.Table, reference_rows: pa.Table, *, subject: str, reference: str, policy: limits.Volatility
) -> Verdict:
    """Do the classes come in other shares? G-test under pooled permutations; the effect is Cohen's w beyond chance.

    Findings: the samples of the classes whose share rose by more than two standard errors, then ``class:`` and the
    name of those whose share fell so.
    """
    rows, reference_rows = (
        t.filter(t["label"].is_valid()) if t["label"].null_count else t for t in (rows, reference_rows)
    )
    if min(rows.num_rows, reference_rows.num_rows) < policy.min_n:
        return drifted.too_few(
            "label_shift", subject, reference, rows.num_rows, reference_rows.num_rows, policy, "labels"
        )
    chosen, old = (subsample(t["id"], policy.sample_budget) for t in (rows, reference_rows))
    x, y = compared(rows["label"], chosen), compared(reference_rows["label"], old)
    seed = seed_of(rows["id"].take(pa.array(chosen)), reference_rows["id"].take(pa.array(old)))
    shift = shifts({"label": x}, {"label": y}, alpha=policy.alpha, seed=seed)[0]
    fired = shift.adjusted <= policy.alpha and shift.effect >= policy.warn_effect
    moves = drifted.share_moves(x, y)
    moved = drifted.outside({"label": rows["label"]}, {"label": y}, {"label": x}, [shift] if fired else [])
    fell = drifted.risen(moves, sign=-1) if fired else []
    words = dict(zip((c for c, *_ in moves), drifted.share_words(moves), strict=True))
    return Verdict(
        "volatility",
        "label_shift",
        subject,
        drifted.result(shift.effect if fired else 0.0, policy.warn_effect, policy.fail_effect),
        n=len(chosen),
        reference=reference,
        thresholds=drifted.thresholds(policy),
        statistic=shift.distance,
        statistic_name="total variation of class shares",
        interval=shift.interval,
        effect=shift.effect,
        p=shift.adjusted,
        message=(
            f"The classes come in other shares than in {reference}"
            if fired
            else f"The shares of classes moved against {reference} by no more than chance, or by too little to matter"
        )
        + f" (w {shift.effect:.2f} beyond chance, p {drifted.p_words(shift.adjusted)}). Moved most: "
        + ", ".join(drifted.share_words(moves)[:5])
        + ".",
        remedy="Check whether the source changed what it sends; weight or balance the classes before training."
        if fired
        else "",
        findings=(*rows["id"].take(pa.array(moved.rows)).to_pylist(), *(f"class:{c}" for c in fell)),
        notes=(*moved.notes, *(f"fell: {words[c]}" for c in fell)),
        data={"bars": drifted.bars("Class shares", moves)},
    )


def _numeric(table: pa.Table) -> dict[str, Any]:
    return {name: table[name] for name in table.column_names if is_number(table[name].type)}


def _reference(context: Context) -> str:
    return context.reference_name or "the reference"


def _properties(context: Context) -> Verdict:
    fresh, old = context.fresh("properties"), context.reference
    assert fresh is not None
    return property_drift(
        fresh,
        old.properties if old else fresh.slice(0, 0),
        subject=context.subject,
        reference=_reference(context),
        policy=context.policy.volatility,
    )


def _labels(context: Context) -> Verdict:
    fresh, old = context.fresh("rows", ("id", "label")), context.reference
    assert fresh is not None
    return label_shift(
        fresh,
        old.rows if old else fresh.slice(0, 0),
        subject=context.subject,
        reference=_reference(context),
        policy=context.policy.volatility,
    )


def _outputs(context: Context) -> Verdict:
    now, before = context.fresh("predictions"), context.reference.predictions if context.reference else None
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
        now["id"],
        probabilities(before, context.classes),
        before["id"],
        classes=context.classes,
        subject=context.subject,
        reference=_reference(context),
        policy=context.policy.volatility,
    )


CHECKS = (
    Check("volatility", "property_drift", _properties),
    Check("volatility", "label_shift", _labels),
    Check("volatility", "output_drift", _outputs, ("version",)),
    *metadata_drift.CHECKS,
    *embedding_drift.CHECKS,
    *ageing.CHECKS,
)
"""All checks of this V."""
