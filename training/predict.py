"""Predictions: every requested sample once, over all ranks, as log-probabilities and as the table the lake keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from sevenfold.storage.progress import Progress, silent
from sevenfold.training.loader import SampleDataset, make_loader
from sevenfold.training.models import memory_layout, to_input
from sevenfold.training.place import Place
from sevenfold.training.plan import rank_slice

_BATCH = 500

Ahead = Callable[[np.ndarray], AbstractContextManager[Callable[[int], None]]]
"""See Task.in_order."""


def _nothing(rows: np.ndarray) -> AbstractContextManager[Callable[[int], None]]:
    return nullcontext(lambda done: None)


def log_probabilities(
    model: nn.Module,
    dataset: SampleDataset,
    rows: np.ndarray,
    place: Place,
    autocast: AbstractContextManager[Any],
    progress: Progress = silent,
    ahead: Ahead = _nothing,
    views: str = "one",
) -> tuple[np.ndarray, np.ndarray]:
    """What the model thinks of the rows; the ranks share the work, and `ahead` fetches this rank's shards.

    `views`: "flip" takes the mean of the logits of each picture and of its mirror image (twice the work); "shift" the
    mean of that and of both moved by a 32nd of the side along the diagonals (six times the work).

    Returns
    -------
    float32 [n, classes] log-probabilities and bool [n], false where the image does not decode; the same on each rank.
    """
    if not len(rows):
        return np.zeros((0, 0), np.float32), np.zeros(0, bool)
    mine = rank_slice(np.asarray(rows, np.int64), place.rank, place.world)
    parts, masks = [], []
    was_training, layout = model.training, memory_layout(model)
    model.eval()
    with torch.inference_mode(), autocast, ahead(mine) as tell:
        blocks = [mine[start : start + _BATCH].tolist() for start in range(0, len(mine), _BATCH)]
        for done, batch in enumerate(make_loader(dataset, blocks), 1):
            images = to_input(batch["images"], place.device, layout)
            logits = _looks(model, images, views)
            parts.append(torch.log_softmax(logits, 1))
            masks.append(batch["mask"].clone())  # a view would keep the batch's pixels
            tell(done * _BATCH)
            progress(min(done * _BATCH, len(mine)) * place.world, len(mine) * place.world, "predicting")
        logs = place.gather(torch.cat(parts))[: len(rows)]
        good = place.gather(torch.cat(masks).to(place.device, torch.uint8))[: len(rows)].bool()
    model.train(was_training)
    return logs.numpy(), good.numpy()


def _looks(model: nn.Module, images: torch.Tensor, views: str) -> torch.Tensor:
    """float32 logits of images [b, c, h, w], averaged over the views of them."""
    if views not in ("flip", "shift"):
        return model(images).float()
    logits = (model(images).float() + model(images.flip(3)).float()) / 2
    if views == "flip":
        return logits
    height, width = images.shape[2:]
    by = max(height // 32, 1)
    padded = nn.functional.pad(images, (by, by, by, by), mode="reflect")
    layout = memory_layout(model)
    moved = [padded[:, :, at : at + height, at : at + width].contiguous(memory_format=layout) for at in (0, 2 * by)]
    return (logits + sum(_looks(model, one, "flip") for one in moved) / len(moved)) / 2


def prediction_table(
    samples: pa.Table,
    rows: np.ndarray,
    labels: np.ndarray,
    logs: np.ndarray,
    classes: Sequence[str],
    *,
    content_id: str,
    in_sample: np.ndarray,
    folds: np.ndarray,
) -> pa.Table:
    """The rows of `lake.write_predictions`.

    Parameters
    ----------
    samples : the samples table; `rows` int64 [n] picks from it.
    labels : int64 [n], class numbers, -1 for unlabelled.
    logs : float [n, classes], log-probabilities.
    in_sample : bool [n]; folds : int [n], -1 for a full model.
    """
    logs = np.asarray(logs, np.float64)
    probs = np.exp(logs)
    n = len(rows)
    order = np.argsort(-probs, axis=1, kind="stable")
    best = order[:, 0] if n else np.zeros(0, np.int64)
    at = np.arange(n)
    labelled = labels >= 0
    own = np.where(labelled, labels, best)
    others = probs.copy()
    others[at, own] = -np.inf
    rival = others.max(1, initial=-np.inf)
    rival[~np.isfinite(rival)] = 0.0  # a single class has no rival
    margin = probs[at, own] - rival
    names = pa.array(list(classes), pa.string())
    flat = pa.array(probs.astype(np.float32).ravel())
    width = probs.shape[1] if n else len(classes)
    return pa.table(
        {
            "id": samples["id"].take(pa.array(rows)),
            "content_id": pa.array([content_id] * n, pa.string()),
            "label": names.take(pa.array(own, mask=~labelled)),
            "predicted": names.take(pa.array(best)),
            "confidence": probs[at, best],
            "margin": margin,
            "loss": pa.array(-logs[at, own], mask=~labelled),
            "entropy": -(probs * logs).sum(1),
            "probs": pa.ListArray.from_arrays(pa.array(np.arange(n + 1) * width, pa.int32()), flat),
            "in_sample": in_sample,
            "fold": pa.array(folds, pa.int32()),
        }
    )


def measure(labels: np.ndarray, logs: np.ndarray) -> dict[str, Any]:
    """{n, correct, accuracy, loss} over labelled rows (mean -log p); accuracy and loss are None when there are none."""
    labelled = labels >= 0
    n = int(labelled.sum())
    if not n:
        return {"n": 0, "correct": 0, "accuracy": None, "loss": None}
    rows = np.flatnonzero(labelled)
    correct = int((logs[rows].argmax(1) == labels[rows]).sum())
    loss = float(-logs[rows, labels[rows]].astype(np.float64).mean())
    return {"n": n, "correct": correct, "accuracy": correct / n, "loss": loss}


def slices(labels: np.ndarray, logs: np.ndarray, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """:func:`measure` for each distinct name (a batch, a class ...), in order of first appearance."""
    of = np.asarray(names, dtype=object)
    return {name: measure(labels[of == name], logs[of == name]) for name in dict.fromkeys(names)}
