"""The examples in CONTRIBUTING.md run as they stand there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", TEXT, re.DOTALL))


@pytest.fixture
def example(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The named example as a file in an empty current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"{request.param}.py"
    path.write_text(EXAMPLES[request.param], encoding="utf-8")
    return path


def test_every_python_block_is_tested_here() -> None:
    assert set(EXAMPLES) == {"small_images", "npz_source", "my_models"}
    assert TEXT.count("```python") == len(EXAMPLES)


@pytest.mark.parametrize("example", ["small_images", "npz_source"], indirect=True)
def test_a_check_and_a_source(example: Path) -> None:
    runpy.run_path(str(example))


@pytest.mark.parametrize("example", ["my_models"], indirect=True)
def test_a_model_of_ones_own(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from sevenfold.training.models import build_model

    monkeypatch.syspath_prepend(example.parent)
    model = build_model("my_models:tiny", num_classes=7, channels=1, size=28)
    assert model(torch.zeros(3, 1, 28, 28)).shape == (3, 7)
