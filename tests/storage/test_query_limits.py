"""What a query may use: only the files that it names, the lake's folder, a bounded memory, and time until Ctrl-C."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.query import BATCH_ROWS, memory_limit, stream
from sevenfold.storage.views import VIEWS

ATTACKS = [
    "select * from read_csv('{out}')",
    "select * from read_csv_auto('{out}')",
    "select * from read_text('{out}')",
    "select * from read_text(['{lake}/lake.json', '{out}'])",
    "select * from read_blob('{out}')",
    "select * from read_json('{out}')",
    "select * from read_parquet('{out}')",
    "select * from parquet_scan('{out}')",
    "select * from parquet_schema('{out}')",
    "select * from sniff_csv('{out}')",
    "select * from glob('{out}*')",
    "select * from '{out}'",
    'select * from "{out}"',
    "from '{out}'",
    "select (select content from read_text('{out}'))",
    "select * from samples where id in (select content from read_text('{out}'))",
    "with t as materialized (select * from read_text('{out}')) select * from t",
    "select * from query('select * from read_text(''{out}'')')",
    "select * from query_table('{out}')",
    "select * from read_text('{lake}/../secret.txt')",
    "select * from read_text('{lake}/./../secret.txt')",
    "select * from read_text('file:{out}')",
    "select * from read_text('file://{out}')",
    "select * from read_csv('https://example.org/x.csv')",
    "select * from read_parquet('s3://bucket/x.parquet')",
    "select * from read_csv('/dev/stdin')",
    "select * from read_text('/proc/self/environ')",
    "select getenv('HOME')",
    "select * from sqlite_scan('{out}', 't')",
    "select * from postgres_scan('host=localhost', 'public', 't')",
    "attach '{out}' as other",
    "copy samples to '{new}'",
    "copy (select 1) to '{new}' (format parquet)",
    "export database '{new}'",
    "install httpfs",
    "load httpfs",
    "force install httpfs from 'https://example.org'",
    "pragma enable_profiling",
    "pragma database_list",
    "set memory_limit = '100GB'",
    "set allowed_directories = ['/']",
    "reset enable_external_access",
    "call pragma_version()",
    "create secret (type s3)",
    "create table t as select 1",
    "create macro m() as 1",
    "drop view samples",
    "delete from versions",
    "update versions set message = ''",
    "insert into versions select * from versions",
    "explain analyze select * from read_text('{out}')",
    "checkpoint",
    "begin; select 1",
    "select 1; set enable_external_access = true; select * from read_text('{out}')",
    "prepare p as select 1",
    "execute p",
    "vacuum",
    "use memory",
    "",
    ";",
    "-- select 1",
    "/* select 1 */",
    "hello",
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, make: SimpleNamespace) -> Lake:
    """A lake of two versions beside a file that is nobody's business."""
    root = tmp_path_factory.mktemp("limits")
    lake = Lake.create(root / "it's [a] lake*", shard_bytes=8192)
    make.land(lake, make.folder(root / "s", make.two_classes(6)), "b")
    make.commit(lake)
    make.commit(lake, overlays=[make.overlay(lake.samples("d")["id"].to_pylist()[:2], exclude=True)])
    (root / "secret.txt").write_text("secret")
    return lake


def outcome(lake: Lake, attack: str) -> str:
    """What an attack got: the refusal, or everything that it was told."""
    places = {"out": lake.root.parent / "secret.txt", "new": lake.root.parent / "new", "lake": lake.root}
    query = attack
    for name, path in places.items():
        query = query.replace("{" + name + "}", str(path).replace("'", "''"))
    try:
        return str(lake.sql(query).to_pylist())
    except SevenfoldError as e:
        return f"refused: {e}"


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_and_leaves_nothing(attack: str, shared: Lake) -> None:
    before = sorted(shared.root.parent.rglob("*"))
    assert outcome(shared, attack).startswith("refused")
    assert sorted(shared.root.parent.rglob("*")) == before
    assert shared.sql("select count(*) n from samples").to_pylist() == [{"n": 4}]


@settings(max_examples=40, deadline=None)
@given(
    attack=st.sampled_from([a for a in ATTACKS if a.startswith(("select", "from", "with"))]),
    shape=st.sampled_from(
        ["{}", "select * from ({})", "select (select count(*) from ({}))", "with x as ({}) select * from x",
         "select 1 as a union all by name {}", "{} limit 1", "({})", "  /* c */ {} -- c"]
    ),
    upper=st.booleans(),
)  # fmt: skip
def test_no_wrapping_gets_the_secret_out(shared: Lake, attack: str, shape: str, upper: bool) -> None:
    query = shape.format(attack.replace("select", "SELECT") if upper else attack)
    got = outcome(shared, query)
    assert got.startswith("refused") and "'secret'" not in got


def test_a_lake_whose_name_is_a_pattern_is_read_and_not_its_neighbours(tmp_path: Path, make: SimpleNamespace) -> None:
    for name, n in (("star*", 3), ("star2", 5), ("[ab]", 2), ("a", 4), ("who's?", 2), ("who'sX", 6)):
        lake = Lake.create(tmp_path / name / "lake")
        make.land(lake, make.folder(tmp_path / f"s{n}", make.two_classes(n)), "b")
        make.commit(lake)
        assert lake.sql("select count(*) n from samples").to_pylist() == [{"n": n}]
        assert lake.sql("select count(distinct id) n from signals").to_pylist() == [{"n": n}]
        assert lake.sql("select dataset, batch from landed").to_pylist() == [{"dataset": "d", "batch": "b"}] * n


def test_only_what_a_query_names_is_opened(filled: Callable[..., Lake]) -> None:
    lake = filled(3)
    for key in ("signals/brightness/measure-2/d@b.parquet", "quarantine/d/first.parquet", "runs/r/config.json"):
        (lake.root / key).parent.mkdir(parents=True, exist_ok=True)
        (lake.root / key).write_bytes(b"damaged")
    assert lake.sql("select count(*) n from samples").to_pylist() == [{"n": 3}]
    assert lake.sql("select count(contrast) n from scored").to_pylist() == [{"n": 3}]
    assert lake.sql("with quarantines as (select 1 a) select 'signals' from quarantines").num_rows == 1
    for damaged in ("signals", "quarantine", "runs"):
        with pytest.raises(SevenfoldError):
            lake.sql(f"select * from {damaged}")


@pytest.mark.parametrize(
    "query",
    [
        "select * from SAMPLES",
        "select * from main.samples",
        'select * from "samples"',
        "from samples",
        "table samples",
        "select (select count(*) from samples)",
        "with a as (from samples) from a",
        "describe samples",
        "summarize samples",
        "select * from query('from samples')",
        "select * from (pivot samples on label in ('cat') using count(*) group by split)",
        "select * from information_schema.tables where table_name = 'samples'",
    ],
)
def test_a_view_is_found_however_it_is_named(query: str, shared: Lake) -> None:
    assert shared.sql(query).num_rows > 0


def test_show_tables_lists_every_view(shared: Lake) -> None:
    assert set(shared.sql("show tables")["name"].to_pylist()) == set(VIEWS)


def test_as_of_names_a_version_in_every_way(shared: Lake) -> None:
    content_id = shared.version("d", "v1").content_id
    for ref in ("v1", content_id, content_id[:8]):
        assert shared.sql("select count(*) n from samples", ref=ref).to_pylist() == [{"n": 6}]
    for ref in ("main", "v2", "1970-01-01"):
        assert shared.sql("select count(*) n from samples", ref=ref).to_pylist() == [{"n": 4}]
    for ref in ("v9", "1969-01-01", "nothing"):
        with pytest.raises(SevenfoldError):
            shared.sql("select count(*) from batches", ref=ref)
    with pytest.raises(SevenfoldError, match="no version"):
        shared.sql("select 1", "other", ref="v1")


def test_a_stream_holds_a_batch_at_a_time(shared: Lake) -> None:
    with stream(shared.store, "select i, 'x' as i from range(1000000) t(i)") as answer:
        assert answer.schema.names == ["i", "i_1"]
        sizes = [b.num_rows for b in answer.batches]
    assert sum(sizes) == 1_000_000 and max(sizes) <= 2 * BATCH_ROWS


def test_a_session_answers_again_and_again_and_sees_what_is_new(
    filled: Callable[..., Lake], make: SimpleNamespace
) -> None:
    lake = filled(4)
    ids = lake.samples("d")["id"].to_pylist()
    rows = pa.table({"id": ids, "value": [1.0] * 4})
    with lake.session() as ask:
        assert ask.run("select count(*) n from samples, versions").to_pylist() == [{"n": 4}]
        with ask.stream("select * from range(10000000)") as answer:
            assert next(answer.batches).num_rows > 0
        with pytest.raises(SevenfoldError):
            ask.run("select * from nothing")
        lake.write_signal("charm", "p", rows, scope="content", in_sample=False)
        assert ask.run("select sum(charm) s from scored").to_pylist() == [{"s": 4.0}]
        again = rows.set_column(1, "value", pa.array([2.5] * 4))
        lake.write_signal("charm", "p", again, scope="content", in_sample=False)
        assert ask.run("select sum(charm) s from scored").to_pylist() == [{"s": 10.0}]
        make.commit(lake, overlays=[make.overlay(ids[:1], exclude=True)])
        assert ask.run("select count(*) n, max(v.number) v from samples, versions v").to_pylist() == [{"n": 6, "v": 2}]
        assert ask.run("select count(*) n from samples", ref="v1").to_pylist() == [{"n": 4}]
        for attack in ("select * from read_text('/etc/passwd')", "set memory_limit = '9GB'", "drop view samples"):
            with pytest.raises(SevenfoldError):
                ask.run(attack)


def test_an_error_in_the_middle_of_an_answer_is_an_error(shared: Lake) -> None:
    query = "select (case when i = 900000 then 'x' else '1' end)::int from range(1000000) t(i)"
    with pytest.raises(SevenfoldError, match="Could not convert"), stream(shared.store, query) as answer:
        list(answer.batches)


def test_a_sort_larger_than_the_limit_spills_into_a_folder_that_goes(shared: Lake, tmp_path: Path) -> None:
    code = f"""
import tempfile
from pathlib import Path
from sevenfold.storage import query
from sevenfold.storage.store import LocalStore
query.MEMORY = 100 << 20
sorted_ = "select i, md5(i::varchar) h from range(4000000) t(i) order by h"
with query.stream(LocalStore(Path({str(shared.root)!r})), sorted_) as answer:
    rows, spilled = 0, 0
    for b in answer.batches:
        rows += b.num_rows
        spilled = max(spilled, len([p for p in Path(tempfile.gettempdir()).rglob("spill/*")]))
print(rows, spilled, next(x.split()[1] for x in open("/proc/self/status") if x.startswith("VmHWM")))
"""
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    rows, spilled, kilobytes = map(int, done.stdout.split())
    assert rows == 4_000_000 and spilled > 0 and kilobytes < 350 << 10
    assert list(tmp_path.iterdir()) == []


def test_memory_is_bounded_and_a_query_that_needs_more_says_so(shared: Lake) -> None:
    pages = resource.getpagesize() * os.sysconf("SC_PHYS_PAGES")
    assert memory_limit() == min(3 << 29, pages // 2)
    with pytest.raises(SevenfoldError, match="Out of Memory"):
        shared.sql("select len(string_agg(repeat('x', 1000000), '')) from range(4000)")


def test_ctrl_c_ends_a_query_at_once_and_leaves_nothing(shared: Lake, tmp_path: Path) -> None:
    code = f"""
from sevenfold.storage import Lake
lake = Lake.open({str(shared.root)!r})
print("ready", flush=True)
try:
    lake.sql("select count(*) from range(100000000000) t(i) where i % 7 = 3")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert process.communicate(timeout=20)[0] == "interrupted\n"
    assert time.monotonic() - began < 5 and list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An empty bucket on loopback, and the environment that leads to it."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    wanted = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true", "SEVENFOLD_CACHE": str(tmp_path_factory.mktemp("cache*")),
    }  # fmt: skip
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    boto3.client("s3", endpoint_url=wanted["AWS_ENDPOINT_URL"], region_name="us-east-1").create_bucket(Bucket="lakes")
    yield "s3://lakes/one"
    server.stop()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


def test_a_lake_in_a_bucket_answers_the_same(bucket: str, tmp_path: Path, make: SimpleNamespace, shared: Lake) -> None:
    lake: Any = Lake.create(bucket, shard_bytes=8192)
    make.land(lake, make.folder(tmp_path / "s", make.two_classes(6)), "b")
    make.commit(lake)
    make.commit(lake, overlays=[make.overlay(lake.samples("d")["id"].to_pylist()[:2], exclude=True)])
    for query in (
        "select * from samples order by id",
        "select dataset, batch, id from landed order by id",
        "select id, brightness from scored order by id",
        "select version, refs from versions order by 1",
    ):
        assert lake.sql(query).to_pylist() == shared.sql(query).to_pylist(), query
    (tmp_path / "secret.txt").write_text("secret")
    with pytest.raises(SevenfoldError, match="disabled"):
        lake.sql(f"select * from read_text('{tmp_path}/secret.txt')")
