"""init, ingest, check, commit and the commands about versions, on a tiny folder with broken inputs."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from cli_project import COUNTS, Project, pictures
from PIL import Image

GOOD = 3 * sum(COUNTS.values())
BROKEN = ["train/red/cut.png", *(f"train/red/words-{i}.png" for i in range(4))]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    pictures(folder / "source")
    (folder / "source/train/red/cut.png").write_bytes((folder / "source/train/red/red-0-000.png").read_bytes()[:60])
    for name in BROKEN[1:]:
        (folder / "source" / name).write_text(f"these are words in {name}")
    return folder


@pytest.fixture(scope="module")
def landed(home: Path) -> Project:
    """A project whose first batch is rejected: 5 of its inputs are broken, over the default limit."""
    run = Project(home / "project")
    patch = pytest.MonkeyPatch()
    home.joinpath("project").mkdir()
    patch.chdir(home / "project")
    patch.delenv("SEVENFOLD_LAKE", raising=False)
    run.ok("init", "--dataset", "colours")
    run.ok("ingest", home / "source", "--batch", "june", "--workers", "1")
    yield run  # type: ignore[misc]
    patch.undo()


@pytest.fixture(scope="module")
def committed(landed: Project) -> Project:
    policy = landed.folder / "policy.yaml"
    policy.write_text(policy.read_text().replace("max_rejected_share: 0.01", "max_rejected_share: 0.05"))
    landed.ok("check", "june")
    landed.ok("commit", "-m", "june photos")
    return landed


def test_init_writes_three_files_that_load_and_overwrites_none(tmp_path: Path) -> None:
    run = Project(tmp_path)
    made = run.ok("init", tmp_path / "p", "--classes", "cat, dog", "--dataset", "pets", "--json").json
    assert made["files"] == {"sevenfold.toml": True, "policy.yaml": True, "suite.json": True}
    assert made["dataset"] == "pets"
    from sevenfold.storage.project import load

    assert load(tmp_path / "p" / "sevenfold.toml").classes == ("cat", "dog")
    (tmp_path / "p" / "policy.yaml").write_text("# mine\n")
    again = run.ok("init", tmp_path / "p", "--json").json
    assert not any(again["files"].values())
    assert (tmp_path / "p" / "policy.yaml").read_text() == "# mine\n"


def test_ingest_says_what_it_guessed_and_every_input_is_accounted_for(landed: Project) -> None:
    told = landed.ok("ingest", "../source", "--batch", "june").out
    assert "guessed: splits from the source: pool, test, train, val" in told
    assert f"{GOOD + 5:,} inputs = {GOOD:,} samples + 0 aliases + 5 quarantined" in told
    assert "unchanged: nothing was read again" in told
    assert "train/red/words-0.png" in told
    found = landed.ok("ingest", "../source", "--batch", "june", "--json").json
    assert found["new"] is False
    assert sum(found["reasons"].values()) == found["counts"]["quarantined"] == 5
    assert [b["batch"] for b in landed.ok("batches", "--json").json] == ["june"]
    assert [r["path"] for r in landed.ok("quarantine", "june", "--json").json] == BROKEN


def test_a_rejected_batch_exits_1_and_is_not_committed(landed: Project, tmp_path: Path) -> None:
    done = landed("check", "--junit", tmp_path / "junit.xml")
    assert done.code == 1
    assert "june: rejected" in done.out
    assert "FAIL validity.rejected_share (blocking)" in done.out
    assert "what to do: " in done.out
    assert int(ElementTree.parse(tmp_path / "junit.xml").getroot().get("failures", "0")) >= 1
    assert landed("check").out.startswith("nothing to check")
    refused = landed("commit", "-m", "no")
    assert refused.code == 3
    assert "no admitted batch" in refused.err


def test_another_policy_lets_it_pass_and_the_version_holds_every_sample(committed: Project) -> None:
    (version,) = committed.ok("log", "--json").json
    assert version["version"] == "v1"
    assert version["refs"] == ["main"]
    found = committed.ok("show", "v1", "--json").json
    assert found["samples"] == GOOD
    assert found["splits"] == {split: 3 * n for split, n in COUNTS.items()}
    assert found["classes"]["red"] == {"train": 30, "val": 10, "test": 40}
    assert "nothing to commit" in committed.ok("commit", "-m", "again").out


def test_warnings_count_only_with_strict(committed: Project) -> None:
    plain = committed("check", "v1", "--json", "-")
    results = {c["check"]: c["result"] for v in plain.json["subjects"][0]["verdicts"].values() for c in v}
    assert results["smallest_slice"] == "warn"
    if "fail" in results.values():
        assert plain.code == plain.json["exit_code"] == 1
    else:
        assert plain.code == 0
        assert committed("check", "v1", "--strict").code == 2


def test_tags_branches_rollback_and_diff(committed: Project, tmp_path: Path) -> None:
    assert "first -> v1" in committed.ok("tag", "first").out
    committed.ok("branch", "trial", "first")
    assert committed.ok("branch", "--json").json == {"main": "v1", "trial": "v1"}
    pictures(tmp_path / "july", {"train": 4}, seed=7)
    committed.ok("ingest", tmp_path / "july", "--batch", "july", "--workers", "1")
    committed.ok("check", "july")
    committed.ok("commit", "-m", "july", "--branch", "trial")
    counts = committed.ok("diff", "first", "trial", "--rows", tmp_path / "rows.parquet", "--json").json
    assert counts["added"] == 12
    assert counts["removed"] == 0
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == 12
    committed.ok("rollback", "v1", "--branch", "trial")
    assert committed.ok("branch", "--json").json["trial"] == "v1"


def test_query_answers_as_table_csv_json_and_parquet(committed: Project, tmp_path: Path) -> None:
    sql = "select split, count(*) as n from samples group by 1 order by 1"
    expected = [{"split": s, "n": 3 * n} for s, n in sorted(COUNTS.items())]
    assert committed.ok("query", sql, "--json").json == expected
    rows = list(csv.DictReader(io.StringIO(committed.ok("query", sql, "--csv").out)))
    assert [{"split": r["split"], "n": int(r["n"])} for r in rows] == expected
    committed.ok("query", sql, "--parquet", tmp_path / "q.parquet")
    assert pq.read_table(tmp_path / "q.parquet").to_pylist() == expected
    refused = committed("query", "drop view samples")
    assert refused.code == 3
    assert "not one SELECT" in refused.err


def test_the_retry_of_a_quarantine_lands_what_was_mended(committed: Project, home: Path) -> None:
    unchanged = committed("ingest", "--retry-quarantine", "june", "--json")
    assert unchanged.code in (0, 3)
    pictures(home / "mended", {"train": 1}, seed=99)
    fixed = (home / "mended/train/red/red-99-000.png").read_bytes()
    (home / "source/train/red/words-0.png").write_bytes(fixed)
    found = committed.ok("ingest", "--retry-quarantine", "june", "--json").json
    assert found["batch"].startswith("june+retry")
    assert found["counts"]["samples"] == 1


def test_the_lake_is_found_by_option_variable_or_folder(
    committed: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = committed.folder / "lake"
    monkeypatch.chdir(tmp_path)
    lost = committed("log")
    assert lost.code == 3
    assert "sevenfold init" in lost.err
    assert committed.ok("--lake", lake, "log", "--json").json == committed.ok("log", "--json", "--lake", lake).json
    monkeypatch.setenv("SEVENFOLD_LAKE", str(lake))
    assert committed.ok("log", "--json").json[-1]["version"] == "v1"
    assert committed("log", "--dataset", "other", "--json").json == []


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """An empty project of its own, in a folder with a space in its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEVENFOLD_LAKE", raising=False)
    run = Project(tmp_path / "my pets")
    assert "cd 'my pets' && " in run.ok("init", "my pets").out
    monkeypatch.chdir(run.folder)
    return run


def test_a_picture_in_another_class_folder_is_a_proposal_that_people_can_take(fresh: Project, tmp_path: Path) -> None:
    source = pictures(tmp_path / "source", {"train": 4})
    fresh.ok("ingest", source, "--batch", "one", "--workers", "1")
    fresh.ok("check", "one")
    fresh.ok("commit", "-m", "one")
    (source / "train/red/red-0-000.png").rename(source / "train/blue/moved.png")
    fresh.ok("ingest", source, "--batch", "two", "--workers", "1")
    fresh.ok("check", "two")
    fresh.ok("commit", "-m", "two")
    assert "red-0-000.png" in fresh.ok("review", "relabels-two").out
    todo = tmp_path / "todo.csv"
    fresh.ok("review", "relabels-two", "--export", todo, "--images", tmp_path / "todo")
    assert [p.name[:5] for p in (tmp_path / "todo").iterdir()] == ["0001-"]
    (row,) = csv.DictReader(todo.open())
    assert (row["given"], row["suggestion"], row["rank"]) == ("red", "blue", "1")
    todo.write_text(f"id,label\n{row['id']},{row['suggestion']}\n")
    assert fresh.ok("review", "--import", todo, "--commit", "--json").json["counts"]["relabelled"] == 1
    todo.write_text(f"id,label\n{row['id']},red\n")
    fresh.ok("review", "--import", todo, "--name", "back", "--commit")
    todo.write_text(f"id,label\n{row['id']},{row['suggestion']}\n")
    again = fresh.ok("review", "--import", todo, "--commit").out
    assert "was recorded before" in again and "nothing to commit" in again


def test_a_commit_of_a_rejected_batch_names_it(fresh: Project, tmp_path: Path) -> None:
    (tmp_path / "source/red").mkdir(parents=True)
    (tmp_path / "source/red/words.png").write_text("words")
    fresh.ok("ingest", tmp_path / "source", "--batch", "bad")
    assert fresh("check").code == 1
    assert "sevenfold check bad" in fresh("commit", "-m", "x").err


def test_labels_and_annotations_come_from_tables_and_decode_from_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Project(tmp_path / "p")
    run.folder.mkdir()
    monkeypatch.chdir(run.folder)
    monkeypatch.delenv("SEVENFOLD_LAKE", raising=False)
    run.ok("init", tmp_path / "p", "--dataset", "colours")
    images = tmp_path / "images"
    images.mkdir()
    for i, name in enumerate(("a.png", "b.png", "c.png")):
        Image.new("RGBA" if name == "c.png" else "RGB", (8, 8), (40 * i, 0, 0)).save(images / name)
    settings = tmp_path / "p" / "sevenfold.toml"
    settings.write_text(settings.read_text().replace("# alpha = true ", "alpha = false "))
    (tmp_path / "labels.csv").write_text("name,breed,age\na,cat,1\nb.png,dog,2\nz.png,dog,3\n")
    (tmp_path / "votes.csv").write_text("path,annotator,label\na.png,w1,cat\na.png,w2,dog\n")
    tables = ("--labels", tmp_path / "labels.csv", "--label-column", "breed", "--annotations", tmp_path / "votes.csv")
    made = run.ok("ingest", images, "--batch", "b", *tables, "--json").json
    assert made["counts"]["samples"] == 2 and made["reasons"] == {"unsupported": 1}
    assert any("1 rows name no image" in note for note in made["notes"])
    found = run.ok("query", "select label, age from landed join metadata using (id) order by age", "--json").json
    assert found == [{"label": "cat", "age": 1}, {"label": "dog", "age": 2}]
    assert len(run.ok("query", "select * from annotations", "--json").json) == 2
    assert run("ingest", images, "--label-column", "breed").code == 3
