"""What training says of its samples: EL2N, forgetting events, AUM, and the share that was never learned.

These are in-sample by nature and serve value, never a verdict about labels: high loss mixes hard with wrong. At 9 % of
human label noise about 40 % of the top 5 % by EL2N are label errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.intervals import wilson
from sevenfold.quality import policy as limits
from sevenfold.quality.verdict import Verdict, missing

NEED = ("el2n", "forgetting", "aum", "learned")
_TOP = 0.05
"""The share of samples with the highest EL2N that is looked at for wrong labels."""

_WEAK = 0.5
"""Above this share of samples never learned the training is at fault, not the samples."""
_FEW = 20
"""Of those, the fewest with a prediction from which a share is told."""


def dynamics(
    rows: pa.Table,
    table: pa.Table,
    *,
    subject: str,
    policy: limits.Value,
    predictions: pa.Table | None = None,
) -> Verdict:
    """The share of training samples that no training ever got right, with Wilson's interval; they are the findings.

    When it is more than half, the training was too short or too weak to say anything of single samples: not measurable.

    Parameters
    ----------
    rows : samples with id, label, split.
    table : id and NEED, of some of them (training.dynamics); el2n may be null.
    predictions : out of sample, with id, label and predicted: tell how many of the hardest look mislabelled.
    """
    lacking = [name for name in ("id", *NEED) if name not in table.column_names]
    if lacking:
        return missing(
            "value", "dynamics", subject, f"The dynamics have no column {', '.join(lacking)}.",
            f"Run `sevenfold train {subject}` again.",
        )  # fmt: skip
    trained = rows.select(["id", "label"]).filter(pc.and_(pc.equal(rows["split"], "train"), pc.is_valid(rows["label"])))
    place = pc.index_in(trained["id"], table["id"].combine_chunks())
    known = pc.is_valid(place)
    labels, ids = trained["label"].filter(known), trained["id"].filter(known)
    picked = table.take(place.drop_null())
    n = picked.num_rows
    thresholds = {"max_never_learned": policy.max_never_learned}
    if n < policy.min_train:
        return Verdict(
            "value", "dynamics", subject, "not_measurable", n=n, thresholds=thresholds,
            message=f"The dynamics of {n} of {trained.num_rows} training samples were noted; "
            f"it takes {policy.min_train}.",
            remedy=f"Run `sevenfold train {subject}`.",
        )  # fmt: skip
    el2n, forgetting, aum, learned = (picked[name].to_numpy().astype(np.float64) for name in NEED)
    never = np.flatnonzero(learned == 0)
    worst = never[np.argsort(aum[never], kind="stable")]
    share = len(never) / n
    if share > _WEAK:
        return Verdict(
            "value", "dynamics", subject, "not_measurable", n=n, thresholds=thresholds,
            message=f"{share:.1%} of {n:,} training samples were never learned: the training was too short or too weak "
            "to say anything of single samples.",
            remedy="Train for more epochs, or a stronger model.",
        )  # fmt: skip
    low, high = wilson(len(never), n, policy.confidence)
    forgotten = float(np.mean((forgetting > 0) & (learned > 0)))
    hardest = np.argsort(-np.nan_to_num(el2n, nan=-1.0), kind="stable")[: max(int(n * _TOP), 1)]
    warning = _mislabelled(ids.take(pa.array(hardest)), labels.take(pa.array(hardest)), predictions)
    part = "" if n == trained.num_rows else f" (of {trained.num_rows - n:,} more nothing was noted)"
    return Verdict(
        v="value",
        check="dynamics",
        subject=subject,
        result="warn" if low > policy.max_never_learned else "pass",
        statistic=share,
        statistic_name="share of training samples never learned",
        interval=(low, high),
        n=n,
        thresholds=thresholds,
        message=f"{share:.1%} of {n:,} training samples{part} were never learned ({low:.1%} to {high:.1%}), "
        f"{forgotten:.1%} were learned and forgotten at least once. {warning}",
        remedy="Review those that were never learned: they are wrong, or of a kind there is too little of. Before "
        "hard samples are preferred, settle veracity.label_errors; before easy ones are pruned, keep those that "
        "were ever forgotten."
        if len(worst)
        else "",
        findings=tuple(ids.take(pa.array(worst)).to_pylist()),
        notes=tuple(
            f"labelled {label}: AUM {a:+.1f}" + ("" if np.isnan(e) else f", EL2N {e:.2f}")
            for label, a, e in zip(
                labels.take(pa.array(worst)).to_pylist(), aum[worst].tolist(), el2n[worst].tolist(), strict=True
            )
        ),
        data=_plots(labels, el2n, aum, learned),
    )


def _mislabelled(ids: pa.ChunkedArray, labels: pa.ChunkedArray, predictions: pa.Table | None) -> str:
    """What the hardest samples are, as far as out-of-sample predictions can tell."""
    mixed = "High EL2N mixes hard with wrong"
    if predictions is not None and "predicted" in predictions.column_names:
        place = pc.index_in(ids, predictions["id"].combine_chunks())
        predicted = predictions["predicted"].take(place)
        known = int(pc.sum(pc.is_valid(predicted)).as_py() or 0)
        if known >= _FEW:
            other = int(pc.sum(pc.not_equal(predicted, labels)).as_py() or 0)
            return (
                f"{mixed}: of the {_TOP:.0%} with the highest, {other / known:.0%} have another label by models that "
                "never saw theirs."
            )
    return f"{mixed}: at 9 % label noise about 40 % of the top {_TOP:.0%} are label errors (score the version to see)."


def _plots(labels: pa.ChunkedArray, el2n: np.ndarray, aum: np.ndarray, learned: np.ndarray) -> Mapping[str, Any]:
    """Histograms of EL2N and AUM, and the share never learned by class."""
    histograms = []
    for name, values in (("EL2N", el2n[np.isfinite(el2n)]), ("AUM", aum[np.isfinite(aum)])):
        if len(values):
            low, high = np.quantile(values, [0.001, 0.999])
            counts, edges = np.histogram(np.clip(values, low, high), 40)
            edges_told = np.round(edges, 4).tolist()
            histograms.append({"name": name, "edges": edges_told, "now": counts.tolist(), "reference": None})
    encoded = labels.combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy()
    shares = np.bincount(codes, weights=learned == 0) / np.maximum(np.bincount(codes), 1)
    order = np.argsort(-shares, kind="stable")[:100]
    names = [encoded.dictionary[int(i)].as_py() for i in order]
    return {
        "histograms": histograms,
        "bars": {
            "title": "share never learned, by class", "names": names,
            "series": {"now": np.round(shares[order], 5).tolist()},
        },
    }  # fmt: skip
