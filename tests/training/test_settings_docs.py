"""docs/settings.md names every setting, and the example of docs/order.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sevenfold.storage import Lake
from sevenfold.storage.project import Project
from sevenfold.training.config import TrainConfig

DOCS = Path(__file__).parents[2] / "docs"
FILLED_IN = {"dataset", "ref", "content_id", "select_digest", "init_digest"}
"""What a command gives, or a run fills in when it starts."""


def test_every_setting_is_in_the_docs_and_no_other() -> None:
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert named == TrainConfig.model_fields.keys() - FILLED_IN
    outside = text[text.index("Outside `[train]`") :]
    assert Project.model_fields.keys() - {"folder", "train", "gate", "retrain"} <= set(re.findall(r"`(\w+)`", outside))


def test_the_example_of_a_loader_runs(toy_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchdata.stateful_dataloader")
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "order.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "pets").mkdir()
    (tmp_path / "pets/lake").symlink_to(toy_lake.root)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code.replace('"main"', '"toy"'), names)
    assert names["images"].shape[1:] == (160, 160, 3) and len(names["images"]) == len(names["labels"])
    assert names["state"]["_sampler_iter_state"]["consumed"] == len(names["rows"])
