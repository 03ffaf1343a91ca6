"""tag, branch, merge, rollback, compact, urls, lineage, withdraw and `diff --sql`, on a tiny project."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cli_project import COLOURS, Project, pictures

from sevenfold.storage import Lake


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """v1 on main, v2 on trial with the batch july; nothing is judged, only landed and admitted."""
    monkeypatch.delenv("SEVENFOLD_LAKE", raising=False)
    run = Project(tmp_path / "project")
    run.folder.mkdir()
    monkeypatch.chdir(run.folder)
    run.ok("init", "--dataset", "colours")
    land(run, "june", {"train": 4, "test": 2}, seed=1)
    run.ok("commit", "-m", "june")
    run.ok("branch", "trial")
    land(run, "july", {"train": 3}, seed=2)
    run.ok("commit", "-m", "july", "--branch", "trial")
    return run


def land(run: Project, batch: str, counts: dict[str, int], seed: int) -> None:
    pictures(run.folder / "in" / batch, counts, seed)
    run.ok("ingest", run.folder / "in" / batch, "--batch", batch, "--workers", "1")
    lake_of(run).set_status("colours", batch, "admitted")


def lake_of(run: Project) -> Lake:
    return Lake.open(run.folder / "lake")


def edit(run: Project, branch: str, **columns: object) -> str:
    """Edit the first sample on a branch; returns its id."""
    import pyarrow as pa

    lake = lake_of(run)
    key = sorted(lake.samples("colours", "v1")["id"].to_pylist())[0]
    rows = pa.table({"id": [key], **{k: [v] for k, v in columns.items()}})
    lake.commit("colours", branch=branch, message="edit", overlays=[rows])
    return key


def test_a_merge_says_what_it_did_and_how_to_undo_it(project: Project) -> None:
    edit(project, "main", weight=2.0)
    told = project.ok("merge", "trial", "-m", "trial is good").out
    assert "v4 on main: v3 and v2 (undo: sevenfold rollback v3)" in told
    assert project.ok("log", "--json").json[0]["message"] == "trial is good"
    assert "nothing to merge: main is at v4, which has trial already" in project.ok("merge", "trial").out
    assert "v4 on trial: moved forward" in project.ok("merge", "main", "--into", "trial").out
    found = project.ok("merge", "main", "--into", "trial", "--json").json
    assert (found["version"], found["parents"], found["new"]) == ("v4", ["v3", "v2"], False)


def test_a_conflict_exits_3_with_the_samples_as_json_and_as_a_file(project: Project, tmp_path: Path) -> None:
    key = edit(project, "main", label="red", weight=2.0)
    edit(project, "trial", label="blue", weight=2.0)
    expected = [{"id": key, "field": "label", "ours": "red", "theirs": "blue"}]
    refused = project("merge", "trial", "--rows", tmp_path / "c.parquet")
    assert refused.code == 3 and "wrote 1 conflicts" in refused.out
    assert "1 edits contradict each other" in refused.err and key in refused.err
    assert pq.read_table(tmp_path / "c.parquet").to_pylist() == expected
    assert project("merge", "trial", "--json").json["conflicts"] == expected
    assert project.ok("branch", "--json").json == {"main": "v3", "trial": "v4"}


def test_a_commit_says_what_the_branch_had_already_and_where_other_labels_wait(
    project: Project, tmp_path: Path
) -> None:
    june = pictures(tmp_path / "again", {"train": 4}, seed=1) / "train"
    shutil.move(june / "red", june / "crimson")
    project.ok("ingest", june, "--batch", "again", "--workers", "1")
    Lake.open(project.folder / "lake").set_status("colours", "again", "admitted")
    project.ok("compact")
    told = project.ok("commit", "-m", "again").out
    assert "again: 12 inputs = 0 samples + 8 aliases + 4 relabels + 0 quarantined" in told
    assert "sevenfold review relabels-again --export todo.csv" in told


def test_compact_bakes_overlays_in_and_urls_waits_for_it(project: Project) -> None:
    edit(project, "main", label="blue")
    refused = project("urls", "main")
    assert refused.code == 3 and "`sevenfold compact`" in refused.err and not refused.out
    told = project.ok("compact", "-m", "tidy").out
    assert "overlays  1 -> 0" in told and "v4 on main" in told
    assert project.ok("diff", "v3", "v4", "--json").json == {
        "before": "v3", "after": "v4", "added": 0, "removed": 0, "relabelled": 0, "moved": 0, "reweighted": 0,
    }  # fmt: skip
    (path,) = project.ok("urls", "--split", "test").out.splitlines()
    assert Path(path).is_file() and path.endswith(".tar")
    assert project.ok("urls", "v4", "--split", "test", "--json").json == {
        "version": "v4", "split": "test", "classes": sorted(COLOURS), "urls": [path],
    }  # fmt: skip
    none = project.ok("urls", "v4", "--split", "pool")
    assert (none.out, none.err) == ("", "v4 has no samples in pool\n")
    assert "as compact as it can be" in project.ok("compact").out
    assert "(june)" in project.ok("show").out
    assert project.ok("compact", "--branch", "trial", "--json").json["after"]["overlays"] == 0


def test_the_query_of_a_difference_gives_its_rows(project: Project, tmp_path: Path) -> None:
    project.ok("diff", "v1", "trial", "--rows", tmp_path / "rows.parquet")
    sql = project.ok("diff", "v1", "trial", "--sql").out
    rows = project.ok("query", sql, "--json").json
    assert sorted(rows, key=str) == sorted(pq.read_table(tmp_path / "rows.parquet").to_pylist(), key=str)
    assert len(rows) == 9


def test_lineage_as_text_and_json(project: Project) -> None:
    edit(project, "main", weight=2.0)
    project.ok("merge", "trial")
    told = project.ok("lineage").out
    for word in ("v4 of colours", "june", "july", "merge trial into main", "no model has seen it", "sevenfold merge"):
        assert word in told
    found = project.ok("lineage", "trial", "--json").json
    assert [a["version"] for a in found["ancestors"]] == ["v2", "v1"]
    assert [(b["batch"], b["version"]) for b in found["batches"]] == [("june", "v1"), ("july", "v2")]
    told_by = found["ancestors"][0]["provenance"]
    assert told_by["by"] == "sevenfold commit" and {"code", "config", "time"} <= told_by.keys()


def test_withdraw_leaves_a_batch_out_until_it_is_checked_again(project: Project) -> None:
    land(project, "august", {"train": 2}, seed=3)
    project.folder.joinpath("in/august").rename(project.folder / "away")
    blocked = project("commit", "-m", "august")
    assert blocked.code == 3 and "sevenfold withdraw august" in blocked.err
    assert "undo: sevenfold check august" in project.ok("withdraw", "august", "--reason", "lost").out
    assert "nothing to commit" in project.ok("commit", "-m", "august").out
    assert project.ok("batches", "--json").json[0]["notes"][-1] == "withdrawn: lost"
    refused = project("withdraw", "june", "--reason", "old")
    assert refused.code == 3 and "exclude overlay" in refused.err
