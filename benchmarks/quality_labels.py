"""Label errors beside cleanlab and "argmax differs", on the same out-of-fold probabilities of our own trainer.

    python benchmarks/quality_labels.py cifar10_jpeg.zip human_labels_aggregate.csv --keep labels_oof.npz

CIFAR-10's 50,000 training images with real human labels (CIFAR-10N, aggregate: 9.0 % wrong), with 20 % uniform noise,
with 30 % of half the classes flipped to a neighbour, and with its clean labels. Each is ingested into a lake and scored
by `sevenfold score` with --set; what was scored is kept in the file --keep, and --only judges from it without training.
cleanlab is compared where it is installed (`pip install cleanlab`); otherwise its lines say so.
"""

from __future__ import annotations

import argparse
import csv
import resource
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np

from sevenfold.quality.label_noise import SCORES, estimate_label_noise

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NEIGHBOUR = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}
"""truck -> automobile, bird -> airplane, deer -> horse, cat <-> dog: the usual asymmetric noise (Patrini et al. 2017)."""
SETTINGS = {"widths": [16, 32, 64, 128], "epochs": 18, "folds": 3, "augment": ["flip", "shift"]}


def given_labels(noise: str, human: np.ndarray, true: np.ndarray) -> np.ndarray:
    """int [n]: the labels under suspicion, reproducibly."""
    rng = np.random.default_rng(20)
    if noise == "human":
        return human
    if noise == "symmetric 20 %":
        return np.where(rng.random(len(true)) < 0.2, (true + rng.integers(1, 10, len(true))) % 10, true)
    if noise == "asymmetric 30 %":
        target = np.array([NEIGHBOUR.get(c, c) for c in range(10)])
        return np.where(rng.random(len(true)) < 0.3, target[true], true)
    return true


def score_in_a_lake(archive: Path, paths: list[str], labels: np.ndarray, settings: dict[str, object]) -> np.ndarray:
    """float32 [n, 10]: out-of-fold probabilities by `training.score`, in the order of `paths`."""
    from sevenfold.storage import Lake
    from sevenfold.storage.commit import commit_batches
    from sevenfold.storage.ingest import ingest
    from sevenfold.training.config import parse
    from sevenfold.training.launch import launch

    raise NotImplementedError


def auroc(score: np.ndarray, wrong: np.ndarray) -> float:
    from scipy.stats import rankdata

    k = int(wrong.sum())
    if not 0 < k < len(wrong):
        return float("nan")
    return float((rankdata(score)[wrong].sum() - k * (k + 1) / 2) / (k * (len(wrong) - k)))


def average_precision(score: np.ndarray, wrong: np.ndarray) -> float:
    hits = wrong[np.argsort(-score, kind="stable")]
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean()) if hits.any() else float("nan")
