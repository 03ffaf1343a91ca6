"""Ingest of a zip of small images and of a folder of photographs, beside the bare loop that only reads and decodes.

    python benchmarks/storage_ingest.py [--zip cifar10_jpeg.zip] [--photos photos/] [--repeats 5] [--workers N]

Both sides start as many processes and read the same bytes; ingest also lists, measures, digests, hashes and records.
Photographs are too few to hide the start of processes: each is repeated with a comment of its own, so that ids differ.
Prints Markdown; run it on an idle machine. A source that is not given has no row.
"""

from __future__ import annotations

import argparse
import io
import os
import platform
import statistics
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import active_children, get_context
from pathlib import Path


def decode_all(source: str, names: Sequence[str]) -> int:
    """Read some members of a zip, or files of a folder, decode them with Pillow and do nothing else; pixels seen."""
    import numpy as np
    from PIL import Image

    def read() -> Iterator[bytes]:
        if source.endswith(".zip"):
            with zipfile.ZipFile(source) as z:
                yield from (z.read(name) for name in names)
        else:
            yield from ((Path(source) / name).read_bytes() for name in names)

    return sum(np.asarray(Image.open(io.BytesIO(data))).size for data in read())


def bare(source: Path, workers: int) -> float:
    """Seconds of the bare loop on `workers` processes, their start included."""
    if source.is_dir():
        names = sorted(p.name for p in source.iterdir())
    else:
        with zipfile.ZipFile(source) as z:
            names = [n for n in z.namelist() if not n.endswith("/")]
    begun = time.perf_counter()
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        seen = sum(pool.map(decode_all, [str(source)] * workers, [names[i::workers] for i in range(workers)]))
    assert seen
    return time.perf_counter() - begun


def land(source: Path, workers: int) -> float:
    """Seconds of one ingest into a fresh lake: listing, measuring on `workers` processes, recording."""
    from sevenfold.storage import Lake

    with tempfile.TemporaryDirectory() as folder:
        lake = Lake.create(Path(folder) / "lake")
        begun = time.perf_counter()
        lake.ingest(source, "d", "b", workers=workers)
        return time.perf_counter() - begun


def interleaved(repeats: int, *runs: Callable[[], float]) -> list[list[tuple[float, float]]]:
    """(wall seconds, CPU seconds) of each run, one after the other `repeats` times: a busy moment meets all."""
    return [list(times) for times in zip(*([_timed(run) for run in runs] for _ in range(repeats)), strict=True)]


def _timed(run: Callable[[], float]) -> tuple[float, float]:
    """What the run says of its wall time, and the processor time that it and its processes took meanwhile."""
    before = os.times()
    wall = run()
    for process in active_children():  # workers end a little later than ingest, and count once they have
        process.join()
    return wall, sum(os.times()[:4]) - sum(before[:4])


def repeated_photos(photos: Path, folder: Path, times: int) -> Path:
    """Every photograph `times` times, each copy with another comment segment after the start of image."""
    for path in sorted(photos.iterdir()):
        data = path.read_bytes()
        for i in range(times):
            comment = f"copy {i:04d}".encode()
            segment = b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment
            (folder / f"{path.stem}-{i:04d}.jpg").write_bytes(data[:2] + segment + data[2:])
    return folder


def compare(name: str, source: Path, repeats: int, workers: int) -> str:
    """One row: images per second of both, and ingest's share of the bare loop by the clock and by processor time."""
    inputs = len(list(source.iterdir())) if source.is_dir() else len(zipfile.ZipFile(source).namelist())
    ours, theirs = interleaved(repeats, lambda: land(source, workers), lambda: bare(source, workers))
    rates = [spread([inputs / wall for wall, _ in side], ",.0f") for side in (ours, theirs)]
    ratios = [spread([b[i] / a[i] for a, b in zip(ours, theirs, strict=True)], ".2f") for i in (0, 1)]
    return f"| {' | '.join([name, f'{inputs:,}', *rates, *ratios])} |"


def spread(values: Sequence[float], form: str) -> str:
    """Median and extremes."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def parts(photos: Path, repeats: int = 5) -> str:
    """Where the time of a photograph goes, in one process: milliseconds per image of each part, the least of some."""
    import hashlib

    import numpy as np
    from PIL import Image

    from sevenfold.storage import pixels
    from sevenfold.storage.decode import decode
    from sevenfold.storage.measure import measure_many

    files = [p.read_bytes() for p in sorted(photos.iterdir())[:100]]
    images = [decode(f, "").pixels for f in files]
    images = [i for i in images if i.ndim == 3]
    small = [pixels.reduced(i[None]) for i in images]
    grey = [pixels.grey_of(s) for s in small]
    size = np.array([1])
    steps: dict[str, Callable[[], object]] = {
        "Pillow decode": lambda: [np.asarray(Image.open(io.BytesIO(f))).size for f in files],
        "decode": lambda: [decode(f, "").pixels.size for f in files],
        "sha256 of file and pixels": lambda: [hashlib.sha256(memoryview(x)).digest() for x in (*files, *images)],
        "smaller copy": lambda: [pixels.reduced(i[None]).size for i in images],
        "luma": lambda: [pixels.grey_of(s).size for s in small],
        "properties": lambda: [
            pixels.properties(i[None], s, g, size) for i, s, g in zip(images, small, grey, strict=True)
        ],
        "perceptual hash": lambda: [pixels.phash(g) for g in grey],
        "all that ingest does": lambda: measure_many((f, "") for f in files),
    }
    rows = ["| part | ms per photograph |", "|---|---|"]
    for name, step in steps.items():
        least = min(_seconds(step) for _ in range(repeats))
        rows.append(f"| {name} | {1000 * least / len(files):.2f} |")
    return "\n".join(rows)


def _seconds(step: Callable[[], object]) -> float:
    begun = time.perf_counter()
    step()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--zip", type=Path, help="of small images, in class folders")
    parser.add_argument("--photos", type=Path, help="a folder of JPEGs")
    parser.add_argument("--copies", type=int, default=15, help="of each photograph")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    versions = ", ".join(f"{p} {version(p)}" for p in ("pillow", "numpy", "pyarrow", "simplejpeg"))
    print(f"Python {platform.python_version()}, {versions}, {options.workers} processes\n")
    print("| source | inputs | ingest, images/s | bare read + decode | ratio by the clock | by processor time |")
    print("|---|---|---|---|---|---|")
    if options.zip:
        print(compare("zip of small JPEGs", options.zip, options.repeats, options.workers), flush=True)
    if options.photos:
        with tempfile.TemporaryDirectory() as folder:
            photos = repeated_photos(options.photos, Path(folder), options.copies)
            print(compare("folder of photographs", photos, options.repeats, options.workers), flush=True)
        print("\n" + parts(options.photos))


if __name__ == "__main__":
    main()
