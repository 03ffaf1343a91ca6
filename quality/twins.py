"""The checks of twins: pictures of val or test in another split (veracity), and repeats within a split (variety)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.intervals import wilson
from sevenfold.quality import policy as limits
from sevenfold.quality.context import Check, Context
from sevenfold.quality.keys64 import repeated
from sevenfold.quality.twins_pairs import Twins, find_twins, leaks
from sevenfold.quality.verdict import Verdict

DRAWN = 200
"""Pairs that a verdict holds to be drawn."""

HASHED = 1_000_000
"""Rows up to which close hashes are paired where no pixels confirm them: beyond, chance alone makes such pairs."""

UNSEEN = f"of more than {HASHED:,} samples that takes their pixels"
"""Why not."""

REMEDY = "`sevenfold review --exclude-twins --commit`"
"""The one command that excludes the train-side twins, and undoes nothing else."""


def cross_split_duplicates(twins: Twins, *, subject: str, n: int, policy: limits.Veracity) -> Verdict:
    """A picture of val or test in another split too, exactly or nearly; in train it fails and blocks promotion.

    In the pool it warns: labelled there, it would leak. Candidates that were not confirmed on pixels warn too.
    Findings: the twin to exclude of each (never a test sample), those that fail first, candidates last; `notes` say
    whose twin each is.
    """
    found = leaks(twins)
    sure = found.filter(pc.not_equal(found["kind"], "candidate"))
    pooled = _count(sure["exclude_split"], "pool")
    twin_count = sure.num_rows - pooled
    unsure = found.num_rows - sure.num_rows
    outside = sure.filter(pc.not_equal(sure["exclude_split"], "pool"))
    between = outside.group_by(["keep_split", "exclude_split"]).aggregate([([], "count_all")]).sort_by("keep_split")
    said = f"{twin_count} samples show a picture of another split ({_count(outside['kind'], 'exact')} pixel for pixel)"
    if twin_count:
        said += ", " + ", ".join(
            f"{row['count_all']} of {row['exclude_split']} one of {row['keep_split']}" for row in between.to_pylist()
        )
    said += f"; {pooled} of the pool show one of val or test" if pooled else ""
    said += f"; {unsure} are candidates by perceptual hash, not confirmed on pixels" if unsure else ""
    remedy = "Check again with the pixels at hand." if unsure else ""
    if twin_count or pooled:
        wait = "; promotion waits for it" if twin_count else ", or they leak once they are labelled"
        remedy = f"Exclude them ({REMEDY}){wait}. Look at them first: `sevenfold twins {subject} --grid twins.png`."
    notes = _notes(found)
    return Verdict(
        v="veracity",
        check="cross_split_duplicates",
        subject=subject,
        result="fail" if twin_count else "warn" if pooled or unsure else "pass",
        blocking=True,
        statistic=float(twin_count),
        statistic_name="samples that show a picture of another split",
        n=n,
        thresholds={"min_twin_score": policy.min_twin_score},
        message=said + ".",
        remedy=remedy,
        findings=tuple(found["exclude"].to_pylist()),
        notes=notes,
        data=_drawn(found, notes),
    )


def near_duplicates(
    twins: Twins, splits: Sequence[tuple[str, int]], *, subject: str, policy: limits.Variety
) -> Verdict:
    """The share of samples that nearly repeat another of their split; warns above a limit, never blocks.

    `splits`: each split with its number of samples. Of a group of n twins in one split n - 1 repeat; equal pixels are
    told by `duplicate_share` and count here only beside a near twin. Findings: those that repeat, the largest groups
    first.
    """
    inside = twins.pairs.filter(
        pc.and_(
            pc.equal(twins.pairs["keep_split"], twins.pairs["exclude_split"]),
            pc.not_equal(twins.pairs["kind"], "candidate"),
        )
    )
    near = pc.unique(inside.filter(pc.equal(inside["kind"], "near"))["exclude"])
    repeats = twins.groups.filter(pc.is_in(twins.groups["id"], near))
    sizes = pc.value_counts(twins.groups["group"].combine_chunks())
    size = sizes.field("counts").take(pc.index_in(repeats["group"].combine_chunks(), sizes.field("values")))
    repeats = repeats.append_column("size", size).sort_by(
        [("size", "descending"), ("group", "ascending"), ("id", "ascending")]
    )
    total = sum(n for _, n in splits)
    count = repeats.num_rows
    share = count / total if total else 0.0
    high = share > policy.max_near_duplicate_share
    best = _best_of(inside, repeats["id"])
    notes = _notes(best)
    per = Counter(dict.fromkeys((s for s, _ in splits), 0)) + Counter(repeats["split"].to_pylist())
    told = ", ".join(f"{per[s]} of {n:,} in {s}" for s, n in splits if per[s])
    largest = int(pc.max(sizes.field("counts")).as_py() or 0) if len(sizes) else 0
    return Verdict(
        v="variety",
        check="near_duplicates",
        subject=subject,
        result="not_measurable" if total == 0 else "warn" if high else "pass",
        statistic=share,
        statistic_name="share of samples that nearly repeat another of their split",
        interval=wilson(count, total),
        n=total,
        thresholds={"max_near_duplicate_share": policy.max_near_duplicate_share},
        message=f"{count} samples nearly repeat another of their split ({share:.2%}"
        + (f": {told}); the largest group has {largest}." if count else ")."),
        remedy="Look at the groups (`sevenfold twins`), and exclude or down-weight repeats that teach nothing new."
        if high
        else "",
        findings=tuple(best["exclude"].to_pylist()),
        notes=notes,
        data=_drawn(best, notes),
    )


def _best_of(pairs: pa.Table, ids: pa.ChunkedArray) -> pa.Table:
    """Of the pairs that exclude one of `ids` the best of each, in the order of `ids`."""
    ranked = pairs.sort_by([("score", "descending"), ("keep", "ascending")])
    place = pc.index_in(ids.combine_chunks(), ranked["exclude"].combine_chunks())  # the first of each
    return ranked.take(place)


def _notes(pairs: pa.Table) -> tuple[str, ...]:
    """What is wrong with each sample to exclude: `mirrored twin of 3f9a51c07d22 in test, score 0.98`."""
    columns = (pairs[c].to_pylist() for c in ("kind", "mirrored", "keep", "keep_split", "score", "transform"))
    notes = []
    for kind, mirrored, keep, split, score, transform in zip(*columns, strict=True):
        if kind == "exact":
            notes.append(f"the pixels of {keep[:12]} in {split}")
        elif kind == "candidate":
            notes.append(f"a hash close to that of {keep[:12]} in {split}, not confirmed")
        else:
            how = transform.removeprefix("mirrored").removeprefix(", ").removeprefix("in place")
            turned = "mirrored twin" if mirrored else "twin"
            notes.append(f"{turned} of {keep[:12]} in {split}, score {score:.2f}{f' ({how})' if how else ''}")
    return tuple(notes)


def _drawn(pairs: pa.Table, notes: Sequence[str]) -> dict[str, list[list[str]]]:
    keys = (pairs[c].slice(0, DRAWN).to_pylist() for c in ("keep", "exclude"))
    return {"pairs": [list(row) for row in zip(*keys, notes[:DRAWN], strict=True)]}


def _count(column: pa.ChunkedArray, value: str) -> int:
    return pc.sum(pc.equal(column, value)).as_py() or 0


def _twins(context: Context) -> list[Verdict]:
    """Both checks from one search. Without a reader of pixels only equal pixels and close hashes are known."""
    policy = context.policy
    hashed = context.read_pixels is not None or context.rows.num_rows <= HASHED
    found = find_twins(
        context.rows if hashed else _copies(context.rows), context.read_pixels, policy=policy.veracity,
        described=context.described, embeddings=context.embeddings,
    )  # fmt: skip
    counted = context.rows.group_by("split").aggregate([([], "count_all")]).sort_by("split")
    splits = list(zip(counted["split"].to_pylist(), counted["count_all"].to_pylist(), strict=True))
    crossing = cross_split_duplicates(found, subject=context.subject, n=context.rows.num_rows, policy=policy.veracity)
    if not hashed:
        crossing = replace(crossing, message=f"{crossing.message} Near twins were not looked for: {UNSEEN}.")
    return [
        crossing,
        near_duplicates(found, splits, subject=context.subject, policy=policy.variety)
        if context.read_pixels is not None
        else Verdict("variety", "near_duplicates", context.subject, "not_measurable", n=context.rows.num_rows,
                     message="There were no pixels to compare.", remedy="Check a version, whose pictures are at hand."),
    ]  # fmt: skip


def _copies(rows: pa.Table) -> pa.Table:
    """Those rows whose pixels another row has too."""
    rows = rows.select(["id", "split", "pixel_digest", "phash"])
    return rows.take(pa.array(np.flatnonzero(repeated(rows["pixel_digest"]))))


CHECKS = (Check("veracity", "cross_split_duplicates", _twins, ("version",)),)
