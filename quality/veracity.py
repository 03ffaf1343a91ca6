"""Veracity: can the labels be trusted? Contradictions and label errors; leaks between splits are in twins.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality import policy as limits
from sevenfold.quality.context import Check, Context
from sevenfold.quality.label_noise import estimate_label_noise, suspects
from sevenfold.quality.predictions import probabilities
from sevenfold.quality.verdict import Verdict

MIN_AGREEMENT = 0.5
"""Below this share of predictions that equal their label a model is too weak to accuse anybody."""


def contradictory(
    rows: pa.Table, quarantine: pa.Table | None, *, subject: str, reference_rows: pa.Table | None = None
) -> Verdict:
    """Equal pixels under two labels: blocking when any was admitted; a warning when they are in quarantine.

    A sample whose pixels the reference has under another label warns: that is a proposed relabel for review. Findings:
    the ids of all samples admitted with a contradiction, else those that contradict the reference, else the
    quarantined paths.
    """
    inside = _contradictions(rows, rows)
    against = _contradictions(rows, reference_rows) if reference_rows is not None and not inside else []
    aside: list[str] = []
    if quarantine is not None:
        aside = quarantine.filter(pc.equal(quarantine["reason"], "contradictory"))["path"].to_pylist()
    n = rows.num_rows
    parts = [f"{len(inside)} of {n} samples share their pixels with one of another label"]
    parts += [f"{len(against)} contradict the reference's label of the same pixels"] if against else []
    parts += [f"{len(aside)} contradictory inputs are in quarantine"] if aside else []
    return Verdict(
        v="veracity",
        check="contradictory_labels",
        subject=subject,
        result="fail" if inside else "warn" if against or aside else "pass",
        blocking=True,
        statistic=float(len(inside)),
        statistic_name="samples whose pixels have two labels",
        n=n,
        message="; ".join(parts) + ".",
        remedy="Decide on one label in review, or exclude all but one of the samples listed."
        if inside or against or aside
        else "",
        findings=tuple(inside or against or aside),
    )


def label_errors(
    probs: np.ndarray, labels: np.ndarray, ids: Sequence[str], *, subject: str, policy: limits.Veracity
) -> Verdict:
    """The share of wrong labels, estimated; warns and fails by the interval's upper bound (see ``label_noise``).

    Parameters
    ----------
    probs : float [n, k], each row from a model that was not trained on that sample.
    labels : int [n], the class index of each label.
    ids : the n sample ids. Findings are those above the cut that the estimate sets, the most suspect first.
    """
    n = len(labels)
    noise = estimate_label_noise(probs, labels) if n >= policy.min_n else None
    weak = noise is not None and 1 - noise.differs < MIN_AGREEMENT
    thresholds = {"warn_error_share": policy.warn_error_share, "fail_error_share": policy.fail_error_share}
    if noise is None or weak:
        why = (
            f"{n} out-of-fold predictions; the estimate needs {policy.min_n}, and 30 for most classes."
            if noise is None
            else f"The model agrees with only {1 - noise.differs:.0%} of the labels: too weak to tell its errors apart."
        )
        return Verdict(
            "veracity",
            "label_errors",
            subject,
            "not_measurable",
            n=n,
            thresholds=thresholds,
            message=why,
            remedy="Score more samples out of fold, or with a better model.",
        )
    low, high = noise.interval
    result = "fail" if high > policy.fail_error_share else "warn" if high > policy.warn_error_share else "pass"
    found = suspects(probs, labels, noise.share)
    return Verdict(
        v="veracity",
        check="label_errors",
        subject=subject,
        result=result,
        statistic=noise.share,
        statistic_name="estimated share of wrong labels",
        interval=noise.interval,
        n=n,
        thresholds=thresholds,
        message=f"About {noise.share:.1%} of {n} labels are wrong ({low:.1%} to {high:.1%}), judged where the model is "
        f"surest; {noise.differs:.1%} of all predictions differ from their label. {len(found)} suspects are listed.",
        remedy="Review the samples listed, the most suspect first." if result != "pass" else "",
        findings=tuple(ids[i] for i in found),
    )


def label_errors_of(
    predictions: pa.Table | None, *, subject: str, policy: limits.Veracity, classes: Sequence[str]
) -> Verdict:
    """:func:`label_errors` from a table of out-of-sample predictions; rows without a known label are left out."""
    index = {c: i for i, c in enumerate(classes)}
    if predictions is None:
        return label_errors(np.zeros((0, len(index))), np.zeros(0, int), [], subject=subject, policy=policy)
    labels = np.array([index.get(c, -1) for c in predictions["label"].to_pylist()], dtype=np.int64)
    known = np.flatnonzero(labels >= 0)
    ids = predictions["id"].to_pylist()
    return label_errors(
        probabilities(predictions, classes)[known],
        labels[known],
        [ids[i] for i in known],
        subject=subject,
        policy=policy,
    )


def _contradictions(rows: pa.Table, others: pa.Table) -> list[str]:
    """The ids of labelled rows whose pixels occur among the others under another label, sorted."""
    seen: dict[str, set[str]] = defaultdict(set)
    for digest, label in zip(others["pixel_digest"].to_pylist(), others["label"].to_pylist(), strict=True):
        if label is not None:
            seen[digest].add(label)
    columns = (rows[c].to_pylist() for c in ("id", "pixel_digest", "label"))
    return sorted(i for i, d, label in zip(*columns, strict=True) if label is not None and seen.get(d, set()) - {label})


def _contradictory(context: Context) -> Verdict:
    reference = context.reference.rows if context.reference and context.kind == "batch" else None
    return contradictory(context.rows, context.quarantine, subject=context.subject, reference_rows=reference)


def _label_errors(context: Context) -> Verdict:
    return label_errors_of(
        context.predictions, subject=context.subject, policy=context.policy.veracity, classes=context.classes
    )


CHECKS = (
    Check("veracity", "contradictory_labels", _contradictory),
    Check("veracity", "label_errors", _label_errors, ("version",)),
)
