"""Veracity: contradictory labels. (Label errors and annotators: labels.py; pictures in two splits: twins.py.)"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality.context import Check, Context
from sevenfold.quality.contradictions import contradicting
from sevenfold.quality.verdict import Verdict


def contradictory(
    rows: pa.Table, quarantine: pa.Table | None, *, subject: str, reference_rows: pa.Table | None = None
) -> Verdict:
    """Equal pixels under two labels: blocking when any was admitted; a warning when they are in quarantine.

    A sample whose pixels the reference has under another label warns: that is a proposed relabel for review. Findings:
    the ids of all samples admitted with a contradiction, else those that contradict the reference, else the
    quarantined paths.
    """
    inside = contradicting(rows, rows)
    against = contradicting(rows, reference_rows) if reference_rows is not None and not inside else []
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


def _contradictory(context: Context) -> Verdict:
    reference = context.reference.rows if context.reference and context.kind == "batch" else None
    return contradictory(context.rows, context.quarantine, subject=context.subject, reference_rows=reference)


CHECKS = (Check("veracity", "contradictory_labels", _contradictory),)
