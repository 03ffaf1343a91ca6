"""Veracity: contradictory labels, and leaks between splits. (Label errors and annotators: labels.py.)"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality import leaks
from sevenfold.quality import policy as limits
from sevenfold.quality.context import Check, Context, ReadPixels
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


def cross_split_duplicates(
    rows: pa.Table,
    *,
    subject: str,
    policy: limits.Veracity,
    read_pixels: ReadPixels | None = None,
) -> Verdict:
    """A picture of val or test in another split too, exactly or nearly; in train it fails and blocks promotion.

    In the pool it warns: labelled there, it would leak. Without ``read_pixels`` near-duplicates are candidates only and
    warn. Findings: the twin to exclude of each pair (never a test sample), those that fail first, candidates last.
    See :func:`duplicate_pairs`.
    """
    pairs = duplicate_pairs(rows, policy=policy, read_pixels=read_pixels).to_pylist()
    sure = [p for p in pairs if p["kind"] != "candidate"]
    twins = _distinct(p["exclude"] for p in sure if p["exclude_split"] != "pool")
    pooled = _distinct(p["exclude"] for p in sure if p["exclude_split"] == "pool")
    unsure = [
        i for i in _distinct(p["exclude"] for p in pairs if p["kind"] == "candidate") if i not in {*twins, *pooled}
    ]
    exact = len(_distinct(p["exclude"] for p in sure if p["kind"] == "exact" and p["exclude_split"] != "pool"))
    said = f"{len(twins)} samples show a picture of another split ({exact} pixel for pixel)"
    between = sorted({f"{p['keep_split']}/{p['exclude_split']}" for p in sure if p["exclude_split"] != "pool"})
    said += f", between {', '.join(between)}" if between else ""
    said += f"; {len(pooled)} of the pool show one of val or test" if pooled else ""
    said += f"; {len(unsure)} are candidates by perceptual hash, not confirmed on pixels" if unsure else ""
    remedy = "Check again with the pixels at hand." if unsure else ""
    if twins or pooled:
        wait = "; promotion waits for it" if twins else ", or they leak once they are labelled"
        remedy = f"Exclude them (`sevenfold review --exclude-twins --commit`){wait}."
    return Verdict(
        v="veracity",
        check="cross_split_duplicates",
        subject=subject,
        result="fail" if twins else "warn" if pooled or unsure else "pass",
        blocking=True,
        statistic=float(len(twins)),
        statistic_name="samples that show a picture of another split",
        n=rows.num_rows,
        thresholds={
            "max_hash_bits": float(policy.max_hash_bits),
            "max_pixel_distance": policy.max_pixel_distance,
        },
        message=said + ".",
        remedy=remedy,
        findings=tuple(twins + pooled + unsure),
    )


def _distinct(ids: Iterable[str]) -> list[str]:
    """Each id once, in order of first appearance."""
    return list(dict.fromkeys(ids))


def duplicate_pairs(rows: pa.Table, *, policy: limits.Veracity, read_pixels: ReadPixels | None = None) -> pa.Table:
    """Pictures of val or test that occur in another split too (:data:`leaks.PAIRS`): exact pairs, then near ones.

    Without a reader of pixels the near ones are candidates.
    """
    near = leaks.hash_candidates(rows, policy.max_hash_bits)
    if read_pixels is not None:
        near = leaks.confirm(near, read_pixels, policy.max_pixel_distance)
    return pa.concat_tables([leaks.exact_pairs(rows), near])




def _contradictory(context: Context) -> Verdict:
    reference = context.reference.rows if context.reference and context.kind == "batch" else None
    return contradictory(context.rows, context.quarantine, subject=context.subject, reference_rows=reference)


def _leaks(context: Context) -> Verdict:
    return cross_split_duplicates(
        context.rows, subject=context.subject, policy=context.policy.veracity, read_pixels=context.read_pixels
    )


CHECKS = (
    Check("veracity", "contradictory_labels", _contradictory),
    Check("veracity", "cross_split_duplicates", _leaks, ("version",)),
)
