"""An epoch of a lake in a bucket beside the same epoch of a local lake: cold and warm, with and without prefetch.

    python benchmarks/loader_remote.py [--shards 24] [--megabytes 8] [--window 4] [--runs 5]

The bucket is moto on loopback, a server in Python on the same cores: it is slow and takes time from the reader, so only
the ratios within one run mean something, not the rates. Samples of 100 kB are read shard by shard in shuffled windows;
"busy" lets the trainer sleep after each batch, as one does whose accelerator works, for as long in all as a cold epoch
of the bucket takes to fetch. All ways take turns; the median, lowest and highest of the runs are printed as Markdown.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from sevenfold.storage.keys import shard_key
from sevenfold.storage.store import LocalStore, Store, open_store
from sevenfold.training.prefetch import Prefetcher

SAMPLE, BATCH = 100_000, 16


@contextmanager
def bucket() -> Iterator[str]:
    """A lake's URL in an S3 server of its own."""
    import boto3

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true",
    }  # fmt: skip
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        boto3.client("s3", endpoint_url=url, region_name="us-east-1").create_bucket(Bucket="bench")
        yield "s3://bench/lake"
    finally:
        server.kill()
        server.wait()


def fill(stores: list[Store], shards: int, size: int) -> list[tuple[str, int]]:
    """Put the same shards of noise into every store: (digest, bytes) of each."""
    made = []
    for i in range(shards):
        data = np.random.default_rng(i).bytes(size)
        digest = hashlib.sha256(data).hexdigest()
        for store in stores:
            store.create(shard_key(digest), data)
        made.append((digest, size))
    return made


def epoch(store: Store, shards: list[tuple[str, int]], window: int, busy: float, ahead: bool) -> float:
    """Seconds of an epoch of shuffled windows with `busy` seconds of work in all."""
    per_shard = shards[0][1] // SAMPLE
    slots = len(shards) * per_shard

    def windows(epoch: int, consumed: int) -> Iterator[tuple[int, list[int]]]:
        for first in range(0, len(shards), window):
            end = min(first + window, len(shards))
            if end * per_shard > consumed:
                yield first * per_shard, list(range(first, end))

    pause = busy * BATCH / slots
    began, files = time.perf_counter(), {}
    with Prefetcher(store if ahead else LocalStore(Path()), shards, windows, epochs=1) as prefetcher:
        for first, numbers in windows(0, 0):
            order = np.random.default_rng(first).permutation(len(numbers) * per_shard)
            for at in range(0, len(order), BATCH):
                prefetcher.advance(0, first + at)
                for i in order[at : at + BATCH].tolist():
                    shard = numbers[i // per_shard]
                    if shard not in files:
                        files[shard] = os.open(store.local(shard_key(shards[shard][0])), os.O_RDONLY)
                    os.pread(files[shard], SAMPLE, i % per_shard * SAMPLE)
                if pause:
                    time.sleep(pause)
            for fd in files.values():
                os.close(fd)
            files.clear()
        return time.perf_counter() - began


def cost(act: Callable[[int], object], shards: int) -> float:
    """Microseconds of one of `shards` acts."""
    began = time.perf_counter()
    for i in range(shards):
        act(i)
    return (time.perf_counter() - began) / shards * 1e6


def told(values: list[float], scale: float = 1.0, digits: int = 2) -> str:
    low, middle, high = (f"{x * scale:,.{digits}f}" for x in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} to {high})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shards", type=int, default=24)
    parser.add_argument("--megabytes", type=int, default=8)
    parser.add_argument("--window", type=int, default=4)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, bucket() as url:
        cache = Path(made, "cache")
        os.environ["SEVENFOLD_CACHE"] = str(cache)
        local = LocalStore(Path(made, "lake"))
        shards = fill([local, open_store(url)], options.shards, options.megabytes * 10**6)
        total = sum(size for _, size in shards)

        def run(remote: bool, cold: bool, ahead: bool, busy: float) -> float:
            if cold:
                shutil.rmtree(cache, ignore_errors=True)
            return epoch(open_store(url) if remote else local, shards, options.window, busy, ahead)

        fetch = run(True, True, False, 0.0)
        ways: dict[tuple[str, str], list[float]] = {}
        for _ in range(options.runs):
            for work, busy in (("none", 0.0), (f"{fetch:.1f} s busy", fetch)):
                for name, remote, cold, ahead in (
                    ("local lake", False, False, False), ("bucket, cold", True, True, False),
                    ("bucket, cold, prefetch", True, True, True), ("bucket, warm", True, False, False),
                    ("bucket, warm, prefetch", True, False, True),
                ):  # fmt: skip
                    ways.setdefault((work, name), []).append(run(remote, cold, ahead, busy))
        print(f"{options.shards} shards of {options.megabytes} MB ({total / 1e6:,.0f} MB), windows of "
              f"{options.window}, {options.runs} runs in turns\n")  # fmt: skip
        print("| trainer's work | epoch of | seconds | beside local |\n|---|---|---|---|")
        for (work, name), seconds in ways.items():
            beside = statistics.median(seconds) / statistics.median(ways[work, "local lake"])
            print(f"| {work} | {name} | {told(seconds)} | {beside:.2f} x |")
        costs: dict[str, list[float]] = {}
        keys = [shard_key(digest) for digest, _ in shards]
        for _ in range(options.runs):
            remote = open_store(url)
            for name, act in (
                ("local lake: the path", lambda i: local.local(keys[i])),
                ("copy, first time in a process: locked and verified", lambda i, s=remote: s.local(keys[i])),
                ("copy, again: locked", lambda i, s=remote: s.local(keys[i])),
                ("the sha256 alone", lambda i, s=remote: hashlib.file_digest((s.cache / keys[i]).open("rb"), "sha256")),
            ):  # fmt: skip
                costs.setdefault(name, []).append(cost(act, len(keys)))
        print(f"\n| a shard of {options.megabytes} MB | microseconds |\n|---|---|")
        for name, micros in costs.items():
            print(f"| {name} | {told(micros, digits=0)} |")


if __name__ == "__main__":
    main()
