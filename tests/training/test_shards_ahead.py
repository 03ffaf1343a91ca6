"""Training on a lake in a bucket whose shards come through a small cache: the same weights, and clear errors."""

from __future__ import annotations

import csv
import importlib.util
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from PIL import Image

from sevenfold.storage import Lake, SevenfoldError, takedown
from sevenfold.storage import gc as collecting
from sevenfold.storage.bucket import BucketStore
from sevenfold.storage.keys import shard_key
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.room import VARIABLE
from sevenfold.storage.store import LocalStore, Store, open_store
from sevenfold.training.config import TrainConfig, parse
from sevenfold.training.launch import launch, prepare
from sevenfold.training.launch import run as carry_out
from sevenfold.training.place import Place
from sevenfold.training.steps import read_steps
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
def proxy(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The proxy of the storage tests in front of the bucket's server; `shards` counts who asked for which shard."""
    path = Path(__file__).parents[1] / "storage" / "proxy.py"
    spec = importlib.util.spec_from_file_location("storage_proxy", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    between = module.Proxy(os.environ["AWS_ENDPOINT_URL"])
    between.shards = Counter()
    between.then = lambda method, path, number: module.PASS

    def rule(method: str, path: str, number: int) -> str:
        if method == "GET" and path.endswith(".tar"):
            between.shards[path.rpartition("/")[2].removesuffix(".tar")] += 1
        return str(between.then(method, path, number))

    between.rule, between.module = rule, module
    monkeypatch.setenv("AWS_ENDPOINT_URL", between.url)
    yield between
    between.close()


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


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    drop = ("seconds",)
    histories = [[{k: v for k, v in p.items() if k not in drop} for p in r["history"]] for r in (found, expected)]
    assert histories[0] == histories[1] and found["splits"] == expected["splits"]
    assert found["failed"] == expected["failed"] == [] and found["taken_down"] == expected["taken_down"]


def all_ended(threads: int) -> None:
    until = time.monotonic() + 5
    while threading.active_count() > threads:
        assert time.monotonic() < until, threading.enumerate()
        time.sleep(0.01)


def files_open() -> Counter[str]:
    found: Counter[str] = Counter()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found[str(link.readlink())] += 1
    return found


@pytest.mark.parametrize(("window", "threads", "more"), [(1, 0, 1), (2, 2, 1)])
def test_the_weights_are_those_of_a_local_lake(
    proxy: Any, lakes: tuple[Path, str], window: int, threads: int, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache with room for the window and one or two shards more: everything is evicted, and fetched once a pass."""
    local, url = lakes
    config = settings(window=window, loader_threads=threads)
    expected, weights = run(local, config)
    monkeypatch.setenv(VARIABLE, str(limit_of(url, config, window + more)))
    assert not proxy.shards
    running = threading.active_count()
    found, same_weights = run(url, config)
    assert same_weights == weights
    same(found, expected)
    assert 0 < found["shard_wait_seconds"] < found["total_seconds"] and "shard_wait_seconds" not in expected
    passes = 2 * config.epochs + 1  # training and evaluation, and the predictions
    assert len(proxy.shards) < proxy.shards.total(), "what was evicted was fetched again"
    assert max(proxy.shards.values()) <= passes + 1, proxy.shards
    all_ended(running)
    assert not [name for name in files_open() if "/cache/" in name], "no shard is left open, and none locked"


def test_a_limit_below_a_window_ends_the_run_before_it_begins(
    proxy: Any, lakes: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url = lakes
    config = settings(window=3)
    limit = limit_of(url, config, 3)
    largest = limit - limit_of(url, config, 2)
    monkeypatch.setenv(VARIABLE, str(3 * largest))
    with pytest.raises(SevenfoldError, match=r"a window of 3 shards and one of the next(.|\n)*lower `window`"):
        run(url, config)
    assert not proxy.shards and not [e for e in open_store(url).entries("runs") if "/steps/" in e.key]


def test_pixels_that_are_kept_are_decoded_in_row_order(
    proxy: Any, lakes: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    local, url = lakes
    config = settings(cache_decoded=1 << 30)
    expected, weights = run(local, config)
    monkeypatch.setenv(VARIABLE, str(limit_of(url, config, 3)))
    found, same_weights = run(url, config)
    assert same_weights == weights
    same(found, expected)
    task = Task.of(Lake.open(url), resolve(Lake.open(url), config))
    assert set(proxy.shards.values()) == {1}, "each shard is fetched once, however many epochs there are"
    order = [task.dataset.shards.index(digest) for digest in proxy.shards]
    assert sorted(order) == list(range(len(order))) and max(abs(a - i) for i, a in enumerate(order)) <= 4


@pytest.mark.parametrize(
    "kind", ["taken down", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("variant", "mix"))]
)
def test_the_weights_are_the_same_with(
    kind: str, proxy: Any, lakes: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    local, url = lakes
    mix = [{"dataset": "more", "ratio": 0.5}]
    config = settings(**{"variant": {"variant": "8-raw"}, "mix": {"mix": mix}, "taken down": {}}[kind])
    gone = ""
    if kind == "taken down":
        samples = Lake.open(url).samples("toy")
        gone = samples["shard"][0].as_py()
        ids = samples.filter(pc.equal(samples["shard"], gone))["id"].to_pylist()
        for place in lakes:
            take_down(Lake.open(place), ids)
    expected, weights = run(local, config)
    monkeypatch.setenv(VARIABLE, str(limit_of(url, config, 5 if kind == "mix" else 3)))
    proxy.shards.clear()
    found, same_weights = run(url, config)
    assert same_weights == weights
    same(found, expected)
    assert gone not in proxy.shards and (found["taken_down"] > 0) == bool(gone)
    read = {digest for digest, _ in Task.of(Lake.open(url), resolve(Lake.open(url), config))._shards}
    assert set(proxy.shards) <= read


def take_down(lake: Lake, ids: list[str]) -> None:
    request = takedown.Request(where=f"id in ({', '.join(repr(i) for i in ids)})")
    found = takedown.find(lake.store, request)
    assert not isinstance(found, takedown.Takedown)
    takedown.carry_out(lake.store, request, found, "asked for")


@pytest.mark.parametrize("threads", [0, 2])
def test_a_shard_that_is_gone_is_one_clear_error(lakes: tuple[Path, str], threads: int) -> None:
    _, url = lakes
    store, config = open_store(url), settings(loader_threads=threads)
    steps: list[int] = []

    def progress(done: int, total: int, what: str) -> None:
        if what.startswith("training") and not steps:
            steps.append(done)
            for digest in digests:
                store.delete(shard_key(digest))  # and this machine's copies

    lake = opened(url)
    task = Task.of(lake, resolve(lake, config))
    digests = list(task.dataset.shards)
    with pytest.raises(SevenfoldError, match=r"there is no such object(.|\n)*sevenfold verify") as caught:
        train_run(task, 0, Place(), progress)
    assert steps and any(digest in caught.value.where for digest in digests)


@pytest.mark.slow
def test_a_store_that_fails_now_and_then_and_a_cache_that_is_emptied_change_nothing(
    proxy: Any, lakes: tuple[Path, str]
) -> None:
    """Half answers and refusals for shards and for checkpoints; `gc --cache 1kB --delete` again and again."""
    local, url = lakes
    config = settings(window=3)
    expected, weights = run(local, config)

    def trouble(method: str, path: str, number: int) -> str:
        if path.endswith(".tar") and number % 3 == 0:
            return str(proxy.module.TRUNCATE)
        return str(proxy.module.REFUSE if "/runs/" in path and number % 4 == 0 else proxy.module.PASS)

    over, gone = threading.Event(), []

    def collect() -> None:
        store = open_store(url)
        while not over.wait(0.01):
            gone.extend(collecting.evict(store, 1000, delete=True))

    collector = threading.Thread(target=collect)
    proxy.then = trouble
    collector.start()
    try:
        found, same_weights = run(url, config)
    finally:
        over.set()
        collector.join()
    assert same_weights == weights and gone and min(proxy.acted["truncate"], proxy.acted["503"]) > 2
    same(found, expected)


@pytest.mark.slow
def test_two_machines_that_train_one_run_at_once_leave_one_result(lakes: tuple[Path, str], tmp_path: Path) -> None:
    """A waste, but no danger: each does every step, and whatever either writes is whole and the same."""
    local, url = lakes
    config = settings(epochs=6)
    (expected,) = launch(local, config)["runs"]
    with ThreadPoolExecutor(2) as both:
        homes = [{"SEVENFOLD_CACHE": str(tmp_path / f"machine-{i}")} for i in range(2)]
        specs = [prepare(url, config.changed(timeout=60.0 + i)) for i in range(2)]
        started = [both.submit(carry_out, spec, extra_env=env) for spec, env in zip(specs, homes, strict=True)]
        ended = [future.result()["runs"][0] for future in started]
    assert [r["run_id"] for r in ended] == [expected["run_id"]] * 2
    here, there = LocalStore(local), open_store(url)
    key = f"runs/{expected['run_id']}"
    assert there.read(f"{key}/model.safetensors") == here.read(f"{key}/model.safetensors")
    assert read_steps(there, f"{key}/steps")["step"].to_pylist() == list(range(expected["steps"]))
    for found in ended:
        same(found, expected)


@pytest.mark.slow
def test_worker_processes_read_what_the_trainer_fetched(
    proxy: Any, lakes: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    local, url = lakes
    config = settings(workers=2)
    expected, weights = run(local, config)
    monkeypatch.setenv(VARIABLE, str(limit_of(url, config, 4)))
    found, same_weights = run(url, config)
    assert same_weights == weights
    same(found, expected)
