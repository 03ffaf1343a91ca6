"""How fast shards are written, beside `webdataset.ShardWriter`, tarfile and what the disk and sha256 allow.

    python benchmarks/storage_write.py [--rounds 5] [--folder DIR]

Every way gets the same samples (an image of random bytes and a .cls) out of memory. Ours does the most: it names each
shard by its digest, writes the index, and syncs both to the disk; the peers sync nothing. Rounds are interleaved, and a
ratio is taken within a round. Prints Markdown; run it on an idle machine, in a folder on the disk in question.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import io
import os
import platform
import shutil
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa

from sevenfold.storage import tar
from sevenfold.storage.canonical import digest_bytes, digest_table
from sevenfold.storage.index import INDEX, LANDING, write_parquet
from sevenfold.storage.keys import index_key
from sevenfold.storage.lake import SHARD_BYTES
from sevenfold.storage.shards import Sample, index_rows, write_shards
from sevenfold.storage.store import LocalStore

SIZES = {"1 KB": (1 << 10, 50_000), "100 KB": (100 << 10, 2_500)}
"""Image bytes and samples: 0.13 and 0.26 GB of tar."""

OURS, UNCHECKED = "Sevenfold", "Sevenfold, ids not checked again"
SHARD_WRITER, TARFILE = "webdataset.ShardWriter", "tarfile, USTAR"
RAW, SHA = "the same bytes written and synced", "sha256 of the same bytes"


@dataclass(frozen=True)
class Samples:
    """What is written: images in the order of their ids, their landing rows, and the tar's bytes."""

    ids: list[str]
    images: list[bytes]
    rows: pa.Table
    per_shard: int

    @staticmethod
    def made(size: int, n: int) -> Samples:
        """`n` images of `size` random bytes."""
        random = np.random.default_rng(size)
        images = sorted((random.bytes(size) for _ in range(n)), key=digest_bytes)
        ids = [digest_bytes(x) for x in images]
        columns = {
            "id": ids, "ext": ["jpg"] * n, "bytes": [size] * n, "label": [f"class {i % 10}" for i in range(n)],
            "split": ["train"] * n, "path": [f"train/class {i % 10}/{i:08d}.jpg" for i in range(n)],
            "width": [32] * n, "height": [32] * n, "channels": [3] * n, "mode": ["RGB"] * n, "format": ["JPEG"] * n,
            "pixel_digest": [digest_bytes(x.encode()) for x in ids],
            "phash": random.integers(-(2**63), 2**63, n, dtype=np.int64),
        }  # fmt: skip
        rows = pa.table({k: pa.array(v, LANDING.field(k).type) for k, v in columns.items()}, schema=LANDING)
        return Samples(ids, images, rows, SHARD_BYTES // (tar.member_length(size) + tar.member_length(1)))

    def shards(self, check: bool) -> Iterator[Iterator[Sample]]:
        """As `pack` hands them to the writer: with `check` each image is hashed again and compared with its id."""
        for start in range(0, len(self.ids), self.per_shard):
            yield self._shard(range(start, min(start + self.per_shard, len(self.ids))), check)

    def _shard(self, places: range, check: bool) -> Iterator[Sample]:
        for i in places:
            data = self.images[i]
            if check and digest_bytes(data) != self.ids[i]:
                raise ValueError(f"image {i} has changed")
            yield self.ids[i], (("jpg", data), ("cls", b"%d" % (i % 10)))


def ours(samples: Samples, folder: Path, *, check: bool) -> None:
    """Shards, digests, index, synced and named."""
    groups = []
    for i, shard in enumerate(write_shards(LocalStore(folder), samples.shards(check))):
        if shard is None:
            raise ValueError("an empty shard")
        rows = samples.rows.slice(i * samples.per_shard, samples.per_shard)
        groups.append(index_rows(rows, "batch", shard))
    index = digest_table(pa.concat_tables(groups))
    write_parquet(LocalStore(folder), index_key(index), groups, INDEX, overwrite=False)


def shard_writer(dicts: Sequence[Mapping[str, bytes | str]], folder: Path) -> None:
    """At its best: no encoder, no compression, one file, samples that are dictionaries already; nothing is synced."""
    import webdataset

    with webdataset.ShardWriter(
        str(folder / "%06d.tar"), maxcount=10**9, maxsize=1e12, verbose=0, encoder=False, mtime=0
    ) as writer:
        for sample in dicts:
            writer.write(sample)


def by_tarfile(dicts: Sequence[Mapping[str, bytes | str]], folder: Path) -> None:
    """The standard library; nothing is synced."""
    with tarfile.open(folder / "one.tar", "w", format=tarfile.USTAR_FORMAT) as out:
        for sample in dicts:
            for ext in ("jpg", "cls"):
                data = sample[ext]
                info = tarfile.TarInfo(f"{sample['__key__']}.{ext}")
                info.size = len(data)
                out.addfile(info, io.BytesIO(data))  # type: ignore[arg-type]


def raw(blob: bytes, folder: Path) -> None:
    """One file, one sync: what the disk allows."""
    view = memoryview(blob)
    with open(folder / "raw", "wb", buffering=0) as f:
        for start in range(0, len(blob), 4 << 20):
            f.write(view[start : start + (4 << 20)])
        os.fsync(f.fileno())


def rounds(size: int, n: int, count: int, folder: Path) -> tuple[int, dict[str, list[float]]]:
    """(bytes of tar, seconds of every round by way); the order of the ways turns from round to round."""
    samples = Samples.made(size, n)
    dicts = [
        {"__key__": key, "jpg": members[0][1], "cls": members[1][1]}
        for shard in samples.shards(check=False)
        for key, members in shard
    ]
    ours(samples, folder / "first", check=False)
    blob = b"".join(p.read_bytes() for p in sorted((folder / "first").rglob("*.tar")))
    ways: list[tuple[str, Callable[[Path], object]]] = [
        (SHA, lambda _: hashlib.sha256(blob).digest()),
        (OURS, lambda to: ours(samples, to, check=True)),
        (RAW, lambda to: raw(blob, to)),
        (UNCHECKED, lambda to: ours(samples, to, check=False)),
        (SHARD_WRITER, lambda to: shard_writer(dicts, to)),
        (TARFILE, lambda to: by_tarfile(dicts, to)),
    ]
    seconds: dict[str, list[float]] = {name: [] for name, _ in ways}
    for i in range(count):
        for name, way in ways[i % len(ways) :] + ways[: i % len(ways)]:
            to = folder / "round"
            to.mkdir()
            os.sync()  # what was removed before costs the disk work that belongs to nobody here
            gc.collect()
            begun = time.perf_counter()
            way(to)
            seconds[name].append(time.perf_counter() - begun)
            shutil.rmtree(to)
    shutil.rmtree(folder / "first")
    return len(blob), seconds


def spread(values: Sequence[float], form: str) -> str:
    """Median and range."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def report(count: int, folder: Path) -> Iterator[str]:
    """The Markdown, line by line."""
    yield f"Python {platform.python_version()}, webdataset {version('webdataset')}, numpy {version('numpy')}, "
    yield f"pyarrow {version('pyarrow')}; {os.cpu_count()} cores; median of {count} interleaved rounds (and range)."
    for label, (size, n) in SIZES.items():
        length, seconds = rounds(size, n, count, folder)
        yield ""
        yield f"{n:,} samples with an image of {label}, {length / 1e6:.0f} MB of tar:"
        yield ""
        yield "| | seconds | samples/s | MB/s of tar |"
        yield "|---|---|---|---|"
        for name, values in seconds.items():
            middle = statistics.median(values)
            yield f"| {name} | {spread(values, '.3f')} | {n / middle:,.0f} | {length / 1e6 / middle:,.0f} |"
        yield ""
        limit = [max(pair) for pair in zip(seconds[SHA], seconds[RAW], strict=True)]
        for name in (OURS, UNCHECKED):
            for peer, theirs in ((SHARD_WRITER, seconds[SHARD_WRITER]), ("the slower of sha256 and raw", limit)):
                ratios = [b / a for a, b in zip(seconds[name], theirs, strict=True)]
                yield f"- {name}: {spread(ratios, '.2f')} times the speed of {peer}"


def main() -> None:
    """Parse the command line and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write (default: the folder for temporary files)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for line in report(options.rounds, Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
