"""`sevenfold embed`: trains a network where there is none, says what it did, and computes only what is new."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_project import Project, pictures

from sevenfold.storage import Lake


def test_embed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEVENFOLD_LAKE", raising=False)
    project = Project(tmp_path / "pets")
    project.ok("init", "pets")
    monkeypatch.chdir(project.folder)
    project.ok("ingest", pictures(tmp_path / "in", {"train": 10, "val": 4}), "--batch", "one", "--workers", "1")
    Lake.open(project.folder / "lake").set_status("main", "one", "admitted")
    project.ok("commit", "-m", "first")
    said = project.ok("embed", "--set", "epochs=1", "--set", "widths=[4]").out
    assert "no network was there: run-" in said and "42 of 42 samples embedded" in said and "4 numbers a sample" in said
    again = project.ok("embed", "--json").json
    assert (again["computed"], again["kept"], again["trained"], again["version"]) == (0, 42, None, "v1")
    wrong = project("embed", "--encoder", "clip")
    assert wrong.code == 3 and "no encoder is called 'clip'" in wrong.err
