"""Drift of the user's own columns: numbers, categories and texts, through the test that properties go through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality import languages
from sevenfold.quality import policy as limits
from sevenfold.quality.columns import described
from sevenfold.quality.context import Check, Context
from sevenfold.quality.sampling import subsample
from sevenfold.quality.variable_drift import is_number, variable_drift
from sevenfold.quality.verdict import Verdict, missing


def metadata_drift(
    metadata: pa.Table, reference_metadata: pa.Table, *, subject: str, reference: str, policy: limits.Volatility
) -> Verdict:
    """Drift of the user's own columns (``id`` + any): numbers, categories, texts by their length and language.

    What a column is, is told from the reference's compared samples (`columns.described`). Identifiers, times and lists
    are left out: they always move. Whether a value is there is a category of its own. Where there is a text column,
    findings are among the compared samples, since only those are described.
    """
    old = pa.array(subsample(reference_metadata["id"], policy.sample_budget))
    names = [k for k in metadata.column_names if k in reference_metadata.column_names and _is_known(metadata[k].type)]
    kinds = {name: c.kind for name, c in described(reference_metadata.select(names).take(old)).items()}
    names = list(kinds)
    if "text" in kinds.values():
        metadata = metadata.take(pa.array(subsample(metadata["id"], policy.sample_budget)))
        reference_metadata = reference_metadata.take(old)
    gaps = {k for k in names if metadata[k].null_count or reference_metadata[k].null_count}
    return variable_drift(
        _columns(metadata.select(names), kinds, gaps),
        metadata["id"],
        _columns(reference_metadata.select(names), kinds, gaps),
        reference_metadata["id"],
        check="metadata_drift",
        subject=subject,
        reference=reference,
        policy=policy,
    )


def _is_known(kind: pa.DataType) -> bool:
    return is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)


def describe_texts(column: pa.ChunkedArray) -> dict[str, np.ndarray]:
    """characters and words (float [n], NaN for null) and language (strings [n], None for null) of each text."""
    known = pc.fill_null(column.cast(pa.string()), "")
    missing_ones = np.asarray(column.is_null())
    out: dict[str, np.ndarray] = {}
    for name, counts in (
        ("characters", pc.utf8_length(known)),
        ("words", pc.count_substring_regex(known, r"\S+")),
    ):
        out[name] = np.where(missing_ones, np.nan, np.asarray(counts, dtype=np.float64))
    spoken = [None if text is None else languages.language(text) for text in column.to_pylist()]
    out["language"] = np.array(spoken, dtype=object)
    return out


def _columns(metadata: pa.Table, kinds: Mapping[str, str], gaps: set[str]) -> dict[str, Any]:
    """The columns to compare: numbers, categories, what describes a text, and whether a value is there."""
    out: dict[str, Any] = {}
    for name in metadata.column_names:
        column, kind = metadata[name], kinds[name]
        if kind == "text":
            out |= {f"{name}: {key}": values for key, values in describe_texts(column).items()}
        elif kind == "number" and is_number(column.type):
            out[name] = column
        elif kind in ("bool", "category"):
            out[name] = column.cast(pa.string())
        else:
            continue
        if name in gaps:
            out[f"{name} is there"] = pc.if_else(column.is_valid(), "yes", "no")
    return out


def _metadata(context: Context) -> Verdict:
    now, before = context.fresh("metadata"), context.reference.metadata if context.reference else None
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
