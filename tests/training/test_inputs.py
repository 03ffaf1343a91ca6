"""What a configuration names is found on this machine and in the lake, on a disk or in a bucket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sevenfold.storage import SevenfoldError
from sevenfold.storage.store import Store, open_store
from sevenfold.training.config import parse
from sevenfold.training.inputs import on_this_machine, trained_path, weights_path
from sevenfold.training.selection import read_ids


@pytest.fixture(params=["disk", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A lake's store with a run, a registered model and a list of ids."""
    made = open_store(tmp_path / "lake" if request.param == "disk" else request.getfixturevalue("bucket"))
    for key in ("runs/run-1/model.safetensors", "runs/run-1/trained.parquet", "models/m/1/model.safetensors"):
        made.replace(key, key.encode())
    made.replace("runs/.selections/ab.json", json.dumps(["x", "y"]).encode())
    return made


@pytest.mark.parametrize("folder", ["runs/run-1", "models/m/1"])
def test_weights_are_named_by_their_folder_or_by_themselves(store: Store, folder: str) -> None:
    expected = f"{folder}/model.safetensors"
    for place in (folder, f"{folder}/", expected):
        assert weights_path(store, f"{store.url}/{place}").read_bytes() == expected.encode()


def test_the_ids_beside_the_weights_of_a_run_are_found_and_a_model_has_none(store: Store) -> None:
    for place in ("runs/run-1", "runs/run-1/model.safetensors"):
        found = trained_path(store, f"{store.url}/{place}")
        assert found is not None and found.read_bytes() == b"runs/run-1/trained.parquet"
    assert trained_path(store, f"{store.url}/models/m/1") is None


def test_a_list_of_ids_in_the_lake_becomes_a_path_on_this_machine(store: Store) -> None:
    config = parse({"dataset": "d", "select_ids": f"{store.url}/runs/.selections/ab.json"})
    here = on_this_machine(store, config)
    assert here.select_ids is not None and read_ids(Path(here.select_ids)) == ["x", "y"]
    assert on_this_machine(store, parse({"dataset": "d"})).select_ids is None


def test_files_outside_the_lake_may_be_named_too(store: Store, tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"mine")
    assert weights_path(store, str(weights)) == weights_path(store, str(tmp_path)) == weights
    assert trained_path(store, str(weights)) is None


@pytest.mark.parametrize("place", ["{lake}/runs/none", "{lake}/runs/.selections", "s3://elsewhere/runs/run-1", "none"])
def test_weights_that_are_not_there_are_named_in_the_error(store: Store, place: str) -> None:
    with pytest.raises(SevenfoldError, match="there are no weights") as error:
        weights_path(store, place.format(lake=store.url))
    assert error.value.where == place.format(lake=store.url)


def test_a_list_that_is_not_in_the_lake_is_named_in_the_error(bucket: str) -> None:
    with pytest.raises(SevenfoldError, match="no such file in this lake"):
        on_this_machine(open_store(bucket), parse({"dataset": "d", "select_ids": f"{bucket}/runs/.selections/no.json"}))
