"""The page: which sections appear, that it loads nothing, that no text becomes markup, that it stays small."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
import json
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.quality.report import model as m
from sevenfold.quality.report import render
from sevenfold.quality.report.findings import share_out

from .conftest import DATA, HOSTILE, png, verdict

SECTIONS = {
    "summary": "summary", "scorecard": "verdicts", "verdicts": "verdicts", "ingest": "batches", "findings": "verdicts",
    "changes": "changes",
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
            name = self.open[-1]
            if name == "script" and "type" in self.elements[-1][1]:
                name = "data"
            self.inside[name] = self.inside.get(name, "") + data

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


def scripts(page: Reader) -> list[dict[str, str | None]]:
    """The script elements that a browser would run."""
    return [attributes for tag, attributes in page.elements if tag == "script" and "type" not in attributes]


SHAPES = {*DATA, *(key for one in DATA.values() if isinstance(one, dict) for key in one), "series", "edges", "name"}
"""Keys of `Verdict.data` that mean something; all others are the data's own words."""


def poisoned(value: object) -> object:
    """The same data with every string hostile, whatever the field; ids stay, or nothing would have a picture."""
    if isinstance(value, str):
        kept = value in ("pass", "warn", "fail", "not_measurable", "crashed") or len(value) == 64
        return value if kept else HOSTILE
    if isinstance(value, tuple | list):
        return type(value)(poisoned(one) for one in value)
    if isinstance(value, dict):
        return {key if key in SHAPES else poisoned(key): poisoned(one) for key, one in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = ("v", "result", "key", "source", "target")
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return type(value)(**{name: one if name in names else poisoned(one) for name, one in fields.items()})
    return value


def test_hostile_text_in_any_field_stays_text(full: m.Report) -> None:
    expected, page = Reader(render(full)), Reader(render(poisoned(full)))  # type: ignore[arg-type]
    assert len(scripts(page)) == 1
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
    assert len(scripts(Reader(render(report)))) == 1


def test_names_that_hide_or_cannot_be_encoded_are_shown_escaped() -> None:
    tiles = m.Grid((m.Tile("gnp.\u202etac.exe", title="\udcff\x00"),))
    page = render(dataclasses.replace(EMPTY, quarantine=tiles))
    assert page.encode("utf-8")
    assert "gnp.\\u202etac.exe" in page and "\\udcff\\u0000" in page


@pytest.mark.slow
def test_the_page_stays_under_five_megabytes_at_a_hundred_thousand_samples() -> None:
    """Every list full, every picture noise, every path random: what compresses worst."""
    random = np.random.default_rng(0)
    keys = [one.hex() for one in random.integers(0, 256, (100_000, 32), dtype=np.uint8).view("V32").ravel().tolist()]
    paths = [
        f"camera/{one.hex()}.png"
        for one in random.integers(0, 256, (100_000, 16), dtype=np.uint8).view("V16").ravel().tolist()
    ]
    facts = m.Facts(keys, [f"class {i % 1000}" for i in range(100_000)], ["train"] * 100_000, paths, [None] * 100_000)
    big = m.Grid(tuple(m.Tile(f"{i:064x}", png(i, 96, "RGB"), "title") for i in range(70)), total=10_000)
    pictures = {key: png(i % 50, 96, "RGB") for i, key in enumerate(keys[:300])}
    pairs = [[keys[i], keys[i + 100], "distance 0.1"] for i in range(100)]
    report = dataclasses.replace(
        EMPTY, quarantine=big, suspected=big, hard=big, control=big, drifted=big, reference=big, facts=facts,
        pictures=pictures, findings_at="checks/",
        verdicts=(
            verdict("veracity", "fail", findings=tuple(keys), notes=tuple(f"note {i}" for i in range(100_000)),
                    data={"pairs": pairs}),
            verdict("value", "warn", findings=tuple(keys[::2])), verdict("volatility", "fail", findings=("only",)),
        ),
        balance=(m.ClassBalance("v1", {f"class {i}": i for i in range(1000)}),),
    )  # fmt: skip
    page = render(report)
    assert len(page.encode()) < 5_000_000
    assert "60 of 10,000 shown." in page
    assert "150,001 findings of 3 checks." in page and "all of them are in checks/." in page
    held = packed(page)
    assert [check[2] for check in held["checks"]] == ["fail", "fail", "warn"]
    assert held["keys"][held["checks"][0][3][0]] == "only"
    assert sum(len(check[3]) for check in held["checks"]) > 30_000


def packed(page: str) -> dict[str, Any]:
    """The findings list that the page's script opens."""
    return dict(json.loads(gzip.decompress(base64.b64decode(Reader(page).inside["data"]))))


def test_every_finding_of_ordinary_data_is_on_the_page() -> None:
    keys = tuple(f"{i * 7919:064x}"[::-1] for i in range(100_000))
    facts = m.Facts(keys, ["coat"] * 100_000, ["train"] * 100_000, [f"img_{i}.png" for i in range(100_000)],
                    [None] * 100_000)  # fmt: skip
    page = render(dataclasses.replace(EMPTY, verdicts=(verdict(result="fail", findings=keys),), facts=facts))
    held = packed(page)
    assert len(held["checks"][0][3]) == 100_000 and held["paths"][99_999] == "img_99999.png"
    assert "listed here" not in page and len(page.encode()) < 3_500_000


def test_an_endless_note_is_cut_and_an_endless_key_does_not_hang_the_page() -> None:
    noise = np.random.default_rng(0).bytes(3_000_000).hex()
    wordy = verdict(result="fail", findings=("a", "b"), notes=(noise, ""))
    assert len(render(dataclasses.replace(EMPTY, verdicts=(wordy,)))) < 100_000
    long = verdict(result="fail", findings=(noise, "b"))
    assert len(packed(render(dataclasses.replace(EMPTY, verdicts=(long,))))["keys"]) == 1


@given(st.lists(st.integers(1, 1000), max_size=8), st.integers(1, 3000))
def test_room_is_shared_out_and_what_small_lists_leave_goes_to_large_ones(sizes: list[int], room: int) -> None:
    shown = share_out(sizes, room)
    assert all(1 <= n <= size for n, size in zip(shown, sizes, strict=True))
    assert sum(shown) <= max(room, len(sizes))
    assert sum(sizes) > room or shown == sizes
    full = max((size for size, n in zip(sizes, shown, strict=True) if n == size), default=0)
    cut = [n for size, n in zip(sizes, shown, strict=True) if n < size]
    assert all(n + 1 >= full for n in cut)


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
