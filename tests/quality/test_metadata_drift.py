"""The user's columns: numbers, categories and captions move and are named; keys and times are left alone."""

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from sevenfold.quality.metadata_drift import CHECKS, describe_texts, metadata_drift
from sevenfold.quality.policy import Policy

WORDS = ("a", "red", "coat", "on", "white", "ground", "with", "two", "buttons", "and", "sleeves")


def metadata(n: int, seed: int, **columns) -> pa.Table:
    rng = np.random.default_rng(seed)
    given = {
        "id": [f"{seed}-{i}" for i in range(n)],
        "age": rng.normal(40, 10, n),
        "site": rng.choice(["north", "south"], n),
        "caption": [" ".join(rng.choice(WORDS, rng.integers(3, 9))) for _ in range(n)],
        "serial": [f"{seed}x{i}" for i in range(n)],
        "taken": [datetime(2026, 1, 1) + timedelta(days=seed, hours=i) for i in range(n)],
    }
    return pa.table(given | columns)


def drift(now: pa.Table, before: pa.Table):
    return metadata_drift(now, before, subject="b1", reference="v1", policy=Policy().volatility)


def test_the_same_distribution_passes_whatever_keys_and_times_do() -> None:
    v = drift(metadata(300, 1), metadata(400, 2))
    assert v.result == "pass" and "None of 5 moved" in v.message and v.findings == ()


def test_numbers_and_categories_that_moved_are_named_with_their_samples() -> None:
    now = metadata(300, 1, age=np.random.default_rng(0).normal(60, 10, 300), site=["south"] * 280 + ["north"] * 20)
    v = drift(now, metadata(400, 2))
    assert v.result == "fail" and "age rose: median" in v.message and "south 5" in v.message
    assert len(v.findings) > 250 and any(n.startswith("age ") for n in v.notes)
    assert v.data["bars"]["names"][0] in ("north", "south") and v.data["histograms"][0]["name"] == "age"


def test_captions_are_compared_by_length_and_script() -> None:
    short = drift(metadata(300, 1, caption=[f"red coat {i}" for i in range(300)]), metadata(400, 2))
    assert "caption: words fell" in short.message and "caption: characters fell" in short.message
    russian = ["красное пальто на белом " + str(i) for i in range(300)]
    other = drift(metadata(300, 1, caption=russian), metadata(400, 2))
    assert "cyrillic 0.0% -> 100.0%" in other.message


def test_values_that_went_missing_are_a_move() -> None:
    gone = pa.array([None] * 150 + [40.0 + i % 7 for i in range(150)])
    v = drift(metadata(300, 1, age=gone), metadata(400, 2))
    assert "age is there" in v.message


def test_a_text_is_described() -> None:
    told = describe_texts(pa.chunked_array([["the red coat on a man", None, "слово", "12 34"]]))
    assert told["words"][0] == 6 and np.isnan(told["words"][1]) and told["characters"][2] == 5
    assert told["language"].tolist() == ["english", None, "cyrillic", "undetermined"]


def test_without_columns_on_both_sides_it_is_not_measurable(rows, properties) -> None:
    from sevenfold.quality.context import Context

    table = rows(60)
    context = Context("b1", "batch", table, properties(table), 0.0, metadata=metadata(60, 1))
    assert CHECKS[0].run(context).result == "not_measurable"


@pytest.mark.parametrize("n", [20])
def test_at_twenty_samples_nothing_is_measurable(n: int) -> None:
    assert drift(metadata(n, 1), metadata(400, 2)).result == "not_measurable"
