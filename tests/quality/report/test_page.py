"""The page: which sections appear, that it loads nothing, that no text becomes markup, that it stays small."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from sevenfold.quality.report import model as m
from sevenfold.quality.report import render

from .conftest import HOSTILE, png, verdict

SECTIONS = {
    "summary": "summary", "scorecard": "verdicts", "verdicts": "verdicts", "ingest": "batches", "findings": "verdicts",
    "quarantine": "quarantine", "balance": "balance", "suspected": "suspected", "curves": "curves", "arms": "arms",
    "steps": "steps", "decision": "decision", "gate": "gate", "lineage": "lineage", "next": "commands",
}  # fmt: skip
EMPTY = m.Report(dataset="clothes", version="v1", content_id="c" * 64, created=0.0)


class Reader(HTMLParser):
    """Collects the elements and checks that they nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.inside: dict[str, str] = {}
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.inside[self.open[-1]] = self.inside.get(self.open[-1], "") + data

    def ids(self) -> list[str]:
        return [value for _, attributes in self.elements if (value := attributes.get("id"))]


def test_every_section_is_there_when_its_data_is(full: m.Report) -> None:
    ids = Reader(render(full)).ids()
    assert {*SECTIONS, "hard", "drift"} <= set(ids)
    assert len(ids) == len(set(ids))


def test_an_empty_report_is_a_page_without_sections() -> None:
    page = Reader(render(EMPTY))
    assert page.ids() == ["main"]
    assert "clothes v1" in page.inside["h1"]
    assert "1 January 1970, 00:00 UTC" in page.inside["dd"]


@pytest.mark.parametrize("anchor", SECTIONS)
def test_a_section_without_data_is_left_out(full: m.Report, anchor: str) -> None:
    field = SECTIONS[anchor]
    without = dataclasses.replace(full, **{field: getattr(EMPTY, field)})
    assert anchor not in Reader(render(without)).ids()


def test_one_side_of_a_comparison_is_enough(full: m.Report) -> None:
    page = render(dataclasses.replace(full, control=None))
    assert "hard" in Reader(page).ids()
    assert "Random control" not in page


def test_rendering_is_pure(full: m.Report) -> None:
    assert render(full) == render(full)


def test_every_link_stays_on_the_page(full: m.Report) -> None:
    page = Reader(render(full))
    targets = {str(a["href"]) for _, a in page.elements if "href" in a}
    assert targets <= {f"#{name}" for name in page.ids()}


def test_nothing_is_loaded(full: m.Report) -> None:
    page = Reader(render(full))
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form", "image", "use", "audio", "video")
        for name, value in attributes.items():
            assert "http:" not in str(value) and "https:" not in str(value)
            assert not name.startswith("on") and name not in ("style", "srcset", "xlink:href")
            if name == "src":
                assert str(value).startswith("data:image/")
    assert "url(" not in page.inside["style"] and "@import" not in page.inside["style"]


def test_the_policy_allows_the_pages_own_style_and_script_and_nothing_else(full: m.Report) -> None:
    page = Reader(render(full))
    policy = next(str(a["content"]) for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")

    def digest(inline: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"

    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    assert rules["style-src"] == digest(page.inside["style"])
    assert rules["script-src"] == digest(page.inside["script"])


def poisoned(value: object) -> object:
    """The same data with every string hostile, whatever the field."""
    if isinstance(value, str):
        return value if value in ("pass", "warn", "fail", "not_measurable") else HOSTILE
    if isinstance(value, tuple):
        return tuple(poisoned(one) for one in value)
    if isinstance(value, dict):
        return {poisoned(key): poisoned(one) for key, one in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kept = ("v", "result", "key", "source", "target")
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return type(value)(**{name: one if name in kept else poisoned(one) for name, one in fields.items()})
    return value


def test_hostile_text_in_any_field_stays_text(full: m.Report) -> None:
    expected, page = Reader(render(full)), Reader(render(poisoned(full)))  # type: ignore[arg-type]
    assert sum(tag == "script" for tag, _ in page.elements) == 1
    assert {tag for tag, _ in page.elements} == {tag for tag, _ in expected.elements}
    assert "alert('x')" in page.inside["li"]


def test_hostile_keys_stay_text() -> None:
    nodes = (m.Node(HOSTILE, HOSTILE, HOSTILE), m.Node("v1", "version", "v1"))
    report = dataclasses.replace(
        EMPTY,
        lineage=m.Lineage(nodes, (m.Edge(HOSTILE, "v1", HOSTILE),)),
        quarantine=m.Grid((m.Tile(HOSTILE, None, HOSTILE),)),
        verdicts=(verdict(result="fail", findings=(HOSTILE,)),),
    )
    assert sum(tag == "script" for tag, _ in Reader(render(report)).elements) == 1


def test_names_that_hide_or_cannot_be_encoded_are_shown_escaped() -> None:
    tiles = m.Grid((m.Tile("gnp.\u202etac.exe", title="\udcff\x00"),))
    page = render(dataclasses.replace(EMPTY, quarantine=tiles))
    assert page.encode("utf-8")
    assert "gnp.\\u202etac.exe" in page and "\\udcff\\u0000" in page


def test_the_page_stays_under_five_megabytes() -> None:
    big = m.Grid(tuple(m.Tile(f"{i:064x}", png(i, 96, "RGB"), "title") for i in range(70)), total=10_000)
    findings = tuple(f"{i:064x}" for i in range(50_000))
    report = dataclasses.replace(
        EMPTY, quarantine=big, suspected=big, hard=big, control=big, drifted=big, reference=big,
        verdicts=(verdict("veracity", "fail", findings=findings), verdict("volatility", "fail", findings=("only",))),
        balance=(m.ClassBalance("v1", {f"class {i}": i for i in range(1000)}),), findings_at="checks/",
    )  # fmt: skip
    page = render(report)
    assert len(page.encode()) < 5_000_000
    assert "60 of 10,000 shown." in page
    assert "50,001 findings of 2 checks. 2,000 of them are listed here; all of them are in checks/." in page
    assert "only" in page


def test_a_batch_that_does_not_reconcile_says_so(full: m.Report) -> None:
    assert not full.batches[1].reconciles
    assert "1 missing" in render(full)


def test_a_card_shows_the_worst_measured_result() -> None:
    verdicts = (verdict(result="not_measurable"), verdict(result="pass"), verdict("volume", "not_measurable"),
                verdict("value", "warn", check="gain"), verdict("value", "pass"))  # fmt: skip
    cards = [a for _, a in Reader(render(dataclasses.replace(EMPTY, verdicts=verdicts))).elements
             if str(a.get("class", "")).startswith("card ")]  # fmt: skip
    shown = dict(zip(("validity", "variety", "veracity", "value", "volume", "volatility", "velocity"),
                     (str(a["class"]).split()[1] for a in cards), strict=True))  # fmt: skip
    assert shown == {"validity": "pass", "variety": "none", "veracity": "none", "value": "warn",
                     "volume": "not_measurable", "volatility": "none", "velocity": "none"}  # fmt: skip


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, sevenfold.quality.report as r; r.render; "
        "print(*sorted({'PIL','numpy','pyarrow','matplotlib','torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.split() == []
