"""Drift of embeddings: MMD and a classifier two-sample test, with the samples that moved; never blocking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality import drifted
from sevenfold.quality import policy as limits
from sevenfold.quality.classifier_test import classifier_test, scores_of
from sevenfold.quality.context import Check, Context
from sevenfold.quality.mmd import mmd, witness_of
from sevenfold.quality.sampling import seed_of, subsample
from sevenfold.quality.verdict import Verdict, missing
from sevenfold.storage.embeddings import Embeddings
from sevenfold.storage.errors import SevenfoldError

_WITNESSED = 100_000
"""Samples beyond those compared that MMD's witness is asked about: each costs a kernel row."""

_BLOCK = 4096
_GOES_WITH = 0.3  # a rank correlation worth telling


def embedding_mmd(
    now: Embeddings,
    before: Embeddings,
    *,
    subject: str,
    reference: str,
    policy: limits.Volatility,
    properties: tuple[pa.Table, pa.Table] | None = None,
) -> Verdict:
    """Permutation MMD. Findings: samples more alike the new side than 97.5 % of the reference's are.

    ``properties``: the measured ones of both sides; the message tells which of them the move goes with.
    Beyond 100,000 samples only the compared ones can be findings.
    """
    x, y, chosen, old = _sides(now, before, policy)
    if min(len(x), len(y)) < policy.min_n:
        return drifted.too_few("embedding_mmd", subject, reference, len(x), len(y), policy, "embeddings")
    found = mmd(x, y, seed=_seed(now, before, chosen, old))
    fired = found.p <= policy.alpha and found.effect >= policy.warn_mmd
    scores = np.full(len(now.ids), -np.inf)
    if fired and len(now.ids) <= _WITNESSED:
        scores = _blockwise(now.vectors, lambda part: witness_of(part, x, y, found.width))
    scores[chosen] = found.witness_now
    return Verdict(
        "volatility",
        "embedding_mmd",
        subject,
        drifted.result(found.effect if fired else 0.0, policy.warn_mmd, policy.fail_mmd),
        n=len(x),
        reference=reference,
        thresholds=drifted.thresholds(policy) | {"warn_mmd": policy.warn_mmd, "fail_mmd": policy.fail_mmd},
        statistic=found.effect,
        statistic_name="kernel spread between the sides (root of its share)",
        interval=found.interval,
        effect=found.effect,
        p=found.p,
        message=f"The embeddings of {now.producer} {'lie elsewhere than' if fired else 'lie where'} {reference}'s"
        f"{'' if fired else ' lie'}: MMD effect {found.effect:.3f}, p {drifted.p_words(found.p)}."
        + (_why(found.witness_now, found.witness_reference, now, before, chosen, old, properties) if fired else ""),
        remedy=_remedy(fired),
        **_moved(scores, found.witness_reference, now, before, old, reference, fired, "alikeness to the new side"),
    )


def embedding_classifier(
    now: Embeddings,
    before: Embeddings,
    *,
    subject: str,
    reference: str,
    policy: limits.Volatility,
    properties: tuple[pa.Table, pa.Table] | None = None,
) -> Verdict:
    """Classifier two-sample test. Findings: all samples that score higher than 97.5 % of the reference's do.

    ``properties``: the measured ones of both sides; the message tells which of them the score goes with.
    """
    x, y, chosen, old = _sides(now, before, policy)
    if min(len(x), len(y)) < policy.min_n:
        return drifted.too_few("embedding_classifier", subject, reference, len(x), len(y), policy, "embeddings")
    found = classifier_test(x, y, seed=_seed(now, before, chosen, old))
    fired = found.p <= policy.alpha and found.effect >= policy.warn_effect
    scores = np.full(len(now.ids), -np.inf)
    if fired:
        scores = _blockwise(now.vectors, scores_of(x, y))
    scores[chosen] = found.scores_now
    return Verdict(
        "volatility",
        "embedding_classifier",
        subject,
        drifted.result(found.effect if fired else 0.0, policy.warn_effect, policy.fail_effect),
        n=len(x),
        reference=reference,
        thresholds=drifted.thresholds(policy),
        statistic=found.auc,
        statistic_name="AUC of a classifier on samples it has not seen",
        interval=found.interval,
        effect=found.effect,
        p=found.p,
        message=f"A classifier {'tells' if fired else 'cannot tell'} new embeddings of {now.producer} from "
        f"{reference}'s{'' if fired else ' better than chance by enough to matter'}: {found.accuracy:.0%} right on "
        f"samples it has not seen (50% is guessing), AUC {found.auc:.2f}, p {drifted.p_words(found.p)}."
        + (_why(found.scores_now, found.scores_reference, now, before, chosen, old, properties) if fired else ""),
        remedy=_remedy(fired),
        **_moved(scores, found.scores_reference, now, before, old, reference, fired, "score of newness"),
    )


def _sides(
    now: Embeddings, before: Embeddings, policy: limits.Volatility
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(compared vectors now and before, their row numbers)."""
    if now.producer != before.producer:
        raise SevenfoldError(
            f"these embeddings are of {now.producer}, the reference's of {before.producer}",
            where="embeddings",
            expected="one encoder on both sides",
            do="embed the reference with the same encoder: `sevenfold embed`",
        )
    chosen, old = subsample(now.ids, policy.embedding_budget), subsample(before.ids, policy.embedding_budget)
    x, y = now.vectors[chosen], before.vectors[old]
    for side, which in ((x, "the new samples"), (y, "the reference")):
        if not np.isfinite(side).all():
            raise SevenfoldError(
                f"an embedding of {which} is not finite", where=now.producer, do="mend the encoder and embed again"
            )
    return x, y, chosen, old


def _seed(now: Embeddings, before: Embeddings, chosen: np.ndarray, old: np.ndarray) -> int:
    return seed_of(now.ids.take(pa.array(chosen)), before.ids.take(pa.array(old)))


def _moved(
    scores: np.ndarray,
    reference_scores: np.ndarray,
    now: Embeddings,
    before: Embeddings,
    old: np.ndarray,
    reference: str,
    fired: bool,
    name: str,
) -> dict[str, Any]:
    """findings, notes and data: the samples whose score is above the reference's central range, highest first."""
    compared = scores[np.isfinite(scores)]
    data: dict[str, Any] = {"histograms": [drifted.histogram(name, compared, reference_scores)]}
    if not fired:
        return {"data": data}
    limit = float(np.quantile(reference_scores, 0.975))
    rows = np.flatnonzero(scores > limit)
    rows = rows[np.argsort(-scores[rows], kind="stable")]
    findings = now.ids.take(pa.array(rows)).to_pylist()
    typical = np.argsort(np.abs(reference_scores - np.median(reference_scores)), kind="stable")[: drifted.EXAMPLES]
    likely = before.ids.take(pa.array(old[typical])).to_pylist()
    data["examples"] = drifted.examples(f"Most shifted, beside typical samples of {reference}", findings, likely)
    end = f" (97.5 % of the reference below {drifted.number(limit)})"
    return {
        "findings": tuple(findings),
        "notes": tuple(f"{name} {value:.3g}{end}" for value in scores[rows].tolist()),
        "data": data,
    }


def _why(
    scores: np.ndarray,
    reference_scores: np.ndarray,
    now: Embeddings,
    before: Embeddings,
    chosen: np.ndarray,
    old: np.ndarray,
    properties: tuple[pa.Table, pa.Table] | None,
) -> str:
    """What the move goes with among the measured properties; empty where there are none."""
    if properties is None:
        return ""
    x, y = (
        _of_ids(now.ids.take(pa.array(chosen)), properties[0]),
        _of_ids(before.ids.take(pa.array(old)), properties[1]),
    )
    both = {name: np.concatenate([x[name], y[name]]) for name in x if name in y}
    return goes_with(np.concatenate([scores, reference_scores]), both)


def goes_with(scores: np.ndarray, properties: Mapping[str, np.ndarray]) -> str:
    """What the score goes with, in words: the property whose ranks go with its ranks most, if at .3 or more.

    Parameters
    ----------
    scores : float [k] of the compared samples of both sides; properties : name -> float [k] of the same.
    """
    best, name = 0.0, ""
    for key, values in properties.items():
        usable = np.isfinite(values)
        if usable.sum() > 2 and np.ptp(values[usable]) > 0:
            r = float(np.corrcoef(_ranks(scores[usable]), _ranks(values[usable]))[0, 1])
            if abs(r) > abs(best):
                best, name = r, key
    if abs(best) < _GOES_WITH:
        return ""
    return f" It goes with {'higher' if best > 0 else 'lower'} {name} (rank correlation {best:+.2f})."


def _ranks(values: np.ndarray) -> np.ndarray:
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks


def _of_ids(ids: pa.Array, properties: pa.Table) -> dict[str, np.ndarray]:
    """The float columns for these ids, NaN where there is none."""
    place = pc.index_in(ids, value_set=properties["id"].combine_chunks())
    return {
        name: drifted.floats(properties[name].take(place))
        for name in properties.column_names
        if pa.types.is_floating(properties[name].type)
    }


def _blockwise(vectors: np.ndarray, score: Any) -> np.ndarray:
    out = [score(vectors[i : i + _BLOCK]) for i in range(0, len(vectors), _BLOCK)]
    return np.concatenate(out).astype(np.float64)


def _remedy(fired: bool) -> str:
    return "Look at the most shifted samples; label some of them, and mine among them." if fired else ""


def _run(context: Context, name: str) -> Verdict:
    now, before = context.fresh_embeddings, context.reference.embeddings if context.reference else None
    if now is None or before is None:
        return missing(
            "volatility",
            name,
            context.subject,
            "Embeddings of one encoder on both sides are needed.",
            "Embed the version and its reference: `sevenfold embed`."
            if context.kind == "version"
            else "Those of a batch are made after its commit, of the version: `sevenfold embed`.",
        )
    now, before = now.unseen, before.unseen
    check = embedding_mmd if name == "embedding_mmd" else embedding_classifier
    return check(
        now,
        before,
        subject=context.subject,
        reference=context.reference_name or "the reference",
        policy=context.policy.volatility,
        properties=(context.properties, context.reference.properties) if context.reference else None,
    )


def _mmd(context: Context) -> Verdict:
    return _run(context, "embedding_mmd")


def _classifier(context: Context) -> Verdict:
    return _run(context, "embedding_classifier")


CHECKS = (
    Check("volatility", "embedding_mmd", _mmd, ("version",)),
    Check("volatility", "embedding_classifier", _classifier, ("version",)),
)
"""The checks that need embeddings."""
