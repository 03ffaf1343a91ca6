"""Lists of ids that sevenfold.toml names lie beside it, whatever the current folder."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sevenfold.assets import fitting
from sevenfold.storage import Lake
from sevenfold.storage.project import Project


class OneVersion:
    """A lake of one version."""

    def version(self, dataset: str, ref: str) -> Any:
        return SimpleNamespace(name="v1", content_id="0" * 64)


def test_lists_are_found_beside_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    mix = [{"ids": "replay.json", "ratio": 1.0}, {"dataset": "street", "ratio": 0.5}]
    project = Project(folder=tmp_path, train={"select_ids": "some.json", "mix": mix})
    lake = cast(Lake, OneVersion())
    found = fitting.settings(lake, project, "main")
    assert found.select_ids == str(tmp_path / "some.json")
    assert [s.ids for s in found.mix] == [str(tmp_path / "replay.json"), None]
    assert fitting.settings(lake, project, "main", {"select_ids": "mine.json"}).select_ids == "mine.json"
    bucket = Project(folder=tmp_path, train={"select_ids": "s3://bucket/lake/ids.json"})
    assert fitting.settings(lake, bucket, "main").select_ids == "s3://bucket/lake/ids.json"
