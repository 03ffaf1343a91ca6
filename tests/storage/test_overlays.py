"""Overlays: the last word on each field of each sample wins, in Python as in SQL."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sevenfold.storage import Lake, SevenfoldError, overlays
from sevenfold.storage.index import OVERLAY, SAMPLES
from sevenfold.storage.lens import UNASKED, Lens, version_sql
from sevenfold.storage.records import Manifest
from sevenfold.storage.rows import read_index

EDIT = st.fixed_dictionaries(
    {
        "exclude": st.sampled_from([None, True, False]),
        "label": st.sampled_from([None, "cat", "eel"]),
        "split": st.sampled_from([None, "train", "test", "pool"]),
        "weight": st.sampled_from([None, 0.0, 0.5, 2.0]),
    }
)
LAYERS = st.lists(st.dictionaries(st.integers(0, 11), EDIT, max_size=8), max_size=4)


def tables(layers: list[dict[int, dict[str, Any]]], ids: list[str]) -> list[pa.Table]:
    rows = [[{"id": ids[i], **edit, "reviewer": "r", "reason": ""} for i, edit in layer.items()] for layer in layers]
    return [pa.Table.from_pylist(r, schema=OVERLAY) for r in rows]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, make: SimpleNamespace) -> tuple[Lake, Manifest]:
    root = tmp_path_factory.mktemp("overlays")
    lake = Lake.create(root / "lake", shard_bytes=8192)
    members = {**make.two_classes(10), "pool/a.png": make.png(90), "pool/b.png": make.png(91)}
    source = {f"train/{k}" if not k.startswith("pool") else k: v for k, v in members.items()}
    make.land(lake, make.folder(root / "s", source), "b")
    return lake, lake.manifest(make.commit(lake).content_id)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(layers=LAYERS)
def test_python_sql_and_a_plain_loop_agree(base: tuple[Lake, Manifest], layers: Any) -> None:
    lake, manifest = base
    rows = read_index(lake.store, manifest).drop_columns(["components"])
    ids = rows["id"].to_pylist()
    edits = tables(layers, ids)
    digests = tuple(overlays.write_overlay(lake.store, t) for t in edits)
    edited = Manifest(manifest.classes, manifest.batches, digests, manifest.schema)

    expected = {r["id"]: {**r, "weight": 1.0, "exclude": False} for r in rows.to_pylist()}
    for layer in layers:
        for i, edit in layer.items():
            expected[ids[i]].update({k: v for k, v in edit.items() if v is not None})
    kept = [{k: v for k, v in r.items() if k != "exclude"} for r in expected.values() if not r["exclude"]]

    applied = overlays.apply(rows, [overlays.read_overlay(lake.store, d) for d in digests])
    assert applied.schema == SAMPLES
    assert applied.to_pylist() == [{k: r[k] for k in SAMPLES.names} for r in kept], "and in the same order"
    by_sql = duckdb.sql(version_sql(Lens(lake.store, UNASKED), edited)).to_arrow_table()
    assert by_sql.column_names == applied.column_names
    assert sorted(by_sql.to_pylist(), key=lambda r: r["id"]) == sorted(applied.to_pylist(), key=lambda r: r["id"])


def test_an_exclusion_can_be_taken_back(filled: Callable[..., Lake], make: SimpleNamespace) -> None:
    lake = filled(6)
    first = lake.samples("d")["id"].to_pylist()[:2]
    make.commit(lake, overlays=[make.overlay(first, exclude=True, reason="twin")])
    assert lake.samples("d").num_rows == 4
    make.commit(lake, overlays=[make.overlay(first[:1], exclude=False)])
    assert first[0] in lake.samples("d")["id"].to_pylist() and lake.samples("d").num_rows == 5
    assert lake.samples("d", "v2").num_rows == 4 and lake.samples("d", "v1").num_rows == 6


def test_a_review_moves_a_pool_sample_into_training(lake: Lake, tmp_path: Any, make: SimpleNamespace) -> None:
    make.land(lake, make.folder(tmp_path / "s", {"train/cat/1.png": make.png(1), "pool/2.png": make.png(2)}), "b")
    shards = lake.manifest(make.commit(lake).content_id).shards
    (key,) = [r["id"] for r in lake.samples("d").to_pylist() if r["split"] == "pool"]
    version = make.commit(lake, overlays=[make.overlay([key], label="eel", split="train")])
    row = next(r for r in lake.samples("d").to_pylist() if r["id"] == key)
    assert (row["label"], row["split"]) == ("eel", "train")
    manifest = lake.manifest(version.content_id)
    assert manifest.classes == ("cat", "eel"), "a new class comes last"
    assert manifest.shards == shards, "no byte is copied"


def test_an_overlay_that_makes_no_sense_is_refused_and_leaves_nothing(
    filled: Callable[..., Lake], make: SimpleNamespace
) -> None:
    lake = filled(4)
    key = lake.samples("d")["id"][0].as_py()
    cases = {
        "1 samples of the overlay are not in the version": make.overlay(["0" * 64], exclude=True),
        "names the same sample twice": make.overlay([key, key], label="cat"),
        "to the split 'holdout'": make.overlay([key], split="holdout"),
        "gives the weight -1": make.overlay([key], weight=-1.0),
        "gives the weight nan": make.overlay([key], weight=float("nan")),
        "drop or rename exlude": pa.table({"id": [key], "exlude": [True]}),
        "add the ids": pa.table({"exclude": [True]}),
        "rows without an id": pa.table({"id": pa.array([None], pa.string()), "exclude": [True]}),
    }
    for message, table in cases.items():
        with pytest.raises(SevenfoldError, match=message):
            make.commit(lake, overlays=[table])
    assert len(lake.versions("d")) == 1 and not (lake.root / "overlays").exists()


def test_rows_in_another_order_or_with_absent_columns_are_the_same_overlay(
    filled: Callable[..., Lake], make: SimpleNamespace
) -> None:
    lake = filled(4)
    ids = lake.samples("d")["id"].to_pylist()
    one = overlays.write_overlay(lake.store, make.overlay(ids, label="cat"))
    two = overlays.write_overlay(lake.store, make.overlay(ids[::-1], label="cat", exclude=None, weight=None))
    assert one == two
