"""Lineage: batches, decisions and versions that a version is from; runs and models that came of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sevenfold import __version__
from sevenfold.storage import Lake
from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.keys import batch_key
from sevenfold.storage.lineage import models_of, runs_of


def model(lake: Lake, number: int, content_id: str, saw: tuple[str, ...] = (), *, metrics: bool = True) -> None:
    """A registered model, as the registry of the room above writes it."""
    home = f"models/classifier/{number}"
    card = {
        "format": 1, "name": "classifier", "number": number, "content_id": content_id, "run_id": f"run{number}",
        "saw": [*saw, content_id], "parent": f"classifier/{number - 1}" if number > 1 else None, "created": 5.0,
    }  # fmt: skip
    lake.store.create(f"{home}/model.json", canonical_json(card))
    if metrics:
        table = pa.table({"metric": ["accuracy", "loss"], "slice": ["test", "test"], "value": [0.9, 0.3]})
        with lake.store.writing(f"{home}/metrics.parquet") as draft:
            pq.write_table(table, draft.file)


@pytest.fixture
def loop(filled: Callable[..., Lake], tmp_path: Path, make: SimpleNamespace) -> Lake:
    """v1, a review of it (v2), a trial of v1 with a batch of its own (v3), both merged (v4) and compacted (v5)."""
    lake = filled(8)
    ids = sorted(lake.samples("d")["id"].to_pylist())
    table = make.overlay(ids[:2], exclude=True, reviewer="ada")
    lake.add_review("d", "look", table, queues=("suspected-v1",), reviewer="ada", clock=lambda: 1.0)
    make.commit(lake, overlays=[table], provenance={"by": "sevenfold review", "reviews": ["look"]})
    make.land(lake, make.folder(tmp_path / "t", make.two_classes(3, 100)), "t")
    make.commit(lake, branch="trial", start="v1")
    lake.merge("d", "trial", provenance={"by": "test"}, clock=lambda: 4.0)
    lake.compact("d", clock=lambda: 5.0)
    lake.tag("d", "golden", "v5")
    return lake


def test_where_a_version_is_from(loop: Lake) -> None:
    found = loop.lineage("d")
    assert (found.version, found.content_id) == ("v5", loop.version("d").content_id)
    assert found.refs == ("main", "golden")
    assert [(a["version"], a["parents"]) for a in found.ancestors] == [
        ("v5", ["v4"]), ("v4", ["v2", "v3"]), ("v3", ["v1"]), ("v2", ["v1"]), ("v1", []),
    ]  # fmt: skip
    merged = found.ancestors[1]
    assert merged["message"] == "merge trial into main"
    assert merged["provenance"].items() >= {"by": "test", "time": 4.0, "code": __version__}.items()
    first, second = found.batches
    assert (first["batch"], first["version"], second["batch"], second["version"]) == ("first", "v1", "t", "v3")
    record = loop.batch("d", "t")
    assert (second["source"], second["digest"], second["counts"]) == (record.source, record.digest, record.counts)
    assert (second["kind"], second["landed"]) == ("folder", 1.0)
    (edit,) = found.edits
    assert edit["version"] == "v2" and edit["rows"] == 2, "also when a compaction has baked it in"
    assert (edit["reviewers"], edit["reviews"], edit["queues"]) == (["ada"], ["look"], ["suspected-v1"])
    assert json.loads(json.dumps(dataclasses.asdict(found)))["batches"][0]["batch"] == "first"


def test_a_version_knows_only_what_it_was_built_on(loop: Lake) -> None:
    found = loop.lineage("d", "v2")
    assert [a["version"] for a in found.ancestors] == ["v2", "v1"]
    assert [b["batch"] for b in found.batches] == ["first"] and found.refs == ()


def test_a_batch_without_its_record_is_named_at_least(loop: Lake) -> None:
    loop.store.delete(batch_key("d", "t"))
    assert loop.lineage("d").batches[1] == {"batch": "t", "version": "v3"}


def test_what_came_of_a_version(loop: Lake) -> None:
    one, two = (loop.version("d", v).content_id for v in ("v1", "v2"))
    model(loop, 1, one)
    model(loop, 2, two, saw=(one,))
    model(loop, 10, "f" * 64, metrics=False)
    loop.store.create("models/classifier/aliases/champion.json", b"{}")
    for run, content in (("r1", one), ("r2", two)):
        config = {"run_id": run, "content_id": content, "seed": 7, "code": "c", "attempt": 1}
        loop.store.create(f"runs/{run}/config.json", canonical_json(config))
    loop.store.create("runs/r3/steps/part-0.parquet", b"")
    found = loop.lineage("d", "v2")
    assert [m["number"] for m in found.models] == [2]
    assert found.models[0]["metrics"] == {"test": {"accuracy": 0.9, "loss": 0.3}}
    assert found.runs == ({"run_id": "r2", "content_id": two, "seed": 7, "code": "c"},)
    seen = models_of(loop.store, {one})
    assert [(m["name"], m["number"], m["content_id"], m["run_id"]) for m in seen] == [
        ("classifier", 1, one, "run1"), ("classifier", 2, two, "run2"),
    ], "one that grew from a model of it has seen it too"  # fmt: skip
    assert [m["number"] for m in models_of(loop.store, {one, "f" * 64})] == [1, 2, 10]
    assert models_of(loop.store, set()) == runs_of(loop.store, set()) == []


def test_a_lake_without_models_has_seen_nothing(lake: Lake) -> None:
    assert models_of(lake.store, {"a" * 64}) == []
