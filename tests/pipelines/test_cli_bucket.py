"""One turn of the loop by hand on a lake in a bucket: the same commands as on a disk, and nothing of it lies beside."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import pytest
from cli_project import Project, pictures

from sevenfold.storage.gc import gc
from sevenfold.storage.store import open_store

COUNTS = {"train": 24, "val": 6, "test": 40, "pool": 10}
QUICK = "[train]\nepochs = 2\nbatch_size = 24\nwidths = [8]\nthreads = 1\nlr = 0.1\nprecision = 'fp32'\n"


@pytest.mark.slow
@pytest.mark.e2e
def test_the_loop_on_a_bucket(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    run = Project(tmp_path / "project")
    monkeypatch.chdir(run.folder)
    monkeypatch.delenv("SEVENFOLD_LAKE", raising=False)
    run.ok("--lake", bucket, "init", "--dataset", "colours")
    settings = run.folder / "sevenfold.toml"
    settings.write_text(settings.read_text().partition("[train]")[0] + QUICK)
    run.ok("ingest", pictures(tmp_path / "june", COUNTS), "--batch", "june", "--workers", "1")
    run.ok("check", "june")
    run.ok("commit", "-m", "june")

    first = run.ok("train", "v1", "--epochs", "6", "--ranks", "2", "--json").json
    assert first["model"] == "classifier/1" and not first["runs"][0]["adopted"]
    again = run.ok("train", "v1", "--epochs", "6", "--json").json
    assert again["model"] == "classifier/1" and again["runs"][0]["adopted"]
    assert run.ok("promote", "classifier/1", "--json").json["moved"]

    scored = run.ok("score", "v1", "--json").json
    queues = run.ok("mine", "v1", "--size", "9", "--json").json["queues"]
    assert list(queues) == ["suspected-v1", "hard-v1", "random-v1"] and len(queues["hard-v1"]) == 9
    todo = tmp_path / "todo.csv"
    run.ok("review", "hard-v1", "--export", todo)
    rows = list(csv.DictReader(todo.open()))
    for row in rows:
        row["label"] = row["path"].split("/")[-1].split("-")[0]
    with todo.open("w", newline="") as f:
        writer = csv.DictWriter(f, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    assert run.ok("review", "--import", todo, "--commit", "--json").json["version"] == "v2"

    continued = run.ok("train", "v2", "--from-champion", "--epochs", "1", "--json").json
    assert continued["model"] == "classifier/2" and continued["new"] == 9
    gate = run("gate", "classifier/2", "--json")
    assert gate.code in (0, 1) and gate.json["champion"] == "classifier/1" and gate.json["version"] == "v2"
    assert run("promote", "classifier/2", "--force", "--reason", "a drill", "--json").json["moved"]
    models = run.ok("models", "--json").json
    assert [(m["model"], m["aliases"], m["parent"]) for m in models] == [
        ("classifier/1", [], None),
        ("classifier/2", ["champion"], "classifier/1"),
    ]

    asked = {
        "select count(distinct run_id) as n from runs": 6,  # two trained, two folds and their score, one evaluation
        "select count(*) as n from models": 2,
        "select count(distinct rank) as n from steps": 2,
        f"select count(*) as n from predictions where producer = '{scored['run_id']}'": scored["predicted"],
    }
    assert {sql: run.ok("query", sql, "--json").json[0]["n"] for sql in asked} == asked
    page = Path(run.ok("report", "v2", "--out", tmp_path / "r.html", "--json").json["path"]).read_text()
    assert "Lineage" in page and "classifier/2" in page

    store = open_store(bucket)
    later = time.time() + 30 * 86400
    garbage = gc(store, clock=lambda: later)
    assert not [g.key for g in garbage if g.key.startswith(("runs/", "models/", "predictions/"))]
    assert not [e.key for e in store.entries("", hidden=True) if ".launches" in e.key or e.key.startswith("leases/")]
    assert not (run.folder / "lake").exists()
    assert not list((tmp_path / "cache" / "launches").glob("*/spec.json")), "launches that ended well leave nothing"
