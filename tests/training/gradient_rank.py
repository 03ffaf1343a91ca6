"""One rank of test_gradients: two steps on its slices of fixed global blocks; rank 0 saves gradients and weights."""

from __future__ import annotations

import sys

import numpy as np
import torch

from sevenfold.training.config import TrainConfig
from sevenfold.training.learner import Learner
from sevenfold.training.models import residual_cnn
from sevenfold.training.place import Place
from sevenfold.training.plan import PAD, rank_slice

BATCH, SAMPLES = 13, 20
NORMS = ("group", "batch", "local")


def localise(module: torch.nn.Module) -> None:
    """Put torch's own BatchNorm2d in place of ours."""
    for name, child in module.named_children():
        if isinstance(child, torch.nn.BatchNorm2d):
            setattr(module, name, torch.nn.BatchNorm2d(child.num_features))
        localise(child)


def compute(place: Place, norm: str) -> dict[str, np.ndarray]:
    """Gradients of two steps, losses, and the state after them."""
    rng = np.random.default_rng(3)
    images = rng.integers(0, 256, (SAMPLES, 12, 12, 3), dtype=np.uint8)
    labels = rng.integers(0, 4, SAMPLES)
    weights = rng.uniform(0.5, 2.0, SAMPLES).astype(np.float32)
    torch.manual_seed(0)
    model = residual_cnn(4, 3, (8, 8, 8), "group" if norm == "group" else "batch")
    if norm == "local":
        localise(model)
    config = TrainConfig(dataset="d", lr=0.05)
    learner = Learner(model, config, 5, place, "fp32")
    saved = {}
    blocks = [np.arange(BATCH), np.r_[np.arange(BATCH, SAMPLES), np.full(2 * BATCH - SAMPLES, PAD)]]
    for step, block in enumerate(blocks):  # the second block has 7 samples: with two ranks one gets 7, the other none
        rows = rank_slice(block, place.rank, place.world)
        mask = rows != PAD
        mask &= rows != 4  # a sample that did not decode
        batch = {
            "images": torch.from_numpy(images[np.where(mask, rows, 0)] * mask[:, None, None, None]),
            "label": torch.from_numpy(np.where(mask, labels[rows], -1)),
            "row": torch.from_numpy(rows),
            "weight": torch.from_numpy(np.where(mask, weights[rows], np.float32(0))),
            "mask": torch.from_numpy(mask),
        }
        positions = step * BATCH + place.rank * len(rows) + np.arange(len(rows))
        done = learner.step(batch, positions.astype(np.uint64), step, 0.05)
        saved[f"{step}.loss"] = np.array([done["loss_sum"], done["weight"]])
        saved.update({f"{step}.{n}": p.grad.numpy().copy() for n, p in learner.model.named_parameters()})
    saved.update({f"final.{n}": v.numpy() for n, v in learner.model.state_dict().items()})
    return saved


def main(out: str) -> None:
    torch.set_num_threads(1)
    place = Place.join(30.0)
    for norm in NORMS:
        found = compute(place, norm)
        if place.rank == 0:
            np.savez(f"{out}/{norm}-{place.world}.npz", **found)
    place.leave()


if __name__ == "__main__":
    main(sys.argv[1])
