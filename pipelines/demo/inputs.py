"""The demo's raw material: landing folders made of Fashion-MNIST, with stated faults, and the answers kept outside.

Everything staged is stated: FAULTS broken inputs per batch, LABEL_NOISE wrong labels among the training samples, and a
"new camera" (blur, faded contrast, a bright cast, sensor noise) for the last two batches. `answers.csv` holds the true
label of every image by id; only the replayed reviewers read it.
"""

from __future__ import annotations

import csv
import hashlib
import io
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sevenfold.storage.canonical import digest_bytes, digest_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.idx import read_idx
from sevenfold.storage.png import encode_png
from sevenfold.storage.progress import Progress

CLASSES = (
    "T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle-boot",
)  # fmt: skip
STUDIO = ("2026-01-studio", "2026-02-studio")
NEW_CAMERA = ("2026-03-new-camera", "2026-04-new-camera")
LABEL_NOISE = 0.05
"""Share of training labels that are wrong on purpose."""

FAULTS = ("truncated", "not-an-image", "wrong-suffix", "duplicate", "unknown-label")
FAULT_SHARE = 0.003
"""Broken inputs of each kind, as a share of a studio batch."""

LIMIT = 20_000
"""Images used at the most, so that the demo ends within five minutes on two cores."""

PACKAGE = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's dataset-fashion-mnist puts the 60,000 + 10,000 images."""

_SHARES = {"train": 0.30, "val": 0.05, "test": 0.20, "pool": 0.35}
_FORMAT = 3


@dataclass(frozen=True)
class Staged:
    """What was put in place. `counts`: images per batch; `answers`: true label by sample id."""

    folder: Path
    origin: str
    counts: dict[str, int]
    faults: dict[str, int]
    answers: dict[str, str]
    wrong_labels: frozenset[str]


def find_images(given: Path | None) -> Path:
    """The folder of idx files to use: the one given, Debian's package (70,000 images) or the embedded 10,000."""
    if given is not None:
        return given
    embedded = Path(__file__).resolve().parents[2] / "examples" / "fashion-mnist"
    for folder in (PACKAGE, embedded):
        if (folder / "t10k-images-idx3-ubyte.gz").exists():
            return folder
    raise SevenfoldError(
        "the demo's images are not here",
        where=str(embedded),
        expected="Fashion-MNIST as idx.gz files",
        do="run from a checkout of the project, or give --images FOLDER",
    )


def stage(folder: Path, images: Path, limit: int, progress: Progress) -> tuple[Staged, bool]:
    """Write answers.csv and the batches into `folder`/staged; returns what was staged and whether this call did it.

    The landing folders are moved into the inbox one by one by the story, as a camera would deliver them.
    """
    pixels, labels = _load(images)
    if limit and len(pixels) > limit:
        chosen = np.sort(_keyed_order(len(pixels), "demo limit")[:limit])
        pixels, labels = pixels[chosen], labels[chosen]
    n = len(pixels)
    mark = digest_json([_FORMAT, n, digest_bytes(pixels.tobytes()), LABEL_NOISE, FAULT_SHARE, _SHARES])
    stamp = folder / "staged" / "complete"
    plan = _plan(n)
    if not (stamp.exists() and stamp.read_text() == mark):
        shutil.rmtree(folder / "staged", ignore_errors=True)
        shutil.rmtree(folder / "inbox", ignore_errors=True)
        _write(folder / "staged", pixels, labels, plan, progress)
        stamp.write_text(mark)
        made = True
    else:
        made = False
    answers, wrong = {}, set()
    with open(folder / "staged" / "answers.csv", newline="") as f:
        for row in csv.DictReader(f):
            answers[row["id"]] = row["label"]
            if row["given"] not in ("", row["label"]):
                wrong.add(row["id"])
    counts = {b: sum(len(v) for v in parts.values()) for b, parts in plan.items()}
    faults = {b: _fault_count(counts[b]) * len(FAULTS) for b in STUDIO}
    return Staged(folder, str(images), counts, faults, answers, frozenset(wrong)), made


def deliver(folder: Path, batch: str) -> None:
    """Link a staged batch into the inbox, whole at once: copied under a hidden name first, then renamed."""
    inbox = folder / "inbox"
    inbox.mkdir(parents=True, exist_ok=True)
    if not (inbox / batch).exists():
        shutil.copytree(folder / "staged" / batch, inbox / f".{batch}", copy_function=_hard_link, dirs_exist_ok=True)
        (inbox / f".{batch}").rename(inbox / batch)


def _hard_link(source: str, target: str) -> str:
    Path(target).unlink(missing_ok=True)
    Path(target).hardlink_to(source)
    return target


def _load(images: Path) -> tuple[np.ndarray, np.ndarray]:
    """(uint8 [n, 28, 28], uint8 [n]) of every part in the folder, the training part first."""
    pairs = []
    for stem in ("train", "t10k"):
        file = images / f"{stem}-images-idx3-ubyte.gz"
        if file.exists():
            pairs.append((read_idx(file), read_idx(images / f"{stem}-labels-idx1-ubyte.gz")))
    if not pairs:
        raise SevenfoldError("no Fashion-MNIST files here", where=str(images), expected="t10k-images-idx3-ubyte.gz")
    return np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])


def _keyed_order(n: int, salt: str) -> list[int]:
    return sorted(range(n), key=lambda i: hashlib.sha256(f"{salt} {i}".encode()).digest())


def _plan(n: int) -> dict[str, dict[str, list[int]]]:
    """Batch -> split -> image numbers: 90 % studio in two batches, 10 % new camera in two."""
    order = _keyed_order(n, "demo order")
    plan: dict[str, dict[str, list[int]]] = {b: {} for b in (*STUDIO, *NEW_CAMERA)}
    start = 0
    for split, share in _SHARES.items():
        part = order[start : start + int(share * n)]
        start += len(part)
        plan[STUDIO[0]][split], plan[STUDIO[1]][split] = part[::2], part[1::2]
    rest = order[start : start + int(0.10 * n)]
    for batch, part in zip(NEW_CAMERA, (rest[::2], rest[1::2]), strict=True):
        cut = int(0.45 * len(part))
        plan[batch]["test"], plan[batch]["pool"] = part[:cut], part[cut:]
    return plan


def _write(
    folder: Path, pixels: np.ndarray, labels: np.ndarray, plan: dict[str, dict[str, list[int]]], progress: Progress
) -> None:
    folder.mkdir(parents=True)
    total, done = sum(len(v) for parts in plan.values() for v in parts.values()), 0
    train = [i for b in STUDIO for i in plan[b]["train"]]
    noisy = set(_keyed_order(len(train), "demo noise")[: int(LABEL_NOISE * len(train))])
    wrong = {i: _another_class(i, int(labels[i])) for rank, i in enumerate(train) if rank in noisy}
    with open(folder / "answers.csv", "w", newline="") as f:
        answers = csv.writer(f)
        answers.writerow(["id", "label", "given", "batch", "image"])
        for batch, parts in plan.items():
            for split, numbers in parts.items():
                for i in numbers:
                    image = new_camera(pixels[i], i) if batch in NEW_CAMERA else pixels[i]
                    data = encode_png(image)
                    given = CLASSES[wrong.get(i, int(labels[i]))] if split != "pool" else ""
                    target = folder / batch / split / given / f"{i:05d}.png"
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(data)
                    answers.writerow([digest_bytes(data), CLASSES[labels[i]], given, batch, i])
                    done += 1
                    if done % 500 == 0 or done == total:
                        progress(done, total, "staging the landing folders")
    for batch in STUDIO:
        _break_some(folder / batch, _fault_count(sum(len(v) for v in plan[batch].values())))


def _fault_count(images: int) -> int:
    return max(3, int(FAULT_SHARE * images))


def _another_class(i: int, label: int) -> int:
    step = 1 + int.from_bytes(hashlib.sha256(f"demo wrong {i}".encode()).digest()[:4], "big") % (len(CLASSES) - 1)
    return (label + step) % len(CLASSES)


def _break_some(batch: Path, count: int) -> None:
    """`count` inputs of each kind of fault, named for what they are."""
    from PIL import Image

    good = sorted((batch / "train").rglob("*.png"))[: count * len(FAULTS)]
    for k, path in enumerate(good):
        fault, data = FAULTS[k % len(FAULTS)], path.read_bytes()
        target = path.parent / f"fault-{fault}-{path.name}"
        if fault == "truncated":
            data = data[: len(data) // 2]
        elif fault == "not-an-image":
            data = b"<!doctype html><title>404</title>" + str(k).encode()
        elif fault == "wrong-suffix":
            out = io.BytesIO()
            Image.open(io.BytesIO(data)).rotate(90).save(out, "JPEG")
            data = out.getvalue()
        elif fault == "unknown-label":
            data = encode_png(np.asarray(Image.open(io.BytesIO(data)))[:, ::-1].copy())
            target = batch / "train" / "Spaceship" / target.name
            target.parent.mkdir(exist_ok=True)
        target.write_bytes(data)


def new_camera(image: np.ndarray, number: int) -> np.ndarray:
    """The stated shift: 3x3 blur, contrast x 0.55, +70 of brightness, noise of 14 grey levels. uint8 in and out."""
    wide = np.pad(image.astype(np.float32), 1, mode="edge")
    height, width = image.shape
    windows: Iterator[np.ndarray] = (wide[y : y + height, x : x + width] for y in range(3) for x in range(3))
    blurred = sum(windows, np.zeros(image.shape, np.float32)) / 9
    noise = np.random.Generator(np.random.PCG64(number)).normal(0, 14, image.shape)
    return np.clip(blurred * 0.55 + 70 + noise, 0, 255).astype(np.uint8)
