"""train, score, mine, review, gate, promote and report: one turn of the loop by hand, on a tiny dataset."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_project import COLOURS, COUNTS, Project, pictures

from sevenfold.storage.lake import Lake
from sevenfold.storage.reviews import list_reviews
from sevenfold.storage.store import LocalStore

LABEL_OF = "select id, split_part(parse_filename(path), '-', 1) as label from samples"


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project at v1, trained and scored."""
    home = tmp_path_factory.mktemp("loop")
    (home / "project").mkdir()
    run = Project(home / "project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(run.folder)
        patch.delenv("SEVENFOLD_LAKE", raising=False)
        run.ok("init", "--dataset", "colours")
        settings = run.folder / "sevenfold.toml"
        quick = "[train]\nepochs = 2\nbatch_size = 30\nwidths = [8]\nthreads = 1\nlr = 0.1\nprecision = 'fp32'\n"
        settings.write_text(settings.read_text().partition("[train]")[0] + quick)
        run.ok("ingest", pictures(home / "source"), "--batch", "june", "--workers", "1")
        run.ok("check", "june")
        run.ok("commit", "-m", "june")
        yield run


@pytest.fixture(scope="module")
def trained(loop: Project) -> dict[str, object]:
    return loop.ok("train", "v1", "--epochs", "6", "--json").json


@pytest.fixture(scope="module")
def own_model(loop: Project, trained: dict[str, object]) -> dict[str, object]:
    """A user's model that sees nothing but the mean colour, hardly trained."""
    (loop.folder / "tinymodel.py").write_text(
        "from torch import nn\n"
        "def build(num_classes, channels, size):\n"
        "    head = nn.Linear(channels, 4), nn.Linear(4, num_classes)\n"
        "    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), *head)\n"
    )
    quick = ("--size", "8", "--epochs", "1", "--lr", "0.000001")
    return loop.ok("train", "v1", "--model", "tinymodel:build", *quick, "--json").json


@pytest.fixture(scope="module")
def mined(loop: Project, trained: dict[str, object]) -> dict[str, object]:
    loop.ok("score", "v1")
    return loop.ok("mine", "v1", "--size", "12", "--json").json


def test_nothing_is_mined_before_a_run_has_scored(loop: Project) -> None:
    done = loop("mine", "v1")
    assert done.code == 3
    assert "sevenfold score v1" in done.err


def test_train_registers_the_model_and_says_how_to_promote(loop: Project, trained: dict[str, object]) -> None:
    assert trained["model"] == "classifier/1"
    (run,) = trained["runs"]  # type: ignore[misc]
    assert len(run["history"]) == 6
    assert run["splits"]["test"]["n"] == 3 * COUNTS["test"]
    again = loop.ok("train", "v1", "--epochs", "6").out
    assert "finished before, unchanged" in again
    assert "sevenfold promote classifier/1" in again


def test_a_training_option_that_does_not_exist_names_the_nearest(loop: Project) -> None:
    done = loop("train", "v1", "--set", "epoch=3")
    assert done.code == 3
    assert "'epochs'" in done.err
    assert loop("train", "v1", "--set", "epochs").code == 3


def test_mine_writes_three_queues_of_which_two_are_of_equal_size(loop: Project, mined: dict[str, object]) -> None:
    queues = mined["queues"]
    assert list(queues) == ["suspected-v1", "hard-v1", "random-v1"]  # type: ignore[call-overload]
    assert len(queues["hard-v1"]) == len(queues["random-v1"]) == 12  # type: ignore[index]
    told = loop.ok("mine", "v1", "--size", "12").out
    assert "hard-v1: 12 rows" in told
    listed = loop.ok("review", "--json").json
    assert listed["hard-v1"] == 12


def test_reviewed_decisions_become_the_next_version(loop: Project, mined: dict[str, object], tmp_path: Path) -> None:
    todo = tmp_path / "todo.csv"
    loop.ok("review", "hard-v1", "--export", todo, "--images", tmp_path / "todo")
    assert len(list((tmp_path / "todo").iterdir())) == 12
    rows = list(csv.DictReader(todo.open()))
    assert len(rows) == 12
    assert all(not row["given"] and not row["label"] for row in rows)
    for row in rows[:9]:
        row["label"] = row["path"].split("/")[-1].split("-")[0]
    rows[9]["exclude"] = "yes"
    wrong = {"id": loop.ok("query", "select id from samples where split = 'train' and label = 'red' limit 1", "--json")
             .json[0]["id"], "label": "green"}  # fmt: skip
    wrong["queue"] = "hard-v1"
    with todo.open("w", newline="") as f:
        writer = csv.DictWriter(f, rows[0])
        writer.writeheader()
        writer.writerows([*rows, wrong])
    found = loop.ok("review", "--import", todo, "--reviewer", "ada", "--commit", "--json").json
    assert found["decisions"] == 11
    assert found["counts"] == {"labelled": 9, "relabelled": 1, "excluded": 1, "confirmed": 0}
    assert found["version"] == "v2"
    assert Lake.open(loop.folder / "lake").pending_reviews("colours") == []
    (kept,) = list_reviews(LocalStore(loop.folder / "lake"), "colours")
    assert (kept.name, kept.reviewer, kept.queues) == ("todo", "ada", ("hard-v1",))
    counts = loop.ok("diff", "v1", "v2", "--json").json
    assert (counts["relabelled"], counts["moved"], counts["removed"], counts["added"]) == (10, 9, 1, 0)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{id},purple,", ["line 3", "'purple'", "blue, green, red"]),
        ("{id},gren,", ["line 3", "did you mean 'green'?"]),
        ("0123,red,", ["line 3", "no sample '0123'"]),
        ("{first},blue,", ["line 3", "line 2", "one decision per sample"]),
        ("{id},,perhaps", ["line 3", "exclude is 'perhaps'"]),
        ("{id},red,yes", ["line 3", "one of the two"]),
    ],
)
def test_a_bad_decision_names_its_line_and_changes_nothing(
    loop: Project, tmp_path: Path, line: str, said: list[str]
) -> None:
    first, other = (r["id"] for r in loop.ok("query", f"{LABEL_OF} where label = 'red' limit 2", "--json").json)
    file = tmp_path / "bad.csv"
    file.write_text(f"id,label,exclude\n{first},red,\n{line.format(id=other, first=first)}\n")
    before = loop.ok("log", "--json").json
    done = loop("review", "--import", file, "--commit")
    assert done.code == 3
    assert all(words in done.err for words in said), done.err
    assert loop.ok("log", "--json").json == before


def test_files_without_the_columns_or_decisions_are_refused(loop: Project, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,label\nx,red\n")
    done = loop("review", "--import", tmp_path / "a.csv")
    assert done.code == 3
    assert "the columns are name, label" in done.err
    (tmp_path / "b.csv").write_text(f"id,label\n{'0' * 64},\n")
    assert "no row is decided" in loop("review", "--import", tmp_path / "b.csv").err
    assert loop("review", "--import", tmp_path / "absent.csv").code == 3


def test_your_own_model_is_found_in_the_current_folder(own_model: dict[str, object]) -> None:
    (run,) = own_model["runs"]  # type: ignore[misc]
    assert run["splits"]["test"]["n"] == 3 * COUNTS["test"]


def test_the_first_model_passes_and_a_worse_one_is_refused_until_forced(
    loop: Project, trained: dict[str, object], own_model: dict[str, object]
) -> None:
    allowed = loop("gate", "classifier/1", "--json")
    assert allowed.json["champion"] is None
    assert allowed.code == (0 if allowed.json["promoted"] else 1)
    assert allowed.json["promoted"], allowed.json["reasons"]
    assert not allowed.json["moved"]
    assert loop.ok("models", "--json").json[0]["aliases"] == []
    assert "champion points at classifier/1" in loop.ok("promote", "1").out
    assert loop.ok("models", "--json").json[0]["aliases"] == ["champion"]

    worse = str(own_model["model"])
    refused = loop("gate", worse, "--json")
    assert refused.code == 1
    assert refused.json["champion"] == "classifier/1"
    assert any("Regressed" in r or "No gain" in r for r in refused.json["reasons"])
    assert loop("promote", worse).code == 1
    assert loop("promote", worse, "--force").code == 3
    forced = loop.ok("promote", worse, "--force", "--reason", "a drill", "--json").json
    assert forced["moved"]
    assert forced["forced"] == "a drill"
    assert "a drill" in forced["reasons"][0]
    loop.ok("promote", "classifier/1", "--force", "--reason", "back", "--json")


def test_the_report_is_one_file_that_loads_nothing_and_shows_the_queues(
    loop: Project, mined: dict[str, object], tmp_path: Path
) -> None:
    loop("check", "v1")
    path = loop.ok("report", "v1", "--out", tmp_path / "r.html", "--json").json["path"]
    page = Path(path).read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    for words in ("Scorecard", "Class balance", "Hard examples", "Lineage", "What came in", *COLOURS):
        assert words in page, words


def test_a_gate_without_a_test_split_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = Project(tmp_path)
    run.ok("init")
    run.ok("ingest", pictures(tmp_path / "source", {"train": 10}), "--batch", "june", "--workers", "1")
    run.ok("check", "june")
    run.ok("commit", "-m", "june")
    run.ok("train", "--epochs", "1", "--set", "threads=1", "--set", "widths=[8]")
    done = run("gate", "classifier/1")
    assert done.code == 3
    assert "v1 has no labelled sample in its test split" in done.err


@pytest.mark.slow
def test_tune_loader_measures_and_says_what_to_use(loop: Project) -> None:
    found = loop.ok("tune-loader", "v1", "--seconds", "0.5", "--batch-size", "32", "--json").json
    assert found["batch_size"] == 32 and found["reasons"]
    assert found["choice"] in [{k: s[k] for k in ("workers", "threads")} for s in found["settings"]]


def test_plan_compares_windows(loop: Project) -> None:
    found = loop.ok("plan", "v1", "--window", "1,2", "--json").json
    assert [q["window"] for q in found["windows"]] == [1, 2] and found["recommended"] in (1, 2)
    text = loop.ok("plan", "v1").out
    assert "recommended: window" in text and "a full shuffle" in text and "note:" in text
    assert "such as 1,2,4" in loop("plan", "--window", "0").err


def test_training_by_draws_shows_draws(loop: Project) -> None:
    drawn = ("--set", "sampling=with_replacement", "--set", "steps=4", "--set", "epochs=null")
    text = loop.ok("train", "v1", *drawn).out
    assert "draws" in text and "epoch" not in text
    assert "leave epochs out" in loop("train", "v1", *drawn[:4]).err
