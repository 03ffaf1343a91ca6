"""Variety in embeddings: the Vendi score, the reference's clusters reached, and the share of foreign samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sevenfold.intervals import wilson, z_value
from sevenfold.quality import policy as limits
from sevenfold.quality.context import Check, Context
from sevenfold.quality.neighbours import foreign, reach
from sevenfold.quality.repeats import hex_prefix
from sevenfold.quality.vendi import unit, vendi_score
from sevenfold.quality.verdict import Verdict, missing
from sevenfold.storage.embeddings import Embeddings

_SIGNIFICANT = 0.01
_SHOWN = 30


@dataclass(frozen=True)
class Points:
    """Some samples' embeddings, in hash order: ids [n], vectors float64 [n, d] of length 1."""

    ids: pa.Array
    vectors: np.ndarray


def chosen(embeddings: Embeddings, budget: int) -> Points:
    """At most `budget` samples by a hash of their ids, in hash order: the same ones whatever the order of rows."""
    prefix = hex_prefix(pa.chunked_array([embeddings.ids.cast(pa.string())]))
    mixed = np.arange(len(embeddings.ids), dtype=np.uint64) if prefix is None else prefix
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    order = np.argsort(mixed, kind="stable")[:budget]
    return Points(embeddings.ids.take(pa.array(order)), unit(embeddings.vectors[order]))


def vendi(
    now: Points, before: Points | None, *, subject: str, policy: limits.Variety, reference: str | None = None
) -> Verdict:
    """The Vendi score and its fall against the reference's, both on the same number of samples.

    Warns on a fall beyond ``max_vendi_fall`` that sampling cannot explain. Without a reference it only tells the score.
    """
    n = len(now.ids) if before is None else min(len(now.ids), len(before.ids))
    if n < policy.min_embedded:
        return _few("vendi", n, subject, policy)
    score, interval, error = vendi_score(now.vectors[:n])
    result, effect, note = "pass", None, "There is no reference to compare with."
    if before is not None:
        old, _, other = vendi_score(before.vectors[:n])
        effect = 1 - score / old
        half = z_value(0.95) * float(np.hypot(error, other))
        span = (1 - score / old * float(np.exp(half)), 1 - score / old * float(np.exp(-half)))
        note = f"{reference} has {old:.1f} on as many: a fall of {effect:.1%} ({span[0]:.1%} to {span[1]:.1%})."
        if effect > policy.max_vendi_fall and span[0] > 0:
            result = "warn"
    return Verdict(
        v="variety",
        check="vendi",
        subject=subject,
        result=result,
        statistic=score,
        statistic_name="Vendi score: effective number of different samples",
        interval=interval,
        n=n,
        effect=effect,
        thresholds={"max_vendi_fall": policy.max_vendi_fall, "min_embedded": float(policy.min_embedded)},
        reference=reference if before is not None else None,
        message=f"{n:,} samples are worth {score:.1f} different ones. {note}",
        remedy="Collect samples unlike those that are there; look for series of near-equal ones." if effect and
        result == "warn" else "",
    )  # fmt: skip


def cluster_coverage(
    now: Points, before: Points | None, *, subject: str, policy: limits.Variety, reference: str | None = None
) -> Verdict:
    """The share of the reference's clusters that the subject reaches, beside what as many samples would by chance.

    Warns when more than ``max_lost_clusters`` fewer are reached than expected, and chance explains it below 1 %.
    Findings: the clusters lost, the largest first, each with the reference sample nearest to its centre.
    """
    if before is None:
        return _alone("cluster_coverage", subject)
    n = min(len(now.ids), len(before.ids) // 2)
    if n < policy.min_embedded:
        return _few("cluster_coverage", n, subject, policy)
    k = int(np.clip(len(before.ids) // 100, 5, 100))
    found = reach(before.vectors, now.vectors, k)
    share = float(found.reached.mean())
    effect = found.expected - share
    bad = effect > policy.max_lost_clusters and found.p < _SIGNIFICANT
    lost = [int(i) for i in np.argsort(-found.sizes, kind="stable") if not found.reached[i]]
    ids = before.ids.take(pa.array(found.nearest[lost])).to_pylist()
    half = len(before.ids) - len(before.ids) // 2
    return Verdict(
        v="variety",
        check="cluster_coverage",
        subject=subject,
        result="warn" if bad else "pass",
        statistic=share,
        statistic_name="share of the reference's clusters reached (with half their share or more)",
        interval=wilson(int(found.reached.sum()), k),
        n=len(now.ids),
        effect=effect,
        p=found.p,
        thresholds={"max_lost_clusters": policy.max_lost_clusters, "min_embedded": float(policy.min_embedded)},
        reference=reference,
        message=f"{int(found.reached.sum())} of {k} clusters of {reference} are reached; as many samples of its own "
        f"kind reach {found.expected:.0%} ({found.band[0]:.0%} to {found.band[1]:.0%}).",
        remedy="Collect samples like those of the clusters lost." if bad else "",
        findings=tuple(f"cluster:{i}" for i in lost),
        notes=tuple(
            f"{found.sizes[i] / half:.1%} of {reference}, such as {near}" for i, near in zip(lost, ids, strict=True)
        ),
        data={"examples": {"title": "Clusters no longer reached", "now": [], "reference": ids[:_SHOWN]}},
    )  # fmt: skip


def foreign_samples(
    now: Points, before: Points | None, *, subject: str, policy: limits.Variety, reference: str | None = None
) -> Verdict:
    """The share of samples that lie farther from the reference's neighbours than its own samples do.

    Warns when it exceeds ``max_foreign_share`` and chance explains it below 1 %. Findings: the foreign samples, the
    farthest first. Only samples that the reference does not have are to be given.
    """
    if before is None:
        return _alone("foreign_samples", subject)
    n = min(len(now.ids), len(before.ids) // 2)
    if n < policy.min_embedded:
        return _few("foreign_samples", n, subject, policy)
    found = foreign(before.vectors, now.vectors, policy.foreign_alpha)
    out = np.flatnonzero(found.distances > found.limit)
    out = out[np.argsort(-found.distances[out], kind="stable")]
    share, m, usual = len(out) / len(now.ids), len(now.ids), found.rank / found.calibration
    bad = share > policy.max_foreign_share and found.p < _SIGNIFICANT
    ids = now.ids.take(pa.array(out)).to_pylist()
    times = found.distances[out] / max(found.limit, 1e-12)
    return Verdict(
        v="variety",
        check="foreign_samples",
        subject=subject,
        result="warn" if bad else "pass",
        statistic=share,
        statistic_name="share of new samples that are foreign to the reference",
        interval=wilson(len(out), m),
        n=m,
        effect=share - usual,
        p=found.p,
        thresholds={
            "foreign_alpha": policy.foreign_alpha,
            "max_foreign_share": policy.max_foreign_share,
            "min_embedded": float(policy.min_embedded),
        },
        reference=reference,
        message=f"{len(out):,} of {m:,} new samples lie farther from {reference} than "
        f"{1 - usual:.2%} of its own do ({usual:.2%} would by chance).",
        remedy="Look at the samples listed: another source, another subject, or broken images." if bad else "",
        findings=tuple(ids),
        notes=tuple(f"{t:.2f} times the limit" for t in times.tolist()),
        data={"examples": {"title": "Foreign samples", "now": ids[:_SHOWN], "reference": []}},
    )  # fmt: skip


def _few(check: str, n: int, subject: str, policy: limits.Variety) -> Verdict:
    why = f"{n} samples with embeddings can be compared; {policy.min_embedded} are needed."
    return missing("variety", check, subject, why, _EMBED)


def _alone(check: str, subject: str) -> Verdict:
    why = "There is no reference with embeddings by the same producer."
    return missing("variety", check, subject, why, _EMBED)


_EMBED = "Run `sevenfold embed` on this version and its parent."


def _pair(context: Context, *, fresh: bool) -> tuple[Points | None, Points | None]:
    """(the subject's points, the reference's where one producer made both)."""
    own = context.fresh_embeddings if fresh else context.embeddings
    if own is None:
        return None, None
    own = own.unseen
    budget = context.policy.variety.embedding_budget
    other = context.reference.embeddings.unseen if context.reference and context.reference.embeddings else None
    same = other is not None and other.producer == own.producer and other.vectors.shape[1] == own.vectors.shape[1]
    return chosen(own, len(own.ids) if fresh else budget), chosen(other, budget) if same and other else None


def _vendi(context: Context) -> Verdict:
    now, before = _pair(context, fresh=False)
    if now is None:
        return _none("vendi", context)
    return vendi(now, before, subject=context.subject, policy=context.policy.variety, reference=context.reference_name)


def _clusters(context: Context) -> Verdict:
    now, before = _pair(context, fresh=False)
    if now is None:
        return _none("cluster_coverage", context)
    return cluster_coverage(
        now, before, subject=context.subject, policy=context.policy.variety, reference=context.reference_name
    )


def _foreign(context: Context) -> Verdict:
    now, before = _pair(context, fresh=True)
    if now is None:
        return _none("foreign_samples", context)
    return foreign_samples(
        now, before, subject=context.subject, policy=context.policy.variety, reference=context.reference_name
    )


def _none(check: str, context: Context) -> Verdict:
    why = "The samples have no embeddings."
    later = "Those of a batch are made after its commit, of the version: `sevenfold embed`."
    do = "Embed them: `sevenfold embed`." if context.kind == "version" else later
    return missing("variety", check, context.subject, why, do)


CHECKS = (
    Check("variety", "vendi", _vendi, ("version",)),
    Check("variety", "cluster_coverage", _clusters, ("version",)),
    Check("variety", "foreign_samples", _foreign, ("version",)),
)
