"""Drift of the user's own columns: numbers, categories and texts, through the test that properties go through."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality import policy as limits
from sevenfold.quality.context import Check, Context
from sevenfold.quality.sampling import subsample
from sevenfold.quality.texts import describe, is_text
from sevenfold.quality.variable_drift import is_number, variable_drift
from sevenfold.quality.verdict import Verdict, missing


def metadata_drift(
    metadata: pa.Table, reference_metadata: pa.Table, *, subject: str, reference: str, policy: limits.Volatility
) -> Verdict:
    """Drift of the user's own columns (``id`` + any): numbers, categories, texts by their lengths and script.

    A text column is one of strings that are mostly different and have several words; where there is one, findings are
    among the compared samples. Times, lists and columns of keys (nearly all different, one word) are left out: they
    always move. Whether a value is there is a category of its own.
    """
    names = [k for k in metadata.column_names if k != "id" and k in reference_metadata.column_names]
    old = pa.array(subsample(reference_metadata["id"], policy.sample_budget))
    texts = {name for name in names if is_text(reference_metadata[name].take(old))}
    if texts:
        metadata = metadata.take(pa.array(subsample(metadata["id"], policy.sample_budget)))
        reference_metadata = reference_metadata.take(old)
    gaps = {k for k in names if metadata[k].null_count or reference_metadata[k].null_count}
    return variable_drift(
        _columns(metadata.select(names), texts, gaps),
        metadata["id"],
        _columns(reference_metadata.select(names), texts, gaps),
        reference_metadata["id"],
        check="metadata_drift",
        subject=subject,
        reference=reference,
        policy=policy,
    )


def _columns(metadata: pa.Table, texts: set[str], gaps: set[str]) -> dict[str, Any]:
    """The columns to compare: numbers, categories, what describes a text, and whether a value is there."""
    out: dict[str, Any] = {}
    for name in metadata.column_names:
        column = metadata[name]
        if name in texts:
            out |= {f"{name}: {key}": values for key, values in describe(column).items()}
        elif is_number(column.type):
            out[name] = column
        elif pa.types.is_boolean(column.type) or pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
            if len(pc.unique(column)) <= max(2, len(column) // 2):  # otherwise a key: always new
                out[name] = column
        if name in gaps and (name in out or name in texts):
            out[f"{name} is there"] = pc.if_else(column.is_valid(), "yes", "no")
    return out


def _metadata(context: Context) -> Verdict:
    now, before = context.fresh.metadata, context.reference.metadata if context.reference else None
    if now is None or before is None:
        return missing(
            "volatility",
            "metadata_drift",
            context.subject,
            "There are no metadata columns on both sides.",
            "Give the source further columns; they are kept by sample id.",
        )
    return metadata_drift(
        now,
        before,
        subject=context.subject,
        reference=context.reference_name or "the reference",
        policy=context.policy.volatility,
    )


CHECKS = (Check("volatility", "metadata_drift", _metadata),)
"""The check of the user's own columns."""
