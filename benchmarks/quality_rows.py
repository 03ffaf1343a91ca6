"""Every check without a model on ten million index rows beside a reference of as many: seconds and memory of each.

    python benchmarks/quality_rows.py [--rows 10000000] [--only validity,volatility] [--folder DIR] [--seconds 60]

The rows are made once, as files that are mapped into memory: what the system may take back at any time is not counted
as the checks' own (RssAnon), and is in the peak of everything (VmHWM). The checks run one after another in a fresh
process each, so that every one has its own peak; what a check shares with others is paid in each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
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


def rows_of(seed: int, n: int) -> dict[str, pa.Table]:
    """One piece of each table: rows, properties and metadata."""
    from sevenfold.storage.index import PROPERTIES

    chance = np.random.default_rng(seed)
    ids = digests(chance, n)
    same = np.zeros(n, np.int32)
    side = pa.array(np.full(n, 32, np.int32))
    splits = np.searchsorted([0.8, 0.9], chance.random(n)).astype(np.int32)
    rows = pa.table(
        {
            "id": ids, "batch": words(same, ("b",)), "shard": pa.nulls(n, pa.string()), "ext": words(same, ("jpg",)),
            "offset": pa.array(np.arange(n, dtype=np.int64)), "size": pa.array(chance.integers(700, 1300, n)),
            "path": pa.compute.binary_join_element_wise(pa.array(np.arange(n)).cast(pa.string()), ".jpg", ""),
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
        "caption": pa.compute.binary_join_element_wise(captions, pa.array(np.arange(n)).cast(pa.string()), " "),
    }
    return {"rows": rows, "properties": pa.table({"id": ids, **measured}), "metadata": pa.table({"id": ids, **said})}


def write(folder: Path, name: str, seed: int, rows: int) -> None:
    """The three tables of one version as Arrow files, piece by piece."""
    writers: dict[str, pa.RecordBatchWriter] = {}
    for number, start in enumerate(range(0, rows, PIECE)):
        for kind, table in rows_of(seed + number, min(PIECE, rows - start)).items():
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


def one(folder: Path, key: str, rows: int) -> dict[str, Any]:
    """Run one check of both kinds of subject that it is for; seconds, memory and results."""
    from sevenfold.quality.checks import built_in, judge
    from sevenfold.quality.context import Context

    check = next(c for c in built_in() if c.key == key)
    before = mapped(folder, "before")
    now = mapped(folder, "now")
    empty = pa.table({c: pa.array([], pa.string()) for c in ("path", "reason", "detail")})
    counts = {"inputs": rows, "samples": rows, "aliases": 0, "relabels": 0, "quarantined": 0}
    record = {
        "batch": "b", "status": "landed", "counts": counts, "reasons": {}, "seconds": {"ingest": 60.0},
        "times": {"landed": 100.0, "newest_input": 90.0},
    }  # fmt: skip
    reference = Context("v1", "version", now=200.0, classes=CLASSES, **before)
    context = Context(
        "b" if "batch" in check.kinds else "v2", "batch" if "batch" in check.kinds else "version", now=200.0,
        classes=CLASSES, quarantine=empty, record=record, records=[record], reference=reference, **now,
    )  # fmt: skip
    base, found, stop = _status("RssAnon"), [0], threading.Event()
    watcher = threading.Thread(target=own_peak, args=(stop, found), daemon=True)
    watcher.start()
    began = time.perf_counter()
    verdicts = judge(context, checks=[check])
    seconds = time.perf_counter() - began
    stop.set()
    watcher.join()
    return {
        "seconds": seconds,
        "own": max(0, max(found[0], _status("RssAnon")) - base) / 1e6,
        "all": _status("VmHWM") / 1e6,
        "results": [v.result for v in verdicts],
        "said": verdicts[0].message[:90] if verdicts else "",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--only", default="", help="checks or modules, by commas; else all")
    parser.add_argument("--folder", type=Path, help="keeps the made rows here")
    parser.add_argument("--seconds", type=float, default=60.0, help="what all of them may take")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args.folder, args.one, args.rows)))
        return
    from sevenfold.quality.checks import built_in

    keys = [c.key for c in built_in()]
    wanted = [k for k in keys if not args.only or any(k.startswith(w) for w in args.only.split(","))]
    with tempfile.TemporaryDirectory() as made:
        folder = args.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        stamp = folder / f"rows-{args.rows}"
        if not stamp.exists():
            write(folder, "before", 0, args.rows)
            write(folder, "now", 1_000_000, args.rows)
            stamp.touch()
        print(f"{args.rows:,} rows and a reference of as many\n")
        print("| check | seconds | own memory, GB | with the mapped rows, GB | result |\n|---|---|---|---|---|")
        total, most, everything = 0.0, 0.0, 0.0
        for key in wanted:
            command = [sys.executable, __file__, "--folder", str(folder), "--rows", str(args.rows), "--one", key]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                print(f"| {key} | | | | died: {run.stderr.strip().splitlines()[-1][:100]} |")
                continue
            told = json.loads(run.stdout.strip().splitlines()[-1])
            total, most, everything = total + told["seconds"], max(most, told["own"]), max(everything, told["all"])
            result = ", ".join(sorted(set(told["results"]))) or "nothing to say"
            result += f": {told['said']}" if "crashed" in result else ""
            numbers = f"{told['seconds']:.2f} | {told['own']:.2f} | {told['all']:.2f}"
            print(f"| {key} | {numbers} | {result} |", flush=True)
        kept = "within" if total <= args.seconds else "over"
        print(f"| all | {total:.1f} | {most:.2f} | {everything:.2f} | {kept} {args.seconds:g} s |")


if __name__ == "__main__":
    main()
