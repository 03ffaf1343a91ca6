"""In a real browser: the page opens from disk, its policy lets its own style and script run, light and dark differ."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sevenfold.quality.report import model as m
from sevenfold.quality.report import render

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--enable-logging=stderr",
)  # fmt: skip

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")]


def browse(folder: Path, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(CHROMIUM), *QUIET, f"--user-data-dir={folder / 'profile'}", *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    assert "Content Security Policy" not in done.stderr and "Uncaught" not in done.stderr
    return done


@pytest.fixture
def page(full: m.Report, tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    path.write_text(render(full), encoding="utf-8")
    return path


def test_the_script_may_run_and_offers_the_filter(page: Path, tmp_path: Path) -> None:
    dom = browse(tmp_path, page, "--dump-dom").stdout
    assert '<p class="filter" hidden' in page.read_text(encoding="utf-8")
    assert '<p class="filter">' in dom


def test_light_and_dark_follow_the_reader(page: Path, tmp_path: Path) -> None:
    mean = {}
    for scheme, setting in (("light", 1), ("dark", 0)):
        shot = tmp_path / f"{scheme}.png"
        browse(tmp_path, page, f"--screenshot={shot}", "--window-size=1280,1600",
               f"--blink-settings=preferredColorScheme={setting}")  # fmt: skip
        with Image.open(shot) as image:
            mean[scheme] = float(np.asarray(image.convert("L")).mean())
    assert mean["light"] > 200 and mean["dark"] < 80
