"""Contradictions, leaks across splits, and the estimate of wrong labels."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from sevenfold.quality import leaks, veracity
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


def picture_table(rows) -> tuple[pa.Table, dict[str, np.ndarray]]:
    """Six pictures: 0 train = 1 test exactly; 2 train ~ 3 test nearly; 4 train and 5 val share a hash, not pixels."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (6, 8, 8), dtype=np.uint8)
    pixels[1] = pixels[0]
    pixels[3] = np.clip(pixels[2].astype(int) + 2, 0, 255)
    table = rows(
        6,
        split=["train", "test", "train", "test", "train", "val"],
        pixel_digest=["a", "a", "b", "c", "d", "e"],
        phash=[-1, -1, 0b1111, 0b1000_0011, 0x7F7F << 40, 0x7F7F << 40],
    )
    return table, dict(zip(table["id"].to_pylist(), pixels, strict=True))


def test_a_picture_in_two_splits_fails_and_names_the_twin_to_exclude(rows) -> None:
    table, pixels = picture_table(rows)
    ids = table["id"].to_pylist()

    def read(wanted: Sequence[str]) -> np.ndarray:
        return np.stack([pixels[i] for i in wanted])

    v = veracity.cross_split_duplicates(table, subject="v1", policy=LIMITS, read_pixels=read)
    assert (v.result, v.blocking, v.statistic) == ("fail", True, 2.0)
    assert v.findings == (ids[0], ids[2])
    pairs = veracity.duplicate_pairs(table, policy=LIMITS, read_pixels=read).to_pylist()
    assert [(p["keep"], p["exclude"], p["kind"], p["bits"]) for p in pairs] == [
        (ids[1], ids[0], "exact", 0),
        (ids[3], ids[2], "near", 3),
    ]
    assert pairs[1]["distance"] == pytest.approx(2, abs=0.1)


def test_without_pixels_near_duplicates_are_candidates_and_warn(rows) -> None:
    table, _ = picture_table(rows)
    ids = table["id"].to_pylist()
    v = veracity.cross_split_duplicates(table.slice(2), subject="v1", policy=LIMITS)
    assert v.result == "warn" and set(v.findings) == {ids[2], ids[4]}
    assert veracity.cross_split_duplicates(rows(200), subject="v1", policy=LIMITS).result == "pass"


def test_hash_candidates_are_complete_up_to_seven_bits(rows) -> None:
    rng = np.random.default_rng(5)
    base = rng.integers(0, 2**63, 40, dtype=np.int64)
    hashes = [int(h) for h in base]
    for h in base:
        bits = rng.choice(63, rng.integers(1, 11), replace=False)
        hashes.append(int(h) ^ sum(1 << int(b) for b in bits))
    table = rows(80, split=["test"] * 40 + ["train"] * 40, phash=hashes)
    found = {(p["keep"], p["exclude"]) for p in leaks.hash_candidates(table, 7).to_pylist()}
    ids = table["id"].to_pylist()
    wanted = {(ids[a], ids[b]) for a in range(40) for b in range(40, 80) if (hashes[a] ^ hashes[b]).bit_count() <= 7}
    assert wanted and found == wanted


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


def test_a_pooled_twin_of_a_test_picture_warns_and_one_of_a_train_picture_does_not(rows) -> None:
    table = rows(4).to_pylist()
    for row, split, pixels in zip(table, ("test", "pool", "train", "pool"), "aabb", strict=True):
        row["split"], row["pixel_digest"] = split, pixels * 64
    v = veracity.cross_split_duplicates(pa.Table.from_pylist(table), subject="v1", policy=LIMITS)
    assert (v.result, v.findings) == ("warn", (table[1]["id"],))
    assert "leak once they are labelled" in v.remedy
