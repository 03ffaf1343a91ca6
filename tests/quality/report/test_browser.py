"""In a real browser: opened from disk the page loads nothing, complains of nothing, filters, prints, and goes dark."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sevenfold.quality.report import model as m
from sevenfold.quality.report import render

from .conftest import verdict

pytest.importorskip("websockets", reason="no client for the browser's protocol here")
from .browser import CHROMIUM, Tab, browser

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")]

KEYS = tuple(f"{i * 2654435761 % 2**48:012x}{'0' * 52}" for i in range(100_000))
READY = "document.documentElement.dataset.ready === 'yes'"
SAID = "document.getElementById('filtered').textContent"
ROWS = "document.querySelectorAll('#finding-rows tbody tr').length"


@pytest.fixture(scope="module")
def page(full: m.Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All sections, and a hundred thousand findings of one check among them."""
    facts = m.Facts(KEYS, [("coat", "shoe")[i % 2] for i in range(len(KEYS))], ["train"] * len(KEYS),
                    [f"img_{i}.png" for i in range(len(KEYS))], [None] * len(KEYS))  # fmt: skip
    many = verdict("veracity", "fail", check="label_errors", findings=KEYS)
    few = verdict("validity", "warn", check="torn", findings=("in/torn.png",), notes=("half of it is <b>missing</b>",))
    report = dataclasses.replace(full, verdicts=(*full.verdicts, many, few), facts=facts)
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(report), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def test_the_page_loads_nothing_and_complains_of_nothing(tab: Tab, page: Path) -> None:
    tab.complaints.clear()
    tab.requests.clear()
    tab.open(page.as_uri())
    tab.until(READY)
    assert tab.complaints == []
    assert set(tab.requests) - {"about:blank"} == {page.as_uri()}
    assert tab.run("document.querySelectorAll('img').length") > 0
    assert tab.run("Array.from(document.images).every(i => i.complete && i.naturalWidth > 0)")


def test_a_hundred_thousand_findings_are_filtered_as_one_types(tab: Tab, page: Path) -> None:
    tab.open(page.as_uri())
    tab.until(READY)
    assert tab.run(SAID) == "1 to 100 of 100,005" and tab.run(ROWS) == 100
    tab.run("document.getElementById('filter').focus()")
    tab.call("Input.insertText", text="img_4242 coat")
    tab.until(f"{SAID} === '1 to 6 of 6'")  # img_4242 and img_42420 ... img_42428, the even ones
    took = tab.run(
        "(() => { const box = document.getElementById('filter'), start = performance.now(); box.value = 'shoe';"
        " box.dispatchEvent(new Event('input', {bubbles: true})); return performance.now() - start; })()"
    )
    assert tab.run(SAID) == "1 to 100 of 50,000" and took < 2000  # milliseconds, on a busy machine


def test_the_list_is_turned_page_by_page(tab: Tab, page: Path) -> None:
    tab.open(page.as_uri())
    tab.until(READY)
    tab.run("document.getElementById('page-next').click()")
    assert tab.run(SAID) == "101 to 200 of 100,005"
    assert tab.run("location.hash") == "#page=2"
    tab.run("document.getElementById('page-back').click()")
    assert tab.run(SAID) == "1 to 100 of 100,005" and tab.run("document.getElementById('page-back').disabled")


def test_an_address_leads_to_a_filtered_view(tab: Tab, page: Path) -> None:
    tab.open(f"{page.as_uri()}#check=veracity.label_errors&label=shoe&filter=img_99999")
    tab.until(READY)
    assert tab.run(SAID) == "1 to 1 of 1"
    assert KEYS[99999][:12] in tab.run("document.querySelector('#finding-rows tbody').textContent")
    assert tab.run("scrollY") > 0
    assert "label=shoe" in tab.run("location.hash")


def test_a_verdict_links_to_its_findings(tab: Tab, page: Path) -> None:
    tab.open(page.as_uri())
    tab.until(READY)
    tab.run("document.querySelector('a[data-filter=\"check=validity.torn\"]').click()")
    tab.until(f"{SAID} === '1 to 1 of 1'")
    shown = tab.run("document.querySelector('#finding-rows tbody').textContent")
    assert "in/torn.png" in shown and "half of it is <b>missing</b>" in shown


def test_nothing_sticks_out_of_a_narrow_screen(tab: Tab, page: Path) -> None:
    tab.size(390, 844)
    tab.open(page.as_uri())
    tab.until(READY)
    assert tab.run("document.documentElement.scrollWidth") == 390


@pytest.mark.slow
def test_light_and_dark_follow_the_reader(tab: Tab, page: Path, tmp_path: Path) -> None:
    tab.open(page.as_uri())
    mean = {}
    for dark in (False, True):
        with Image.open(tab.look(tmp_path / "shot.png", dark=dark)) as image:
            mean[dark] = float(np.asarray(image.convert("L")).mean())
    assert mean[False] > 200 and mean[True] < 80


@pytest.mark.slow
def test_it_prints_the_first_findings_and_no_controls(tab: Tab, page: Path, tmp_path: Path) -> None:
    tab.size(1280, 1000)
    tab.open(page.as_uri())
    tab.until(READY)
    printed = tab.pdf(tmp_path / "report.pdf").read_bytes()
    assert printed.startswith(b"%PDF") and 5 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 60
    tab.call("Emulation.setEmulatedMedia", media="print", features=[])
    hidden = "['finding-filter'].every(id => getComputedStyle(document.getElementById(id)).display === 'none')"
    assert tab.run(hidden) and tab.run("getComputedStyle(document.querySelector('.printed')).display") == "block"
    tab.call("Emulation.setEmulatedMedia", media="")


def test_without_scripts_the_first_findings_are_there(tab: Tab, page: Path) -> None:
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(page.as_uri())
        assert tab.run(ROWS) == 100 and tab.run("document.getElementById('finding-filter').hidden")
    finally:
        tab.call("Emulation.setScriptExecutionDisabled", value=False)
