"""Variety of slices: whether each split holds enough of each class, and of each value of the user's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.intervals import wilson_half_width
from sevenfold.quality import policy as limits
from sevenfold.quality.context import Check, Context
from sevenfold.quality.verdict import Verdict, missing

MOST_VALUES = 20
"""A column with more different values than this forms no slices unless the policy names it."""


def smallest_slice(
    rows: pa.Table, *, subject: str, policy: limits.Variety, classes: Sequence[str] | None = None
) -> Verdict:
    """The smallest class x split slice; fails in a required split or slice, else warns. Findings: the slices too small.

    A required split that no sample is in fails whatever the classes are.
    """
    labelled = rows.select(["split", "label"]).filter(pc.is_valid(rows["label"]))
    counts = _counted(labelled, "label")
    splits = sorted({split for split, _ in counts} | set(policy.required_splits))
    found = {label for _, label in counts}
    names = [*(classes or ()), *sorted(found - set(classes or ()))]
    sizes = {f"{split}/{name}": counts.get((split, name), 0) for split in splits for name in names}
    sizes |= {f"{split}/": 0 for split in policy.required_splits if not names}
    wanted = [s for s in policy.required_slices if "=" not in s]
    for name in wanted:
        split, _, label = name.partition("/")
        sizes.setdefault(name, counts.get((split, label), 0))
    if not sizes:
        return missing("variety", "smallest_slice", subject, "No sample has a label.", "Label some samples.")
    required = {s for s in sizes if s.partition("/")[0] in policy.required_splits} | set(wanted)
    return _verdict("smallest_slice", "class x split", sizes, required, labelled.num_rows, subject, policy)


def metadata_slices(rows: pa.Table, metadata: pa.Table | None, *, subject: str, policy: limits.Variety) -> Verdict:
    """The same for the user's columns: slices such as ``test/weather=snow``; columns of 2 to 20 different values.

    ``slice_columns`` of the policy names the columns instead; ``required_slices`` fail when they are too small.
    """
    wanted = {s: s.partition("/")[2].partition("=")[0] for s in policy.required_slices if "=" in s}
    sizes: dict[str, int] = dict.fromkeys(wanted, 0)
    if metadata is not None and rows.num_rows:
        splits = _beside(rows, metadata)
        for column in sorted({*_columns(metadata, policy), *wanted.values()} & set(metadata.column_names)):
            table = pa.table({"split": splits, "value": metadata[column].cast(pa.string())})
            table = table.filter(pc.and_(pc.is_valid(table["split"]), pc.is_valid(table["value"])))
            counts = _counted(table, "value")
            values = sorted({value for _, value in counts})
            everywhere = sorted({split for split, _ in counts} | set(policy.required_splits))
            sizes |= {f"{s}/{column}={v}": counts.get((s, v), 0) for s in everywhere for v in values}
    if not sizes:
        return missing(
            "variety", "metadata_slices", subject, "No column of the user's own forms slices.",
            "Land samples with columns of their own, or name some in slice_columns.",
        )  # fmt: skip
    required = {s for s in sizes if s.partition("/")[0] in policy.required_splits} | set(wanted)
    return _verdict("metadata_slices", "metadata", sizes, required, rows.num_rows, subject, policy)


def _verdict(
    check: str,
    kind: str,
    sizes: Mapping[str, int],
    required: set[str],
    n: int,
    subject: str,
    policy: limits.Variety,
) -> Verdict:
    small = sorted((k, s) for s, k in sizes.items() if k < policy.min_slice)
    small.sort(key=lambda item: item[1] not in required)  # the required ones first
    failing = [s for _, s in small if s in required]
    worst, count = min(sizes.items(), key=lambda item: (item[1], item[0]))
    half = wilson_half_width(count)
    by_size = sorted(sizes, key=lambda s: (sizes[s], s))[:40]
    return Verdict(
        v="variety",
        check=check,
        subject=subject,
        result="fail" if failing else "warn" if small else "pass",
        statistic=float(count),
        statistic_name=f"samples in the smallest {kind} slice",
        n=n,
        thresholds={"min_slice": float(policy.min_slice)},
        message=f"The smallest slice, {worst}, has {count:,} samples: an accuracy there is known within "
        f"{100 * half:.0f} points at best. {len(small)} of {len(sizes)} slices have fewer than {policy.min_slice}"
        + (f", {len(failing)} of them required." if failing else "."),
        remedy="Collect or label more of the slices listed." if small else "",
        findings=tuple(f"slice:{s}" for _, s in small),
        notes=tuple(f"{k:,} of {policy.min_slice} samples{', required' * (s in required)}" for k, s in small),
        data={
            "bars": {"title": "The smallest slices", "names": by_size, "series": {"now": [sizes[s] for s in by_size]}}
        },
    )


def _counted(table: pa.Table, column: str) -> dict[tuple[str, str], int]:
    """(split, value) -> rows."""
    groups = table.select(["split", column]).group_by(["split", column]).aggregate([([], "count_all")])
    keys = zip(groups["split"].to_pylist(), groups[column].to_pylist(), strict=True)
    return dict(zip(keys, groups["count_all"].to_pylist(), strict=True))


def _columns(metadata: pa.Table, policy: limits.Variety) -> list[str]:
    """The columns that form slices: those the policy names, else text and flags of 2 to 20 different values."""
    if policy.slice_columns:
        return list(policy.slice_columns)
    named = [f.name for f in metadata.schema if f.name != "id" and _categorical(f.type)]
    return [c for c in named if _few(_plain(metadata[c]))]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _few(column: pa.ChunkedArray) -> bool:
    """2 to 20 different values; of texts the first thousand tell, without a look at ten million."""
    start = column.slice(0, 1000)
    return pc.count_distinct(start).as_py() <= MOST_VALUES and 2 <= pc.count_distinct(column).as_py() <= MOST_VALUES


def _categorical(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_boolean(kind))


def _beside(rows: pa.Table, metadata: pa.Table) -> pa.ChunkedArray:
    """The split of each row of the metadata; null where the sample is not among the rows."""
    if metadata["id"].equals(rows["id"]):
        return rows["split"]
    return rows["split"].take(pc.index_in(metadata["id"], value_set=rows["id"].combine_chunks()))


def _smallest(context: Context) -> Verdict:
    return smallest_slice(context.rows, subject=context.subject, policy=context.policy.variety, classes=context.classes)


def _metadata(context: Context) -> Verdict:
    return metadata_slices(context.rows, context.metadata, subject=context.subject, policy=context.policy.variety)


CHECKS = (
    Check("variety", "smallest_slice", _smallest, ("version",)),
    Check("variety", "metadata_slices", _metadata, ("version",)),
)
