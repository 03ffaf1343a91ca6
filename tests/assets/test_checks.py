"""Verdicts as Dagster asset checks: what fails, what blocks, the plots that stand beside the table."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET

import dagster as dg

from sevenfold.assets.checks import as_results, plots
from sevenfold.quality.verdict import Verdict

BARS = {"bars": {"title": "Classes", "names": ["coat"], "series": {"now": [3], "reference": [3]}}}
IMAGE = re.compile(r"!\[([^\]]*)\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)")


def verdict(result: str, *, v: str = "validity", blocking: bool = False, **more: object) -> Verdict:
    return Verdict(v, str(more.pop("check", "a_check")), "v1", result, blocking=blocking, **more)  # type: ignore[arg-type]


def result_of(*verdicts: Verdict) -> dg.AssetCheckResult:
    (found,) = as_results("data", ["validity"], verdicts)
    return found


def test_a_blocking_failure_and_a_crash_are_errors_and_the_rest_warns() -> None:
    error, warn = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN
    told = [(r.passed, r.severity) for r in (
        result_of(verdict("fail", blocking=True)), result_of(verdict("crashed"), verdict("pass")),
        result_of(verdict("fail")), result_of(verdict("warn")), result_of(verdict("not_measurable")), result_of(),
    )]  # fmt: skip
    assert told == [(False, error), (False, error), (False, warn), (False, warn), (True, warn), (True, warn)]


def test_the_reports_plots_are_metadata_as_images_that_stand_alone() -> None:
    found = result_of(verdict("warn", data=BARS)).metadata["plots"]
    assert isinstance(found, dg.MarkdownMetadataValue)
    assert found.value is not None
    ((title, encoded),) = IMAGE.findall(found.value)
    assert title == "Classes" and "**a check**: warn" in found.value
    assert ET.fromstring(base64.b64decode(encoded)).tag.endswith("svg")


def test_a_check_without_plots_has_none() -> None:
    assert "plots" not in result_of(verdict("pass")).metadata


def test_plots_are_bounded_and_those_of_the_worst_come_first() -> None:
    many = [verdict("pass", check=f"fine_{i}", data=BARS) for i in range(50)] + [
        verdict("fail", check="bad", data=BARS)
    ]
    drawn = plots(many, 20_000)
    assert len(drawn) < 21_000 and "**bad**" in drawn
    assert f"{51 - len(IMAGE.findall(drawn))} more plots are in the scorecard" in drawn


def test_a_title_from_the_data_makes_no_link_and_loads_nothing() -> None:
    hostile = {"bars": {**BARS["bars"], "title": "x](http://evil/a.png) ![y"}}
    drawn = plots([verdict("warn", data=hostile)])
    assert len(IMAGE.findall(drawn)) == 1 and "](http" not in drawn
