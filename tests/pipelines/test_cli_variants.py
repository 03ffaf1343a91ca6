"""materialize and what else shows variants, as a person and a script see them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_project import Project, pictures

from sevenfold.storage import Lake


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with one version of thirty-six pictures."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEVENFOLD_LAKE", raising=False)
    run = Project(tmp_path / "pets")
    run.ok("init", "pets")
    monkeypatch.chdir(run.folder)
    run.ok("ingest", pictures(tmp_path / "source", {"train": 10, "test": 2}), "--batch", "one", "--workers", "1")
    Lake.open(run.folder / "lake").set_status("main", "one", "admitted")
    run.ok("commit", "-m", "one")
    return run


def test_a_variant_is_made_shown_read_and_removed(project: Project) -> None:
    said = project.ok("materialize", "--size", "8").out
    assert "8-jpeg of v1 made: 36 samples, 2 shards" in said and "samples/s a core" in said and "original" in said
    assert "8-jpeg of v1 was there" in project.ok("materialize", "--size", "8").out
    told = project.ok("materialize", "v1", "--size", "8", "--format", "raw", "--json").json
    assert told["new"] and told["undecodable"] == [] and told["counts"]["samples"] == 36
    before, after = told["levers"]
    assert (before["what"], after["what"], after["bytes_each"]) == ("original", "8-raw", 128 + 8 * 8 * 3)
    assert min(before["rate"], after["rate"]) > 0
    for command in ("show", "lineage"):
        out = project.ok(command).out
        assert "8-jpeg" in out and "8-raw" in out
        assert [v["name"] for v in project.ok(command, "--json").json["variants"]] == ["8-jpeg", "8-raw"]
    (url,) = project.ok("urls", "--variant", "8-raw", "--split", "test").out.split()
    assert Path(url).is_file() and url not in project.ok("urls", "--split", "test").out
    assert "and 2 variants" in project.ok("verify").out
    project.ok("materialize", "--remove", "8-raw")
    assert [v["name"] for v in project.ok("show", "--json").json["variants"]] == ["8-jpeg"]


def test_a_takedown_says_that_variants_go(project: Project) -> None:
    project.ok("materialize", "--size", "8")
    key = Lake.open(project.folder / "lake").samples("main")["id"][0].as_py()
    assert "make it again with sevenfold materialize" in project.ok("takedown", key).out
    project.ok("takedown", key, "--reason", "asked", "--yes")
    assert project.ok("show", "--json").json["variants"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "there is no size"),
        (("--size", "0"), "a size of 0 pixels"),
        (("--size", "8", "--format", "png"), "the format 'png'"),
        (("--size", "8", "--quality", "101"), "a quality of 101"),
        (("v9", "--size", "8"), "names no version"),
        (("--remove", "8-raw"), "there is no variant '8-raw'"),
    ],
)
def test_nonsense_is_an_error_that_helps(project: Project, words: tuple[str, ...], said: str) -> None:
    done = project("materialize", *words)
    assert done.code == 3 and said in done.err


def test_another_recipe_under_the_same_name_is_refused(project: Project) -> None:
    project.ok("materialize", "--size", "8")
    done = project("materialize", "--size", "8", "--quality", "50")
    assert done.code == 3 and "quality 90 instead of 50" in done.err and "--name" in done.err
    assert "small of v1 made" in project.ok("materialize", "--size", "8", "--quality", "50", "--name", "small").out
