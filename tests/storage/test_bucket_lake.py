"""All of storage in a bucket: the same ids as on a disk, through the library and the command line, in few requests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.canonical import digest_bytes

VERDICT = pa.table({"v": ["valid"], "check": ["c"], "subject": ["first"], "result": ["pass"]})


def life(lake: Lake, sources: list[Path], make: SimpleNamespace) -> list[Any]:
    """What a lake goes through; returns whatever may be compared between a disk and a bucket."""
    said: list[Any] = []
    make.land(lake, sources[0], "first")
    assert lake.ingest(sources[0], "d", "first")[1] is False
    one = make.commit(lake)
    ids = lake.samples("d")["id"].to_pylist()
    said += [one.content_id, ids, [digest_bytes(d) for d in lake.read_images(lake.samples("d"))] == ids]
    make.land(lake, sources[1], "second")
    lake.append_verdicts("d", "second", VERDICT)
    lake.append_verdicts("d", "second", VERDICT)
    queue = make.overlay(ids[:3]).select(["id"])
    lake.write_queue("d", "hard", queue)
    edit = make.overlay(ids[:2], label="owl", reviewer="me")
    review, _ = lake.add_review("d", "r1", edit, queues=["hard"], reviewer="me", clock=lambda: 1.0)
    assert [r.name for r in lake.pending_reviews("d")] == ["r1"]
    two = make.commit(lake, overlays=[lake.overlay(review.overlay)])
    lake.settle_reviews([review], two)
    assert lake.pending_reviews("d") == [] and make.commit(lake) == two
    assert {b.status for b in lake.batches("d")} == {"committed"}
    lake.tag("d", "release", "v1")
    lake.branch("d", "trial", "v1")
    make.commit(lake, branch="trial", overlays=[make.overlay(ids[2:3], exclude=True)])
    said += [lake.diff("d", "v1", "main")["counts"], lake.refs("d", "branches"), lake.refs("d", "tags")]
    said += [lake.samples("d", name).to_pylist() for name in ("release", "main", "trial", two.content_id[:8])]
    said += [lake.queue("d", "hard").to_pylist(), lake.queues("d"), lake.verdicts("d", "second").num_rows]
    said += [lake.properties("d").to_pylist(), lake.quarantine("d", "first").to_pylist()]
    assert lake.rollback("d", "v1").content_id == one.content_id
    said += [[(v.name, v.content_id, v.parents) for v in lake.versions("d")], lake.refs("d", "branches")]
    said += [[replace(b, times={}, seconds={}) for b in lake.batches("d")], lake.datasets()]
    return said


def test_a_lake_in_a_bucket_lives_as_one_on_a_disk(bucket: str, tmp_path: Path, make: SimpleNamespace) -> None:
    sources = [
        make.folder(tmp_path / "one", {**make.two_classes(30), "cat/bad.png": b"", "cat/copy.png": make.png(1)}),
        make.folder(tmp_path / "two", make.two_classes(30, start=20)),
    ]
    there = Lake.create(bucket, shard_bytes=16 << 10)
    assert there.shard_bytes == Lake.create(bucket).shard_bytes == 16 << 10
    here = life(Lake.create(tmp_path / "lake", shard_bytes=16 << 10), sources, make)
    assert life(there, sources, make) == here
    keys = [e.key for e in there.store.entries("", hidden=True)]
    local = [e.key for e in Lake.open(tmp_path / "lake").store.entries("")]
    assert keys == local, "the same files under the same names, and nothing hidden is left"
    with pytest.raises(SevenfoldError, match="on a local disk only"):
        _ = there.root


def test_sql_over_a_lake_in_a_bucket(bucket: str, tmp_path: Path, make: SimpleNamespace) -> None:
    lake = Lake.create(bucket)
    make.land(lake, make.folder(tmp_path / "one", make.two_classes(12)), "first")
    make.commit(lake)
    found = lake.sql("select label, count(*) n from samples group by 1 order by 1").to_pylist()
    assert found == [{"label": "cat", "n": 6}, {"label": "dog", "n": 6}]


# The command line


def sevenfold(cwd: Path, *words: str, code: int = 0) -> str:
    """Run a command; its stdout, or its stderr when it is to fail."""
    command = [sys.executable, "-c", "from sevenfold.pipelines.cli import main; main()", *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout


def test_the_command_line_on_a_bucket(bucket: str, tmp_path: Path, make: SimpleNamespace) -> None:
    make.folder(tmp_path / "one", make.two_classes(40))
    sevenfold(tmp_path, "--lake", bucket, "init")
    landed = json.loads(sevenfold(tmp_path, "ingest", "one", "--batch", "b1", "--json"))
    assert landed["counts"]["samples"] == 40
    sevenfold(tmp_path, "check")
    made = json.loads(sevenfold(tmp_path, "commit", "-m", "first", "--json"))
    assert [v["version"] for v in json.loads(sevenfold(tmp_path, "log", "--json"))] == ["v1"]
    assert made["content_id"][:12] in sevenfold(tmp_path, "show", "v1")
    assert json.loads(sevenfold(tmp_path, "diff", "v1", "v1", "--json"))["added"] == 0
    quick = ("--epochs", "1", "--set", "widths=[4]", "--set", "threads=1")
    trained = json.loads(sevenfold(tmp_path, "train", *quick, "--json"))
    assert trained["model"] == "classifier/1" and trained["runs"][0]["content_id"] == made["content_id"]
    assert [m["model"] for m in json.loads(sevenfold(tmp_path, "models", "--json"))] == ["classifier/1"]
    assert not (tmp_path / "lake").exists(), "nothing is written beside the project's settings"


# Requests


def commits_cost(proxy: Any, lake: Lake, make: SimpleNamespace, **options: Any) -> Counter[str]:
    before = Counter(proxy.seen)
    make.commit(lake, **options)
    return Counter(proxy.seen) - before


def test_a_commit_costs_few_requests(proxy: Any, bucket: str, tmp_path: Path, make: SimpleNamespace) -> None:
    """However many batches the dataset has."""
    lake = Lake.create(bucket)
    first, _ = lake.ingest(make.folder(tmp_path / "one", make.two_classes(6)), "d", "b000")
    lake.set_status("d", "b000", "admitted")
    cost = {"first": commits_cost(proxy, lake, make)}
    ids = lake.samples("d")["id"].to_pylist()
    for i in range(1, 100):  # landed, waiting for a judgement
        lake.store.create(f"batches/d/b{i:03d}.json", replace(first, batch=f"b{i:03d}").to_json())
    cost["overlay, cold"] = commits_cost(proxy, lake, make, overlays=[make.overlay(ids[:1], label="owl")])
    cost["overlay"] = commits_cost(proxy, lake, make, overlays=[make.overlay(ids[:1], label="cow")])
    cost["nothing"] = commits_cost(proxy, lake, make)
    land_before = Counter(proxy.seen)
    make.land(lake, make.folder(tmp_path / "two", make.two_classes(6, start=50)), "x")
    cost["landing"] = Counter(proxy.seen) - land_before
    cost["batch"] = commits_cost(proxy, lake, make)
    totals = {name: c.total() for name, c in cost.items()}
    print({name: dict(c) for name, c in cost.items()}, totals)
    assert totals["overlay, cold"] <= 125 and totals["overlay"] <= 20 and totals["nothing"] <= 8
    assert totals["batch"] <= 50
