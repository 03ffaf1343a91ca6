"""materialize and what else shows variants, as a person and a script see them."""

from __future__ import annotations

import re
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
    told = " ".join(project.ok("takedown", key).out.split())
    assert re.search(r"make it again with sevenfold materialize [0-9a-f]{12} --size 8 --dataset main\b", told)
    project.ok("takedown", key, "--reason", "asked", "--yes")
    assert project.ok("show", "--json").json["variants"] == []


def test_a_variant_that_is_not_there_comes_with_the_command_that_makes_it(project: Project) -> None:
    content = Lake.open(project.folder / "lake").version("main", "v1").content_id[:12]
    done = project("train", "--set", "variant=8-raw")
    made_by = f"sevenfold materialize {content} --size 8 --format raw --dataset main"
    assert done.code == 3 and f"`{made_by}`" in " ".join(done.err.split())
    for command in ("plan", "tune-loader"):
        assert made_by in " ".join(project(command, "--set", "variant=8-raw").err.split())
    assert "8-raw of v1 made" in project.ok(*made_by.split()[1:]).out
    told = " ".join(project("urls", "--variant", "small").err.split())
    assert f"materialize {content} --size PIXELS --name small --dataset main`" in told


def test_what_is_suggested_next_keeps_the_dataset(project: Project, tmp_path: Path) -> None:
    source = pictures(tmp_path / "more", {"train": 4})
    there = ("--dataset", "street")
    landed = project.ok("ingest", source, "--batch", "two", "--workers", "1", *there).out
    assert "next: sevenfold check two --dataset street\n" in landed
    Lake.open(project.folder / "lake").set_status("street", "two", "admitted")
    made = project.ok("commit", "-m", "two", *there).out
    assert "next: sevenfold check v1 --dataset street, sevenfold train v1 --dataset street\n" in made
    assert "--variant 8-jpeg --dataset street\n" in project.ok("materialize", "--size", "8", *there).out


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
