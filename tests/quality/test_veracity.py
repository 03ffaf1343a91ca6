"""Contradictions, and the estimate of wrong labels."""

import pyarrow as pa
import pytest

from sevenfold.quality import veracity
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
