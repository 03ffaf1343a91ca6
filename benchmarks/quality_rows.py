"""Every check without a model on ten million index rows beside a reference of as many: seconds and memory of each.

    python benchmarks/quality_rows.py [--rows 10000000] [--only validity,volatility] [--folder DIR] [--seconds 60]

The rows are made once, as files that are mapped into memory: what the system may take back at any time is not counted
as the checks' own (RssAnon, above what was there before the first), and is in the peak of everything (VmHWM). The
checks run one after another in one process, as `sevenfold check` runs them: what several need is made once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

CLASSES = tuple(f"class {i:02d}" for i in range(10))
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
PIECE = 1 << 18


def digests(chance: np.random.Generator, n: int) -> pa.Array:
    """n random digests in hex."""
    raw = chance.integers(0, 256, (n, 32), dtype=np.uint8)
    text = np.empty((n, 64), np.uint8)
    text[:, ::2], text[:, 1::2] = _DIGITS[raw >> 4], _DIGITS[raw & 15]
    offsets = np.arange(0, 64 * n + 1, 64, dtype=np.int32)
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(text))


def words(codes: np.ndarray, names: tuple[str, ...]) -> pa.Array:
    """Text of codes."""
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(names)).cast(pa.string())


def rows_of(seed: int, first: int, n: int) -> dict[str, pa.Table]:
    """The piece of each table that begins at row `first`: rows, properties and metadata."""
    from sevenfold.storage.index import PROPERTIES

    chance = np.random.default_rng(seed)
    ids = digests(chance, n)
    counted = pa.array(np.arange(first, first + n)).cast(pa.string())
    same = np.zeros(n, np.int32)
    side = pa.array(np.full(n, 32, np.int32))
    splits = np.searchsorted([0.8, 0.9], chance.random(n)).astype(np.int32)
    rows = pa.table(
        {
            "id": ids, "batch": words(same, ("b",)), "shard": pa.nulls(n, pa.string()), "ext": words(same, ("jpg",)),
            "offset": pa.array(np.arange(n, dtype=np.int64)), "size": pa.array(chance.integers(700, 1300, n)),
            "path": pa.compute.binary_join_element_wise(counted, ".jpg", ""),
            "width": side, "height": side, "channels": pa.array(np.full(n, 3, np.int32)), "mode": words(same, ("RGB",)),
            "format": words(same, ("JPEG",)), "pixel_digest": digests(chance, n),
            "phash": pa.array(chance.integers(-(2**63), 2**63 - 1, n)),
            "label": words(chance.integers(0, 10, n, dtype=np.int32), CLASSES),
            "split": words(splits, ("train", "val", "test")), "weight": pa.array(np.ones(n)),
            "bytes": pa.array(chance.integers(700, 1300, n)),
        }
    )  # fmt: skip
    measured = {name: pa.array(chance.random(n)) for name in PROPERTIES}
    captions = words(
        chance.integers(0, 500, n, dtype=np.int32), tuple(f"a photo of thing number {i}" for i in range(500))
    )
    said = {
        "age": pa.array(chance.integers(0, 90, n), mask=chance.random(n) < 0.02),
        "score": pa.array(chance.normal(size=n)),
        "country": words(chance.integers(0, 40, n, dtype=np.int32), tuple(f"c{i}" for i in range(40))),
        "caption": pa.compute.binary_join_element_wise(captions, counted, " "),
    }
    return {"rows": rows, "properties": pa.table({"id": ids, **measured}), "metadata": pa.table({"id": ids, **said})}


def write(folder: Path, name: str, seed: int, rows: int) -> None:
    """The three tables of one version as Arrow files, piece by piece."""
    writers: dict[str, pa.RecordBatchWriter] = {}
    for number, start in enumerate(range(0, rows, PIECE)):
        for kind, table in rows_of(seed + number, start, min(PIECE, rows - start)).items():
            if kind not in writers:
                writers[kind] = pa.ipc.new_file(str(folder / f"{name}-{kind}.arrow"), table.schema)
            writers[kind].write_table(table)
    for writer in writers.values():
        writer.close()


def mapped(folder: Path, name: str) -> dict[str, pa.Table]:
    """The tables, mapped into memory."""
    return {
        kind: pa.ipc.open_file(pa.memory_map(str(folder / f"{name}-{kind}.arrow"))).read_all()
        for kind in ("rows", "properties", "metadata")
    }


def own_peak(stop: threading.Event, found: list[int]) -> None:
    """Watch this process's anonymous memory (KB)."""
    while not stop.wait(0.02):
        found[0] = max(found[0], _status("RssAnon"))


def _status(name: str) -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1])


def contexts(folder: Path, rows: int) -> dict[str, Any]:
    """The two kinds of subject, over the same mapped rows."""
    from sevenfold.quality.context import Context

    before, now = mapped(folder, "before"), mapped(folder, "now")
    empty = pa.table({c: pa.array([], pa.string()) for c in ("path", "reason", "detail")})
    counts = {"inputs": rows, "samples": rows, "aliases": 0, "relabels": 0, "quarantined": 0}
    record = {
        "batch": "b", "status": "landed", "counts": counts, "reasons": {}, "seconds": {"ingest": 60.0},
        "times": {"landed": 100.0, "newest_input": 90.0},
    }  # fmt: skip
    common: dict[str, Any] = {"now": 200.0, "classes": CLASSES, "records": [record], **now}
    reference = Context("v1", "version", now=200.0, classes=CLASSES, **before)
    return {
        "batch": Context("b", "batch", quarantine=empty, record=record, reference=reference, **common),
        "version": Context("v2", "version", reference=reference, **common),
    }


@dataclass(frozen=True)
class Took:
    """What a check took: seconds on the clock and of the processors, GB of its own and with the mapped rows."""

    clock: float
    cpu: float
    own: float
    all: float
    results: str


def took(context: Any, check: Any, base: int) -> Took:
    """Run one check."""
    from sevenfold.quality.checks import judge

    found, stop = [0], threading.Event()
    watcher = threading.Thread(target=own_peak, args=(stop, found), daemon=True)
    watcher.start()
    began, worked = time.perf_counter(), time.process_time()
    verdicts = judge(context, checks=[check])
    clock, cpu = time.perf_counter() - began, time.process_time() - worked
    stop.set()
    watcher.join()
    results = ", ".join(sorted({v.result for v in verdicts})) or "nothing to say"
    results += "".join(f": {v.message[:90]}" for v in verdicts if v.result == "crashed")
    return Took(clock, cpu, max(0, found[0] - base) / 1e6, _status("VmHWM") / 1e6, results)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--only", default="", help="checks or modules, by commas; else all")
    parser.add_argument("--folder", type=Path, help="keeps the made rows here")
    parser.add_argument("--seconds", type=float, default=60.0, help="what all of them may take")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="what they may add in memory")
    args = parser.parse_args()
    from sevenfold.quality.checks import built_in

    wanted = [c for c in built_in() if not args.only or any(c.key.startswith(w) for w in args.only.split(","))]
    with tempfile.TemporaryDirectory() as made:
        folder = args.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        stamp = folder / f"rows-{args.rows}"
        if not stamp.exists():  # in a process of its own: what making them takes is not to be held against the checks
            context = multiprocessing.get_context("spawn")
            for name, seed in (("before", 0), ("now", 1_000_000)):
                writer = context.Process(target=write, args=(folder, name, seed, args.rows))
                writer.start()
                writer.join()
                if writer.exitcode:
                    sys.exit(f"the rows could not be written: exit code {writer.exitcode}")
            stamp.touch()
        size = sum(f.stat().st_size for f in folder.glob("*.arrow")) / 1e9
        print(f"{args.rows:,} rows and a reference of as many: {size:.1f} GB of tables, mapped from disk\n")
        subjects, base = contexts(folder, args.rows), _status("RssAnon")
        print("| check | seconds | CPU seconds | own memory, GB | result |\n|---|---|---|---|---|")
        runs = []
        for check in wanted:
            run = took(subjects["batch" if "batch" in check.kinds else "version"], check, base)
            runs.append(run)
            print(f"| {check.key} | {run.clock:.2f} | {run.cpu:.2f} | {run.own:.2f} | {run.results} |", flush=True)
        clock, cpu, own = sum(r.clock for r in runs), sum(r.cpu for r in runs), max(r.own for r in runs)
        kept = "within" if clock <= args.seconds and own <= args.gigabytes else "over"
        print(f"| all | {clock:.1f} | {cpu:.1f} | {own:.2f} | {kept} {args.seconds:g} s and {args.gigabytes:g} GB |")
        print(f"\nWith the mapped rows, which the system may take back: {max(r.all for r in runs):.2f} GB.")


if __name__ == "__main__":
    main()
