"""Validity: does it obey its declared form? Rejected inputs, and rules on what was admitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.intervals import wilson
from sevenfold.quality import policy as limits
from sevenfold.quality.context import Check, Context
from sevenfold.quality.keys64 import repeated
from sevenfold.quality.verdict import Verdict

SPLITS = ("train", "val", "test", "pool")
SUFFIXES = {
    "PNG": {"png", "apng"},
    "JPEG": {"jpg", "jpeg", "jpe", "jfif"},
    "MPO": {"jpg", "jpeg", "mpo"},
    "GIF": {"gif"},
    "BMP": {"bmp", "dib"},
    "TIFF": {"tif", "tiff"},
    "WEBP": {"webp"},
    "PPM": {"ppm", "pgm", "pbm", "pnm"},
}
"""The file extensions that go with a format as Pillow names it; a format not listed is not judged."""


def rejected_share(
    quarantine: pa.Table, record: Mapping[str, Any], *, subject: str, policy: limits.Validity
) -> Verdict:
    """The share of a batch's inputs in quarantine; blocking.

    Parameters
    ----------
    quarantine : the batch's quarantine table (path, reason, ...).
    record : the batch record; ``counts`` {inputs, quarantined, ...} and ``reasons`` {reason: n} are read.
    """
    counts, reasons = record["counts"], record.get("reasons") or {}
    inputs, bad = int(counts["inputs"]), int(counts["quarantined"])
    share = bad / inputs if inputs else 0.0
    limit = policy.max_rejected_share
    detail = ", ".join(f"{n} {reason}" for reason, n in sorted(reasons.items(), key=lambda r: (-r[1], r[0])))
    return Verdict(
        v="validity",
        check="rejected_share",
        subject=subject,
        result="not_measurable" if inputs == 0 else "fail" if share > limit else "pass",
        blocking=True,
        statistic=share,
        statistic_name="share of inputs in quarantine",
        interval=wilson(bad, inputs),
        n=inputs,
        thresholds={"max_rejected_share": limit},
        message=f"{bad} of {inputs} inputs ({share:.2%}) went to quarantine{': ' + detail if detail else ''}; "
        f"the limit is {limit:.2%}.",
        remedy="Mend or remove the inputs listed and ingest the source again: it lands as a new batch. Or raise "
        "validity.max_rejected_share in the policy and check this one again."
        if bad
        else "",
        findings=tuple(quarantine["path"].to_pylist()),
    )


def reconciled(rows: pa.Table, quarantine: pa.Table, record: Mapping[str, Any], *, subject: str) -> Verdict:
    """Whether every input is accounted for: inputs = samples + aliases + relabels + quarantined; blocking."""
    counts = record["counts"]
    parts = {name: int(counts.get(name, 0)) for name in ("samples", "aliases", "relabels", "quarantined")}
    inputs = int(counts["inputs"])
    lost = inputs - sum(parts.values())
    wrong = [
        f"the record says {said} {what}, the table has {table.num_rows}"
        for what, said, table in (
            ("samples", parts["samples"], rows),
            ("quarantined", parts["quarantined"], quarantine),
        )
        if said != table.num_rows
    ]
    if lost:
        wrong.insert(0, f"{abs(lost)} inputs are {'unaccounted for' if lost > 0 else 'counted twice'}")
    sums = " + ".join(f"{n} {what}" for what, n in parts.items() if n or what != "relabels")
    return Verdict(
        v="validity",
        check="reconciled",
        subject=subject,
        result="fail" if wrong else "pass",
        blocking=True,
        statistic=float(lost),
        statistic_name="inputs unaccounted for",
        n=inputs,
        message=f"{inputs} inputs {'!=' if lost else '='} {sums}" + (f": {'; '.join(wrong)}." if wrong else "."),
        remedy="Land the source again under a new batch id; if it recurs, the ingest has a fault." if wrong else "",
    )


def broken_rules(rows: pa.Table, classes: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Which rows break which rule: rule -> bool [n], only rules that some row breaks.

    Rules whose columns are missing are not judged (the suite judges the schema).
    """
    has = set(rows.column_names)
    out: dict[str, np.ndarray] = {}
    for name in ("width", "height", "channels", "bytes", "size"):
        if name in has:
            out[f"{name} missing or zero"] = ~_mask(pc.greater(rows[name], 0))
    if "id" in has:
        out["id missing"], out["id occurs twice"] = ~_mask(pc.is_valid(rows["id"])), repeated(rows["id"])
    if "split" in has:
        out["unknown split"] = ~_mask(pc.is_in(rows["split"], pa.array(SPLITS)))
        if "label" in has:
            labelled = _mask(pc.is_valid(rows["label"]))
            out["no label outside the pool"] = ~labelled & ~_mask(pc.equal(rows["split"], "pool"))
    if "label" in has and classes is not None:
        known = _mask(pc.is_in(rows["label"], pa.array(list(classes), pa.string())))
        out["label not among the classes"] = _mask(pc.is_valid(rows["label"])) & ~known
    if {"ext", "format"} <= has:
        out["extension contradicts the format"] = _contradicting(rows["ext"], rows["format"])
    return {rule: mask for rule, mask in out.items() if mask.any()}


def invalid_share(
    rows: pa.Table, *, subject: str, policy: limits.Validity, classes: Sequence[str] | None = None
) -> Verdict:
    """The share of admitted samples that break a rule; blocking. Any in the test split fails.

    Parameters
    ----------
    rows : samples (columns as the samples table; those missing are not judged).
    classes : the dataset's classes; None when they are not fixed yet.
    """
    n = rows.num_rows
    rules = broken_rules(rows, classes)
    bad = np.zeros(n, bool)
    for mask in rules.values():
        bad |= mask
    in_test = int((bad & _mask(pc.equal(rows["split"], "test"))).sum()) if "split" in rows.column_names else 0
    count = int(bad.sum())
    share, limit = (count / n if n else 0.0), policy.max_invalid_share
    detail = ", ".join(f"{int(m.sum())} {rule}" for rule, m in sorted(rules.items(), key=lambda r: -int(r[1].sum())))
    return Verdict(
        v="validity",
        check="invalid_share",
        subject=subject,
        result="not_measurable" if n == 0 else "fail" if share > limit or in_test else "warn" if count else "pass",
        blocking=True,
        statistic=share,
        statistic_name="share of admitted samples that break a rule",
        interval=wilson(count, n),
        n=n,
        thresholds={"max_invalid_share": limit},
        message=f"{count} of {n} admitted samples break a rule{': ' + detail if detail else ''}"
        + (f"; {in_test} of them in the test split, where none may." if in_test else "."),
        remedy="Exclude or correct the samples listed; a label outside the classes is a spelling or a new class."
        if count
        else "",
        findings=tuple(sorted({i or "" for i in rows["id"].filter(pa.array(bad)).to_pylist()})) if count else (),
    )


def _contradicting(exts: pa.ChunkedArray, formats: pa.ChunkedArray) -> np.ndarray:
    """bool [n]: a known format under an extension that is not its own. There are few pairs, however many rows."""
    codes, words = [], []
    for column in (exts, formats):
        coded = column.combine_chunks().dictionary_encode()
        codes.append(coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False))
        words.append([*coded.dictionary.to_pylist(), None])
    table = np.array(
        [
            [form in SUFFIXES and (ext or "").lower().lstrip(".") not in SUFFIXES[form] for form in words[1]]
            for ext in words[0]
        ],
        bool,
    )
    return table[codes[0], codes[1]]


def _mask(values: Any) -> np.ndarray:
    return pc.fill_null(values, False).to_numpy(zero_copy_only=False).astype(bool)


def _reconciled(context: Context) -> Verdict:
    rows, quarantine, record = _landed(context)
    return reconciled(rows, quarantine, record, subject=context.subject)


def _rejected(context: Context) -> Verdict:
    _, quarantine, record = _landed(context)
    return rejected_share(quarantine, record, subject=context.subject, policy=context.policy.validity)


def _invalid(context: Context) -> Verdict:
    return invalid_share(
        context.rows, subject=context.subject, policy=context.policy.validity, classes=context.classes or None
    )


def _landed(context: Context) -> tuple[pa.Table, pa.Table, Mapping[str, Any]]:
    if context.quarantine is None or context.record is None:
        raise ValueError("a batch is judged with its record and its quarantine")
    return context.rows, context.quarantine, context.record


CHECKS = (
    Check("validity", "reconciled", _reconciled, ("batch",)),
    Check("validity", "rejected_share", _rejected, ("batch",)),
    Check("validity", "invalid_share", _invalid),
)
