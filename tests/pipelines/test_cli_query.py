"""`sevenfold query`: forms of the answer, named questions, as of a version, and what it refuses."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cli_project import Project, pictures

from sevenfold.storage import Lake
from sevenfold.storage.questions import QUESTIONS

MANY = "select i, i % 7 as k, 'row ' || i as t from range(250000) r(i)"


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project with one committed version."""
    home = tmp_path_factory.mktemp("home")
    run = Project(home / "project")
    run.folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(run.folder)
        patch.delenv("SEVENFOLD_LAKE", raising=False)
        run.ok("init", "--dataset", "colours")
        run.ok("ingest", pictures(home / "source", {"train": 4, "test": 2}), "--batch", "june", "--workers", "1")
        lake = Lake.open(next(run.folder.rglob("lake.json")).parent)
        lake.set_status("colours", "june", "admitted")
        run.ok("commit", "-m", "june photos")
        yield run


def test_every_named_question_runs(committed: Project) -> None:
    listed = committed.ok("query", "--examples", "--json").json
    assert [q["name"] for q in listed] == [q.name for q in QUESTIONS]
    assert "class-balance" in committed.ok("query", "--examples").out
    for q in QUESTIONS:
        answer = committed.ok("query", "--example", q.name, "--json").json
        assert isinstance(answer, list), q.name
    shares = committed.ok("query", "--example", "class-balance", "--json").json
    assert sum(r["share"] for r in shares) == pytest.approx(1, abs=0.01)
    unknown = committed("query", "--example", "nothing")
    assert unknown.code == 3 and "class-balance" in unknown.err


def test_one_of_a_select_and_a_name(committed: Project) -> None:
    for words in ((), ("select 1", "--example", "drift")):
        refused = committed("query", *words)
        assert refused.code == 3 and "one of the two" in refused.err


def test_as_of_is_the_version_of_samples(committed: Project) -> None:
    committed.ok("tag", "then")
    ids = committed.ok("query", "select id from samples order by id limit 1", "--json").json
    for ref in ("v1", "then", "main", "2999-01-01"):
        assert committed.ok("query", "select min(id) as id from samples", "--as-of", ref, "--json").json == ids
    refused = committed("query", "select 1", "--as-of", "v99")
    assert refused.code == 3 and "names no version" in refused.err


def test_the_table_is_cut_and_says_how_much_is_missing(committed: Project) -> None:
    out = committed.ok("query", MANY, "--limit", "3").out
    assert "row 2" in out and "row 3" not in out
    assert "249,997 more rows" in out
    assert "more rows" not in committed.ok("query", "select 1", "--limit", "1").out
    assert "1,001 more rows" in committed.ok("query", "select * from range(1101)").out


def test_large_answers_come_whole_in_every_form(committed: Project, tmp_path: Path) -> None:
    rows = list(csv.reader(io.StringIO(committed.ok("query", MANY, "--csv").out)))
    assert rows[0] == ["i", "k", "t"] and len(rows) == 250_001 and rows[-1] == ["249999", "1", "row 249999"]
    found = committed.ok("query", MANY, "--json").json
    assert len(found) == 250_000 and found[-1] == {"i": 249_999, "k": 1, "t": "row 249999"}
    assert "250,000 rows" in committed.ok("query", MANY, "--parquet", tmp_path / "new/a.parquet").out
    assert pq.read_table(tmp_path / "new/a.parquet")["i"].to_pylist() == list(range(250_000))
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.parquet"]


def test_no_rows_nulls_and_what_json_lacks(committed: Project) -> None:
    assert committed.ok("query", "select 1 as a where false", "--json").json == []
    assert committed.ok("query", "select 1 as a where false", "--csv").out == "a\n"
    odd = "select 'nan'::double as a, null as b, [1, null] as c, {'d': date '2026-05-01'} as e, 'x,\"y' as f"
    assert committed.ok("query", odd, "--json").json == [
        {"a": None, "b": None, "c": [1, None], "e": {"d": "2026-05-01"}, "f": 'x,"y'}
    ]
    assert list(csv.reader(io.StringIO(committed.ok("query", odd, "--csv").out)))[1][4] == 'x,"y'


def test_an_answer_is_not_written_into_the_lake_nor_left_half(committed: Project, tmp_path: Path) -> None:
    lake = next(committed.folder.rglob("lake.json")).parent
    (tmp_path / "link").symlink_to(lake)
    before = sorted(lake.rglob("*"))
    for inside in (lake / "a.parquet", lake / "signals/x/y/0.parquet", tmp_path / "link/b.parquet", lake / "lake.json"):
        refused = committed("query", "select 1", "--parquet", inside)
        assert refused.code == 3 and "into the lake" in refused.err
    assert sorted(lake.rglob("*")) == before
    failing = "select (case when i = 200000 then 'x' else '1' end)::int as a from range(250000) r(i)"
    assert committed("query", failing, "--parquet", tmp_path / "half.parquet").code == 3
    assert [p.name for p in tmp_path.iterdir()] == ["link"]


def test_a_long_answer_does_not_gather_in_memory(committed: Project, tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from sevenfold.pipelines.cli.answers import print_csv
from sevenfold.storage.query import stream
from sevenfold.storage.store import LocalStore
sql = "select i, repeat('x', 250) as t from range(1200000) r(i)"
with stream(LocalStore(Path({str(next(committed.folder.rglob("lake.json")).parent)!r})), sql) as answer:
    print_csv(answer)
print(next(x.split()[1] for x in open("/proc/self/status") if x.startswith("VmHWM")), file=sys.stderr)
"""
    with open(tmp_path / "out.csv", "w") as out:
        done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), stdout=out, stderr=subprocess.PIPE)
    assert done.returncode == 0
    assert (tmp_path / "out.csv").stat().st_size > 280 << 20 > int(done.stderr) << 10
