"""How close to bare sha256 verification runs: the same shards hashed by as many threads, interleaved, medians.

    python benchmarks/storage_verify.py [--megabytes 1000] [--threads 2] [--repeats 5]

Lakes of 1 KB and of 100 KB images are made in a temporary folder through the real commands of the API.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from sevenfold.storage import Lake
from sevenfold.storage.png import encode_png
from sevenfold.storage.verify import verify

SIDES = {"1 KB": 29, "100 KB": 316}
"""Side of a grey image whose PNG with stored blocks has about that many bytes."""


BATCHES = 4


def make(folder: Path, side: int, megabytes: int) -> Lake:
    """A lake with four committed batches of noise."""
    random = np.random.default_rng(side)
    count = megabytes * 1_000_000 // (side * side + 2200)
    lake = Lake.create(folder / "lake")
    for batch in range(BATCHES):
        source = folder / f"b{batch}"
        for name in ("cat", "dog"):
            (source / name).mkdir(parents=True)
        for i in range(count // BATCHES):
            pixels = random.integers(0, 256, (side, side), dtype=np.uint8)
            (source / ("cat" if i % 2 else "dog") / f"{i:07d}.png").write_bytes(encode_png(pixels))
        lake.ingest(source, "d", source.name, workers=len(os.sched_getaffinity(0)))
        lake.set_status("d", source.name, "admitted")
    lake.commit("d", message="benchmark")
    return lake


def bare(paths: list[Path], threads: int) -> None:
    def digest(path: Path) -> str:
        with open(path, "rb", buffering=0) as f:
            return hashlib.file_digest(f, "sha256").hexdigest()

    with ThreadPoolExecutor(threads) as pool:
        assert all(d == p.stem for d, p in zip(pool.map(digest, paths), paths, strict=True))


def checked(lake: Lake, threads: int) -> None:
    assert verify(lake.store, ["d"], threads=threads).clean


def timed(work: Callable[..., object], *arguments: object) -> tuple[float, float]:
    """Seconds of wall time and of processor time."""
    begun, used = time.perf_counter(), time.process_time()
    work(*arguments)
    return time.perf_counter() - begun, time.process_time() - used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000, help="of shards, for each size of image")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {options.threads} threads, medians of {options.repeats} (spread)\n")
    print("| images | shards | bare sha256, MB/s | verify, MB/s | ratio | of CPU time |\n|---|---|---|---|---|---|")
    for name, side in SIDES.items():
        with tempfile.TemporaryDirectory() as temporary:
            lake = make(Path(temporary), side, options.megabytes)
            paths = sorted((lake.root / "shards").rglob("*.tar"))
            megabytes = sum(p.stat().st_size for p in paths) / 1e6
            hashed, verified = [], []
            for _ in range(options.repeats):
                hashed.append(timed(bare, paths, options.threads))
                verified.append(timed(checked, lake, options.threads))
            wall, cpu = (
                statistics.median(h[i] / v[i] for h, v in zip(hashed, verified, strict=True)) for i in range(2)
            )
            rates = [spread([megabytes / t[0] for t in times]) for times in (hashed, verified)]
            sizes = f"{len(paths)}, {megabytes:,.0f} MB"
            print(f"| {name} | {sizes} | {rates[0]} | {rates[1]} | {wall:.2f} | {cpu:.2f} |", flush=True)


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


if __name__ == "__main__":
    main()
