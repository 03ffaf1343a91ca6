"""Validity: what becomes of two hundred broken files, and what the checks without a model cost beside bare decoding.

    python benchmarks/quality_validity.py [--zip cifar10_jpeg.zip] [--photos FOLDER] [--repeats 5]

Every rate is CPU time of a process of its own, the best of some repeats: `bare` decodes to arrays of pixels and does
nothing else, `whole` is what ingest does with each image (decode, two digests, properties, perceptual hash).
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

FEW = 8192
"""Small images that are measured."""


def table_of_kinds() -> str:
    """Kind x (files, accepted, refused, reasons), of the files that tests/storage/broken.py makes."""
    from sevenfold.storage import Lake

    path = Path(__file__).parents[1] / "tests" / "storage" / "broken.py"
    spec = importlib.util.spec_from_file_location("broken_files", path)
    assert spec is not None and spec.loader is not None
    broken = importlib.util.module_from_spec(spec)
    sys.modules["broken_files"] = broken
    spec.loader.exec_module(broken)
    with tempfile.TemporaryDirectory() as folder:
        cases = broken.make(Path(folder) / "s")
        lake = Lake.create(Path(folder) / "lake")
        began = time.perf_counter()
        lake.ingest(Path(folder) / "s", "d", "b")
        seconds = time.perf_counter() - began
        aside = {r["path"]: r["reason"] for r in lake.quarantine("d", "b").to_pylist()}
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    wrong = 0
    for case in cases:
        became = aside.get(case.path, "accepted")
        reasons[case.kind][became] += 1
        wrong += became not in case.expected
    lines = ["| kind | files | accepted | refused | reasons |", "|---|---|---|---|---|"]
    for kind, told in reasons.items():
        taken = told.pop("accepted", 0)
        said = ", ".join(f"{n} {r}" for r, n in told.most_common())
        lines.append(f"| {kind} | {taken + sum(told.values())} | {taken} | {sum(told.values())} | {said} |")
    total = f"{len(cases)} files of {len(reasons)} kinds in {seconds:.2f} s; {wrong} not as the policy says"
    return "\n".join([*lines, "", total])


def inputs(archive: Path | None, photos: Path | None) -> dict[str, list[bytes]]:
    """Name -> files."""
    found = {}
    if archive is not None:
        with zipfile.ZipFile(archive) as z:
            names = [n for n in z.namelist() if n.endswith(".jpg")][:FEW]
            found["32 px"] = [z.read(n) for n in names]
    if photos is not None:
        found["photos"] = [p.read_bytes() for p in sorted(photos.iterdir())]
    return found


def simplejpeg_bare(files: Sequence[bytes]) -> None:
    """Decode with simplejpeg."""
    import simplejpeg

    for data in files:
        simplejpeg.decode_jpeg(data, "RGB")


def pillow_bare(files: Sequence[bytes]) -> None:
    """Decode with Pillow, to arrays as everybody else does."""
    import numpy as np
    from PIL import Image

    for data in files:
        np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def digests(files: Sequence[bytes]) -> None:
    """What identity alone costs: decode, and sha256 of the file and of its pixels."""
    import hashlib

    import simplejpeg

    for data in files:
        hashlib.sha256(data).digest()
        hashlib.sha256(simplejpeg.decode_jpeg(data, "RGB").data).digest()


def whole(files: Sequence[bytes]) -> None:
    """Everything that ingest does with an image, in a worker's process."""
    from sevenfold.storage.allocator import keep_memory
    from sevenfold.storage.measure import measure_many

    keep_memory()
    for start in range(0, len(files), 256):
        measure_many((data, "a.jpg") for data in files[start : start + 256])


RUNS: dict[str, Callable[[Sequence[bytes]], None]] = {
    "simplejpeg, bare": simplejpeg_bare, "Pillow, bare": pillow_bare, "simplejpeg and digests": digests,
    "whole": whole,
}  # fmt: skip


def one(name: str, files: Sequence[bytes], repeats: int) -> float:
    """Images in a second of CPU time, the best of some repeats."""
    run = RUNS[name]
    run(files[:20])
    best = float("inf")
    for _ in range(repeats):
        began = time.process_time()
        run(files)
        best = min(best, time.process_time() - began)
    return len(files) / best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--zip", type=Path, help="small JPEGs in a zip")
    parser.add_argument("--photos", type=Path, help="a folder of JPEGs")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        name, kind = args.one
        print(one(name, inputs(args.zip, args.photos)[kind], args.repeats))
        return
    print(table_of_kinds())
    given = {"32 px": ("--zip", args.zip), "photos": ("--photos", args.photos)}
    for kind, (option, path) in given.items():
        if path is None:
            continue
        rates = {}
        for name in RUNS:
            command = [sys.executable, __file__, option, str(path), "--repeats", str(args.repeats), "--one", name, kind]
            rates[name] = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(f"\n| {kind} | images/s on one core | whole / this |\n|---|---|---|")
        for name, rate in rates.items():
            print(f"| {name} | {rate:,.0f} | {rates['whole'] / rate:.2f} |")


if __name__ == "__main__":
    main()
