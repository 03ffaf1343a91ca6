"""The workflow and the hook of docs/ci: their commands are run as they stand, on a small folder."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from cli_project import pictures

import sevenfold

DOCS = Path(__file__).parents[2] / "docs"
WORKFLOW = DOCS / "ci/sevenfold-check.yml"
HOOK = DOCS / "ci/.pre-commit-config.yaml"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with `images`, and a `sevenfold` on the path of its shell."""
    here = tmp_path / "repository"
    pictures(here / "images", {"train": 20, "val": 5, "test": 5})
    (here / "policy.yaml").write_text("disable: [validity.suite]\n")
    (here / "sevenfold.toml").write_text('dataset = "images"\n')
    program = tmp_path / "bin/sevenfold"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nfrom sevenfold.pipelines.cli import main\n\nif __name__ == '__main__':\n    main()\n"
    )
    program.chmod(0o755)
    return here


def shell(checkout: Path, script: str) -> subprocess.CompletedProcess[str]:
    """As the runner does it: bash -e, with a file for the step summary."""
    environment = {
        **os.environ,
        "PATH": f"{checkout.parent / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(sevenfold.__file__).parents[1]),
        "PYTHONSAFEPATH": "1",
        "GITHUB_STEP_SUMMARY": str(checkout.parent / "summary.md"),
    }
    environment.pop("SEVENFOLD_LAKE", None)
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], cwd=checkout, env=environment, capture_output=True, text=True,
        timeout=150, check=False,
    )  # fmt: skip


def scripts() -> list[str]:
    (job,) = yaml.safe_load(WORKFLOW.read_text())["jobs"].values()
    return [step["run"] for step in job["steps"] if "run" in step]


def test_the_workflow_passes_a_good_folder_and_fails_a_spoilt_one(checkout: Path) -> None:
    install, check = scripts()
    assert install == "pip install sevenfold"
    good = shell(checkout, check)
    assert good.returncode == 0, good.stdout + good.stderr
    wanted = set(re.findall(r"results/\S+", check))
    assert len(wanted) == 5 and all((checkout / name).stat().st_size for name in wanted)
    for i in range(12):
        (checkout / f"images/train/red/spoilt-{i}.png").write_text("no picture")
    bad = shell(checkout, check)
    assert bad.returncode == 1
    assert sum(line.startswith("::error ") for line in bad.stdout.splitlines()) == 10
    assert pq.read_table(checkout / "results/findings.parquet").num_rows >= 12
    summary = (checkout.parent / "summary.md").read_text()
    assert "The check passed (exit code 0)" in summary and "The check failed (exit code 1)" in summary


@pytest.mark.slow
def test_ten_thousand_small_pictures_take_less_than_thirty_seconds_of_one_core(checkout: Path) -> None:
    (checkout / "policy.yaml").unlink()  # with the suite
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = shell(checkout, f"sevenfold check {DOCS.parent / 'examples/fashion-mnist'} --json -")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (card,) = json.loads(done.stdout)["subjects"]
    assert {v for v, result in card["results"].items() if result} == {"validity", "variety", "veracity", "volatility"}
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 30, f"{spent:.1f} s of processor time"


def test_the_workflow_uploads_what_the_command_wrote() -> None:
    text = WORKFLOW.read_text()
    (job,) = yaml.safe_load(text)["jobs"].values()
    uploads = {step["uses"].split("@")[0]: step["with"] for step in job["steps"] if "with" in step}
    assert uploads["github/codeql-action/upload-sarif"]["sarif_file"] in scripts()[1]
    assert uploads["actions/upload-artifact"]["path"] == "results/"


def test_the_hook_runs_its_entry_and_names_files_that_matter(checkout: Path) -> None:
    (repo,) = yaml.safe_load(HOOK.read_text())["repos"]
    (hook,) = repo["hooks"]
    assert (repo["repo"], hook["language"], hook["pass_filenames"]) == ("local", "system", False)
    assert re.search(hook["files"], "images/train/red/1.png") and re.search(hook["files"], "policy.yaml")
    assert not re.search(hook["files"], "README.md")
    done = shell(checkout, hook["entry"])
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_documentation_names_options_and_files_that_exist() -> None:
    from typer.testing import CliRunner

    from sevenfold.pipelines.cli.app import app

    text = (DOCS / "ci.md").read_text()
    shown = CliRunner().invoke(app, ["check", "--help"], prog_name="sevenfold", env={"COLUMNS": "200"}).output
    options = set(re.findall(r"--[a-z][a-z-]+", text)) - {"--github"}
    assert options and {o for o in options if o not in shown} == set()
    for linked in re.findall(r"\]\((ci/[^)]+)\)", text):
        assert (DOCS / linked).is_file()
