"""Value on CIFAR-10 with real human label noise: which scores find the wrong labels, and what pruning by them does.

    python benchmarks/quality_value.py cifar10_jpeg.zip human_labels_aggregate.csv [--train 6000] [--seeds 0,1]

The zip's folders are train/<class> and test/<class>; the csv has path, human_label, true_label of the train images
(CIFAR-10N, CC BY-NC: not part of this project). Everything is trained from shards by the project's own small network.
Prints Markdown; a few minutes on two idle cores.

With 6,000 images no score reaches what it does on 50,000, and published prunings by EL2N are of clean labels and long
training: here the direction counts. Keeping the highest EL2N keeps the wrong labels.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from sevenfold.quality import shapley
from sevenfold.storage import Lake
from sevenfold.training.config import TrainConfig, parse
from sevenfold.training.dynamics import SIGNALS, Dynamics
from sevenfold.training.embed import embed
from sevenfold.training.learner import Learner, choose_precision
from sevenfold.training.models import residual_cnn, to_input
from sevenfold.training.place import Place
from sevenfold.training.score import score
from sevenfold.training.trainer import train

VAL, TEST, EPOCHS = 1000, 4000, 5
WORSE = {
    "el2n": 1,
    "forgetting": 1,
    "aum": -1,
    "learned": -1,
    "kNN-Shapley": -1,
    "kNN-Shapley, vectors as they are": -1,
    "out-of-fold self-confidence": -1,
}
"""+1: a wrong label has a high value; -1: a low one."""


def build(folder: Path, zip_path: Path, csv_path: Path, n: int) -> tuple[Lake, np.ndarray]:
    """A lake with n noisy train images, VAL clean val images and TEST of test; (lake, bool: whose label is wrong)."""
    with open(csv_path, newline="") as f:
        rows = list(csv.DictReader(f))
    chosen = np.random.default_rng(0).permutation(len(rows))[: n + VAL]
    lines, wrong_of = [], {}
    with zipfile.ZipFile(zip_path) as z:
        names = {name.split("cifar10/")[-1]: name for name in z.namelist() if not name.endswith("/")}

        def put(path: str, label: str, split: str) -> None:
            target = folder / "src" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(z.read(names[path]))
            lines.append(f"{path},{label},{split}")

        for i, at in enumerate(chosen.tolist()):
            row = rows[at]
            split = "train" if i < n else "val"
            put(row["path"], row["human_label"] if split == "train" else row["true_label"], split)
            wrong_of[row["path"]] = split == "train" and row["human_label"] != row["true_label"]
        for path in sorted(names):
            if path.startswith("test/") and int(path.rpartition("/")[2][:-4]) < TEST // 10:
                put(path, path.split("/")[1], "test")
    (folder / "src/index.csv").write_text("\n".join(["path,label,split", *lines]) + "\n")
    lake = Lake.create(folder / "lake")
    lake.ingest(folder / "src/index.csv", "cifar10", "b1", workers=len(os.sched_getaffinity(0)))
    lake.set_status("cifar10", "b1", "admitted")
    lake.commit("cifar10", message="human labels")
    samples = lake.samples("cifar10")
    return lake, np.array([wrong_of.get(path, False) for path in samples["path"].to_pylist()])


def config(**values: Any) -> TrainConfig:
    base = {"dataset": "cifar10", "widths": [16, 32, 64], "epochs": EPOCHS, "augment": ["flip"]}
    return parse({**base, **values})


def cost(steps: int = 60) -> list[str]:
    """What noting the dynamics costs, in processor time of a step: from the step's logits, or by a pass after it."""
    learner = Learner(residual_cnn(10, 3), config(), 0, Place(), choose_precision("auto", torch.device("cpu")))
    rng, noted, b = np.random.default_rng(0), Dynamics(128, (0, steps)), 128
    batch = {
        "images": torch.from_numpy(rng.integers(0, 255, (b, 32, 32, 3), dtype=np.uint8)),
        "label": torch.from_numpy(rng.integers(0, 10, b)), "row": torch.arange(b),
        "mask": torch.ones(b, dtype=torch.bool), "weight": torch.ones(b),
    }  # fmt: skip
    keys, logits = np.arange(b, dtype=np.uint64), torch.randn(b, 10)

    def timed(work: Callable[[int], object]) -> float:
        found = []
        for i in range(steps):
            begun = time.process_time()
            work(i)
            found.append(time.process_time() - begun)
        return 1e3 * float(np.median(found))

    def note(i: int) -> None:
        noted.watch(i, batch["row"], batch["label"], logits)
        noted.gather(Place())

    @torch.inference_mode()
    def look(i: int) -> None:
        with learner.autocast():
            learner.model(to_input(batch["images"], torch.device("cpu"), learner.layout))

    step, own, after = (timed(f) for f in (lambda i: learner.step(batch, keys, i, 0.01), note, look))
    return [
        f"| a training step of {b} images of 32 pixels ({learner.precision}) | {step:.1f} ms | |",
        f"| noting its own logits | {own:.2f} ms | {own / step:.1%} |",
        f"| a prediction of as many after the epoch | {after:.1f} ms | {after / step:.0%} |",
    ]


def scores(lake: Lake, seeds: list[int]) -> dict[str, np.ndarray]:
    """Name -> float [n], in the order of the train samples, NaN where there is none."""
    root = lake.store.url
    samples = lake.samples("cifar10")
    trained = samples.filter(pc.equal(samples["split"], "train"))
    ids = trained["id"].combine_chunks()
    found: dict[str, np.ndarray] = {}
    runs = train(root, config(seeds=seeds, predict="none"), Place())
    producer = next(p for p in lake.store.names("signals/aum") if p.startswith("dynamics-") or len(seeds) == 1)
    for name in SIGNALS:
        signal = lake.signal(name, producer)
        found[name] = signal["value"].take(pc.index_in(ids, value_set=signal["id"].combine_chunks())).to_numpy()
    embed(lake, config(), runs[0]["run_id"])
    vectors = lake.embeddings("cifar10")
    assert vectors is not None
    val = samples.filter(pc.equal(samples["split"], "val"))
    classes = pa.array(lake.manifest(lake.version("cifar10").content_id).classes)
    codes = [pc.index_in(table["label"], value_set=classes).to_numpy() for table in (trained, val)]
    raw = [vectors.take(table["id"]).vectors for table in (trained, val)]
    unit = [v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12) for v in raw]
    for name, (near, points) in {"kNN-Shapley": unit, "kNN-Shapley, vectors as they are": raw}.items():
        begun = time.process_time()
        found[name] = shapley.knn_shapley(near, codes[0], points, codes[1], 10)
        spent = time.process_time() - begun
        print(f"{name} of {len(ids):,} samples by {val.num_rows:,} points: {spent:.1f} s of processor time; "
              f"{(found[name] < 0).mean():.1%} are below 0\n")  # fmt: skip
    print(f"never learned: {(found['learned'] == 0).mean():.1%}; "
          f"forgotten at least once: {((found['forgetting'] > 0) & (found['learned'] > 0)).mean():.1%}\n")  # fmt: skip
    out = lake.predictions(score(root, config(seeds=seeds[:1], folds=2, dynamics=False), Place())["run_id"])
    at = pc.index_in(ids, value_set=out["id"].combine_chunks())
    found["out-of-fold self-confidence"] = np.exp(-out["loss"].take(at).to_numpy())
    return found


def pruned(lake: Lake, folder: Path, chosen: dict[str, np.ndarray], seeds: list[int]) -> dict[str, list[float]]:
    """Test accuracy per seed of a training on each choice of ids."""
    accuracies = {}
    for name, ids in chosen.items():
        listed = folder / f"{len(accuracies)}.json"
        listed.write_text(json.dumps(sorted(ids.tolist())))
        # as many steps for each: the published comparison, else fewer samples would also mean less training
        steps = EPOCHS * -(-lake_train(lake).num_rows // 128)
        runs = train(
            lake.store.url,
            config(select_ids=str(listed), steps=steps, seeds=seeds, dynamics=False, predict="none"),
            Place(),
        )
        accuracies[name] = [r["splits"]["test"]["accuracy"] for r in runs]
        print(f"  {name}: {accuracies[name]}", file=sys.stderr, flush=True)
    return accuracies


def lake_train(lake: Lake) -> pa.Table:
    """The train samples."""
    samples = lake.samples("cifar10")
    return samples.filter(pc.equal(samples["split"], "train"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("zip", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--train", type=int, default=6_000)
    parser.add_argument("--seeds", default="0,1")
    options = parser.parse_args()
    seeds = [int(s) for s in options.seeds.split(",")]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        lake, every = build(folder, options.zip, options.labels, options.train)
        trained = lake_train(lake)
        wrong = every[np.array(lake.samples("cifar10")["split"].to_pylist()) == "train"]
        ids = np.array(trained["id"].to_pylist())
        print(f"{len(ids):,} train images, {wrong.mean():.1%} human label errors, {len(seeds)} seeds\n")
        found = scores(lake, seeds)
        print("| score | AUROC of label errors | AP | errors among the worst 5 % |\n|---|---|---|---|")
        for name, values in found.items():
            bad = WORSE[name] * np.nan_to_num(values)
            worst = np.argsort(-bad, kind="stable")[: len(bad) // 20]
            print(f"| {name} | {roc_auc_score(wrong, bad):.3f} | {average_precision_score(wrong, bad):.3f} | "
                  f"{wrong[worst].mean():.0%} |")  # fmt: skip
        chosen = choices(ids, found, wrong)
        accuracy = pruned(lake, folder, chosen, seeds)
        print(f"\n| trained on (of {len(ids):,}, as many steps) | samples | test accuracy | |\n|---|---|---|---|")
        for name, values in accuracy.items():
            told = ", ".join(f"{v:.1%}" for v in values)
            print(f"| {name} | {len(chosen[name]):,} | {np.mean(values):.1%} | {told} |")
        print("\n| cost of dynamics | processor time | |\n|---|---|---|", *cost(), sep="\n")


def choices(ids: np.ndarray, found: dict[str, np.ndarray], wrong: np.ndarray) -> dict[str, np.ndarray]:
    """What is kept: by each score as many as at random."""
    n, kept = len(ids), len(ids) * 7 // 10
    order = {name: np.argsort(-np.nan_to_num(values), kind="stable") for name, values in found.items()}
    hard = order["el2n"]
    return {
        "all": ids,
        "at random": ids[np.random.default_rng(1).permutation(n)[:kept]],
        "highest kNN-Shapley": ids[order["kNN-Shapley"][:kept]],
        "highest AUM": ids[order["aum"][:kept]],
        "lowest EL2N": ids[hard[n - kept :]],
        "highest EL2N": ids[hard[:kept]],
        "highest EL2N of the rightly labelled": ids[hard[~wrong[hard]][:kept]],
    }


if __name__ == "__main__":
    main()
