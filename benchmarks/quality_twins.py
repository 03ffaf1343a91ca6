"""Twins beside the perceptual hash within 6 bits: recall and precision of made ones, natural ones, seconds and bytes.

    python benchmarks/quality_twins.py injected photos natural scale --data DIR [--grid top100.png]

DIR holds cifar10/cifar10_jpeg.zip (train/<class>/NNNN.jpg, test/...) and photos/*.JPEG. Everything that a table
compares saw the same pictures in the same run. Seconds are of the processor, of one thread (OMP_NUM_THREADS=1).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import resource
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from sevenfold.quality.policy import Policy
from sevenfold.quality.twins_describe import Described, describe, mirror_signs, small
from sevenfold.quality.twins_grid import pair_grid
from sevenfold.quality.twins_index import TwinIndex
from sevenfold.quality.twins_pairs import Twins, describe_all, find_twins, leaks
from sevenfold.quality.twins_search import neighbours
from sevenfold.storage.decode import decode
from sevenfold.storage.pixels import grey_of, phash

BITS = 6
Change = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def jpeg(quality: int) -> Change:
    def change(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        buffer = io.BytesIO()
        Image.fromarray(picture).save(buffer, "JPEG", quality=quality)
        return np.asarray(Image.open(buffer).convert("RGB"))

    return change


def bright(gain: float) -> Change:
    return lambda picture, rng: np.clip(np.rint(picture * gain), 0, 255).astype(np.uint8)


def shift(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """By 1 or 2 pixels each way at 32, by up to 5 % of a larger picture; the border is repeated."""
    height, width = picture.shape[:2]
    if width == 32:
        down, right = rng.choice([-2, -1, 1, 2], 2)
    else:
        down, right = (int(rng.integers(-round(0.05 * x), round(0.05 * x) + 1)) for x in (height, width))
    rows, columns = (np.clip(np.arange(n) + d, 0, n - 1) for n, d in ((height, down), (width, right)))
    return picture[rows][:, columns]


def crop(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """95 % of each side, anywhere, at the old size again."""
    height, width = picture.shape[:2]
    h, w = round(0.95 * height), round(0.95 * width)
    top, left = rng.integers(0, height - h + 1), rng.integers(0, width - w + 1)
    part = Image.fromarray(picture[top : top + h, left : left + w])
    return np.asarray(part.resize((width, height), Image.Resampling.BICUBIC))


CHANGES: dict[str, Change] = {
    "JPEG quality 75": jpeg(75),
    "JPEG quality 50": jpeg(50),
    "shift": shift,
    "crop 5 %": crop,
    "brightness +20 %": bright(1.2),
    "brightness +30 %": bright(1.3),
    "brightness -30 %": bright(0.7),
    "mirrored": lambda picture, rng: np.ascontiguousarray(picture[:, ::-1]),
}


def cifar(data: Path, most: int | None = None, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """Names and pixels, uint8 [n, 32, 32, 3]; `most`: as many of train, at random."""
    with zipfile.ZipFile(data / "cifar10" / "cifar10_jpeg.zip") as archive:
        names = sorted(n for n in archive.namelist() if n.endswith(".jpg"))
        if most is not None:
            train = [n for n in names if n.startswith("train/")]
            names = sorted(np.random.default_rng(seed).choice(train, most, replace=False).tolist())
        return names, np.stack([small(decode(archive.read(n), n).pixels) for n in names])


def table_of(pixels: np.ndarray, names: Sequence[str], splits: Sequence[str]) -> pa.Table:
    digests = [hashlib.sha256(p.tobytes()).hexdigest() for p in pixels]
    return pa.table({"id": list(names), "split": list(splits), "pixel_digest": digests})


def twins_of(pixels: np.ndarray, splits: Sequence[str] | None = None) -> tuple[Twins, float]:
    """All twins among some pictures, named by their numbers, and the seconds it took, descriptors included."""
    names = [f"{i:06d}" for i in range(len(pixels))]
    rows = table_of(pixels, names, splits or ["train"] * len(names))
    began = time.process_time()
    found = find_twins(rows, lambda ids: pixels[[int(i) for i in ids]], policy=Policy().veracity)
    return found, time.process_time() - began


def pairs_of(found: Twins) -> set[tuple[int, int]]:
    columns = (map(int, found.pairs[c].to_pylist()) for c in ("keep", "exclude"))
    return {(min(p), max(p)) for p in zip(*columns, strict=True)}


def hashed_pairs(hashes: np.ndarray) -> set[tuple[int, int]]:
    """All pairs of hashes that differ in at most BITS."""
    found = set()
    for start in range(0, len(hashes), 256):
        near = np.bitwise_count(hashes[start : start + 256, None] ^ hashes[None, :]) <= BITS
        found |= {(start + i, j) for i, j in np.argwhere(near).tolist() if start + i < j}
    return found


def scored(found: set[tuple[int, int]], natural: set[tuple[int, int]], n: int, copies: int) -> tuple[float, float]:
    """(recall, precision) where row n + i is a copy of row i; natural pairs and their copies count for neither."""
    right = {(i, n + i) for i in range(copies)}
    origin = {(min(p), max(p)) for p in natural}
    wrong = 0
    for a, b in found - right:
        x, y = (v - n if v >= n else v for v in (a, b))
        wrong += (min(x, y), max(x, y)) not in origin and x != y
    hit = len(found & right)
    return hit / len(right), hit / max(1, hit + wrong)


def compared(title: str, originals: list[np.ndarray], base: int) -> None:
    """A line per change: `base` of the originals are changed, the others distract."""
    rng = np.random.default_rng(0)
    stored = np.stack([small(p) for p in originals])
    own = phash_of(originals)
    natural, seconds = twins_of(stored)
    known = pairs_of(natural)
    print(f"\n{title}: {len(originals):,} pictures ({len(known)} natural pairs, not counted), {base:,} of them changed")
    print(
        f"{'change':18} {'recall':>8} {'precision':>10} {'|':>2} {'hash: recall':>13} {'precision':>10} {'seconds':>9}"
    )
    for name, change in CHANGES.items():
        copies = [change(p, rng) for p in originals[:base]]
        found, seconds = twins_of(np.concatenate([stored, [small(p) for p in copies]]))
        ours = scored(pairs_of(found), known, len(originals), base)
        theirs = scored(hashed_pairs(np.concatenate([own, phash_of(copies)])), known, len(originals), base)
        print(
            f"{name:18} {ours[0]:8.4f} {ours[1]:10.4f} {'|':>2} {theirs[0]:13.4f} {theirs[1]:10.4f} {seconds:9.1f}",
            flush=True,
        )


def phash_of(pictures: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([phash(grey_of(p[None])) for p in pictures])


def injected(data: Path, grid: Path | None) -> None:
    """CIFAR-10 at 32 px: 3,000 changed among 12,000."""
    compared("CIFAR-10, 32 px", list(cifar(data, 12_000)[1][np.random.default_rng(1).permutation(12_000)]), 3_000)


def photos(data: Path, grid: Path | None) -> None:
    """200 photographs, all changed, among 3,000 of CIFAR-10."""
    pictures = [np.asarray(Image.open(p).convert("RGB")) for p in sorted((data / "photos").glob("*.JPEG"))]
    compared("photographs", [*pictures, *cifar(data, 3_000)[1]], len(pictures))


def natural(data: Path, grid: Path | None) -> None:
    """All of CIFAR-10: which test pictures are in train too?"""
    names, pixels = cifar(data)
    splits = [n.partition("/")[0] for n in names]
    found, seconds = twins_of(pixels, splits)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    across = found.pairs.filter(pc.not_equal(found.pairs["keep_split"], found.pairs["exclude_split"]))
    excluded, tests = leaks(found), len(pc.unique(across["keep"]))
    share = tests / splits.count("test")
    print(f"\nnatural twins of CIFAR-10: {found.pairs.num_rows:,} pairs, {across.num_rows:,} of test and train")
    print(f"{tests} test pictures ({share:.2%}) are in train too; {excluded.num_rows} of train would be excluded")
    print(f"{pc.sum(across['mirrored']).as_py()} of these pairs are mirrored")
    print(f"{seconds:.0f} s for 60,000 pictures, descriptors included; peak memory {peak:,.0f} MB with all pixels")
    hashes = phash_of(list(pixels))
    test = np.array([s == "test" for s in splits])
    near = np.bitwise_count(hashes[test][:, None] ^ hashes[~test][None, :])
    equal, close = ((near <= b).any(1).sum() for b in (0, BITS))
    print(f"the hash alone: {equal} test pictures with an equal one, {close} with one within {BITS} bits in train")
    if grid is not None:
        top = excluded.slice(0, 100)
        sides = [pixels[[int(i) for i in top[c].to_pylist()]] for c in ("keep", "exclude")]
        words = [f"{s:.3f} {t}" for s, t in zip(top["score"].to_pylist(), top["transform"].to_pylist(), strict=True)]
        grid.write_bytes(pair_grid(*sides, words))
        print(f"the first 100: {grid}")


def scale(data: Path, grid: Path | None) -> None:
    """Pictures mixed of two of CIFAR-10 each: all pairs at 10^5, one question at 10^5 and 10^6."""
    source = cifar(data, 20_000)[1].astype(np.uint16)

    def mixed(ids: Sequence[str]) -> np.ndarray:
        rows = np.array([int(i) for i in ids])
        one, other = source[rows * 7919 % len(source)], source[(rows * 104_729 + rows // len(source)) % len(source)]
        return ((one * 5 + other * 3) >> 3).astype(np.uint8)

    for n in (100_000, 1_000_000):
        names = [f"{i:07d}" for i in range(n)]
        began = time.process_time()
        described = describe_all(pa.array(names), mixed)
        made = time.process_time()
        index = TwinIndex.of(described)
        opened = time.process_time()
        laps = []
        for i in range(0, n, n // 50):
            asked = describe(mixed([names[i]]))
            lap = time.thread_time()
            near = index.near(asked)
            laps.append(time.thread_time() - lap)
            assert i in near.second
        print(f"\n{n:,}: described in {made - began:.0f} s; {stored_bytes(described) / n:.0f} bytes each kept, "
              f"{index.nbytes / n:.0f} in the open index (opened in {opened - made:.2f} s); candidates of one picture "
              f"in {1e3 * np.median(laps):.1f} ms (median, p95 {1e3 * np.quantile(laps, 0.95):.1f})")  # fmt: skip
        began = time.process_time()
        found = neighbours(described.vectors, signs=mirror_signs())
        print(f"neighbours of all: {time.process_time() - began:.0f} s, {len(found):,} candidates", flush=True)
        if n == 100_000:
            rows = pa.table({"id": names, "split": ["train"] * n, "pixel_digest": names})
            began = time.process_time()
            find_twins(rows, mixed, policy=Policy().veracity, described=described)
            print(f"all pairs with their confirmation: {time.process_time() - began:.0f} s")
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB", flush=True)


def stored_bytes(described: Described) -> int:
    return sum(a.nbytes for a in (described.vectors, described.thumbs, described.hashes, described.mirrored))


PARTS = {"injected": injected, "photos": photos, "natural": natural, "scale": scale}


def main() -> None:
    """Run the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[*PARTS])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--grid", type=Path)
    options = parser.parse_args()
    for part in options.parts:
        PARTS[part](options.data, options.grid)


if __name__ == "__main__":
    main()
