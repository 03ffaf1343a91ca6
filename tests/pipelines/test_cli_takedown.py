"""takedown on the command line: a dry run by default, then the erasure, and what other commands say afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_project import Project, pictures

FEW = {"train": 6, "val": 2, "test": 2, "pool": 2}
PATH = "train/red/red-0-003.png"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with one committed batch of 36 pictures."""
    monkeypatch.delenv("SEVENFOLD_LAKE", raising=False)
    (tmp_path / "p").mkdir()
    monkeypatch.chdir(tmp_path / "p")
    run = Project(tmp_path / "p")
    run.ok("init", "--dataset", "colours")
    run.ok("ingest", pictures(tmp_path / "source", FEW), "--batch", "june", "--workers", "1")
    from sevenfold.storage import Lake

    lake = Lake.open(tmp_path / "p" / "lake")
    lake.set_status("colours", "june", "admitted")
    lake.commit("colours", message="june photos")
    (run.folder / "reports").mkdir()
    (run.folder / "reports" / "colours-v1.html").write_text("a page")
    return run


def test_without_yes_it_shows_and_changes_nothing(run: Project) -> None:
    shown = run.ok("takedown", PATH)
    for said in ("1 samples:", "v1", "shards (rewritten)", "colours-v1.html", "source", "nothing was changed"):
        assert said in shown.out
    plan = run.ok("takedown", PATH, "--json").json
    assert plan["dry_run"] is True
    assert len(plan["ids"]) == len(plan["shards"]) == len(plan["versions"]) == 1
    assert run.ok("show", "v1", "--json").json["samples"] == 36


def test_with_yes_it_is_gone_and_the_version_says_so(run: Project) -> None:
    (key,) = run.ok("takedown", PATH, "--json").json["ids"]
    refused = run("takedown", PATH, "--yes")
    assert refused.code == 3
    assert "needs a reason" in refused.err
    done = run.ok("takedown", key[:12], "--reason", "consent withdrawn", "--yes")
    assert "erased: takedown" in done.out
    shown = run.ok("show", "v1", "--json").json
    assert (shown["samples"], shown["stored"]) == (35, 35)
    assert [t["reason"] for t in shown["redacted"]] == ["consent withdrawn"]
    assert "redacted" in run.ok("show", "v1").out
    assert "june photos (redacted)" in run.ok("log").out
    for again in (key, key[:8]):
        assert "taken down before" in run.ok("takedown", again, "--reason", "again", "--yes").out
    found = run.ok("query", f"select count(*) as n from samples_all where id = '{key}'", "--json").json
    assert found == [{"n": 0}]
    gone = run("takedown", "train/red/never.png")
    assert gone.code == 3
    assert "no sample of this lake fits" in gone.err


def test_a_condition_takes_all_that_fit(run: Project) -> None:
    plan = run.ok("takedown", "--where", "label = 'green' and split = 'train'", "--json").json
    assert len(plan["ids"]) == 6
    words = ("--where", "label = 'green' and split = 'train'", "--reason", "licence ended", "--yes", "--json")
    done = run.ok("takedown", *words).json
    assert done["ids"] == plan["ids"]
    assert run.ok("show", "v1", "--json").json["classes"]["green"] == {"val": 2, "test": 2}
    again = run.ok("takedown", *words).json
    assert again["done_before"] is True


def test_one_that_was_interrupted_is_told_and_can_be_ended(run: Project) -> None:
    (key,) = run.ok("takedown", PATH, "--json").json["ids"]
    journal = {
        "format": 1, "digest": "0" * 64, "ids": [key], "reason": "begun", "time": 1.0, "asked": "", "versions": [],
        "models": [], "places": [], "pixels": {},
    }  # fmt: skip
    pending = run.folder / "lake" / "takedowns" / "pending"
    pending.mkdir(parents=True)
    (pending / f"{'0' * 64}.json").write_text(json.dumps(journal))
    assert "sevenfold takedown --finish" in run.ok("log").err
    assert "ended: 000000000000" in run.ok("takedown", "--finish").out
    assert run.ok("show", "v1", "--json").json["samples"] == 35
    assert not run.ok("log").err
    assert "nothing to end" in run.ok("takedown", "--finish").out
