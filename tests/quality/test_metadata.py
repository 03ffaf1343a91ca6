"""Columns and captions: what is wrong is found and named, and what is as it was raises no alarm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.quality import captions, languages, metadata, volatility
from sevenfold.quality.checks import judge
from sevenfold.quality.columns import described
from sevenfold.quality.context import Context
from sevenfold.quality.policy import Policy

LIMITS = Policy()
WORDS = ["a", "the", "red", "small", "dog", "cat", "house", "runs", "sits", "near", "under", "with", "two", "people"]


def people(n: int = 400, *, seed: int = 0, **columns: Any) -> pa.Table:
    """id, age, sex, member, code and caption of n samples; a column may be given, or left out with None."""
    chance = np.random.default_rng(seed)
    given = {
        "id": [f"{seed}-{i}" for i in range(n)],
        "age": np.round(chance.normal(40, 10, n), 1),
        "sex": chance.choice(["f", "m"], n).tolist(),
        "member": chance.random(n) < 0.5,
        "code": [f"x{seed}{i}" for i in range(n)],
        "caption": [f"{i} {' '.join(chance.choice(WORDS, 6))}" for i in range(n)],
    } | columns
    return pa.table({name: pa.array(v) for name, v in given.items() if v is not None})


def judged(now: pa.Table, before: pa.Table | None = None) -> Mapping[str, Any]:
    """The verdicts of all checks of the module, by key."""

    def context(table: pa.Table, name: str, reference: Context | None = None) -> Context:
        rows = table.select(["id"])
        return Context(name, "version", rows, rows, 0.0, metadata=table, reference=reference)

    asked = context(now, "v2", context(before, "v1") if before is not None else None)
    verdicts = judge(asked, checks=metadata.CHECKS)
    return {f"{v.v}.{v.check}": v for v in verdicts}


def test_kinds_are_told_apart() -> None:
    kinds = {name: c.kind for name, c in described(people(note=pa.nulls(400, pa.string()))).items()}
    assert kinds == {
        "age": "number", "sex": "category", "member": "bool", "code": "identifier", "caption": "text", "note": "empty",
    }  # fmt: skip
    chinese = described(pa.table({"t": ["一只猫坐在椅子上", "两个人在海边", "红色的房子"]}))
    assert chinese["t"].kind == "text", "words are not parted by spaces there"


def test_the_same_columns_pass() -> None:
    found = judged(people(seed=1), people(seed=2))
    assert {key: v.result for key, v in found.items()} == dict.fromkeys(found, "pass")
    assert "english" in found["variety.captions"].message and "code" in found["variety.columns"].message


def test_same_distributions_raise_few_alarms() -> None:
    alarms = sum(
        metadata.columns(people(300, seed=s), people(300, seed=s + 1000), subject="b", name="v", policy=LIMITS.validity)
        .result != "pass"
        for s in range(60)
    )  # fmt: skip
    assert alarms <= 1


def test_every_change_of_a_column_is_named_with_its_samples() -> None:
    n = 400
    ages = [40.0] * (n - 2) + [900.0, -900.0]
    now = people(
        seed=1, age=ages, sex=["f"] * (n - 3) + ["?", "f", "?"], member=[None] * 100 + [True] * 300, code=None,
        caption=list(range(n)), new=["x"] * n,
    )  # fmt: skip
    v = judged(now, people(seed=2))["validity.columns"]
    told = dict(zip(v.findings, v.notes, strict=True))
    assert v.result == "fail" and v.reference == "v1" and "New: new" in v.message
    assert told["column:caption"] == "number, was text" and told["column:code"] == "the column is gone"
    assert told["column:member"].startswith("25.0% is null, was 0.0%")
    assert told["column:age"].startswith("2 values far outside")
    assert told["column:sex"] == "2 values that the reference does not know: '?'"
    assert {k: told[k] for k in ("1-398", "1-399", "1-397")} == {
        "1-398": "age 900", "1-399": "age -900", "1-397": "sex ?"
    }  # fmt: skip
    assert set(v.findings[:2]) == {"column:caption", "column:code"}, "the worst first"
    assert len(v.findings) == 8


def test_small_samples_and_missing_tables_are_not_measurable() -> None:
    v = metadata.columns(people(), people(20), subject="b", name="v1", policy=LIMITS.validity)
    assert v.result == "not_measurable"
    assert metadata.columns(None, people(), subject="b", name="v1", policy=LIMITS.validity).result == "not_measurable"
    rows = people().select(["id"])
    assert judge(Context("b", "batch", rows, rows, 0.0), checks=metadata.CHECKS) == [], (
        "nothing to say, so nothing said"
    )
    found = judged(people().select(["id"]))
    assert {v.result for k, v in found.items() if "captions" in k} == {"not_measurable"}


def test_a_constant_column_and_categories_that_became_unique_warn() -> None:
    now = people(seed=1, age=[3] * 400, sex=[f"s{i}" for i in range(400)], member=[True] * 400)
    v = judged(now, people(seed=2))["variety.columns"]
    assert v.result == "warn" and set(v.findings) == {"column:age", "column:sex", "column:member"}
    assert "constant: 3" in v.notes


def test_columns_of_every_type_are_described_and_those_that_are_not_plain_left_out() -> None:
    hours = pa.array([0, 3_600_000_000] * 4, pa.timestamp("us", "Europe/Berlin"))
    table = pa.table({
        "id": [str(i) for i in range(8)], "at": hours, "day": hours.cast(pa.date32()),
        "cost": pa.array([1, 2] * 4, pa.decimal128(9, 2)),
        "half": np.array([1, 2] * 4, np.float16), "large": pa.array(["a", "b"] * 4, pa.large_string()),
        "coded": pa.array(["a", "b"] * 4).dictionary_encode(), "view": pa.array(["a", "b"] * 4, pa.string_view()),
        "none": pa.nulls(8), "inner": [{"a": 1}] * 8, "many": [[1]] * 8, "bytes": [b"\xff"] * 8,
    })  # fmt: skip
    found = {name: column.kind for name, column in described(table).items()}
    assert found == {
        "at": "category", "day": "category", "cost": "number", "half": "number", "large": "category",
        "coded": "category", "view": "category", "none": "empty",
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("values", [[2**62, -(2**62)] * 200, [1e308, -1e308] * 200, [float("inf"), 1.0] * 200])
def test_the_largest_numbers_crash_nothing(values: list[float]) -> None:
    for now, before in ((people(age=values), people(seed=1)), (people(), people(seed=1, age=values))):
        sides = [Context("b", "version", t, t.select(["id"]), 0.0, metadata=t) for t in (now, before)]
        checks = [c for c in (*metadata.CHECKS, *volatility.CHECKS) if c.name in ("columns", "metadata_drift")]
        found = {v.check: v for v in judge(replace(sides[0], reference=sides[1]), checks=checks)}
        assert set(found) == {"columns", "metadata_drift"}
        assert all(v.result != "crashed" for v in found.values()), [v.message for v in found.values()]


def test_damaged_and_empty_captions_are_found() -> None:
    texts = people()["caption"].to_pylist()
    texts[:7] = [
        "",
        None,
        "un café au lait".encode().decode("latin-1"),
        "it’s late".encode().decode("cp1252"),
        "a \ufffd b",
        "a\x00b c",
        "  ",
    ]
    sound = ["NÃO É UMA CASA", "l’été à Évry", "Ärger über Öl", "smörgåsbord på svenska", "naïve coöperation", "50 °C"]
    texts[7:13] = sound
    v = judged(people(caption=texts))["validity.captions"]
    assert v.result == "warn" and set(v.findings) == {f"0-{i}" for i in range(7)}
    told = dict(zip(v.findings, v.notes, strict=True))
    assert told["0-2"] == told["0-3"] == "caption: UTF-8 read as Latin-1" and told["0-1"] == "caption: empty"
    assert sum(v.data["histograms"][0]["now"]) == 400


AMBIGUOUS = "\u00b5ŠŒŽšœžŸ"
"""Letters that are also second bytes in Windows-1252: behind a capital with a tilde they are read as damage."""


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(
        st.characters(categories=["Ll", "Lu", "Nd"], max_codepoint=0x17F, exclude_characters=AMBIGUOUS), min_size=1
    )
)
def test_no_word_of_letters_is_called_damaged_and_its_mojibake_is(text: str) -> None:
    column = pa.chunked_array([[f"x{text}"]])
    assert captions.damage(column) == []
    if any("\u00c0" <= c <= "\u00ff" for c in text):
        spoiled = f"x{text}".encode().decode("latin-1")
        assert [what for what, _ in captions.damage(pa.chunked_array([[spoiled]]))] == ["UTF-8 read as Latin-1"]


def test_repeated_captions_are_found_exactly_and_but_for_marks() -> None:
    texts = people()["caption"].to_pylist()
    texts[:40] = ["A photo of a dog."] * 30 + ["a photo of a dog!"] * 10
    texts[50], texts[51] = None, None
    v = judged(people(caption=texts))["variety.captions"]
    assert v.result == "warn" and set(v.findings) == {f"0-{i}" for i in range(40)}
    exact, alike = captions.repeats(pa.chunked_array([["Ab", "ab.", "c", "c", None, "!", "?"]]))
    assert exact.tolist() == [False, False, True, True, False, False, False]
    assert alike.tolist() == [True, True, True, True, False, False, False]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Two dogs are running on the beach near the water", "english"),
        ("Ein Mann sitzt auf einer Bank und liest die Zeitung", "german"),
        ("Un homme est assis sur un banc dans le parc avec son chien", "french"),
        ("Una mujer con un perro en la playa y el mar al fondo", "spanish"),
        ("Un uomo è seduto su una panchina nel parco con il cane", "italian"),
        ("Um homem com uma bicicleta não está na rua do mercado", "portuguese"),
        ("Een man zit op een bank in het park met zijn hond", "dutch"),
        ("En kvinna sitter på en bänk och läser om det som är nytt", "swedish"),
        ("Mężczyzna siedzi na ławce w parku i czyta, a pies jest przy nim", "polish"),
        ("Мужчина сидит на скамейке", "cyrillic"),
        ("一只猫坐在椅子上", "han"),
        ("猫が椅子に座っています", "japanese"),
        ("고양이가 의자에 앉아 있다", "hangul"),
        ("رجل يجلس على مقعد", "arabic"),
        ("12 + 30", "undetermined"),
        ("zebra", "undetermined"),
    ],
)  # fmt: skip
def test_languages_of_whole_sentences_are_told(text: str, told: str) -> None:
    assert languages.language(text) == told


def test_findings_and_notes_are_of_one_length_for_a_version_with_old_samples() -> None:
    before = people(seed=2)
    now = pa.concat_tables([before, people(60, seed=3, sex=["x"] * 60)])
    v = judged(now, before)["validity.columns"]
    assert v.n == 60 and v.result == "warn" and len(v.findings) == 61, "only what is new is compared"
