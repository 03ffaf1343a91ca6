"""How long each stage takes on CIFAR-10 as 60,000 JPEGs in a zip, beside the bare loop that only reads and decodes.

    python benchmarks/cifar10.py cifar10_jpeg.zip [--seeds 0,1,2]

The zip's top folders are train and test, their sub-folders the classes. Prints Markdown; run it on an idle machine.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path


def bare(zip_path: str, names: list[str]) -> int:
    """Read and decode some members with Pillow and do nothing else; returns the pixels seen."""
    import numpy as np
    from PIL import Image

    seen = 0
    with zipfile.ZipFile(zip_path) as z:
        for name in names:
            seen += np.asarray(Image.open(io.BytesIO(z.read(name)))).size
    return seen


def bare_rate(zip_path: Path, workers: int) -> float:
    """Images per second of the bare loop on `workers` processes, their start included as it is for ingest."""
    with zipfile.ZipFile(zip_path) as z:
        names = [n for n in z.namelist() if not n.endswith("/")]
    begun = time.perf_counter()
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        parts = [names[i::workers] for i in range(workers)]
        sum(pool.map(bare, [str(zip_path)] * workers, parts))
    return len(names) / (time.perf_counter() - begun)


def timed(folder: Path, *words: str) -> tuple[float, str]:
    """Seconds of wall time of one command, start of the interpreter included, and its output."""
    begun = time.perf_counter()
    done = subprocess.run(
        [Path(sys.executable).with_name("sevenfold"), *words], cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"sevenfold {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return time.perf_counter() - begun, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("zip", type=Path)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--repeats", type=int, default=3, help="of ingest and the bare loop, interleaved")
    options = parser.parse_args()
    workers = len(os.sched_getaffinity(0))
    zip_path = options.zip.absolute()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        timed(folder, "init", "--dataset", "cifar10")
        ingest, rates, bares = [], [], []
        for i in range(options.repeats):
            bares.append(bare_rate(zip_path, workers))
            seconds, said = timed(
                folder, "ingest", str(zip_path), "--dataset", "cifar10" if not i else f"again{i}", "--json"
            )
            ingest.append(seconds)
            found = json.loads(said)
            rates.append(found["counts"]["inputs"] / found["seconds"]["ingest"])
        rows = [("ingest, 60,000 JPEGs from the zip", statistics.median(ingest))]
        rows.append(("check (model-free, Great Expectations included)", timed(folder, "check")[0]))
        rows.append(("commit (shards, index, v1)", timed(folder, "commit", "-m", "first")[0]))
        trained, said = timed(folder, "train", "--epochs", "4", "--seeds", options.seeds, "--json")
        runs = json.loads(said)["runs"]
        rows.append((f"train, 4 epochs, {len(runs)} seeds, evaluation and predictions", trained))
    versions = ", ".join(f"{p} {version(p)}" for p in ("torch", "pillow", "pyarrow"))
    print(f"Python {platform.python_version()}, {versions}, {workers} cores\n\n| stage | wall seconds |\n|---|---|")
    for name, seconds in rows:
        print(f"| {name} | {seconds:.1f} |")
    ratio = statistics.median(r / b for r, b in zip(rates, bares, strict=True))
    print(f"\ningest {spread(rates)} images/s; bare zip read + Pillow decode {spread(bares)}; ratio {ratio:.2f}")
    for run in runs:
        test = run["splits"]["test"]
        print(
            f"seed {run['seed']}: test {test['accuracy']:.1%} of {test['n']:,}, {run['seconds']:.1f} s of training, "
            f"{run['samples_per_second']:,.0f} images/s, loader idle {run['idle_share']:.1%}"
        )


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


if __name__ == "__main__":
    main()
