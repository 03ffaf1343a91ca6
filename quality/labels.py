"""Veracity of labels: label errors, judged by out-of-fold predictions, and annotators, judged by each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality import annotators as people
from sevenfold.quality import policy as limits
from sevenfold.quality.context import Check, Context
from sevenfold.quality.label_noise import LabelNoise, estimate_label_noise
from sevenfold.quality.predictions import probabilities
from sevenfold.quality.verdict import Verdict, missing
from sevenfold.storage.errors import SevenfoldError

JUDGED_SPLITS = ("train", "val")
"""Splits whose labels are judged: those of test are the measure itself and never mined, the pool has none."""
_MOST_CLASSES = 40
"""Classes that a plot shows: those with the most errors."""


@dataclass(frozen=True)
class JudgedLabels:
    """`table`: one row per judged label, by id (id, label, suggestion, wrong = P(label wrong), score); the noise.

    The suspects are the first `cut` rows in descending order of score, ties by id.
    """

    table: pa.Table
    noise: LabelNoise
    classes: tuple[str, ...]

    @property
    def cut(self) -> int:
        """How many labels are suspected."""
        return len(self.noise.suspects)

    @property
    def suspects(self) -> pa.Table:
        """The rows of the suspects, the worst first."""
        return self.table.take(pa.array(self.noise.suspects))


def judge_labels(
    predictions: pa.Table, samples: pa.Table, classes: Sequence[str], *, splits: Sequence[str] = JUDGED_SPLITS
) -> JudgedLabels:
    """Judge the labels of `splits`; the same judgement gives the verdict and the review queue.

    Parameters
    ----------
    predictions : id, label, probs, in_sample of one run; in-sample rows are set aside.
    samples : id, split, label of the version: they decide split and current label. A row predicted against another
        label than the current one is stale and is not judged.
    classes : class names in the order of `probs`.

    Raises
    ------
    SevenfoldError : `splits` names a test split or the pool, every usable prediction is in-sample, an id occurs twice,
        or labels or `probs` do not fit `classes`.
    """
    for split in splits:
        if split in ("test", "pool"):
            raise SevenfoldError(
                "promotion tests are never mined" if split == "test" else "the pool has no labels to suspect",
                where=f"split {split}",
                expected="train and/or val",
            )
    rows = _current(predictions, samples, splits)
    encoded = pc.index_in(rows["label"], value_set=pa.array(list(classes), pa.string()))
    if encoded.null_count:
        unknown = rows["label"].filter(pc.is_null(encoded))[0].as_py()
        raise SevenfoldError(
            f"label {unknown!r} is not a class",
            where="predictions",
            expected=f"one of {', '.join(classes)}",
            do="pass the classes of the version that the run was trained on, in its order",
        )
    labels = encoded.to_numpy().astype(np.int64)
    noise = estimate_label_noise(probabilities(rows, classes), labels)
    table = pa.table(
        {
            "id": rows["id"],
            "label": rows["label"],
            "suggestion": pa.array(list(classes), pa.string()).take(pa.array(noise.suggestion)),
            "wrong": noise.wrong,
            "score": noise.score,
        }
    )
    return JudgedLabels(table, noise, tuple(classes))


def label_errors(judged: JudgedLabels, *, subject: str, policy: limits.Veracity) -> Verdict:
    """The share of wrong labels, estimated; warns and fails by the interval's upper bound (see ``label_noise``).

    Findings: all suspects, the worst first.
    """
    noise, n = judged.noise, judged.noise.n
    thresholds = {"warn_error_share": policy.warn_error_share, "fail_error_share": policy.fail_error_share}
    if n < policy.min_n or not noise.measurable:
        short = f"{n} labels have out-of-fold predictions; the estimate needs {policy.min_n}."
        return Verdict(
            "veracity",
            "label_errors",
            subject,
            "not_measurable",
            n=n,
            thresholds=thresholds,
            message=short if n < policy.min_n else _sentence(str(noise).removeprefix("not measurable: ")),
            remedy="Score more samples out of fold, or with a better model.",
        )
    low, high = noise.low / n, noise.high / n
    result = "fail" if high > policy.fail_error_share else "warn" if high > policy.warn_error_share else "pass"
    suspects = judged.suspects
    columns = (suspects[c].to_pylist() for c in ("label", "suggestion", "wrong"))
    return Verdict(
        v="veracity",
        check="label_errors",
        subject=subject,
        result=result,
        statistic=noise.errors / n,
        statistic_name="estimated share of wrong labels",
        interval=(low, high),
        n=n,
        thresholds=thresholds,
        message=f"About {noise.errors / n:.1%} of {n} labels are wrong ({low:.1%} to {high:.1%}); "
        f"{noise.disagreements / n:.1%} of the predictions differ from their label. {judged.cut} suspects are listed.",
        remedy="Review the samples listed, the most suspect first (`sevenfold mine`)." if result != "pass" else "",
        findings=tuple(suspects["id"].to_pylist()),
        notes=tuple(
            f"given {label}, looks like {other} (P wrong {_share(wrong)})"
            for label, other, wrong in zip(*columns, strict=True)
        ),
        data=_noise_data(judged),
    )


def annotators(
    table: pa.Table, samples: pa.Table, classes: Sequence[str], *, subject: str, policy: limits.Veracity
) -> Verdict:
    """Do the people who labelled agree? Alpha with its interval; who is far from the rest; which samples stay unsure.

    Warns when alpha is surely below the limit, or an annotator is surely further from what the others say than the
    limit. Findings: those annotators (``annotator:ann``), then samples whose label the answers contradict, then those
    whose answers make no label likely, each the worst first. A sample counts when two or more answered.

    Parameters
    ----------
    table : id, annotator, label: one row per answer.
    samples : id and the current label.
    """
    answers = people.read_answers(table, classes)
    n = len(answers.ids)
    agreed = people.agreement(answers.items, answers.labels, n)
    thresholds = {
        "min_alpha": policy.min_alpha,
        "max_annotator_gap": policy.max_annotator_gap,
        "min_consensus": policy.min_consensus,
    }
    if agreed.items < policy.min_answered:
        return Verdict(
            "veracity",
            "annotators",
            subject,
            "not_measurable",
            n=agreed.items,
            thresholds=thresholds,
            message=f"{agreed.items} samples have several answers; {policy.min_answered} are needed.",
            remedy="Let a second annotator label some of the samples.",
        )
    k = len(answers.classes)
    model = people.dawid_skene(
        answers.items, answers.annotators, answers.labels, n, number_of_annotators=len(answers.names), k=k
    )
    skills = people.skills(answers, model, margin=policy.max_annotator_gap)
    far = [s for s in skills if s.far]
    samples_found, notes, contradicted = _doubtful(answers, model, agreed, samples, policy)
    low, high = agreed.interval
    apart = high < policy.min_alpha
    said = f"Krippendorff's alpha is {agreed.alpha:.2f} ({low:.2f} to {high:.2f}) over {agreed.answers} answers about "
    said += f"{agreed.items} samples by {len(answers.names)} annotators; {agreed.pairs:.0%} of the pairs are equal"
    said += f"; {len(far)} annotators are far from the rest" if far else ""
    said += f"; {contradicted} labels contradict their answers" if contradicted else ""
    said += f"; {len(samples_found) - contradicted} samples stay unsure" if len(samples_found) > contradicted else ""
    remedies = ["Set aside, or ask again, what the annotators named have labelled."] if far else []
    remedies += ["Sharpen the instructions for the classes that the matrix shows confused."] if apart else []
    return Verdict(
        v="veracity",
        check="annotators",
        subject=subject,
        result="warn" if apart or far else "pass",
        statistic=agreed.alpha,
        statistic_name="Krippendorff's alpha",
        interval=agreed.interval,
        n=agreed.items,
        thresholds=thresholds,
        message=said + ".",
        remedy=" ".join(remedies),
        findings=(*(f"annotator:{s.name}" for s in far), *samples_found),
        notes=(*(f"as the others in {_share(s.right)} of {s.answers} answers" for s in far), *notes),
        data=_people_data(answers, model, skills),
    )


def _current(predictions: pa.Table, samples: pa.Table, splits: Sequence[str]) -> pa.Table:
    """The out-of-sample predictions about the current labels of `splits`, by id."""
    place = pc.index_in(predictions["id"], value_set=samples["id"].combine_chunks())
    split, label = (samples[c].combine_chunks().take(place.combine_chunks()) for c in ("split", "label"))
    wanted = pc.and_(pc.is_in(split, pa.array(list(splits))), pc.equal(label, predictions["label"].combine_chunks()))
    rows = predictions.filter(pc.fill_null(wanted, False))
    outside = rows.filter(pc.invert(pc.fill_null(rows["in_sample"], True)))
    if rows.num_rows and not outside.num_rows:
        raise SevenfoldError(
            f"{rows.num_rows} labelled samples have nothing but in-sample predictions: the model was trained on them",
            where="predictions",
            expected="in_sample = false",
            do="score out of fold (`sevenfold score`), then judge that run",
        )
    outside = outside.sort_by("id")
    ids = outside["id"].combine_chunks()
    same = pc.equal(ids[1:], ids[:-1])
    if pc.any(same).as_py():
        raise SevenfoldError(
            f"an id has several out-of-sample predictions (for one, {ids[pc.index(same, True).as_py()]})",
            where="predictions",
            expected="one row per id",
            do="pass the predictions of one run",
        )
    return outside


def _doubtful(
    answers: people.Answers,
    model: people.DawidSkene,
    agreed: people.Agreement,
    samples: pa.Table,
    policy: limits.Veracity,
) -> tuple[list[str], list[str], int]:
    """(ids, notes, how many of them contradict their answers): contradicted labels first, then unsure samples."""
    posterior, several = model.posterior, ~np.isnan(agreed.per_item)
    best = posterior.argmax(1) if len(posterior) else np.zeros(0, int)
    sure = posterior.max(1, initial=0.0)
    place = pc.index_in(answers.ids, value_set=samples["id"].combine_chunks())
    given = pc.index_in(samples["label"].combine_chunks().take(place), value_set=pa.array(answers.classes, pa.string()))
    label = pc.fill_null(given, -1).to_numpy()
    against = np.flatnonzero(several & (label >= 0) & (label != best) & (sure >= policy.min_consensus))
    against = against[np.argsort(-sure[against], kind="stable")]
    unsure = np.flatnonzero(several & (sure < policy.min_consensus))
    unsure = unsure[np.argsort(sure[unsure], kind="stable")]
    name = answers.classes
    notes = [f"given {name[label[i]]}, annotators say {name[best[i]]} (P {_share(sure[i])})" for i in against]
    notes += [f"no label is sure: {name[best[i]]} at best (P {_share(sure[i])})" for i in unsure]
    return answers.ids.take(pa.array(np.r_[against, unsure])).to_pylist(), notes, len(against)


def _noise_data(judged: JudgedLabels) -> dict[str, Any]:
    noise, names = judged.noise, judged.classes
    given = noise.counts.sum(0)
    shares = 1 - np.divide(np.diag(noise.counts), given, out=np.ones_like(given), where=given > 0)
    shown = np.sort(np.argsort(-shares * given, kind="stable")[:_MOST_CLASSES])
    edges = np.linspace(0, 1, 21)
    return {
        "matrix": _matrix("P(label given | true class)", names, noise.noise, shown),
        "bars": {
            "title": "estimated share of wrong labels, by the label given",
            "names": [names[i] for i in shown],
            "series": {"now": _rounded(shares[shown])},
        },
        "histograms": [
            {
                "name": "P(label wrong)",
                "edges": _rounded(edges),
                "now": np.histogram(noise.wrong, edges)[0].tolist(),
                "reference": None,
            }
        ],
    }


def _people_data(answers: people.Answers, model: people.DawidSkene, skills: list[people.Skill]) -> dict[str, Any]:
    k = len(answers.classes)
    size = np.bincount(answers.annotators, minlength=len(answers.names)).astype(np.float64)
    pooled = (model.confusion * size[:, None, None]).sum(0) / max(size.sum(), 1.0)
    errors = model.shares * (1 - np.diag(pooled))
    shown = np.sort(np.argsort(-errors, kind="stable")[: min(k, _MOST_CLASSES)])
    listed = skills[:_MOST_CLASSES]
    return {
        "matrix": _matrix("P(answer | class), all annotators", answers.classes, pooled, shown),
        "bars": {
            "title": "answers as the others' make likely, by annotator",
            "names": [s.name for s in listed],
            "series": {"now": _rounded([s.right for s in listed])},
        },
    }


def _matrix(title: str, names: Sequence[str], values: np.ndarray, shown: np.ndarray) -> dict[str, Any]:
    shown_names = [names[i] for i in shown]
    return {
        "title": title,
        "rows": shown_names,
        "columns": shown_names,
        "values": [_rounded(row) for row in values[np.ix_(shown, shown)]],
    }


def _rounded(values: Sequence[float] | np.ndarray) -> list[float]:
    return [round(float(v), 4) for v in values]


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _share(value: float) -> str:
    """0.934 as `.93`, 1 as `1.00`."""
    return f"{value:.2f}".removeprefix("0")


def _label_errors(context: Context) -> Verdict:
    if context.predictions is None:
        return missing(
            "veracity",
            "label_errors",
            context.subject,
            "No model has scored this version out of fold.",
            "Score it (`sevenfold score`).",
        )
    judged = judge_labels(context.predictions, context.rows, context.classes)
    return label_errors(judged, subject=context.subject, policy=context.policy.veracity)


def _annotators(context: Context) -> Verdict:
    if context.annotations is None:
        return missing(
            "veracity",
            "annotators",
            context.subject,
            "There are no answers of several annotators.",
            "Land them with their batch: `sevenfold ingest SOURCE --annotations votes.csv`.",
        )
    return annotators(
        # what one person said twice is one answer: it is no agreement of several
        context.annotations.group_by(["id", "annotator", "label"], use_threads=False).aggregate([]),
        context.rows,
        context.classes,
        subject=context.subject,
        policy=context.policy.veracity,
    )


CHECKS = (
    Check("veracity", "label_errors", _label_errors, ("version",)),
    Check("veracity", "annotators", _annotators),
)
