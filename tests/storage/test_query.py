"""Queries: every view is there, nothing but one SELECT is answered, nothing outside the lake is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.query import VIEWS


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, make: SimpleNamespace) -> Lake:
    root = tmp_path_factory.mktemp("query")
    lake = Lake.create(root / "it's a lake", shard_bytes=8192)
    make.land(
        lake, make.folder(root / "s", {**make.two_classes(20), "cat/bad.png": b"", "cat/c.png": make.png(1)}), "b"
    )
    make.commit(lake)
    make.commit(lake, overlays=[make.overlay(lake.samples("d")["id"].to_pylist()[:2], exclude=True, reason="x")])
    (root / "secret.txt").write_text("secret")
    (lake.root / "link.txt").symlink_to(root / "secret.txt")
    return lake


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_can_be_selected_on_an_empty_lake(view: str, lake: Lake) -> None:
    assert lake.sql(f"select * from {view}").num_rows == 0


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_can_be_selected_on_a_filled_lake(view: str, shared: Lake) -> None:
    filled = {"samples": 18, "samples_all": 38, "aliases": 1, "quarantine": 1, "versions": 2, "batches": 1}
    rows = shared.sql(f"select * from {view}").num_rows
    assert rows == filled.get(view, rows)
    written_by_others = {"predictions", "verdicts", "findings", "queues", "reviews", "runs", "steps", "models"}
    assert rows > 0 or view in {*written_by_others, "tombstones", "metadata", "annotations"}


def test_the_views_have_the_same_columns_empty_and_filled(shared: Lake, tmp_path: Path) -> None:
    empty = Lake.create(tmp_path / "empty")
    for view in ("samples", "samples_all", "aliases", "quarantine", "signals", "versions", "shards", "batches"):
        schemas = [
            {f.name: f.type for f in lake.sql(f"select * from {view} limit 0").schema} for lake in (empty, shared)
        ]
        assert schemas[0] == schemas[1], view


def test_views_say_what_the_lake_says(shared: Lake) -> None:
    rows = shared.sql('select * from samples order by batch, split, shard, "offset"')
    assert sorted(rows.to_pylist(), key=str) == sorted(shared.samples("d").to_pylist(), key=str)
    versions = shared.sql("select version, parents, refs, message from versions order by number").to_pylist()
    assert versions == [
        {"version": "v1", "parents": [], "refs": [], "message": "test"},
        {"version": "v2", "parents": ["v1"], "refs": ["main"], "message": "test"},
    ]
    (batch,) = shared.sql("select * from batches").to_pylist()
    assert (batch["status"], batch["inputs"], batch["aliases"], batch["quarantined"]) == ("committed", 22, 1, 1)
    (row,) = shared.sql("select dataset, batch, path, reason from quarantine").to_pylist()
    assert row == {"dataset": "d", "batch": "b", "path": "cat/bad.png", "reason": "not_an_image"}
    counted = shared.sql("select s.label, avg(b.value) v from samples s join signals b using (id) group by 1")
    assert counted.num_rows == 2


REFUSED = {
    "copy": "copy (select 1) to '{out}/x.csv'",
    "attach": "attach '{out}/x.db'",
    "pragma": "pragma database_list",
    "install": "install httpfs",
    "load": "load httpfs",
    "create": "create table t as select 1",
    "set": "set enable_external_access = true",
    "drop": "drop view samples",
    "insert": "insert into versions select * from versions",
    "two statements": "select 1; select 2",
    "two, one hidden": "select 1; copy (select 1) to '{out}/x.csv'",
    "export": "export database '{out}'",
    "call": "call pragma_version()",
    "nothing": "",
    "a comment": "-- select 1",
    "not sql": "hello",
}


@pytest.mark.parametrize("case", REFUSED)
def test_anything_but_one_select_is_refused(case: str, shared: Lake, tmp_path: Path) -> None:
    with pytest.raises(SevenfoldError):
        shared.sql(REFUSED[case].format(out=tmp_path))
    assert list(tmp_path.iterdir()) == []


OUTSIDE = [
    "select * from read_csv('/etc/passwd')",
    "select * from read_text('/etc/passwd')",
    "select * from read_blob('/proc/self/environ')",
    "select * from '/etc/passwd'",
    "select * from glob('/**')",
    "select * from glob('/etc/*')",
    "select * from read_text('{lake}/../secret.txt')",
    "select * from read_text('{lake}/link.txt')",
    "select * from read_parquet('{lake}-other/*.parquet')",
    "select * from read_json('../secret.txt')",
    "select * from read_csv('https://example.org/x.csv')",
    "select * from sniff_csv('/etc/passwd')",
    "select * from parquet_metadata('/etc/passwd')",
]


@pytest.mark.parametrize("query", OUTSIDE)
def test_nothing_outside_the_lake_can_be_read(query: str, shared: Lake) -> None:
    with pytest.raises(SevenfoldError):
        shared.sql(query.format(lake=str(shared.root).replace("'", "''")))


def test_python_variables_are_no_tables(shared: Lake) -> None:
    stray = pa.table({"secret": [1]})
    assert stray.num_rows == 1
    for name in ("stray", "names", "version_rows", "root"):
        with pytest.raises(SevenfoldError, match="does not exist"):
            shared.sql(f"select * from {name}")


def test_an_error_names_the_views(shared: Lake) -> None:
    with pytest.raises(SevenfoldError, match="SQL over the views samples, samples_all"):
        shared.sql("select * from sample")


def test_a_lake_behind_a_link_can_be_queried(shared: Lake, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(shared.root)
    assert Lake.open(tmp_path / "link").sql("select * from samples").num_rows == 18


@pytest.mark.parametrize("name", ["a [b] c", "star*", "who?", "semi;colon", 'quo"te'])
def test_a_lake_with_an_odd_name_can_be_queried(name: str, tmp_path: Path, make: SimpleNamespace) -> None:
    lake = Lake.create(tmp_path / name / "lake")
    make.land(lake, make.folder(tmp_path / "s", make.two_classes(3)), "b")
    make.commit(lake)
    assert lake.sql("select * from samples").num_rows == 3
    assert lake.sql("select * from signals").num_rows == 21


def test_datasets_are_told_apart(filled: Callable[..., Lake], tmp_path: Path, make: SimpleNamespace) -> None:
    lake = filled(4)
    make.land(lake, make.folder(tmp_path / "e", make.two_classes(7, start=50)), "b", dataset="e")
    make.commit(lake, "e")
    assert [lake.sql("select * from samples", dataset=d).num_rows for d in (None, "d", "e")] == [4, 4, 7]
    assert lake.sql("select dataset, count(*) n from samples_all group by 1 order by 1").to_pylist() == [
        {"dataset": "d", "n": 4}, {"dataset": "e", "n": 7},
    ]  # fmt: skip


def test_columns_that_a_signal_does_not_have_are_null(filled: Callable[..., Lake]) -> None:
    lake = filled(2)
    table = pa.table({"id": lake.samples("d")["id"], "value": [1.0, 2.0], "label": ["cat", "dog"]})
    lake.write_signal("loss", "run", table, scope="label", in_sample=True)
    rows = lake.sql("select label, content_id, in_sample from signals where name = 'loss' order by value").to_pylist()
    assert rows == [{"label": x, "content_id": None, "in_sample": True} for x in ("cat", "dog")]


def test_columns_of_one_name_are_told_apart(shared: Lake) -> None:
    (row,) = shared.sql("select 1 as a, 2 as a, 3 as a_1, 4 as a").to_pylist()
    assert list(row.values()) == [1, 2, 3, 4] and len(row) == 4
