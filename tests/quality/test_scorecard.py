import json
from xml.etree import ElementTree

import pyarrow as pa

from sevenfold.quality.junit import junit_xml
from sevenfold.quality.scorecard import Scorecard, exit_code
from sevenfold.quality.verdict import VS, Verdict, to_table


def one(result: str, check: str = "balance", subject: str = "v1", v: str = "variety", **more: object) -> Verdict:
    return Verdict(v, check, subject, result, message=f"It is {result}.", **more)  # type: ignore[arg-type]


def test_the_newest_verdict_of_each_check_counts() -> None:
    table = pa.concat_tables(
        [
            to_table([one("pass"), one("warn", "smallest_slice")], at=20.0),
            to_table([one("fail")], at=10.0),
            to_table([one("fail", subject="v2")], at=30.0),
        ]
    )
    card = Scorecard.of(table, subject="v1")
    assert [x.result for x in card.verdicts] == ["pass", "warn"]
    assert card.result("variety") == "warn" and card.result("value") is None
    assert Scorecard.of(table).subject == "v2"


def test_without_times_the_later_row_counts() -> None:
    assert Scorecard.of(to_table([one("fail"), one("pass")])).result("variety") == "pass"
    assert Scorecard.of([one("pass"), one("fail")]).result("variety") == "fail"


def test_an_empty_lake_has_a_scorecard_too() -> None:
    for nothing in (None, [], to_table([])):
        card = Scorecard.of(nothing, subject="v1")
        assert set(card.by_v) == set(VS) and "not judged" in card.to_text()


def test_json_and_text_hold_the_seven_and_the_remedy() -> None:
    card = Scorecard.of([one("fail", remedy="Collect more.", findings=("a", "b"), statistic=0.1, interval=(0, 0.2))])
    data = json.loads(card.to_json())
    assert data["results"] == {v: "fail" if v == "variety" else None for v in VS}
    (row,) = data["verdicts"]["variety"]
    assert row["finding_count"] == 2 and "findings" not in row and row["interval"] == [0, 0.2]
    assert json.loads(card.to_json(findings=True))["verdicts"]["variety"][0]["findings"] == ["a", "b"]
    assert "What to do: Collect more." in card.to_text() and "(2 findings)" in card.to_text()


def test_exit_codes() -> None:
    assert exit_code([one("pass"), one("not_measurable")], strict=True) == 0
    assert exit_code([one("warn")]) == 0
    assert exit_code([one("warn")], strict=True) == 2
    assert exit_code([one("warn"), one("fail")], strict=True) == 1


def test_junit_counts_failures_and_skips_and_stays_valid_xml() -> None:
    bad = one("fail", findings=("x",), remedy="a < b & c\x00")
    text = junit_xml([bad, one("warn", "b"), one("not_measurable", "c"), one("pass", "suite", v="validity")])
    root = ElementTree.fromstring(text)
    assert root.attrib == {"name": "sevenfold", "tests": "4", "failures": "1", "errors": "0", "skipped": "1"}
    suites = {s.get("name"): s for s in root}
    assert list(suites) == ["validity", "variety"] and suites["variety"].get("failures") == "1"
    failure = suites["variety"].find("testcase/failure")
    assert failure is not None and "a < b & c" in failure.text and "1 findings" in failure.text
