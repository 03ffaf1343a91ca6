import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.quality.baseline import compare, from_json, to_json
from sevenfold.quality.catalogue import CHECKS
from sevenfold.quality.checks import built_in
from sevenfold.quality.findings import FINDINGS, findings_table
from sevenfold.quality.scorecard import exit_code
from sevenfold.quality.verdict import Verdict
from sevenfold.storage.errors import SevenfoldError

KEY = ("variety", "duplicate_share")
LARGER = {"variety.duplicate_share": "larger"}


def one(result: str, statistic: float | None = None, findings: tuple[str, ...] = (), **more: object) -> Verdict:
    more = {"interval": None, "message": "M.", **more}
    return Verdict(*KEY, "b", result, statistic=statistic, findings=findings, **more)  # type: ignore[arg-type]


def read(now: Verdict, then: Verdict | None, worse: dict | None = None) -> Verdict:
    return compare([now], [then] if then else [], name="v3", worse=worse or {}).verdicts[0]


def test_known_findings_pass_and_new_ones_fail() -> None:
    old = one("fail", 0.5, ("a", "b", "c"))
    same = read(one("fail", 0.5, ("a", "c"), blocking=True), old, LARGER)
    assert (same.result, same.blocking, same.findings) == ("pass", False, ())
    assert "0 new, 2 known to v3" in same.message and "By its limits a fail: M." in same.message
    more = read(one("fail", 0.5, ("x", "a", "y"), notes=("n1", "n2", "n3")), old, LARGER)
    assert (more.result, more.findings, more.notes) == ("fail", ("x", "y"), ("n1", "n3"))
    assert more.message.startswith("2 new, 1 known to v3")


@pytest.mark.parametrize(
    ("now", "interval", "worse", "result"),
    [
        (0.30, (0.29, 0.31), "larger", "fail"),  # worse, beyond chance
        (0.30, (0.15, 0.45), "larger", "pass"),  # its interval covers the baseline's 0.2
        (0.205, (0.204, 0.206), "larger", "pass"),  # beyond chance but within the tolerance
        (0.10, (0.09, 0.11), "larger", "pass"),  # better
        (0.10, (0.09, 0.11), "smaller", "fail"),
        (0.30, (0.29, 0.31), None, "pass"),  # no direction of worse is declared
        (0.30, None, "larger", "pass"),  # without an interval nothing is beyond chance
    ],
)
def test_a_pass_fails_when_its_statistic_got_worse_beyond_chance_and_tolerance(now, interval, worse, result) -> None:
    found = read(one("pass", now, interval=interval), one("pass", 0.2), {"variety.duplicate_share": worse})
    assert found.result == result
    if result == "fail":
        assert "Worse than v3" in found.message and "against 0.2" in found.message


@pytest.mark.parametrize(
    ("now", "worse", "then", "result"),
    [
        (0.5, "larger", "fail", "pass"),
        (0.7, "larger", "fail", "fail"),
        (0.7, None, "fail", "pass"),  # as bad as before is all that can be told
        (0.7, None, "warn", "fail"),
        (0.5, "larger", "pass", "pass"),  # the limits were tightened, the data did not change
    ],
)
def test_a_fail_without_findings_passes_when_it_is_no_worse(now, worse, then, result) -> None:
    found = read(one("fail", now), one(then, 0.5), {"variety.duplicate_share": worse})
    assert found.result == result


def test_known_findings_with_a_much_worse_statistic_still_fail() -> None:
    found = read(one("fail", 0.9, ("a",), interval=(0.8, 0.95)), one("fail", 0.5, ("a", "b")), LARGER)
    assert found.result == "fail" and "worse than v3" in found.message


def test_the_effect_is_compared_where_the_interval_is_about_it() -> None:
    now = one("pass", 100.0, effect=0.4, interval=(0.3, 0.5))
    assert read(now, one("pass", 1.0, effect=0.39), LARGER).result == "pass"
    assert read(now, one("pass", 1.0, effect=0.1), LARGER).result == "fail"


def test_the_statistic_is_compared_where_the_interval_is_about_that() -> None:
    now = one("pass", 0.30, effect=5.0, interval=(0.29, 0.31))
    assert read(now, one("pass", 0.2, effect=9.0), LARGER).result == "fail"


def test_the_catalogue_has_every_built_in_check() -> None:
    assert {c.key for c in built_in()} <= set(CHECKS), "say it in quality/catalogue.py"


def test_what_the_baseline_does_not_know_keeps_its_result_and_a_crash_stays_one() -> None:
    assert read(one("fail"), None).result == "fail"
    assert read(one("fail"), one("not_measurable")).result == "fail"
    assert read(one("fail"), one("crashed")).result == "fail"
    assert read(one("crashed"), one("fail")).result == "crashed"


@given(st.lists(st.text("abc", min_size=1), unique=True), st.lists(st.text("abc", min_size=1), unique=True))
def test_it_fails_exactly_when_there_is_a_finding_that_the_baseline_lacks(now: list[str], then: list[str]) -> None:
    found = read(one("fail", 1.0, tuple(now)), one("fail", 1.0, tuple(then)), LARGER)
    new = [key for key in now if key not in then]
    assert (found.result == "fail") == bool(new) and list(found.findings) == new
    assert exit_code([found]) == int(bool(new))


def test_a_baseline_file_says_the_same_as_the_verdicts_it_was_made_from() -> None:
    old = [one("fail", 0.5, ("a", "b"), interval=(0.4, 0.6)), Verdict("value", "gain", "b", "crashed", message="x")]
    again = from_json(to_json(old, subject="b", at=1.0), where="base.json")
    now = [one("fail", 0.5, ("a",)), Verdict("value", "gain", "b", "pass")]
    told = [compare(now, x, name="v3", worse=LARGER).verdicts for x in (old, again)]
    assert told[0] == told[1] and [v.result for v in told[0]] == ["pass", "pass"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"format": 2}', '{"format": 1, "subject": "b", "verdicts": [{"v": 1}]}', "[" * 100_000, b"\xe9",
     '{"format": 1, "subject": "b", "verdicts": [{"v": "variety", "check": "c", "result": "fail", "statistic": 1, '
     '"interval": null, "effect": null, "n": 1e400, "findings": []}]}'],
)  # fmt: skip
def test_a_file_that_is_no_baseline_is_refused(text: str | bytes) -> None:
    with pytest.raises(SevenfoldError, match="no baseline") as caught:
        from_json(text, where="base.json")
    assert "base.json" in str(caught.value)


def test_the_table_of_findings_has_every_key_with_its_path_note_and_rank(rows, quarantine) -> None:
    table, aside = rows(5), quarantine(truncated=1)
    first, third = table["id"][0].as_py(), table["id"][2].as_py()
    verdicts = [
        one("fail", findings=(third, "class:boot", first), notes=("n3", "nc", "n1")),
        Verdict("validity", "rejected_share", "b", "warn", findings=("truncated/0.png",)),
    ]
    found = findings_table(verdicts, table, aside, known={KEY: {first}})
    assert found.schema == FINDINGS
    assert found["key"].to_pylist() == [third, "class:boot", first, "truncated/0.png"]
    assert found["rank"].to_pylist() == [1, 2, 3, 1]
    assert found["note"].to_pylist() == ["n3", "nc", "n1", "truncated"]
    assert found["path"].to_pylist() == ["s/2.png", None, "s/0.png", "truncated/0.png"]
    assert found["label"].to_pylist() == ["shirt", None, "boot", None]
    assert found["known"].to_pylist() == [False, False, True, False]
    assert findings_table(verdicts, table)["known"].null_count == 4
    assert findings_table([], table).schema == FINDINGS
