"""Variety: does it cover the world it claims? Classes, their balance, repeats; the list of all its checks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.intervals import effective_number, wilson
from sevenfold.quality import coverage, odd_images, slices
from sevenfold.quality import policy as limits
from sevenfold.quality.context import Check, Context
from sevenfold.quality.repeats import repeated
from sevenfold.quality.verdict import Verdict


def class_counts(rows: pa.Table, classes: Sequence[str] | None = None) -> dict[str, int]:
    """Labelled samples per class, in the order of ``classes`` (then any others by name); empty classes count 0."""
    counted = pc.value_counts(rows["label"])
    pairs = zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)
    found = {label: int(k) for label, k in pairs if label is not None}
    names = list(classes or ())
    names += sorted(set(found) - set(names))
    return {name: found.get(name, 0) for name in names}


def effective_classes(
    rows: pa.Table,
    *,
    subject: str,
    policy: limits.Variety,
    reference_rows: pa.Table | None = None,
    reference: str | None = None,
) -> Verdict:
    """The effective number of classes exp(H), against a reference's; warns on a fall that noise cannot explain."""
    counts = np.array(list(class_counts(rows).values()))
    n = int(counts.sum())
    value, interval = effective_number(counts)
    common = {"v": "variety", "check": "effective_classes", "subject": subject, "n": n}
    if n == 0:
        return Verdict(**common, result="not_measurable", message="No sample has a label.")  # type: ignore[arg-type]
    result, effect, note = "pass", None, "there is no reference to compare with"
    if reference_rows is not None and (old := np.array(list(class_counts(reference_rows).values()))).sum():
        before, span = effective_number(old)
        effect = 1 - value / before
        note = f"{reference} has {before:.2f} ({effect:+.1%} fall)" if effect > 0 else f"{reference} has {before:.2f}"
        if effect > policy.max_fall and interval[1] < span[0]:
            result = "warn"
    return Verdict(
        **common,  # type: ignore[arg-type]
        result=result,
        statistic=value,
        statistic_name="effective number of classes, exp(H)",
        interval=interval,
        effect=effect,
        thresholds={"max_fall": policy.max_fall},
        reference=reference,
        message=f"{n} labelled samples spread over {value:.2f} effective classes "
        f"({int((counts > 0).sum())} occur); {note}.",
        remedy="Collect or label more of the classes that became rare." if result == "warn" else "",
    )


def balance(rows: pa.Table, *, subject: str, policy: limits.Variety, classes: Sequence[str] | None = None) -> Verdict:
    """Rarest over commonest class; a class without samples makes it 0. Findings: the classes below the limit."""
    counts = class_counts(rows, classes)
    n = sum(counts.values())
    if n == 0:
        return Verdict("variety", "balance", subject, "not_measurable", message="No sample has a label.")
    rare, common = min(counts, key=lambda c: (counts[c], c)), max(counts, key=lambda c: (counts[c], c))
    low, high = counts[rare], counts[common]
    ratio = low / high
    shares = wilson(low, low + high)
    interval = (min(ratio, shares[0] / (1 - shares[0])), max(ratio, min(1.0, shares[1] / (1 - shares[1]))))
    few = [c for c, k in counts.items() if k / high < policy.min_balance]
    return Verdict(
        v="variety",
        check="balance",
        subject=subject,
        result="warn" if few else "pass",
        statistic=ratio,
        statistic_name="rarest / commonest class",
        interval=interval,
        n=n,
        thresholds={"min_balance": policy.min_balance},
        message=f"The rarest class {rare!r} has {low} samples, the commonest {common!r} has {high}"
        + (f"; {len(few)} of {len(counts)} classes are below {policy.min_balance:g} of it." if few else "."),
        remedy="Collect or label more of the rare classes, or weight them." if few else "",
        findings=tuple(f"class:{c}" for c in few),
    )


def duplicate_share(rows: pa.Table, *, subject: str, policy: limits.Variety, aliases: int = 0) -> Verdict:
    """The share of inputs that repeat pixels already there: other bytes with equal pixels, and aliases (equal bytes).

    Findings: every sample but the one with the smallest id of its pixel digest, by id.
    """
    n = rows.num_rows + aliases
    found = _repeats_of(rows)
    repeats = len(found)
    share = (repeats + aliases) / n if n else 0.0
    high = share > policy.max_duplicate_share
    return Verdict(
        v="variety",
        check="duplicate_share",
        subject=subject,
        result="not_measurable" if n == 0 else "warn" if high else "pass",
        statistic=share,
        statistic_name="share of samples that repeat another's pixels",
        interval=wilson(repeats + aliases, n),
        n=n,
        thresholds={"max_duplicate_share": policy.max_duplicate_share},
        message=f"{repeats} samples repeat the pixels of another, and {aliases} inputs were byte-for-byte aliases "
        f"({share:.2%} of {n}).",
        remedy="Exclude the repeats listed; check whether the source delivers files twice." if high else "",
        findings=tuple(found),
    )


def _repeats_of(rows: pa.Table) -> list[str]:
    """The ids of all but the smallest of each pixel digest, in order; a row without a digest repeats none."""
    again = repeated(rows["pixel_digest"])
    if not again.any():
        return []
    twice = pc.unique(rows["pixel_digest"].filter(pa.array(again))).drop_null()
    alike = rows.select(["id", "pixel_digest"]).filter(pc.is_in(rows["pixel_digest"], value_set=twice)).sort_by("id")
    return sorted(alike["id"].filter(pa.array(repeated(alike["pixel_digest"]))).to_pylist())


def _effective(context: Context) -> Verdict:
    reference = context.reference
    return effective_classes(
        context.rows,
        subject=context.subject,
        policy=context.policy.variety,
        reference_rows=reference.rows if reference else None,
        reference=context.reference_name,
    )


def _balance(context: Context) -> Verdict:
    return balance(context.rows, subject=context.subject, policy=context.policy.variety, classes=context.classes)


def _repeats(context: Context) -> Verdict:
    aliases = int(context.record["counts"].get("aliases", 0)) if context.record else 0
    return duplicate_share(context.rows, subject=context.subject, policy=context.policy.variety, aliases=aliases)


CHECKS = (
    Check("variety", "effective_classes", _effective),
    Check("variety", "balance", _balance),
    Check("variety", "duplicate_share", _repeats),
    *slices.CHECKS,
    *coverage.CHECKS,
    *odd_images.CHECKS,
)
