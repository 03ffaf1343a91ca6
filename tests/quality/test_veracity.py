"""Contradictions, and the estimate of wrong labels."""

import numpy as np
import pyarrow as pa
import pytest

from sevenfold.quality import veracity
from sevenfold.quality.label_noise import estimate_label_noise, margins, suspects
from sevenfold.quality.policy import Policy
from sevenfold.quality.predictions import out_of_sample, probabilities
from sevenfold.storage.errors import SevenfoldError

LIMITS = Policy().veracity


def test_an_admitted_contradiction_blocks_and_a_quarantined_one_warns(rows, quarantine) -> None:
    table = rows(6, pixel_digest=["a", "a", "b", "b", "c", "d"], label=["boot", "coat", "boot", "boot", "coat", None])
    ids = table["id"].to_pylist()
    v = veracity.contradictory(table, quarantine(), subject="b1")
    assert (v.result, v.blocking, set(v.findings)) == ("fail", True, {ids[0], ids[1]})
    v = veracity.contradictory(table.slice(2), quarantine(contradictory=2, truncated=1), subject="b1")
    assert (v.result, v.findings) == ("warn", ("contradictory/0.png", "contradictory/1.png"))
    assert veracity.contradictory(table.slice(2), quarantine(truncated=1), subject="b1").result == "pass"


def test_a_contradiction_with_the_reference_warns(rows) -> None:
    old, new = rows(3, pixel_digest=["a", "b", "c"]), rows(1, prefix="t", pixel_digest=["a"], label=["shirt"])
    v = veracity.contradictory(new, None, subject="b1", reference_rows=old)
    assert (v.result, v.findings) == ("warn", tuple(new["id"].to_pylist()))


def noisy(n: int, noise: float, sharp: float, seed: int, k: int = 10) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(probs, labels, wrong): a model that knows the posterior from which true labels come, and uniform label noise."""
    rng = np.random.default_rng(seed)
    centre = rng.integers(0, k, n)
    logits = rng.standard_normal((n, k))
    logits[np.arange(n), centre] += sharp
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    true = (probs.cumsum(1) > rng.random((n, 1))).argmax(1)
    wrong = rng.random(n) < noise
    labels = np.where(wrong, (true + rng.integers(1, k, n)) % k, true)
    return probs, labels, wrong


@pytest.mark.parametrize("sharp", [5.0, 6.5])
@pytest.mark.parametrize("noise", [0.0, 0.03, 0.1, 0.25])
def test_the_interval_covers_the_true_share_of_wrong_labels(noise: float, sharp: float) -> None:
    covered, misses = 0, []
    for seed in range(20):
        probs, labels, wrong = noisy(4000, noise, sharp, seed)
        estimate = estimate_label_noise(probs, labels)
        covered += estimate.interval[0] <= wrong.mean() <= estimate.interval[1]
        misses.append(estimate.share - wrong.mean())
    assert covered >= 18
    assert abs(np.mean(misses)) < 0.02 and np.max(np.abs(misses)) < 0.08


def test_clean_labels_pass_and_noisy_ones_fail() -> None:
    ids = [f"i{i}" for i in range(4000)]
    for noise, result in ((0.0, "pass"), (0.09, "warn"), (0.25, "fail")):
        probs, labels, wrong = noisy(4000, noise, 6.5, 1)
        v = veracity.label_errors(probs, labels, ids, subject="v1", policy=LIMITS)
        assert v.result == result and not v.blocking
    hits = [wrong[int(i[1:])] for i in v.findings]
    assert len(hits) == pytest.approx(1000, abs=120) and np.mean(hits) > 0.9


def test_too_few_or_too_weak_is_not_measurable() -> None:
    probs, labels, _ = noisy(400, 0.3, 6.0, 0)
    assert veracity.label_errors(probs, labels, [""] * 400, subject="v1", policy=LIMITS).result == "not_measurable"
    probs, labels, _ = noisy(4000, 0.0, 0.5, 0)
    v = veracity.label_errors(probs, labels, [""] * 4000, subject="v1", policy=LIMITS)
    assert v.result == "not_measurable" and "too weak" in v.message


def test_margins_and_suspects_by_hand() -> None:
    probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    labels = np.array([0, 0, 1])
    assert margins(probs, labels) == pytest.approx([0.8, -0.6, -0.2])
    assert suspects(probs, labels, 1.0).tolist() == [1, 2]
    assert suspects(probs, labels, 0.34).tolist() == [1]


def predictions(n: int = 4) -> pa.Table:
    return pa.table(
        {
            "id": [f"i{i}" for i in range(n)],
            "label": ["boot"] * n,
            "probs": pa.array([[0.5, 0.3, 0.2]] * n, pa.list_(pa.float32())),
            "in_sample": [i == 0 for i in range(n)],
        }
    )


def test_in_sample_predictions_are_left_out(classes) -> None:
    kept = out_of_sample(predictions())
    assert kept is not None and kept["id"].to_pylist() == ["i1", "i2", "i3"]
    assert probabilities(kept, classes).shape == (3, 3)
    assert out_of_sample(None) is None and out_of_sample(predictions(1)) is None
    with pytest.raises(SevenfoldError, match="in sample"):
        out_of_sample(predictions().drop_columns(["in_sample"]))
    with pytest.raises(SevenfoldError, match="one per class"):
        probabilities(kept, classes[:2])
