"""What each training sample is worth: kNN-Shapley values, and their means by batch and class, with intervals.

A value is in points of accuracy of a nearest-neighbour classifier on the val samples, and small: they sum to its
accuracy. They are told per 1,000 samples. Test samples take no part: they measure models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality import policy as limits
from sevenfold.quality.shapley import Values, bootstrapped, group_means
from sevenfold.quality.verdict import Verdict

DRAWS = 50
"""Bootstraps of the val samples: enough for an interval, few enough for 100,000 samples in 40 MB."""

_PER = 1e5
"""Points of accuracy (of 100) per 1,000 samples, of a value."""

_BARS = 100
"""Bars drawn at most: the worst and the best where there are more groups."""


def sample_value(
    rows: pa.Table,
    ids: pa.Array,
    vectors: np.ndarray,
    *,
    subject: str,
    policy: limits.Value,
    producer: str,
) -> Verdict:
    """The share of training samples worth less than nothing, judged by its lower end; they are the findings.

    Below 0 are wrong labels, samples in another class's region, and chance: the notes say in how many bootstraps of
    the val samples a sample stays below 0. Batches that surely are worth less than nothing come first.

    Parameters
    ----------
    rows : samples with id, label, split, batch.
    ids, vectors : string [n] and float32 [n, d] of one encoder; they are brought to length 1.
    """
    train = _chosen(rows, ids, "train", policy.sample_budget)
    points = _chosen(rows, ids, "val", policy.max_points)
    common: dict[str, Any] = {"v": "value", "check": "sample_value", "subject": subject, "n": train.num_rows}
    thresholds = {"max_negative_share": policy.max_negative_share, "neighbours": float(policy.neighbours)}
    if train.num_rows < policy.min_train or points.num_rows < policy.min_points:
        few = points.num_rows < policy.min_points
        return Verdict(
            **common,
            result="not_measurable",
            thresholds=thresholds,
            message=f"{train.num_rows} labelled train samples and {points.num_rows} labelled val samples have a "
            f"vector; values need {policy.min_train} and {policy.min_points}.",
            remedy=f"Keep {policy.min_points} labelled samples in the split val; test samples are never used for this."
            if few
            else f"Run `sevenfold embed {subject}`, or label more samples.",
        )
    classes = pc.unique(pa.chunked_array([*train["label"].chunks, *points["label"].chunks]))
    names, groupings = _groupings(train)
    found = bootstrapped(
        _at(vectors, ids, train), _codes(train["label"], classes), _at(vectors, ids, points),
        _codes(points["label"], classes), policy.neighbours, groups=list(groupings.values()), draws=DRAWS,
        confidence=policy.confidence,
    )  # fmt: skip
    negative = np.flatnonzero(found.values < 0)
    share = len(negative) / train.num_rows
    tails = [(1 - policy.confidence) / 2, (1 + policy.confidence) / 2]
    low, high = (float(x) for x in share + np.quantile(found.negative_draws, tails) - np.median(found.negative_draws))
    low, high = max(min(low, share), 0.0), min(max(high, share), 1.0)
    worst = negative[np.argsort(found.values[negative], kind="stable")]
    by = {name: _means(found, i, names[name], groupings[name], tails) for i, name in enumerate(groupings)}
    poor = [g for g in by["batch"] if g["high"] < 0] if len(by["batch"]) > 1 else []
    labels = train["label"].take(pa.array(worst)).to_pylist()
    sure = found.certain[worst].tolist()
    notes = [f"a batch worth {_points(g)} per 1,000 samples" for g in poor]
    notes += [
        f"labelled {label}: {_PER * value:+.1f} points per 1,000{', surely below 0' if certain else ''}"
        for label, value, certain in zip(labels, found.values[worst].tolist(), sure, strict=True)
    ]
    told = f"{share:.1%} of {train.num_rows:,} training samples ({low:.1%} to {high:.1%}) are worth less than nothing"
    certain_share = int(found.certain.sum()) / train.num_rows
    batches = f" {len(poor)} batches are, {poor[0]['name']} the worst ({_points(poor[0])} per 1,000)." if poor else ""
    warn = low > policy.max_negative_share or bool(poor)
    return Verdict(
        **common,
        result="warn" if warn else "pass",
        statistic=share,
        statistic_name="share of training samples with a negative kNN-Shapley value",
        interval=(low, high),
        thresholds=thresholds,
        reference=None,
        message=f"{told} to a {policy.neighbours}-nearest-neighbour classifier on {points.num_rows} val samples "
        f"({found.utility:.1%} right; {producer}); {certain_share:.1%} surely.{batches}",
        remedy="Look at the worst first: wrong labels and samples of another class's kind gather there. Nothing is "
        "removed by itself."
        if len(worst)
        else "",
        findings=(*(f"batch:{g['name']}" for g in poor), *train["id"].take(pa.array(worst)).to_pylist()),
        notes=tuple(notes),
        data=_plots(found, by),
    )


def _chosen(rows: pa.Table, ids: pa.Array, split: str, most: int) -> pa.Table:
    """Labelled samples of a split that have a vector, by id; of many those with the smallest ids, which are hashes.

    The bootstrap draws by position, so the order must not be the caller's.
    """
    kept = pc.and_(pc.equal(rows["split"], split), pc.and_(pc.is_valid(rows["label"]), pc.is_in(rows["id"], ids)))
    columns = [c for c in ("id", "label", "batch") if c in rows.column_names]
    found = rows.select(columns).filter(kept)
    if found.num_rows > most:
        found = found.take(pc.select_k_unstable(found, most, [("id", "ascending")]))
    return found.sort_by("id")


def _at(vectors: np.ndarray, ids: pa.Array, chosen: pa.Table) -> np.ndarray:
    """float32 [n, d] of the chosen samples, of length 1."""
    picked = vectors[pc.index_in(chosen["id"], ids).to_numpy().astype(np.int64)]
    return picked / np.maximum(np.linalg.norm(picked, axis=1, keepdims=True), 1e-12)


def _codes(labels: pa.ChunkedArray, classes: pa.Array) -> np.ndarray:
    return pc.index_in(labels, classes).to_numpy().astype(np.int64)


def _groupings(train: pa.Table) -> tuple[dict[str, list[str]], dict[str, np.ndarray]]:
    """(names, int [n]) of the batches and the classes."""
    names, codes = {}, {}
    for kind, column in (("batch", "batch"), ("class", "label")):
        values = train[column] if column in train.column_names else pa.chunked_array([pa.array([""] * train.num_rows)])
        encoded = pc.fill_null(values, "").combine_chunks().dictionary_encode()
        names[kind], codes[kind] = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
    return names, codes


def _means(found: Values, i: int, names: list[str], groups: np.ndarray, tails: list[float]) -> list[dict[str, Any]]:
    """{name, mean, low, high} of each group, the worst first."""
    means = group_means(found.values[None], groups)[0]
    low, high = np.quantile(found.draws[i], tails, axis=0)
    rows = [
        {"name": n, "mean": m, "low": min(lo, m), "high": max(hi, m)}
        for n, m, lo, hi in zip(names, means.tolist(), low.tolist(), high.tolist(), strict=True)
    ]
    return sorted(rows, key=lambda g: g["mean"])


def _points(group: Mapping[str, Any]) -> str:
    return f"{_PER * group['mean']:+.2f} points ({_PER * group['low']:+.2f} to {_PER * group['high']:+.2f})"


def _plots(found: Values, by: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The histogram of the values, and their means by batch, or by class where there is one batch."""
    kind = "batch" if len(by["batch"]) > 1 else "class"
    groups = by[kind]
    shown = groups if len(groups) <= _BARS else [*groups[: _BARS // 2], *groups[-_BARS // 2 :]]
    points = _PER * found.values
    low, high = np.quantile(points, [0.001, 0.999])
    counts, edges = np.histogram(np.clip(points, low, high), 40)
    return {
        "histograms": [
            {
                "name": "points of accuracy per 1,000 samples",
                "edges": np.round(edges, 4).tolist(),
                "now": counts.tolist(),
                "reference": None,
            }
        ],
        "bars": {
            "title": f"value by {kind}: points of accuracy per 1,000 samples",
            "names": [g["name"] for g in shown],
            "series": {"now": [round(_PER * g["mean"], 4) for g in shown]},
            "intervals": {"now": [[round(_PER * g["low"], 4), round(_PER * g["high"], 4)] for g in shown]},
        },
    }
