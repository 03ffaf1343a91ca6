"""Odd images and embeddings on real data: false positives on clean pictures, recall on planted ones, power of coverage.

    python benchmarks/quality_variety.py --cifar cifar10_jpeg.zip --fashion fashion-mnist-folder --photos folder
        [--images 10000]

Each data set is measured clean; then 50 pictures of each kind are planted in it. Coverage runs on the 64 features of a
small network that is trained here on images of its own. Prints Markdown; a few minutes.
"""

from __future__ import annotations

import argparse
import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image, ImageFilter

from sevenfold.quality.context import Embeddings
from sevenfold.quality.coverage import chosen, cluster_coverage, foreign_samples, vendi
from sevenfold.quality.odd_images import odd_images
from sevenfold.quality.policy import Policy
from sevenfold.storage.canonical import digest_bytes
from sevenfold.storage.measure import measure_many

PLANTED: dict[str, Callable[[Image.Image], Image.Image]] = {
    "black": lambda i: Image.new(i.mode, i.size, 0),
    "white": lambda i: Image.new(i.mode, i.size, "white"),
    "very dark (x 0.05)": lambda i: i.point(lambda x: x // 20),
    "flat (contrast x 0.05)": lambda i: i.point(lambda x: int(120 + (x - 128) * 0.05)),
    "blurred (1/14 of the side)": lambda i: i.filter(ImageFilter.GaussianBlur(min(i.size) / 14)),
    "tiny (1/8)": lambda i: i.resize((max(3, i.width // 8), max(3, i.height // 8))),
    "8 times as wide": lambda i: i.resize((8 * i.width, i.height)),
}
EACH = 50


def measured(images: list[Image.Image], what: str) -> pa.Table:
    """Rows and properties; ids are digests of names, since planted pictures may be equal."""

    def encoded(image: Image.Image) -> bytes:
        out = io.BytesIO()
        image.save(out, "PNG", compress_level=1)
        return out.getvalue()

    table = pa.Table.from_batches([measure_many((encoded(i), "a.png") for i in images)[0]])
    ids = [digest_bytes(f"{what}{k}".encode()) for k in range(len(images))]
    return table.set_column(table.schema.get_field_index("id"), "id", pa.array(ids))


def cifar(path: Path, n: int) -> tuple[list[Image.Image], list[str]]:
    with zipfile.ZipFile(path) as z:
        names = [i for i in z.namelist() if i.startswith("train/") and not i.endswith("/")]
        names = [names[k] for k in np.sort(np.random.default_rng(0).permutation(len(names))[:n])]
        return [Image.open(io.BytesIO(z.read(i))).convert("RGB") for i in names], [i.split("/")[1] for i in names]


def fashion(folder: Path, n: int) -> list[Image.Image]:
    raw = gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes())
    return [Image.fromarray(x) for x in np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28)[:n]]


def photos(folder: Path) -> list[Image.Image]:
    return [Image.open(p).convert("RGB") for p in sorted(folder.glob("*.JPEG"))]


def odd(data: dict[str, list[Image.Image]]) -> None:
    print("| data | images | clean ones called odd | " + " | ".join(PLANTED) + " |")
    print("|---" * (3 + len(PLANTED)) + "|")
    for name, images in data.items():
        clean = measured(images, name)
        share = len(odd_images(clean, clean, subject="v1", policy=Policy().variety).findings) / len(images)
        cells = []
        for kind, change in PLANTED.items():
            bad = measured([change(i) for i in images[:: max(1, len(images) // EACH)][:EACH]], kind)
            v = odd_images(
                bad, bad, subject="b2", policy=Policy().variety, reference_rows=clean, reference_properties=clean
            )
            cells.append(f"{len(v.findings) / bad.num_rows:.0%}")
        print(f"| {name} | {len(images):,} | {share:.2%} | " + " | ".join(cells) + " |", flush=True)


def coverage(images: list[Image.Image], labels: list[str], others: list[Image.Image], trials: int) -> None:
    """False alarms over draws of one distribution, and power against a class that is lost, and foreign pictures."""
    pixels = np.stack([np.asarray(i.convert("RGB").resize((32, 32)), np.float32) for i in [*images, *others]])
    learned = len(images) // 2
    names = sorted(set(labels))
    encode = encoder(pixels[:learned], np.array([names.index(c) for c in labels[:learned]]))
    mine, foreign = encode(pixels[learned : len(images)]), encode(pixels[len(images) :])
    classes = np.array(labels[learned:])
    limits = Policy().variety
    found: dict[str, list[list[bool]]] = {"same": [], "a third of the classes lost": [], "5 % Fashion-MNIST": []}
    for trial in range(trials):
        rng = np.random.default_rng(trial)
        order = rng.permutation(len(mine))
        before, rest = order[: len(mine) // 2], order[len(mine) // 2 :]
        kept = rest[~np.isin(classes[rest], rng.choice(names, len(names) // 3, replace=False))]
        some = foreign[rng.choice(len(foreign), 50, replace=False)]
        sets = {
            "same": mine[rest[:1000]],
            "a third of the classes lost": mine[kept[:1000]],
            "5 % Fashion-MNIST": np.concatenate([mine[rest[:950]], some]),
        }
        reference = points(mine[before], "r")
        for what, now in sets.items():
            given = points(now, what)
            found[what].append(
                [
                    check(given, reference, subject="b2", policy=limits, reference="v1").result == "warn"
                    for check in (vendi, cluster_coverage, foreign_samples)
                ]
            )
    print(f"\n| 1,000 new images against {len(mine) // 2:,} | Vendi warns | clusters | foreign |\n|---|---|---|---|")
    for what, answers in found.items():
        print(f"| {what} | " + " | ".join(f"{x:.0%}" for x in np.mean(answers, axis=0)) + " |")


def encoder(pixels: np.ndarray, labels: np.ndarray, epochs: int = 6) -> Callable[[np.ndarray], np.ndarray]:
    """The last hidden layer, 64 numbers, of a small network trained on images that take no part in the comparison."""
    import torch
    from torch import nn

    torch.manual_seed(0)

    def block(n: int, m: int) -> list[nn.Module]:
        return [nn.Conv2d(n, m, 3, 2, 1), nn.BatchNorm2d(m), nn.ReLU()]

    body = nn.Sequential(*block(3, 16), *block(16, 32), *block(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    head = nn.Linear(64, int(labels.max()) + 1)
    optimiser = torch.optim.Adam([*body.parameters(), *head.parameters()], 3e-3)
    x, y = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255 - 0.5, torch.from_numpy(labels)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(head(body(x[rows])), y[rows]).backward()
            optimiser.step()
    body.eval()

    def encode(images: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return body(torch.from_numpy(images).permute(0, 3, 1, 2) / 255 - 0.5).numpy()

    return encode


def points(vectors: np.ndarray, what: str):
    ids = pa.array([digest_bytes(f"{what}{i}".encode()) for i in range(len(vectors))])
    return chosen(Embeddings(ids, vectors, "small"), 10_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cifar", type=Path, required=True)
    parser.add_argument("--fashion", type=Path, required=True)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--no-odd", dest="odd", action="store_false", help="coverage only")
    options = parser.parse_args()
    colour, labels = cifar(options.cifar, options.images)
    grey = fashion(options.fashion, options.images)
    if options.odd:
        odd({"CIFAR-10": colour, "Fashion-MNIST": grey, "photos": photos(options.photos)})
    coverage(colour, labels, grey[:1000], options.trials)


if __name__ == "__main__":
    main()
