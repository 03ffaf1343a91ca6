"""Label errors beside cleanlab and "argmax differs", on the same out-of-fold probabilities of our own trainer.

    python benchmarks/quality_labels.py cifar10_jpeg.zip human_labels_aggregate.csv --keep labels_oof.npz
    python benchmarks/quality_labels.py --keep labels_oof.npz     # judge again what was scored, without training

CIFAR-10's 50,000 training images with real human labels (CIFAR-10N, aggregate: 9.0 % wrong), with 20 % uniform noise,
with 30 % of half the classes flipped to a neighbour, and with its clean labels. Each is ingested into a lake of its own
and scored by `sevenfold score`; --settings changes how. Two ranks of one thread each keep both cores busy. cleanlab is
compared where it is installed; where not, its lines say so.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from sevenfold.quality.label_noise import SCORES, estimate_label_noise
from sevenfold.storage import Lake

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NEIGHBOUR = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}
"""truck -> automobile, bird -> airplane, deer -> horse, cat <-> dog (Patrini et al. 2017)."""
NOISES = ("human", "symmetric 20 %", "asymmetric 30 %", "clean")
SETTINGS = (
    "model=whitened_cnn", "widths=[32,128,128]", "batch_size=256", "lr=0.4", "label_smoothing=0.2", "warmup=0.2",
    "weight_decay=0.001", "epochs=18", "folds=3", "augment=[flip,shift]", "threads=1", "ranks=2",
)  # fmt: skip


def given_labels(noise: str, human: np.ndarray, true: np.ndarray) -> np.ndarray:
    """int [n]: the labels under suspicion, the same in every run."""
    rng = np.random.default_rng(20)
    if noise == "human":
        return human
    if noise == "symmetric 20 %":
        return np.where(rng.random(len(true)) < 0.2, (true + rng.integers(1, 10, len(true))) % 10, true)
    if noise == "asymmetric 30 %":
        target = np.array([NEIGHBOUR.get(c, c) for c in range(10)])
        return np.where(rng.random(len(true)) < 0.3, target[true], true)
    return true


def command(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [Path(sys.executable).with_name("sevenfold"), *words], cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"sevenfold {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def score(archive: Path, paths: Sequence[str], labels: np.ndarray, settings: Sequence[str]) -> tuple[np.ndarray, float]:
    """(float32 [n, 10] out-of-fold probabilities, nan where an input was set aside; CPU seconds of the scoring)."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with zipfile.ZipFile(archive) as z:
            z.extractall(folder, members=paths)
        with (folder / "labels.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["path", "label", "split"])
            rows.writerows([p, CLASSES[v], "train"] for p, v in zip(paths, labels, strict=True))
        command(folder, "init", "--dataset", "cifar10")
        command(folder, "ingest", "labels.csv")
        command(folder, "check")
        command(folder, "commit", "-m", "first")
        begun = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = json.loads(command(folder, "score", "--json", *(w for s in settings for w in ("--set", s))))["run_id"]
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        lake = Lake.open(str(folder / "lake"))
        samples, table = lake.samples("cifar10", "main"), lake.predictions(run)
        probs = np.full((len(paths), len(CLASSES)), np.nan, np.float32)
        flat = table["probs"].combine_chunks().flatten().to_numpy().reshape(table.num_rows, -1)
        names = lake.manifest(lake.version("cifar10", "main").content_id).classes
        place = pc.index_in(table["id"], value_set=samples["id"].combine_chunks())
        row_of = {path: i for i, path in enumerate(paths)}
        at = [row_of[p] for p in samples["path"].take(place).to_pylist()]
        probs[at] = flat[:, [names.index(c) for c in CLASSES]]
    return probs, ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime


def auroc(score: np.ndarray, wrong: np.ndarray) -> float:
    from scipy.stats import rankdata

    k = int(wrong.sum())
    if not 0 < k < len(wrong):
        return float("nan")
    return float((rankdata(score)[wrong].sum() - k * (k + 1) / 2) / (k * (len(wrong) - k)))


def average_precision(score: np.ndarray, wrong: np.ndarray) -> float:
    hits = wrong[np.argsort(-score, kind="stable")]
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean()) if hits.any() else float("nan")


def row(name: str, found: np.ndarray, wrong: np.ndarray, more: str = "| | | ") -> str:
    hits = int(wrong[found].sum())
    precision, recall = hits / max(len(found), 1), hits / max(int(wrong.sum()), 1)
    f1 = 2 * hits / max(len(found) + int(wrong.sum()), 1)
    return f"| {name} | {len(found):,} | {precision:.3f} | {recall:.3f} | {f1:.3f} {more}|"


def judge(noise: str, probs: np.ndarray, labels: np.ndarray, true: np.ndarray) -> None:
    scored = np.flatnonzero(np.isfinite(probs).all(1))
    probs, labels, true = probs[scored].astype(np.float64), labels[scored], true[scored]
    wrong = labels != true
    begun = time.process_time()
    ours = estimate_label_noise(probs, labels)
    seconds = time.process_time() - begun
    print(
        f"\n**{noise}**: {len(labels):,} labels, {wrong.mean():.2%} wrong; the prediction is the true class for ",
        end="",
    )
    print(f"{(probs.argmax(1) == true).mean():.1%}. Estimate {ours.errors / ours.n:.2%} ", end="")
    print(f"({ours.low / ours.n:.2%} to {ours.high / ours.n:.2%}), {seconds:.1f} s.\n")
    print("| | flagged | precision | recall | F1 | AUROC | AP |\n|---|---|---|---|---|---|---|")
    ranks = f"| {auroc(ours.score, wrong):.4f} | {average_precision(ours.score, wrong):.3f} "
    print(row("ours", ours.suspects, wrong, ranks))
    print(row("argmax differs", np.flatnonzero(probs.argmax(1) != labels), wrong))
    try:
        from cleanlab.filter import find_label_issues
    except ImportError:
        print("| cleanlab | not installed here | | | | | |")
    else:
        flagged = find_label_issues(labels, probs / probs.sum(1, keepdims=True), n_jobs=1)
        print(row("cleanlab, default", np.flatnonzero(flagged), wrong))
    for name, rank in list(SCORES.items())[1:]:
        values = rank(probs, labels)
        print(f"| ranked by {name} | | | | | {auroc(values, wrong):.4f} | {average_precision(values, wrong):.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("zip", type=Path, nargs="?")
    parser.add_argument("labels", type=Path, nargs="?")
    parser.add_argument("--keep", type=Path, required=True, help="npz of what was scored; written after each noise")
    parser.add_argument("--noise", choices=NOISES, action="append", help="only these (default: all)")
    parser.add_argument("--images", type=int, help="only so many training images, every k-th (default: all)")
    parser.add_argument("--settings", nargs="*", default=SETTINGS, help="of the scoring, as --set takes them")
    options = parser.parse_args()
    kept = dict(np.load(options.keep)) if options.keep.exists() else {}
    if options.zip is not None:
        with options.labels.open(newline="") as file:
            read = list(csv.DictReader(file))
        paths = [r["path"] for r in read]
        if options.images:
            read = read[:: max(1, len(read) // options.images)][: options.images]
            paths = [r["path"] for r in read]
        human, true = (np.array([CLASSES.index(r[c]) for r in read]) for c in ("human_label", "true_label"))
        for noise in options.noise or NOISES:
            labels = given_labels(noise, human, true)
            probs, cpu = score(options.zip.absolute(), paths, labels, options.settings)
            kept |= {f"{noise}/probs": probs, f"{noise}/labels": labels, f"{noise}/cpu": np.array(cpu), "true": true}
            np.savez(options.keep, **kept)
    cores = len(os.sched_getaffinity(0))
    for noise in options.noise or NOISES:
        if f"{noise}/probs" in kept:
            judge(noise, kept[f"{noise}/probs"], kept[f"{noise}/labels"], kept["true"])
            if cpu := float(kept.get(f"{noise}/cpu", np.array(0.0))):
                print(f"\nScored in {cpu:.0f} CPU seconds, {cpu / cores / 60:.1f} minutes of {cores} idle cores.")


if __name__ == "__main__":
    main()
