"""A prefetcher, its trainer's workers and another job over one bucket and one cache."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sevenfold.storage import SevenfoldError
from sevenfold.storage.bucket import BucketStore
from sevenfold.storage.keys import shard_key
from sevenfold.storage.room import VARIABLE, is_held
from sevenfold.training.prefetch import Prefetcher

SCRIPT = Path(__file__).with_name("cache_process.py")
SIZE = 300_000


@pytest.fixture
def shards(bucket: str) -> list[tuple[str, int]]:
    """Eight shards in the bucket."""
    store, made = BucketStore(bucket), []
    for i in range(8):
        data = hashlib.shake_256(b"%d" % i).digest(SIZE)
        made.append((hashlib.sha256(data).hexdigest(), SIZE))
        store.create(shard_key(made[-1][0]), data)
    return made


def windows(epoch: int, consumed: int) -> Iterator[tuple[int, list[int]]]:
    """Four windows of two shards and ten slots."""
    for first in range(0, 40, 10):
        if first + 10 > consumed:
            yield first, [first // 5, first // 5 + 1]


def reader(bucket: str, seed: int, seconds: float, shards: list[tuple[str, int]]) -> subprocess.Popen[str]:
    keys = json.dumps([shard_key(d) for d, _ in shards])
    command = [sys.executable, str(SCRIPT), "stress", bucket, str(seed), str(seconds), keys]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_each_object_is_requested_once_whoever_wants_it(
    proxy: Any, bucket: str, proxying: ModuleType, shards: list[tuple[str, int]]
) -> None:
    def slowly(method: str, path: str, n: int) -> str:
        time.sleep(0.05 if method == "GET" else 0.0)
        return proxying.PASS

    proxy.rule = slowly
    before = proxy.seen["GET"]
    others = [reader(bucket, i, 1.5, shards) for i in range(2)]
    with Prefetcher(BucketStore(bucket), shards, windows, epochs=1) as ahead:
        for consumed in range(0, 40, 10):
            ahead.advance(0, consumed)
            assert ahead.wait(30)
        assert all(json.loads(p.communicate(timeout=60)[0])["reads"] >= 8 for p in others)
    assert proxy.seen["GET"] == before + len(shards)


def test_what_is_read_stays_while_another_job_wants_the_room(
    bucket: str, shards: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(4 * SIZE))
    store = BucketStore(bucket)
    store.copies.room._recent = 0.3
    with Prefetcher(store, shards, windows, epochs=1) as ahead:
        ahead.advance(0, 0)
        assert ahead.wait(30)
        other = reader(bucket, 1, 2.0, shards)
        while other.poll() is None:
            assert all(is_held(store.cache / shard_key(d)) for d, _ in shards[:2])
            time.sleep(0.01)
        assert json.loads(other.communicate()[0])["reads"] > 4
        ahead.advance(0, 10)
        assert ahead.wait(30), "and when it moves on it gets what it needs"


def test_a_limit_below_the_window_stops_the_run_before_it_begins(
    proxy: Any, bucket: str, shards: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "0.5MB")
    before = proxy.seen.total()
    with pytest.raises(SevenfoldError, match="a window of 2 shards and one of the next has 900,000 bytes"):
        Prefetcher(BucketStore(bucket), shards, windows)
    assert proxy.seen.total() == before


def test_a_shard_that_is_gone_is_an_error_of_the_trainer(bucket: str, shards: list[tuple[str, int]]) -> None:
    store = BucketStore(bucket)
    store.delete(shard_key(shards[1][0]))
    with Prefetcher(store, shards, windows) as ahead:
        ahead.advance(0, 0)
        with pytest.raises(SevenfoldError, match=rf"{shards[1][0]}(.|\n)*sevenfold verify"):
            ahead.wait(30)
