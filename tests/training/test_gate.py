"""The gate: same held-out samples, intervals that speak, false alarms at the declared rate, refusals explained."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from sevenfold.storage.errors import SevenfoldError
from sevenfold.training.gate import GatePolicy, Slice, compare_gains, decide, held_out, slices_by

N = 2000
IDS = [f"{i:064x}" for i in range(N)]
LABELS = np.array(["a", "b", "c", "d"] * (N // 4))


def predictions(right: np.ndarray, in_sample: bool = False) -> pa.Table:
    n = len(right)
    return pa.table(
        {
            "id": IDS[:n],
            "label": LABELS[:n],
            "predicted": np.where(right, LABELS[:n], "other"),
            "in_sample": [in_sample] * n,
        }
    )


def model(accuracy: float, seed: int, like: np.ndarray | None = None, agree: float = 0.9) -> np.ndarray:
    """bool [N]; `like`: agrees with that model on a share of the samples."""
    rng = np.random.default_rng(seed)
    own = rng.random(N) < accuracy
    return own if like is None else np.where(rng.random(N) < agree, like, own)


OLD, NEW = frozenset(IDS[:1500]), frozenset(IDS[1500:])
SLICES = [Slice("classic", OLD), Slice("camera", NEW, new=True)]
BASE = model(0.8, 0)


def improved(where: slice, by: float, base: np.ndarray = BASE) -> np.ndarray:
    out = base.copy()
    wrong = np.flatnonzero(~out[where])[: round(by * len(out[where]))] + (where.start or 0)
    out[wrong] = True
    return out


def worsened(where: slice, by: float, base: np.ndarray = BASE) -> np.ndarray:
    out = base.copy()
    out[np.flatnonzero(out[where])[: round(by * len(out[where]))] + (where.start or 0)] = False
    return out


def verdicts(decision: object) -> dict[str, str]:
    table = decision.slices  # type: ignore[attr-defined]
    return dict(zip(table["slice"].to_pylist(), table["verdict"].to_pylist(), strict=True))


def test_a_gain_on_the_new_slice_without_loss_on_the_old_promotes() -> None:
    got = decide(predictions(BASE), predictions(improved(slice(1500, N), 0.1)), SLICES)
    assert got.promoted
    assert verdicts(got) == {"overall": "gained", "new": "gained", "old": "held", "classic": "held", "camera": "gained"}
    assert "500 samples, +10.0 points" in got.explain() and got.explain().startswith("promoted:")


def test_a_loss_on_an_old_slice_refuses_whatever_was_gained() -> None:
    challenger = improved(slice(1500, N), 0.15, worsened(slice(0, 1500), 0.05))
    got = decide(predictions(BASE), predictions(challenger), SLICES)
    assert not got.promoted and verdicts(got)["classic"] == "regressed"
    assert any("Regressed on classic" in r and "-5.0 points" in r for r in got.reasons)


def test_an_equal_challenger_is_refused_for_want_of_a_gain() -> None:
    got = decide(predictions(BASE), predictions(BASE), SLICES)
    assert not got.promoted and any(r.startswith("No gain shown on overall") for r in got.reasons)
    assert verdicts(got)["classic"] == "held"


def test_findings_block_even_a_better_challenger() -> None:
    better = predictions(improved(slice(0, N), 0.1))
    blocks = ["3 near-duplicates between train and test"]
    for champion in (predictions(BASE), None):
        got = decide(champion, better, SLICES, blocks)
        assert not got.promoted and got.reasons[0] == "Blocked: 3 near-duplicates between train and test."


def test_a_small_slice_is_said_to_be_unmeasurable_and_does_not_block() -> None:
    tiny = Slice("tiny", frozenset(IDS[:40]))
    challenger = improved(slice(40, N), 0.1, worsened(slice(0, 40), 0.5))
    got = decide(predictions(BASE), predictions(challenger), [tiny])
    assert got.promoted and verdicts(got)["tiny"] == "not_measurable"
    assert "Not measurable: tiny has 40 samples, 100 are needed." in got.reasons
    few = decide(predictions(BASE[:50]), predictions(~BASE[:50]))
    assert not few.promoted and "Not measurable: overall" in few.explain()


def test_min_gain_is_asked_for() -> None:
    champion, challenger = predictions(BASE), predictions(improved(slice(0, N), 0.03))
    assert decide(champion, challenger).promoted
    assert not decide(champion, challenger, policy=GatePolicy(min_gain=0.05)).promoted


def test_the_first_champion_must_beat_the_commonest_label() -> None:
    assert decide(None, predictions(model(0.35, 1))).promoted
    got = decide(None, predictions(model(0.25, 1)))
    assert not got.promoted and "25.0%" in got.reasons[0] and verdicts(got) == {"overall": "first"}


def test_a_challenger_of_equal_skill_is_rarely_called_worse_or_better() -> None:
    """300 pairs of equal skill, 8 old slices: false regressions and false promotions stay near alpha together."""
    slices = [Slice(f"s{k}", frozenset(IDS[k * 250 : (k + 1) * 250])) for k in range(8)]
    regressed = promoted = 0
    for seed in range(300):
        base = model(0.8, 1000 + seed)
        other = predictions(model(0.8, 5000 + seed, base, agree=0.5))
        got = decide(predictions(base), other, slices, policy=GatePolicy(max_regression=0))
        regressed += "regressed" in verdicts(got).values()
        promoted += got.promoted
    assert regressed <= 26 and promoted <= 26  # binomial(300, .05) exceeds 26 with chance .003


def test_real_regressions_are_found() -> None:
    found = 0
    for seed in range(60):
        base = model(0.85, seed)
        worse = np.where(np.random.default_rng(seed).random(N) < 0.05, False, base)
        found += (
            verdicts(decide(predictions(base), predictions(worse), [Slice("all", frozenset(IDS))]))["all"]
            == "regressed"
        )
    assert found == 60


@pytest.mark.parametrize(
    ("champion", "challenger", "phrase"),
    [
        (predictions(BASE), predictions(BASE, in_sample=True), "was trained on"),
        (predictions(BASE, in_sample=True), predictions(BASE), "was trained on"),
        (predictions(BASE[:1999]), predictions(BASE), "other samples"),
        (predictions(BASE).set_column(1, "label", pa.array(["a"] * N)), predictions(BASE), "other labels"),
        (None, predictions(BASE[:0]), "no predictions"),
        (None, pa.concat_tables([predictions(BASE), predictions(BASE)]), "twice"),
        (None, predictions(BASE).set_column(1, "label", pa.array(["a"] * (N - 1) + [None])), "no label"),
    ],
)
def test_what_cannot_be_compared_fairly_is_refused(
    champion: pa.Table | None, challenger: pa.Table, phrase: str
) -> None:
    with pytest.raises(SevenfoldError, match=phrase):
        decide(champion, challenger)


def test_slices_must_lie_in_the_test_set_and_policies_have_no_other_keys() -> None:
    with pytest.raises(SevenfoldError, match="outside"):
        decide(None, predictions(BASE), [Slice("x", frozenset(["f" * 64]))])
    with pytest.raises(ValidationError):
        GatePolicy(max_regresion=0.1)  # type: ignore[call-arg]


def test_held_out_and_slices_follow_the_samples_table() -> None:
    splits = ["test" if i % 2 else "train" for i in range(N)]
    samples = pa.table({"id": IDS, "split": splits, "label": LABELS, "batch": ["b1"] * 1500 + ["b2"] * 500})
    chosen = held_out(predictions(BASE), samples)
    assert chosen["id"].to_pylist() == IDS[1::2]
    batches = slices_by(samples, "batch", new=["b2"])
    assert [(s.name, s.new, len(s.ids)) for s in batches] == [("batch=b1", False, 750), ("batch=b2", True, 250)]
    assert decide(chosen, chosen, batches + slices_by(samples, "label")).slices.num_rows == 3 + 2 + 2


def test_the_order_of_rows_does_not_matter() -> None:
    other = predictions(model(0.9, 3, BASE))
    order = pa.array(np.random.default_rng(0).permutation(N))
    a, b = decide(predictions(BASE), other, SLICES), decide(predictions(BASE).take(order), other, SLICES)
    assert a.reasons == b.reasons and a.slices.equals(b.slices)


# ---- gains


def test_a_clear_gain_is_told_from_noise() -> None:
    got = compare_gains([0.80, 0.81, 0.805], [0.77, 0.775, 0.77], [0.75, 0.76, 0.75])
    assert not got.within_noise and got.interval is not None and got.interval[0] > 0
    assert got.difference == pytest.approx(got.gain_a - got.gain_b) and "mined gained more" in got.sentence
    worse = compare_gains([0.77, 0.775, 0.77], [0.80, 0.81, 0.805], [0.75, 0.76, 0.75])
    assert not worse.within_noise and "random gained more" in worse.sentence
    noise = compare_gains([0.80, 0.77], [0.77, 0.79], [0.75, 0.75])
    assert noise.within_noise and noise.sentence.endswith("within noise.")


def test_one_seed_is_not_measurable() -> None:
    got = compare_gains([0.9], [0.8], [0.7])
    assert got.within_noise and got.interval is None and "not measurable" in got.sentence
    with pytest.raises(SevenfoldError):
        compare_gains([0.9], [0.8, 0.7], [0.7])


def test_equal_arms_are_called_different_as_rarely_as_declared() -> None:
    rng = np.random.default_rng(0)
    alarms = sum(not compare_gains(rng.normal(size=3), rng.normal(size=3), [0.0] * 3).within_noise for _ in range(400))
    assert alarms <= 33  # binomial(400, .05) exceeds 33 with chance .002
