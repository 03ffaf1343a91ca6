"""Does a learning-curve forecast hold? Nested subsets foretell the error at 2, 4 and 8 times their size, on real data.

    python benchmarks/quality_volume.py fashion-mnist-folder [--seeds 3] [--sizes 8] [--hidden 256] [--epochs 8]
    python benchmarks/quality_volume.py cifar10_jpeg.zip

A small network (one hidden layer, Adam, all in memory) is trained on nested subsets, each half of the next, with the
same epochs or the same steps for every size; each run of five neighbouring sizes then foretells the larger ones, which
are known. Prints Markdown: a few minutes on two cores.
"""

from __future__ import annotations

import argparse
import gzip
import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch

from sevenfold.intervals import wilson
from sevenfold.quality.forecast import fit_learning_curve

KNOWN = 5
"""Sizes that a forecast is made from."""

Images = tuple[np.ndarray, np.ndarray]


def idx(folder: Path, part: str) -> Images:
    """uint8 images [n, p] and labels [n] of one part of a folder of idx files."""
    raw = [
        gzip.decompress((folder / f"{part}-{what}-ubyte.gz").read_bytes()) for what in ("images-idx3", "labels-idx1")
    ]
    labels = np.frombuffer(raw[1], np.uint8, offset=8)
    return np.frombuffer(raw[0], np.uint8, offset=16).reshape(len(labels), -1), labels.astype(np.int64)


def jpegs(path: Path, part: str) -> Images:
    """The same from a zip with <part>/<class>/*.jpg, every image halved to keep the network small."""
    from PIL import Image

    with zipfile.ZipFile(path) as z:
        names = sorted(n for n in z.namelist() if n.startswith(f"{part}/") and not n.endswith("/"))
        classes = sorted({n.split("/")[1] for n in names})
        pixels = [np.asarray(Image.open(io.BytesIO(z.read(n))).convert("RGB").reduce(2)).ravel() for n in names]
    return np.stack(pixels), np.array([classes.index(n.split("/")[1]) for n in names], np.int64)


def error_of(train: Images, test: Images, seed: int, hidden: int, steps: int, batch: int = 128) -> float:
    """Test error of one run."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    x, y, at = *(torch.from_numpy(a) for a in train), torch.from_numpy(test[0].astype(np.float32) / 255 - 0.5)
    x = x.float() / 255 - 0.5
    model = torch.nn.Sequential(torch.nn.Linear(x.shape[1], hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    done = 0
    while done < steps:
        for rows in torch.randperm(len(x), generator=generator).split(batch):
            if done == steps:
                break
            optimiser.param_groups[0]["lr"] = 2e-3 * (1 - done / steps)
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
            optimiser.zero_grad()
            done += 1
    with torch.no_grad():
        return float((model(at).argmax(1).numpy() != test[1]).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sizes", type=int, default=8, help="halvings of n, n included")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    read = idx if options.source.is_dir() else jpegs
    parts = ("train", "t10k") if options.source.is_dir() else ("train", "test")
    (x, y), test = read(options.source, parts[0]), read(options.source, parts[1])
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    sizes = [len(x) >> i for i in range(options.sizes - 1, -1, -1)]

    def trained(n: int, steps: int) -> list[float]:
        found = [error_of((x[:n], y[:n]), test, seed, options.hidden, steps) for seed in range(options.seeds)]
        print(f"  {n} samples, {steps} steps: {' '.join(f'{e:.4f}' for e in found)}", file=sys.stderr, flush=True)
        return found

    epochs = {n: trained(n, options.epochs * -(-n // 128)) for n in sizes}
    print(
        "| known sizes | foretold at | error foretold | interval (95 %) | what happened | held |\n|---|---|---|---|---|---|"
    )
    held = []
    for last in range(KNOWN, len(sizes)):
        base = sizes[last - KNOWN : last]
        n, error = [k for k in base for _ in range(options.seeds)], [e for k in base for e in epochs[k]]
        curve = fit_learning_curve(n, error)
        for ahead in sizes[last:]:
            said, (low, high) = curve.error(ahead)
            real = float(np.mean(epochs[ahead]))
            held.append(low <= real <= high)
            times = f"{ahead:,} ({ahead / base[-1]:.0f}x)"
            print(
                f"| {base[0]:,} to {base[-1]:,} | {times} | {said:.2%} | {low:.2%} to {high:.2%} | {real:.2%} "
                f"| {'yes' if held[-1] else 'no'} |"
            )
    low, high = wilson(sum(held), len(held))
    print(f"\n{sum(held)} of {len(held)} intervals held ({low:.0%} to {high:.0%}; declared 95 %)")


if __name__ == "__main__":
    main()
