"""Label errors: an estimate that covers, a cut near the best, no flood on clean labels; annotators."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sevenfold.quality import labels as checks
from sevenfold.quality.context import Context
from sevenfold.quality.label_noise import (
    SCORES,
    anchors,
    confidence_weighted_entropy,
    estimate_label_noise,
    normalised_margin,
    self_confidence,
)
from sevenfold.quality.policy import Policy
from sevenfold.storage.errors import SevenfoldError
from tests.conftest import world

CLASSES = ("cat", "dog", "frog", "ship")
LIMITS = Policy().veracity


def name(i: int) -> str:
    return hashlib.sha256(str(i).encode()).hexdigest()


def predictions(probs: np.ndarray, label: np.ndarray, **fixed: Any) -> pa.Table:
    columns = {
        "id": [name(i) for i in range(len(probs))],
        "label": pa.array([CLASSES[v] for v in label], pa.string()),
        "probs": pa.array(list(probs.astype(np.float32)), pa.list_(pa.float32())),
        "in_sample": [False] * len(probs),
    }
    return pa.table({**columns, **fixed})


def samples(table: pa.Table, split: str | list[str] = "train") -> pa.Table:
    splits = [split] * table.num_rows if isinstance(split, str) else split
    return pa.table({"id": table["id"], "split": splits, "label": table["label"]})


def judged(probs: np.ndarray, label: np.ndarray) -> checks.JudgedLabels:
    table = predictions(probs, label)
    return checks.judge_labels(table, samples(table), CLASSES)


def f1(found: np.ndarray, wrong: np.ndarray) -> float:
    return 2 * int(wrong[found].sum()) / (len(found) + int(wrong.sum()))


# ---- the estimate and the cut


@pytest.mark.parametrize("noise", [0.0, 0.03, 0.1, 0.25])
@pytest.mark.parametrize("sharp", [0.5, 1.0, 2.0])
def test_the_estimate_finds_the_noise_whatever_the_temperature(noise: float, sharp: float) -> None:
    probs, label, truth = world(4000, noise, 1, sharp)
    got = estimate_label_noise(probs, label)
    wrong = int((label != truth).sum())
    assert got.low <= wrong <= got.high
    assert abs(got.errors - wrong) < 0.02 * 4000
    assert got.high - got.low < 0.6 * got.disagreements


def test_a_floor_under_the_probabilities_hides_noise_but_invents_none() -> None:
    for noise in (0.0, 0.1, 0.25):
        probs, label, truth = world(4000, noise, 1, smooth=0.1)
        assert -0.06 * 4000 < estimate_label_noise(probs, label).errors - (label != truth).sum() < 0.01 * 4000


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(40):
        probs, label, truth = world(600, 0.08, seed)
        got = estimate_label_noise(probs, label)
        covered += got.low <= (label != truth).sum() <= got.high
    assert covered >= 35  # 95 % of 40 is 38; fewer than 35 has chance < 0.015


@pytest.mark.parametrize("noise", [0.04, 0.1, 0.2])
def test_the_cut_beats_argmax_differs_and_is_not_far_from_the_best_there_is(noise: float) -> None:
    probs, label, truth = world(4000, noise, 3, sharp=0.5)
    got, wrong = estimate_label_noise(probs, label), label != truth
    assert f1(got.suspects, wrong) > f1(np.flatnonzero(probs.argmax(1) != label), wrong) + 0.02
    order = np.argsort(-got.score)
    best = max(f1(order[:cut], wrong) for cut in range(20, 2000, 20))
    assert f1(got.suspects, wrong) > best - 0.15


def test_clean_labels_raise_no_flood() -> None:
    probs, label, _ = world(4000, 0.0, 5)
    got = estimate_label_noise(probs, label)
    assert len(got.suspects) < 0.02 * 4000 and got.disagreements > 0.03 * 4000


def test_the_noise_matrix_is_that_which_was_drawn() -> None:
    rng = np.random.default_rng(0)
    probs, _, truth = world(20_000, 0.0, 2)
    label = np.where((truth == 0) & (rng.random(20_000) < 0.3), 1, truth)
    got = estimate_label_noise(probs, label)
    assert got.noise[0] == pytest.approx([0.7, 0.3, 0, 0], abs=0.03)
    assert np.diag(got.noise)[1:] == pytest.approx(1, abs=0.02)
    assert np.allclose(got.noise.sum(1), 1) and got.counts.sum() == pytest.approx(20_000)
    assert got.counts.sum(0) == pytest.approx(np.bincount(label, minlength=4))
    assert (got.suggestion[got.suspects] == 0).mean() > 0.8


@pytest.mark.parametrize("sharp", [0.6, 1.0])
def test_noise_that_the_model_has_learnt_is_found_too(sharp: float) -> None:
    """A network trained on labels of which 30 % of one class are another's predicts just that, and is not surprised."""
    rng = np.random.default_rng(0)
    probs, _, truth = world(8000, 0.0, 2)
    flips = np.array([[0.7, 0.3, 0, 0], [0, 1, 0, 0], [0, 0, 0.7, 0.3], [0, 0, 0, 1]])
    label = (flips[truth].cumsum(1) > rng.random((8000, 1))).argmax(1)
    learnt = (probs @ flips) ** sharp
    learnt /= learnt.sum(1, keepdims=True)
    got, wrong = estimate_label_noise(learnt, label), label != truth
    assert got.low <= wrong.sum() <= got.high and len(got.suspects) == pytest.approx(wrong.sum(), rel=0.2)
    assert f1(got.suspects, wrong) > f1(np.flatnonzero(learnt.argmax(1) != label), wrong) + 0.1
    assert anchors(learnt, label)[0, 1] == pytest.approx(0.3, abs=0.08)
    assert np.allclose(anchors(probs, truth), np.eye(4), atol=0.02), "clean labels leave the probabilities as they are"


def test_the_cut_is_a_third_of_the_way_to_the_upper_end_and_names_no_label_that_is_predicted_when_few_differ() -> None:
    probs, label, _ = world(4000, 0.1, 4)
    got = estimate_label_noise(probs, label)
    assert len(got.suspects) == round(got.errors + (got.high - got.errors) / 3) < got.disagreements
    sure = np.full((400, 4), 0.02)
    sure[np.arange(400), label[:400]] = 0.94
    assert not len(estimate_label_noise(sure, label[:400]).suspects), "no prediction differs"


def test_too_few_labels_and_weak_models_accuse_nobody() -> None:
    few = estimate_label_noise(*world(60)[:2])
    assert not few.measurable and (few.low, few.high) == (0, 60) and "not measurable" in str(few)
    probs, label, _ = world(400)
    label = np.where(np.arange(400) % 5 < 3, (probs.argmax(1) + 1) % 4, label)
    weak = estimate_label_noise(probs, label)
    assert weak.weak and not weak.measurable and "too weak" in str(weak) and not len(weak.suspects)
    none = estimate_label_noise(np.zeros((0, 4)), np.zeros(0, int))
    assert none.n == 0 and not none.measurable and none.errors == 0


def test_a_fit_on_a_part_judges_all() -> None:
    probs, label, truth = world(12_000, 0.1, 4)
    whole, part = (estimate_label_noise(probs, label, most_fitted=n) for n in (100_000, 4000))
    assert part.n == 12_000 and part.errors == pytest.approx(whole.errors, rel=0.1)
    assert part.low <= (label != truth).sum() <= part.high
    assert part.high - part.low >= whole.high - whole.low


def test_scores_by_hand_and_all_of_them_rank() -> None:
    probs, labels = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), np.array([0, 0, 1])
    assert self_confidence(probs, labels) == pytest.approx([0.1, 0.8, 0.6])
    assert normalised_margin(probs, labels) == pytest.approx([0.1, 0.8, 0.6])
    assert (np.diff(confidence_weighted_entropy(probs, labels)[[0, 2, 1]]) > 0).all()
    probs, label, truth = world(4000, 0.1, 3)
    for rank in SCORES.values():
        order = np.argsort(-rank(probs, label))
        assert (label != truth)[order[:200]].mean() > 0.9


# ---- what is judged


def test_only_current_labels_of_train_and_val_are_judged_whatever_the_order() -> None:
    probs, label, _ = world(900)
    table = predictions(probs, label)
    splits = [("test", "train", "val", "pool")[i % 4] for i in range(900)]
    known = samples(table, splits)
    got = checks.judge_labels(table, known, CLASSES)
    assert set(got.table["id"].to_pylist()) == {name(i) for i in range(900) if i % 4 in (1, 2)}
    order = pa.array(np.random.default_rng(5).permutation(900))
    again = checks.judge_labels(table.take(order), known.take(order), CLASSES)
    assert again.suspects.equals(got.suspects) and again.table.equals(got.table)
    with pytest.raises(SevenfoldError, match="never mined"):
        checks.judge_labels(table, known, CLASSES, splits=("train", "test"))
    first = got.suspects["id"][0].as_py()
    other = {"cat": "dog"}
    relabelled = [
        other.get(v, "cat") if i == first else v
        for i, v in zip(known["id"].to_pylist(), known["label"].to_pylist(), strict=True)
    ]
    after = checks.judge_labels(table, known.set_column(2, "label", pa.array(relabelled)), CLASSES)
    assert first not in after.table["id"].to_pylist()


def test_in_sample_rows_are_set_aside_and_refused_when_there_are_no_others() -> None:
    probs, label, _ = world(400)
    inside, outside = predictions(probs, label, in_sample=[True] * 400), predictions(probs, label)
    known = samples(outside)
    both = checks.judge_labels(pa.concat_tables([inside, outside]), known, CLASSES)
    assert both.table.equals(checks.judge_labels(outside, known, CLASSES).table)
    with pytest.raises(SevenfoldError, match="in-sample"):
        checks.judge_labels(inside, known, CLASSES)


@pytest.mark.parametrize("classes", [CLASSES[:3], (*CLASSES, "truck")])
def test_other_classes_and_repeated_ids_are_refused(classes: tuple[str, ...]) -> None:
    probs, label, _ = world(200)
    table = predictions(probs, label)
    with pytest.raises(SevenfoldError):
        checks.judge_labels(table, samples(table), classes)
    with pytest.raises(SevenfoldError, match="several"):
        checks.judge_labels(pa.concat_tables([table, table]), samples(table), CLASSES)


# ---- the verdict


def test_clean_labels_pass_and_noisy_ones_warn_and_fail_with_all_suspects_told() -> None:
    for noise, result in ((0.0, "pass"), (0.05, "warn"), (0.25, "fail")):
        probs, label, truth = world(4000, noise, 1)
        v = checks.label_errors(judged(probs, label), subject="v1", policy=LIMITS)
        assert v.result == result and not v.blocking
    wrong = {name(i) for i in np.flatnonzero(label != truth)}
    hits = [i in wrong for i in v.findings]
    assert len(hits) == pytest.approx(1000, abs=200) and np.mean(hits) > 0.75
    assert np.mean(hits[:300]) > np.mean(hits[-100:])
    assert v.interval[0] < (label != truth).mean() < v.interval[1]
    assert len(v.notes) == len(v.findings) and v.notes[0].startswith("given ") and "(P wrong" in v.notes[0]
    matrix = v.data["matrix"]
    assert matrix["rows"] == list(CLASSES) and np.allclose(np.sum(matrix["values"], axis=1), 1, atol=1e-3)


def test_too_few_or_too_weak_is_not_measurable() -> None:
    probs, label, _ = world(300, 0.3)
    assert checks.label_errors(judged(probs, label), subject="v1", policy=LIMITS).result == "not_measurable"
    probs, label, _ = world(2000)
    label = np.random.default_rng(0).integers(0, 4, 2000)
    v = checks.label_errors(judged(probs, label), subject="v1", policy=LIMITS)
    assert v.result == "not_measurable" and "too weak" in v.message


def context(rows: pa.Table, **more: Any) -> Context:
    return Context(
        subject="v1", kind="version", rows=rows, properties=rows.select(["id"]), now=0.0, classes=CLASSES, **more
    )


def test_the_checks_read_the_context_and_say_what_is_missing() -> None:
    probs, label, _ = world(2000, 0.2)
    table = predictions(probs, label)
    errors, people = (check.run for check in checks.CHECKS)
    assert errors(context(samples(table))).result == people(context(samples(table))).result == "not_measurable"
    assert errors(context(samples(table), predictions=table)).result == "fail"


# ---- annotators


def answers(rights: list[float], n: int = 400, seed: int = 0) -> tuple[pa.Table, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 4, n)
    found = [np.where(rng.random(n) < right, truth, (truth + rng.integers(1, 4, n)) % 4) for right in rights]
    table = pa.table(
        {
            "id": [name(i) for i in range(n)] * len(rights),
            "annotator": [f"w{a}" for a in range(len(rights)) for _ in range(n)],
            "label": [CLASSES[v] for labels in found for v in labels],
        }
    )
    return table, truth


def test_good_annotators_pass_and_a_careless_one_is_named_first() -> None:
    table, truth = answers([0.95, 0.94, 0.96])
    known = pa.table({"id": [name(i) for i in range(400)], "label": [CLASSES[v] for v in truth]})
    v = checks.annotators(table, known, CLASSES, subject="v1", policy=LIMITS)
    assert v.result == "pass" and v.interval[0] < v.statistic < v.interval[1] and v.statistic > 0.8
    table, truth = answers([0.95, 0.94, 0.96, 0.4])
    v = checks.annotators(table, known, CLASSES, subject="v1", policy=LIMITS)
    assert v.result == "warn" and v.findings[0] == "annotator:w3" and "Set aside" in v.remedy
    assert len(v.notes) == len(v.findings) and v.notes[0].startswith("as the others in .")
    assert v.data["bars"]["names"][0] == "w3" and len(v.data["matrix"]["values"]) == 4


def test_labels_that_contradict_their_annotators_are_listed() -> None:
    table, truth = answers([0.95, 0.95, 0.95])
    given = [CLASSES[(v + 1) % 4] if i == 17 else CLASSES[v] for i, v in enumerate(truth)]
    known = pa.table({"id": [name(i) for i in range(400)], "label": given})
    v = checks.annotators(table, known, CLASSES, subject="v1", policy=LIMITS)
    notes = dict(zip(v.findings, v.notes, strict=True))
    assert notes[name(17)].startswith(f"given {given[17]}, annotators say {CLASSES[truth[17]]}")


def test_poor_agreement_warns_and_few_answers_are_not_measurable() -> None:
    table, truth = answers([0.6, 0.6, 0.6])
    known = pa.table({"id": [name(i) for i in range(400)], "label": [CLASSES[v] for v in truth]})
    v = checks.annotators(table, known, CLASSES, subject="v1", policy=LIMITS)
    assert v.result == "warn" and "unsure" in v.message and "instructions" in v.remedy
    alone = table.slice(0, 400)
    assert checks.annotators(alone, known, CLASSES, subject="v1", policy=LIMITS).result == "not_measurable"


def test_what_one_annotator_says_twice_is_no_agreement() -> None:
    ids = [f"{i:04d}" for i in range(100)]
    rows = pa.table({"id": ids, "label": ["cat", "dog"] * 50, "split": ["train"] * 100})
    said = pa.table({"id": ids * 2, "annotator": ["ada"] * 200, "label": ["cat", "dog"] * 100})
    context = Context("v1", "version", rows, rows.select(["id"]), 0.0, annotations=said)
    (check,) = (c for c in checks.CHECKS if c.name == "annotators")
    found = check.run(context)
    assert found.result == "not_measurable"
