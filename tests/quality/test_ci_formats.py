"""SARIF, GitHub's annotations and summary, JUnit's errors: what other programs read must be as they expect it."""

import json
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.quality.findings import findings_table
from sevenfold.quality.github import annotate, escape_message, escape_property, summary
from sevenfold.quality.junit import junit_xml
from sevenfold.quality.sarif import sarif
from sevenfold.quality.verdict import Verdict


def locate(row) -> str:
    return f"images/{row['path']}" if row.get("path") else "images"


@pytest.fixture
def found(rows):
    table = rows(30, path=[f"red hats/{i}.png" for i in range(30)])
    ids = tuple(table["id"].to_pylist())
    verdicts = [
        Verdict("validity", "invalid_share", "b", "fail", blocking=True, message="50% off: bad, \n really",
                remedy="Mend.", findings=ids[:20], notes=tuple(f"note {i}" for i in range(20))),
        Verdict("variety", "balance", "b", "warn", message="Rare.", findings=("class:boot",)),
        Verdict("volatility", "property_drift", "b", "fail", message="It moved."),
        Verdict("variety", "duplicate_share", "b", "pass", message="Fine."),
        Verdict("value", "mine", "b", "crashed", message="The check raised KeyError: 'x'."),
        Verdict("volume", "curve", "b", "not_measurable"),
    ]  # fmt: skip
    return verdicts, findings_table(verdicts, table)


def of(verdicts, table, **more):
    return sarif(verdicts, table, version="1.0", helps={"variety.balance": "Is it balanced?"}, locate=locate, **more)


REQUIRED = {  # the required properties of the published schema's definitions that we use
    "sarifLog": {"version", "runs"},
    "run": {"tool"},
    "toolComponent": {"name"},
    "reportingDescriptor": {"id"},
    "result": {"message"},
    "invocation": {"executionSuccessful"},
    "notification": {"message"},
}


def has(thing: dict, kind: str) -> None:
    assert REQUIRED[kind] <= set(thing), kind


def test_sarif_has_what_the_schema_requires_and_every_reference_resolves(found) -> None:
    document = json.loads(json.dumps(of(*found)))
    has(document, "sarifLog")
    assert document["version"] == "2.1.0" and document["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = document["runs"]
    has(run, "run")
    driver = run["tool"]["driver"]
    has(driver, "toolComponent")
    for rule in driver["rules"]:
        has(rule, "reportingDescriptor")
        assert rule["help"]["text"] and rule["shortDescription"]["text"]
    for result in run["results"]:
        has(result, "result")
        assert result["message"]["text"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        (place,) = result["locations"]
        assert not re.search(r"\s", place["physicalLocation"]["artifactLocation"]["uri"]), "a URI has no blanks"
        assert all(isinstance(v, str) for v in result["partialFingerprints"].values())
    (invocation,) = run["invocations"]
    has(invocation, "invocation")
    for note in invocation["toolExecutionNotifications"]:
        has(note, "notification")


def test_sarif_results_are_the_findings_of_what_did_not_pass(found) -> None:
    (run,) = of(*found)["runs"]
    by = {}
    for result in run["results"]:
        by.setdefault(result["ruleId"], []).append(result)
    assert {k: len(v) for k, v in by.items()} == {
        "validity.invalid_share": 20, "variety.balance": 1, "volatility.property_drift": 1,
    }  # fmt: skip
    first = by["validity.invalid_share"][0]
    assert first["level"] == "error" and first["message"]["text"].startswith("note 0 (")
    uri = first["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "images/red%20hats/0.png"
    assert by["variety.balance"][0]["level"] == "warning"
    assert run["invocations"][0]["executionSuccessful"] is False, "a check crashed"
    assert "KeyError" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


def test_sarif_is_capped_and_says_how_many_there_are(found) -> None:
    (run,) = of(*found, most=10)["runs"]
    assert len(run["results"]) <= 10 and {r["ruleId"] for r in run["results"]} >= {"volatility.property_drift"}
    assert run["properties"] == {"findings": 22, "listed": len(run["results"])}
    notes = [n["message"]["text"] for n in run["invocations"][0]["toolExecutionNotifications"]]
    assert any("22 findings" in n and "listed" in n for n in notes)


def test_a_finding_has_the_same_fingerprint_in_another_version(found) -> None:
    verdicts, table = found
    one = of(verdicts, table)["runs"][0]["results"]
    other = of(list(reversed(verdicts)), table)["runs"][0]["results"]
    prints = [{r["partialFingerprints"]["sevenfold/v1"] for r in results} for results in (one, other)]
    assert prints[0] == prints[1] and len(prints[0]) == len(one)


COMMAND = re.compile(r"::(error|warning) (?:file=([^,:]*),)?title=([^,:]*)::([^\r\n]*)")


def test_ten_annotations_the_worst_first_each_check_once_before_more_of_any(found) -> None:
    lines = annotate(*found, locate)
    assert len(lines) == 10
    parsed = [COMMAND.fullmatch(line) for line in lines]
    assert all(parsed)
    titles = [m[3].split(" ")[0] for m in parsed if m]
    assert titles[:4] == ["value.mine", "validity.invalid_share", "volatility.property_drift", "variety.balance"]
    assert set(titles[4:]) == {"validity.invalid_share"}
    assert parsed[1][2] == "images/red hats/0.png" and parsed[1][4].startswith("50%25 off: bad, %0A really")
    assert parsed[3][1] == "warning"


def test_what_the_baseline_knows_is_neither_annotated_nor_listed(rows) -> None:
    table = rows(3)
    ids = tuple(table["id"].to_pylist())
    verdict = Verdict("validity", "invalid_share", "b", "fail", message="M", findings=ids)
    found = findings_table([verdict], table, known={("validity", "invalid_share"): ids[:2]})
    lines = annotate([verdict], found, locate)
    assert len(lines) == 1 and "s/2.png" in lines[0]
    page = summary([verdict], found, locate, title="t")
    assert "s/2.png" in page and "s/0.png" not in page


def unescape(text: str) -> str:
    """As the runner does it."""
    for code, sign in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(code, sign)
    return text


@given(st.text("%:,\r\n25ADa "))
def test_escaped_text_is_one_line_and_comes_back_whole(text: str) -> None:
    value, message = escape_property(text), escape_message(text)
    assert not set(value) & set(":,\r\n") and not set(message) & set("\r\n")
    assert unescape(value) == text and unescape(message) == text


def test_the_summary_tells_all_checks_and_lists_findings_up_to_a_cap(found) -> None:
    page = summary(*found, locate, title="Sevenfold: b", most=5)
    assert "| volume | curve | not measurable |" in page
    assert "### validity: invalid share (fail)" in page and "What to do: Mend." in page
    assert page.count("note ") == 5 and "15 more of 20" in page
    assert all(line.count("|") in (5, 6) for line in page.splitlines() if line.startswith("|"))


def test_a_summary_stays_under_a_mebibyte() -> None:
    many = [Verdict("validity", f"c{i}", "b", "fail", message="|x<" * 2000) for i in range(300)]
    page = summary(many, findings_table(many), locate, title="t")
    assert len(page.encode()) < 1 << 20 and "left out" in page


def test_a_crashed_check_is_an_error_in_junit(found) -> None:
    root = ElementTree.fromstring(junit_xml(found[0]))
    assert (root.get("errors"), root.get("failures"), root.get("skipped")) == ("1", "2", "1")
    error = root.find("testsuite/testcase/error")
    assert error is not None and "KeyError" in error.get("message", "")
