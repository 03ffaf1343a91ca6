"""`scored`: a version's samples beside their signals and predictions, and nothing that is stale or in sample."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from sevenfold.storage import Lake
from sevenfold.storage.index import PROPERTIES, SAMPLES
from sevenfold.storage.scored import PREDICTED


def signal(lake: Lake, name: str, producer: str, values: dict[str, float], scope: str = "content", **more: Any) -> None:
    table = {"id": list(values), "value": list(values.values())} | {k: [v] * len(values) for k, v in more.items()}
    lake.write_signal(name, producer, pa.table(table), scope=scope, in_sample=False)


def older(lake: Lake, *parts: str, seconds: float = 100.0) -> None:
    """Make files look as if they had been written earlier."""
    for path in lake.root.joinpath(*parts).rglob("*.parquet"):
        os.utime(path, (path.stat().st_mtime - seconds,) * 2)


def values(lake: Lake, column: str, ref: str = "main") -> dict[str, Any]:
    return {r["id"]: r[column] for r in lake.sql(f'select id, "{column}" from scored', ref=ref).to_pylist()}


def test_it_has_a_row_per_sample_and_a_column_per_signal(filled: Callable[..., Lake]) -> None:
    lake = filled(6)
    table = lake.sql("select * from scored")
    assert set(table.column_names) == {*SAMPLES.names, *PREDICTED, *PROPERTIES}
    assert table.num_rows == 6
    by_id = {r["id"]: r for r in table.to_pylist()}
    for r in lake.properties("d").to_pylist():
        assert {k: by_id[r["id"]][k] for k in PROPERTIES} == {k: r[k] for k in PROPERTIES}


def test_the_newest_producer_speaks(filled: Callable[..., Lake]) -> None:
    lake = filled(3)
    ids = lake.samples("d")["id"].to_pylist()
    signal(lake, "charm", "z-old", dict.fromkeys(ids, 1.0))
    older(lake, "signals", "charm")
    signal(lake, "charm", "a-new", {ids[0]: 2.0})
    assert values(lake, "charm") == {ids[0]: 2.0, ids[1]: None, ids[2]: None}


def test_what_was_said_of_another_label_or_version_is_not_joined(
    filled: Callable[..., Lake], make: SimpleNamespace
) -> None:
    lake = filled(4)
    first = lake.version("d").content_id
    ids = lake.samples("d").filter(pa.compute.field("label") == "cat")["id"].to_pylist()
    signal(lake, "doubt", "p", dict.fromkeys(ids, 0.5), scope="label", label="cat")
    signal(lake, "group", "p", dict.fromkeys(ids, 7.0), scope="version", content_id=first)
    make.commit(lake, overlays=[make.overlay(ids[:1], label="dog")])
    assert {i: values(lake, "doubt", "v1")[i] for i in ids} == dict.fromkeys(ids, 0.5)
    assert {i: values(lake, "doubt", "v2")[i] for i in ids} == {ids[0]: None, ids[1]: 0.5}
    assert values(lake, "group", "v1")[ids[0]] == 7.0
    assert set(values(lake, "group", "v2").values()) == {None}


def test_an_image_that_landed_twice_is_one_row(
    filled: Callable[..., Lake], tmp_path: Any, make: SimpleNamespace
) -> None:
    lake = filled(4)
    make.land(lake, make.folder(tmp_path / "again", make.two_classes(6)), "again")
    make.land(lake, make.folder(tmp_path / "e", make.two_classes(3)), "b", dataset="e")
    make.commit(lake)
    make.commit(lake, "e")
    assert lake.sql("select count(*) n, count(brightness) b from scored", "d").to_pylist() == [{"n": 6, "b": 6}]
    assert lake.sql("select count(*) n, count(brightness) b from scored", "e").to_pylist() == [{"n": 3, "b": 3}]


def prediction(key: str, label: str, content_id: str, **more: Any) -> dict[str, Any]:
    return {"id": key, "label": label, "content_id": content_id, "predicted": "cat", "in_sample": False, **more}


def test_predictions_are_out_of_sample_of_this_version_first_and_newest(
    filled: Callable[..., Lake], make: SimpleNamespace
) -> None:
    lake = filled(4)
    first = lake.version("d").content_id
    rows = lake.samples("d").to_pylist()
    said = [prediction(r["id"], r["label"], first, loss=1.0, confidence=0.9) for r in rows]
    lake.write_predictions("one", pa.Table.from_pylist(said))
    older(lake, "predictions")
    in_sample = [{**p, "loss": 9.0, "in_sample": True} for p in said]
    lake.write_predictions("two", pa.Table.from_pylist([{**said[0], "loss": 2.0}, *in_sample[1:]]))
    expected = {r["id"]: 1.0 for r in rows} | {rows[0]["id"]: 2.0}
    assert values(lake, "loss") == expected

    make.commit(lake, overlays=[make.overlay([rows[0]["id"]], label="eel")])
    second = lake.version("d").content_id
    assert values(lake, "loss", "v2") == {**expected, rows[0]["id"]: None}, "the loss was of another label"
    assert values(lake, "confidence", "v2")[rows[0]["id"]] == 0.9
    older(lake, "predictions")
    lake.write_predictions(
        "three", pa.Table.from_pylist([prediction(rows[1]["id"], rows[1]["label"], second, loss=3.0)])
    )
    assert values(lake, "loss", "v2")[rows[1]["id"]] == 3.0
    assert values(lake, "loss", "v1") == expected, "what is about the version itself comes first"


@pytest.mark.parametrize("name", ["label", "loss", "with-dash", "Upper"])
def test_any_signal_name_makes_a_column(name: str, filled: Callable[..., Lake]) -> None:
    lake = filled(2)
    ids = lake.samples("d")["id"].to_pylist()
    signal(lake, name, "p", dict.fromkeys(ids, 4.0))
    column = f"signal_{name}" if name in ("label", "loss") else name
    assert set(values(lake, column).values()) == {4.0}
    assert lake.sql("select * from scored").num_rows == 2
