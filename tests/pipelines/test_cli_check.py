"""`sevenfold check` as a gate: on plain folders without a lake, against baselines, and what it writes for CI."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as pq
import pytest
from cli_project import Project, pictures
from PIL import Image


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder with `images` and nothing else: no lake, no settings; temporary files go to a place of their own."""
    home = tmp_path / "home"
    pictures(home / "images", {"train": 20, "val": 5, "test": 5})
    (tmp_path / "scratch").mkdir()
    # the suite takes a second: where it is not what is tested, it is disabled
    (tmp_path / "quick.yaml").write_text("disable: [validity.suite]\n")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("SEVENFOLD_LAKE", raising=False)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.chdir(home)
    return Project(home)


QUICK = ("check", "--policy", "../quick.yaml")


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    found = {p.relative_to(folder).as_posix(): p.stat() for p in folder.rglob("*")}
    return {name: (s.st_size, s.st_mtime_ns) for name, s in found.items()}


def spoil(folder: Path, n: int = 3) -> list[str]:
    """Broken pictures; their paths within the folder."""
    names = [f"train/red/broken, {i}.png" for i in range(n)]
    for name in names:
        (folder / name).write_text("no picture: 50%")
    return names


def test_a_folder_without_a_lake_is_judged_and_nothing_is_written_anywhere(run: Project, tmp_path: Path) -> None:
    before = everything(run.folder)
    done = run("check", "./images")
    assert done.code == 0, done.out + done.err
    assert "validity    pass" in done.out and "volatility  not measurable" in done.out
    assert "velocity    -" in done.out, "when files were written says nothing about arrival"
    assert everything(run.folder) == before
    assert not list((tmp_path / "scratch").glob("sevenfold-*")), "the temporary lake is gone"
    assert run(*QUICK, "images").code == 0, "a name that is no batch, where there is no lake"


@pytest.mark.slow
def test_a_zip_is_judged_like_the_folder_it_was_made_from(run: Project) -> None:
    shutil.make_archive("packed", "zip", "images")
    spoil(run.folder / "images")
    assert run(*QUICK, "./packed.zip").code == 0
    assert run(*QUICK, "./images").code == 1


def test_a_failing_folder_exits_1_and_every_output_tells_the_same(
    run: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = spoil(run.folder / "images", 12)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    out = tmp_path / "out"
    done = run(*QUICK, "./images", "--junit", out / "c.xml", "--sarif", out / "c.sarif", "--json", out / "c.json",
        "--html", out / "c.html", "--findings", out / "c.parquet", "--github",
    )  # fmt: skip
    assert done.code == 1
    assert "FAIL validity.rejected_share (blocking)" in done.out and "what to do: " in done.out
    document = json.loads((out / "c.json").read_text())
    assert (document["format"], document["exit_code"]) == (1, 1)
    (card,) = document["subjects"]
    assert (card["subject"], card["kind"], card["results"]["validity"]) == ("./images", "source", "fail")
    share = next(c for c in card["verdicts"]["validity"] if c["check"] == "rejected_share")
    assert share["finding_count"] == 12
    table = pq.read_table(out / "c.parquet").to_pylist()
    rejected = [r for r in table if r["check"] == "rejected_share"]
    assert {r["path"] for r in rejected} == {r["key"] for r in rejected} == set(broken)
    assert int(ElementTree.parse(out / "c.xml").getroot().get("failures", "0")) >= 1
    results = json.loads((out / "c.sarif").read_text())["runs"][0]["results"]
    files = {unquote(r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]) for r in results}
    assert {f"images/{name}" for name in broken} <= files
    assert all(Path(file).exists() for file in files), "relative to the checkout, where a viewer looks"
    lines = [line for line in done.out.splitlines() if line.startswith("::")]
    assert len(lines) == 10 and lines[0].startswith("::error file=images/train/red/broken%2C ")
    summary = (tmp_path / "summary.md").read_text()
    assert "rejected share" in summary and "exit code 1" in summary
    page = (out / "c.html").read_text()
    assert "<html" in page and "rejected share" in page


def test_json_on_stdout_is_one_document_even_beside_annotations(run: Project) -> None:
    spoil(run.folder / "images")
    done = run(*QUICK, "./images", "--json", "-", "--github")
    assert done.json["exit_code"] == done.code == 1
    assert "::error " in done.err


def test_verbose_shows_a_row_for_every_check(run: Project) -> None:
    told = run(*QUICK, "./images", "--verbose").out
    assert "contradictory_labels" in told and "contradictory_labels" not in run(*QUICK, "./images").out


def test_a_picture_in_two_splits_of_a_folder_fails(run: Project) -> None:
    tiles = np.random.default_rng(0).integers(0, 255, (4, 4, 3)).astype(np.uint8)
    smooth = Image.fromarray(tiles).resize((64, 64), Image.Resampling.BICUBIC)
    for split, quality in (("train", 95), ("test", 85)):
        smooth.save(run.folder / f"images/{split}/red/twin.jpg", quality=quality)
    done = run(*QUICK, "./images", "--json", "-")
    found = {c["check"]: c for c in done.json["subjects"][0]["verdicts"]["veracity"]}
    assert any(c["result"] == "fail" and "split" in name for name, c in found.items()), found
    assert "    train/red/twin.jpg" in run(*QUICK, "./images").out, "a person is told the file, not the digest"


@pytest.mark.slow
def test_another_folder_is_the_reference_for_drift(run: Project) -> None:
    pictures(run.folder / "before", {"train": 60}, seed=1)
    pictures(run.folder / "same", {"train": 60}, seed=2)
    pictures(run.folder / "dark", {"train": 60}, seed=3)
    for file in (run.folder / "dark").rglob("*.png"):
        with Image.open(file) as image:
            Image.fromarray(np.asarray(image) // 4).save(file)

    def drift(folder: str) -> str:
        done = run(*QUICK, folder, "--reference", "before", "--json", "-")
        return done.json["subjects"][0]["results"]["volatility"]

    assert drift("./same") == "pass"
    assert drift("./dark") == "fail"


def test_against_a_baseline_file_only_what_is_new_fails(run: Project) -> None:
    spoil(run.folder / "images", 3)
    assert run(*QUICK, "./images", "--write-baseline", "base.json").code == 1
    known = run(*QUICK, "./images", "--baseline", "base.json")
    assert known.code == 0, known.out
    (run.folder / "images/test/blue/new.png").write_text("no")
    done = run(*QUICK, "./images", "--baseline", "base.json", "--github", "--findings", "f.parquet", "--sarif", "s")
    assert done.code == 1 and "1 new, 3 known to base.json" in done.out
    told = [line for line in done.out.splitlines() if line.startswith("::error")]
    assert all("new.png" in line for line in told) and told
    rows = [r for r in pq.read_table("f.parquet").to_pylist() if r["check"] == "rejected_share"]
    assert {r["path"]: r["known"] for r in rows}["test/blue/new.png"] is False
    assert sum(r["known"] for r in rows) == 3
    states = [r.get("baselineState") for r in json.loads(Path("s").read_text())["runs"][0]["results"]]
    assert states.count("unchanged") >= 3 and "new" in states


def test_a_policy_may_name_the_baseline_beside_it(run: Project) -> None:
    spoil(run.folder / "images", 3)
    run(*QUICK, "./images", "--write-baseline", "ci/base.json")
    (run.folder / "ci/policy.yaml").write_text("baseline: base.json\ndisable: [variety.balance, validity.suite]\n")
    done = run("check", "./images", "--policy", "ci/policy.yaml", "--verbose")
    assert done.code == 0 and "Disabled in the policy" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("check", "./images", "--no-such-option"), "--no-such-option"),
        (("check", "nothing-here"), "nothing called 'nothing-here'"),
        (("check", "./images", "--baseline", "none.json"), "no such baseline"),
        (("check", "./images", "--policy", "none.yaml"), "no such file"),
        (("check", "./images", "--json", "images"), "this is a folder"),
        (("check",), "sevenfold init"),
    ],
)
def test_what_is_wrong_with_the_command_exits_3(run: Project, words: tuple[str, ...], said: str) -> None:
    done = run(*words)
    assert done.code == 3 and said in done.err


def test_a_misspelt_check_in_the_policy_exits_3_and_names_the_nearest(run: Project) -> None:
    (run.folder / "policy.yaml").write_text("disable: [variety.balanse]\n")
    done = run("check", "./images", "--policy", "policy.yaml")
    assert done.code == 3 and "did you mean 'variety.balance'" in done.err


def test_a_crashed_check_exits_3_and_the_others_are_still_told(
    run: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "shaky-1.0.dist-info").mkdir(parents=True)
    (site / "shaky-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: shaky\nVersion: 1.0\n")
    (site / "shaky-1.0.dist-info/entry_points.txt").write_text("[sevenfold.checks]\nvariety.shaky = shaky:shaky\n")
    (site / "shaky.py").write_text("def shaky(context):\n    return {}['gone']\n")
    monkeypatch.syspath_prepend(site)
    spoil(run.folder / "images")
    done = run(*QUICK, "./images", "--junit", "c.xml")
    assert done.code == 3, "never 1: nothing is known from a check that broke"
    assert "CRASHED variety.shaky" in done.out and "KeyError: 'gone'" in done.out
    assert "FAIL validity.rejected_share" in done.out
    assert ElementTree.parse("c.xml").getroot().get("errors") == "1"


@pytest.fixture
def project(run: Project) -> Project:
    """The images as a committed v1 of a lake."""
    run.ok("init", ".")
    run.ok("ingest", "images", "--batch", "june", "--workers", "1")
    run.ok(*QUICK, "june")
    run.ok("commit", "-m", "june")
    return run


def test_a_version_is_held_against_a_version(project: Project) -> None:
    never = project(*QUICK, "v1", "--baseline", "v1")
    assert never.code == 3 and "v1 was never judged" in never.err
    project(*QUICK, "v1")
    again = project(*QUICK, "v1", "--baseline", "v1", "--strict", "--json", "-")
    results = {c["check"]: c for v in again.json["subjects"][0]["verdicts"].values() for c in v}
    assert again.code == 0, "a version is no worse than itself, whatever its limits say"
    assert "No worse than v1" in results["smallest_slice"]["message"], "20 pictures of a class are few"
    kept = project.ok(
        "query", "select result from verdicts where subject = 'v1' and \"check\" = 'smallest_slice'", "--json"
    )
    assert {r["result"] for r in kept.json} <= {"warn", "fail"}, "the lake keeps what the limits say"
    assert project(*QUICK, "v1", "--baseline", "v7").code == 3
    assert project(*QUICK, "v1", "--reference", "images").code == 3


@pytest.mark.slow
def test_the_report_of_a_version_is_written_beside_its_check(project: Project) -> None:
    project(*QUICK, "v1", "--html", "out/v1.html")
    assert (project.folder / "out/v1.html").stat().st_size > 1000
    none = project(*QUICK, "--html", "out/none.html")
    assert none.code == 3 and "0 subjects" in none.err


def test_a_folder_beside_a_lake_is_judged_by_its_policy_and_stays_out_of_it(project: Project) -> None:
    (project.folder / "policy.yaml").write_text("validity: {max_rejected_share: 1.0}\ndisable: [validity.suite]\n")
    spoil(project.folder / "images")
    assert project("check", "./images").code == 0
    assert [b["batch"] for b in project.ok("batches", "--json").json] == ["june"]


@pytest.mark.slow
def test_profile_suite_writes_a_suite_that_its_own_version_passes(project: Project) -> None:
    assert project.ok("profile-suite", "v1", "--json").json["expectations"] > 30, "init's own suite is no one's work"
    there = project("profile-suite", "v1")
    assert there.code == 3 and "--force" in there.err
    project.ok("profile-suite", "v1", "--force")
    assert project.ok("check", "june").code == 0
    pictures(project.folder / "other", {"train": 20}, seed=4)
    for file in (project.folder / "other").rglob("*.png"):
        with Image.open(file) as image:
            image.convert("L").save(file)
    assert project("check", "./other").code == 1
    assert os.path.exists("suite.json")


def test_outputs_that_cannot_be_are_told_before_anything_is_measured(run: Project) -> None:
    (run.folder / "file").write_text("")
    for words in (
        ("--junit", "images"), ("--write-baseline", "images"), ("--html", "file/page.html"),
        ("--junit", "one", "--sarif", "./one"), ("--json", "one", "--write-baseline", "one"),
    ):  # fmt: skip
        done = run(*QUICK, "./images", *words)
        assert done.code == 3 and "error: " in done.err and "unexpected" not in done.err, words
    assert not Path("one").exists()


def test_a_step_summary_that_cannot_be_written_is_a_warning(run: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(run.folder / "images"))
    done = run(*QUICK, "./images", "--github")
    assert done.code == 0 and "warning: no step summary: Is a directory" in done.err


def test_names_of_files_command_neither_the_terminal_nor_the_runner(run: Project) -> None:
    for name in (
        "\x1b[31mred.png",
        "a\n::error::b.png",
        "::stop-commands::x.png",
        "##[add-mask]x.png",
        "\u202egnp.png",
    ):
        (run.folder / f"images/{name}").write_text("no picture")
    told = [run(*QUICK, "./images", *words).out for words in ((), ("--verbose",))]
    for name in (r"\x1b[31mred.png", r"#\x23[add-mask]x.png", r"\x3a:stop-commands::x.png"):
        assert name in told[0]
    assert not any("\x1b" in x or "##[" in x or "\u202e" in x for x in told)
    assert not any(line.lstrip().startswith("::") for x in told for line in x.splitlines())
