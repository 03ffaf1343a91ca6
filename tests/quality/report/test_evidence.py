"""Beside a verdict: pictures of its worst findings with their notes, pairs and examples side by side."""

from __future__ import annotations

from sevenfold.quality.report import evidence, verdicts
from sevenfold.quality.report.album import Album
from sevenfold.quality.report.evidence import Fact
from sevenfold.quality.report.model import Facts
from sevenfold.quality.verdict import Verdict

from .conftest import DATA, png, verdict

KEYS = tuple(f"{i:064x}" for i in range(40))


def drawn(one: Verdict, pictures: dict[str, bytes] | None = None, known: dict[str, Fact] | None = None) -> str:
    return str(evidence.evidence(one, pictures or {}, known or {}, Album()) or "")


def test_the_worst_dozen_findings_are_shown_with_their_notes() -> None:
    one = verdict(result="fail", findings=KEYS, notes=tuple(f"note {i}" for i in range(40)))
    mine, before = evidence.wanted(one)
    assert mine == list(KEYS[:12]) and before == []
    page = drawn(one, {key: png(i) for i, key in enumerate(KEYS)}, {KEYS[3]: Fact("coat", "test", "a.png", None)})
    assert page.count("<img") == 12 and "The first 12 of 40 findings" in page
    assert "note 11" in page and "note 12" not in page and "coat · test" in page


def test_a_quarantined_input_tells_its_reason_where_there_is_no_picture() -> None:
    one = verdict(result="fail", findings=("in/a.png",))
    page = drawn(one, {}, {"in/a.png": Fact("coat", None, "in/a.png", "truncated: image file is truncated")})
    assert "cannot be shown" in page and "truncated: image file is truncated" in page and "in/a.png" in page


def test_findings_of_which_nothing_is_known_are_left_to_the_list() -> None:
    assert drawn(verdict(result="fail", findings=KEYS)) == ""


def test_slices_and_classes_are_named_not_pictured() -> None:
    one = verdict(result="warn", findings=("slice:test/coat", "class:hat"), notes=("27 samples", "none"))
    assert evidence.wanted(one) == ([], [])
    assert "slice:test/coat" in drawn(one) and "27 samples" in drawn(one) and "<img" not in drawn(one)


def test_pairs_stand_side_by_side_and_take_the_place_of_the_findings() -> None:
    pairs = [[KEYS[2 * i], KEYS[2 * i + 1], f"distance {i}"] for i in range(20)]
    one = verdict(result="fail", findings=KEYS, data={"pairs": pairs})
    assert evidence.wanted(one)[0] == list(KEYS)
    page = drawn(one, {key: png(i) for i, key in enumerate(KEYS)})
    assert page.count("<img") == 40 and page.count('class="twin"') == 20 and "distance 19" in page
    assert "The first" not in page


def test_examples_stand_beside_the_references() -> None:
    one = verdict(result="fail", findings=("a" * 64,), notes=("too bright",), data=DATA, reference="v1")
    assert evidence.wanted(one)[1] == ["c" * 64]
    page = drawn(one, {"a" * 64: png(1), "c" * 64: png(2)})
    assert "What moved" in page and "Reference v1" in page and "too bright" in page


def test_pairs_and_examples_of_another_shape_are_left_out() -> None:
    for wrong in ({"pairs": 3}, {"pairs": [1, ["a"]]}, {"examples": []}, {"examples": {"now": "abc"}}):
        assert evidence.wanted(verdict(data=wrong)) == ([], [])


def test_the_pictures_counted_for_the_album_are_those_shown() -> None:
    one = verdict(result="fail", findings=("a" * 64, "b" * 64), data=DATA, reference="v1")
    pictures = {"a" * 64: png(1), "c" * 64: png(2)}
    assert len(evidence.shown_images([one], pictures)) >= drawn(one, pictures).count("<img") - 1


def test_a_v_says_what_it_asks_what_was_found_and_what_to_do() -> None:
    found = [verdict("veracity", "fail", check="twins", remedy="Exclude them."),
             verdict("veracity", "crashed", check="annotators", message="The check raised."),
             verdict("veracity", "pass", check="labels"), verdict("value", "pass"),
             verdict("volume", "not_measurable")]  # fmt: skip
    page = str(verdicts.details(found, {}, Facts(), Album()))
    assert "Of 3 checks: 1 crashed (annotators), 1 failed (twins), 1 passed." in page and "Exclude them." in page
    assert "The only check passed." in page and "Of 1 check: 1 could not be measured (one check)." in page
    order = [page.index(f"<h4>{name}") for name in ("annotators", "twins", "labels")]
    assert order == sorted(order)


def test_plots_of_what_passed_are_folded_away() -> None:
    good, bad = (str(verdicts.details([verdict(result=r, data={"bars": DATA["bars"]})], {}, Facts(), Album()))
                 for r in ("pass", "fail"))  # fmt: skip
    assert "Plots and pictures" in good and "Plots and pictures" not in bad and "<svg" in good
