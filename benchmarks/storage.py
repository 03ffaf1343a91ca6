"""Every figure of storage in one run: writing shards, landing, verifying and querying, one after the other.

    python benchmarks/storage.py [--zip cifar10_jpeg.zip] [--photos FOLDER] [--rows 10000000]

Each part is a script of its own beside this one and prints Markdown: ratios to a peer or to what the machine can do,
measured in turns within the part. Run it on an idle machine; it takes about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("webdataset", "pyarrow", "duckdb", "pillow", "simplejpeg", "numpy")


def parts(options: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    """(heading, script and its arguments)."""
    yield "Writing shards", ["storage_write.py"]
    sources = [x for n in ("zip", "photos") if getattr(options, n) for x in (f"--{n}", str(getattr(options, n)))]
    if sources:
        yield "Landing", ["storage_ingest.py", *sources]
    yield "Verifying", ["storage_verify.py"]
    yield "Queries", ["storage_query.py", "--rows", str(options.rows)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--zip", type=Path, help="of small images, in class folders: landed")
    parser.add_argument("--photos", type=Path, help="a folder of JPEGs: landed")
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the index that is queried")
    options = parser.parse_args()
    packages = ", ".join(f"{p} {version(p)}" for p in PACKAGES)
    print(f"Python {platform.python_version()}, {packages}, {len(os.sched_getaffinity(0))} cores", flush=True)
    for heading, (script, *arguments) in parts(options):
        load = os.getloadavg()[0]
        print(f"\n## {heading}\n\nLoad before: {load:.1f}\n", flush=True)
        done = subprocess.run([sys.executable, Path(__file__).with_name(script), *arguments])
        if done.returncode:
            sys.exit(f"{script} ended with {done.returncode}")


if __name__ == "__main__":
    main()
