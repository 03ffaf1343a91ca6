"""Training on a lake in a bucket whose shards come through a small cache: the same weights, and clear errors."""

from __future__ import annotations

import csv
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.bucket import BucketStore
from sevenfold.storage.keys import shard_key
from sevenfold.storage.room import VARIABLE, is_held
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.store import LocalStore, Store, open_store
from sevenfold.training.config import TrainConfig, parse
from sevenfold.training.place import Place
from sevenfold.training.task import Task, resolve
from sevenfold.training.trainer import train_run

SPLITS = ("train", "train", "train", "val", "test", "train")


def settings(**values: Any) -> TrainConfig:
    base = {
        "dataset": "toy", "epochs": 2, "batch_size": 16, "lr": 0.05, "widths": [4], "precision": "fp32", "threads": 1,
        "window": 2, "cache_decoded": 0,
    }  # fmt: skip
    return parse({**base, **values})


def land(lake: Lake, home: Path, dataset: str, count: int, seed: int) -> None:
    """A dataset of so many images of two colours, in the splits above."""
    random = np.random.default_rng(seed)
    home.mkdir()
    with open(home / "index.csv", "w", newline="") as f:
        out = csv.writer(f)
        out.writerow(["path", "label", "split"])
        for i in range(count):
            pixels = random.integers(0, 120, (16, 16, 3), dtype=np.uint8)
            pixels[..., i % 2] += 60
            Image.fromarray(pixels).save(home / f"{i}.png")
            out.writerow([f"{i}.png", "ab"[i % 2], SPLITS[i // 2 % len(SPLITS)]])
    lake.ingest(home / "index.csv", dataset, "b1")
    lake.set_status(dataset, "b1", "admitted")
    lake.commit(dataset, message="first")


@pytest.fixture(scope="session")
def small_shards(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    """`toy`, 72 images in a dozen shards, `more`, 24 images in a few, and the variant 8-raw of both."""
    home = tmp_path_factory.mktemp("small_shards")
    lake = Lake.create(home / "lake", shard_bytes=24 << 10)
    land(lake, home / "toy", "toy", 72, 0)
    land(lake, home / "more", "more", 24, 1)
    for dataset in ("toy", "more"):
        lake.materialize(dataset, size=8, format="raw")
    assert isinstance(lake.store, LocalStore)
    return lake.store


def sizes(store: Store) -> list[int]:
    return sorted(e.bytes for e in store.entries("shards"))


def limit_of(url: str, config: TrainConfig, shards: int) -> int:
    """Bytes for so many of the largest shards beside the small files that a run reads (which this fetches)."""
    lake = Lake.open(url)
    task = Task.of(lake, resolve(lake, config))
    largest = sorted(size for _, size in task._shards)
    store = lake.store
    assert isinstance(store, BucketStore)
    return sum(largest[len(largest) - shards :]) + sum(c.bytes for c in store.copies.room.copies() if not c.shard)


@pytest.fixture
def lakes(small_shards: LocalStore, bucket: str, tmp_path: Path) -> tuple[Path, str]:
    """The same lake on a disk and in a bucket."""
    for place in (tmp_path / "local", bucket):
        copied(small_shards, open_store(place))
    return tmp_path / "local", bucket


def copied(source: LocalStore, target: Store) -> None:
    for entry in source.entries(""):
        target.create(entry.key, source.read(entry.key))


def opened(place: Path | str) -> Lake:
    """The lake; copies in its cache may go sooner than 5 seconds after their last use."""
    lake = Lake.open(place)
    if isinstance(lake.store, BucketStore):
        lake.store.copies.room._recent = 0.05
    return lake


def run(place: Path | str, config: TrainConfig, progress: Progress = silent) -> tuple[dict[str, Any], bytes]:
    """(result, weights) of a run."""
    lake = opened(place)
    result = train_run(Task.of(lake, resolve(lake, config)), 0, Place(), progress)
    return result, lake.store.read(f"runs/{result['run_id']}/model.safetensors")


def evictions(url: str, result: dict[str, Any]) -> int:
    """How many shards of the lake are not in the cache."""
    store = open_store(url)
    assert isinstance(store, BucketStore)
    return len(store.entries("shards")) - sum(c.shard for c in store.copies.room.copies())


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    drop = ("seconds",)
    histories = [[{k: v for k, v in p.items() if k not in drop} for p in r["history"]] for r in (found, expected)]
    assert histories[0] == histories[1] and found["splits"] == expected["splits"]
    assert found["failed"] == expected["failed"] == [] and found["taken_down"] == expected["taken_down"]



@pytest.mark.parametrize(("window", "threads", "more"), [(1, 0, 1), (1, 1, 2), (2, 1, 1), (2, 2, 2)])
def test_the_weights_are_those_of_a_local_lake(
    lakes: tuple[Path, str], window: int, threads: int, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache with room for the window and one or two shards more: everything is evicted and fetched many times."""
    local, url = lakes
    config = settings(window=window, loader_threads=threads)
    expected, weights = run(local, config)
    limit = limit_of(url, config, window + more)
    monkeypatch.setenv(VARIABLE, str(limit))
    found, same_weights = run(url, config)
    assert same_weights == weights
    same(found, expected)
    assert 0 <= found["shard_wait_seconds"] <= found["total_seconds"] and "shard_wait_seconds" not in expected
    print(limit, found["shard_wait_seconds"], found["total_seconds"], found["predict_seconds"])
