"""Queries over ten million index rows in ten thousand shards, beside the same questions asked of the files by pyarrow.

    python benchmarks/storage_query.py [--rows 10000000] [--folder FOLDER]

Makes a lake of real formats (no tar is written: queries read none) of about 1.2 GB in a temporary folder, or takes the
one in FOLDER, and prints Markdown. Each figure is the median of five runs after one that warms the page cache, in a
process of its own; a run opens the lake, makes the views and answers ("in a session": the lake and DuckDB were opened
before, see Lake.session). Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage import Lake
from sevenfold.storage.canonical import digest_table
from sevenfold.storage.commit import SCHEMA, publish
from sevenfold.storage.compare import diff_versions
from sevenfold.storage.index import INDEX, OVERLAY, conform, write_parquet
from sevenfold.storage.keys import batch_key, index_key
from sevenfold.storage.overlays import write_overlay
from sevenfold.storage.records import Batch, Manifest, Version

BATCHES, SHARDS, CLASSES, EDITS = 20, 500, 20, 1000
RUNS = 5


def hexes(random: np.random.Generator, n: int) -> np.ndarray:
    """uint8 [n, 64]: random digests as hex digits, sorted."""
    raw = random.integers(0, 256, (n, 32), dtype=np.uint8)
    raw = raw[np.argsort(raw[:, :8].copy().view(">u8").ravel())]
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    out = np.empty((n, 64), np.uint8)
    out[:, 0::2], out[:, 1::2] = digits[raw >> 4], digits[raw & 15]
    return out


def strings(characters: np.ndarray) -> pa.Array:
    """Rows of ASCII codes uint8 [n, w] as n strings."""
    n, width = characters.shape
    offsets = np.arange(0, (n + 1) * width, width, dtype=np.int32)
    data = pa.py_buffer(np.ascontiguousarray(characters))
    return pa.Array.from_buffers(pa.string(), n, [None, pa.py_buffer(offsets), data])


def batch_table(random: np.random.Generator, name: str, per_shard: int) -> pa.Table:
    """INDEX rows of one batch: SHARDS shards of `per_shard` samples, ids ascending."""
    n = SHARDS * per_shard

    def every(value: str) -> pa.Array:
        return pa.array([value]).take(pa.array(np.zeros(n, np.int64)))

    ids = hexes(random, n)
    labels = pa.array([f"class-{i:02d}" for i in range(CLASSES)])
    offsets = np.tile(np.arange(per_shard, dtype=np.int64) * 3072 + 512, SHARDS)
    sizes = random.integers(700, 1400, n)
    numbers = pa.StructArray.from_arrays(
        [every("cls"), pa.array(offsets + 2048), pa.array(np.ones(n, np.int64))], ["ext", "offset", "size"]
    )
    columns = {
        "id": strings(ids),
        "batch": every(name),
        "shard": strings(hexes(random, SHARDS)).take(pa.array(np.repeat(np.arange(SHARDS), per_shard))),
        "ext": every("png"),
        "offset": pa.array(offsets),
        "size": pa.array(sizes),
        "components": pa.ListArray.from_arrays(pa.array(np.arange(n + 1, dtype=np.int32)), numbers),
        "label": labels.take(pa.array(random.integers(0, CLASSES, n))),
        "split": every("train"),
        "path": pa.array(np.char.add(f"{name}/", np.arange(n).astype(str))),
        "mode": every("RGB"),
        "format": every("PNG"),
        "pixel_digest": strings(ids[:, ::-1]),
        "phash": pa.array(random.integers(-(2**62), 2**62, n)),
        **{c: pa.array(np.full(n, v, np.int32)) for c, v in (("width", 32), ("height", 32), ("channels", 3))},
    }
    return conform(pa.table(columns), INDEX)


def make(folder: Path, rows: int) -> None:
    """v1: all batches but the last; v2: all of them and an overlay of EDITS relabels; a signal `loss` of every row."""
    lake = Lake.create(folder)
    random = np.random.default_rng(0)
    per_shard = rows // (BATCHES * SHARDS)
    entries, edited = [], []
    for b in range(BATCHES):
        name = f"batch-{b:02d}"
        table = batch_table(random, name, per_shard)
        digest = digest_table(table)
        groups = [table.slice(i * per_shard, per_shard) for i in range(SHARDS)]
        write_parquet(lake.store, index_key(digest), groups, INDEX, overwrite=False)
        digests = [g["shard"][0].as_py() for g in groups]
        size = per_shard * 3072
        shards = [{"digest": d, "samples": per_shard, "bytes": size, "split": "train"} for d in digests]
        entries.append({"batch": name, "digest": digest, "index": digest, "samples": table.num_rows, "shards": shards})
        zeros = dict.fromkeys(("aliases", "relabels", "quarantined"), 0)
        counts = {"inputs": table.num_rows, "samples": table.num_rows, **zeros}
        record = Batch("bench", name, "nowhere", "folder", digest, digest, "committed", counts, {}, {"landed": 0.0}, {})
        lake.store.create(batch_key("bench", name), record.to_json())
        loss = {"id": table["id"], "label": table["label"], "value": random.exponential(1.0, table.num_rows)}
        lake.write_signal("loss", "score", pa.table(loss), scope="label", in_sample=False, part=f"bench@{name}")
        edited += table["id"].take(pa.array(random.integers(0, table.num_rows, EDITS // BATCHES))).to_pylist()
    classes = tuple(f"class-{i:02d}" for i in range(CLASSES))
    first = Manifest(classes, tuple(entries[:-1]), (), SCHEMA)
    relabel = pa.Table.from_pylist([{"id": i, "label": "class-00"} for i in sorted(set(edited))], schema=OVERLAY)
    second = Manifest(classes, tuple(entries), (write_overlay(lake.store, relabel),), SCHEMA)
    for number, manifest in ((1, first), (2, second)):
        parents = (number - 1,) if number > 1 else ()
        wanted = Version("bench", number, manifest.content_id, parents, f"v{number}", {"time": float(number)})
        publish(lake.store, wanted, "main", manifest)


COUNTS = "SELECT label, count(*) AS n FROM samples GROUP BY label ORDER BY label"
HARD = "FROM signals WHERE name = 'loss'"
QUERIES = {
    "counts": (COUNTS, "v1"),
    "counts-overlay": (COUNTS, "v2"),
    "top": (f"SELECT id, label, value {HARD} ORDER BY value DESC LIMIT 50", "v2"),
    "top-class": (f"SELECT label, max_by(id, value, 10) AS ids {HARD} GROUP BY label ORDER BY label", "v2"),
    "top-joined": (
        f"WITH top AS (SELECT id, label, value {HARD} ORDER BY value DESC LIMIT 50) "
        "SELECT s.id, s.label, s.path, top.value FROM samples s JOIN top ON s.id = top.id AND s.label = top.label",
        "v2",
    ),
    "top-scored": ("SELECT id, label, path, signal_loss FROM scored ORDER BY signal_loss DESC LIMIT 50", "v2"),
    "lookup": ("SELECT * FROM samples WHERE id = '{id}'", "v1"),
    "lookup-overlay": ("SELECT * FROM samples WHERE id = '{id}'", "v2"),
    "counts-session": (COUNTS, "v1"),
    "lookup-session": ("SELECT * FROM samples WHERE id = '{id}'", "v1"),
}


def index_files(lake: Lake, ref: str) -> list[Path]:
    manifest = lake.manifest(lake.version("bench", ref).content_id)
    return [lake.store.local(index_key(b["index"])) for b in manifest.batches]


def some_id(lake: Lake) -> str:
    return str(pq.ParquetFile(index_files(lake, "v1")[7]).read_row_group(0, columns=["id"])["id"][77].as_py())


def by_pyarrow(name: str, folder: Path, key: str) -> Any:
    """The same answer from the files themselves, without views, versions or overlays."""
    import pyarrow.dataset as ds

    if name == "counts":
        table = ds.dataset([str(p) for p in index_files(Lake.open(folder), "v1")]).to_table(columns=["label"])
        return table.group_by("label").aggregate([([], "count_all")])
    if name == "lookup":
        return ds.dataset([str(p) for p in index_files(Lake.open(folder), "v1")]).to_table(filter=pc.field("id") == key)
    table = ds.dataset(folder / "signals/loss").to_table(columns=["id", "label", "value"])
    return table.take(pc.select_k_unstable(table, 50, sort_keys=[("value", "descending")]))


def task(name: str, folder: Path, held: ExitStack) -> Callable[[int], Any]:
    """What is timed under this name; called with the number of the run."""
    lake = Lake.open(folder)
    key = some_id(lake)
    if name.startswith("pyarrow-"):
        return lambda _: by_pyarrow(name.removeprefix("pyarrow-"), folder, key)
    if name in QUERIES:
        sql, ref = QUERIES[name]
        if name.endswith("-session"):
            ask = held.enter_context(lake.session())
            return lambda _: ask.run(sql.replace("{id}", key), "bench", ref)
        return lambda _: Lake.open(folder).sql(sql.replace("{id}", key), "bench", ref)
    if name == "diff":
        pair = [lake.version("bench", v).content_id for v in ("v1", "v2")]
        return lambda _: diff_versions(lake.store, *(Lake.open(folder).manifest(c) for c in pair))
    if name == "open":
        return lambda _: (again := Lake.open(folder)).manifest(again.version("bench").content_id)

    def commit(run: int) -> Any:
        edit = pa.Table.from_pylist([{"id": key, "weight": run + 2.0}], schema=OVERLAY)
        return Lake.open(folder).commit("bench", message="weigh", branch="trial", start="v2", overlays=[edit])

    return commit


def measure(name: str, folder: Path) -> None:
    """Print the seconds of each run and the most memory the process held, as JSON."""
    seconds = []
    with ExitStack() as held:
        call = task(name, folder, held)
        for run in range(RUNS + 1):
            began = time.perf_counter()
            call(run)
            seconds.append(time.perf_counter() - began)
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) << 10
    print(json.dumps({"seconds": seconds[1:], "peak": peak}))


ROWS = (
    ("class counts", "counts", 0.1),
    ("the same in a session", "counts-session", 0.1),
    ("class counts, version with an overlay of 1,000 relabels", "counts-overlay", None),
    ("the 50 samples of highest loss", "top", 0.3),
    ("the 10 of highest loss of each class", "top-class", None),
    ("the 50, with path and current label, stale ones left out", "top-joined", None),
    ("the 50 from the view `scored` (joins all rows)", "top-scored", None),
    ("diff of two versions (a batch and an overlay)", "diff", 2.0),
    ("lookup of a sample by its id", "lookup", 0.02),
    ("the same in a session", "lookup-session", 0.02),
    ("the same, version with an overlay", "lookup-overlay", None),
    ("open: lake, version and manifest", "open", 1.0),
    ("commit of an overlay on top", "commit", 1.0),
)
PEERS = ("counts", "top", "lookup")
MEMORY = 2 << 30


def run(name: str, folder: Path) -> dict[str, Any]:
    words = [sys.executable, __file__, "--measure", name, "--folder", str(folder)]
    done = subprocess.run(words, env=dict(os.environ), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout))


def report(folder: Path, rows: int) -> None:
    print(f"{rows:,} index rows, {BATCHES} batches, {BATCHES * SHARDS:,} shards; {os.cpu_count()} cores,")
    print(f"Python {platform.python_version()}, duckdb {version('duckdb')}, pyarrow {version('pyarrow')}\n")
    print("| what | median (lowest to highest) | bar | | pyarrow | peak memory |\n|---|---|---|---|---|---|")
    for title, name, bar in ROWS:
        found = run(name, folder)
        peer = statistics.median(run(f"pyarrow-{name}", folder)["seconds"]) if name in PEERS else None
        took = statistics.median(found["seconds"])
        low, high = min(found["seconds"]), max(found["seconds"])
        verdict = "" if bar is None else "met" if took <= bar and found["peak"] <= MEMORY else "NOT met"
        beside = f"{1000 * peer:,.0f} ms ({peer / took:.1f}x)" if peer else ""
        limit = f"{1000 * bar:,.0f} ms" if bar else ""
        spread = f"{1000 * took:,.1f} ms ({1000 * low:,.1f} to {1000 * high:,.1f})"
        print(f"| {title} | {spread} | {limit} | {verdict} | {beside} | {found['peak'] / 2**20:,.0f} MiB |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        measure(chosen.measure, chosen.folder)
        return
    with tempfile.TemporaryDirectory(prefix="sevenfold-benchmark-") as temporary:
        folder = chosen.folder or Path(temporary) / "lake"
        if not (folder / "lake.json").exists():
            began = time.perf_counter()
            make(folder, chosen.rows)
            print(f"made the lake in {time.perf_counter() - began:.0f} s", file=sys.stderr)
        report(folder, chosen.rows)


if __name__ == "__main__":
    main()
