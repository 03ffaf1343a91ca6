"""Out-of-fold scores: each sample is judged by models that never saw its label (invariant 7).

The training rows fall into k folds by a salted hash of their ids. Fold model i trains on the other folds and judges
fold i; what no fold model was trained on (pool, val, test) is judged by the average of all of them. A model that was
trained on mirrored pictures judges each picture together with its mirror image.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from sevenfold.storage import Lake
from sevenfold.storage.canonical import digest_json
from sevenfold.storage.progress import Progress, silent
from sevenfold.training import dynamics
from sevenfold.training.config import TrainConfig
from sevenfold.training.loader import label_numbers
from sevenfold.training.place import Place
from sevenfold.training.predict import measure, prediction_table
from sevenfold.training.run import finished, run_key, write_json
from sevenfold.training.task import Task, read_samples, reading, resolve
from sevenfold.training.trainer import train_run


def score(root: str, config: TrainConfig, place: Place, progress: Progress = silent) -> dict[str, Any]:
    """Train the fold models (first seed of the configuration), then write the combined predictions.

    Every rank calls this. The fold models are runs of their own, so that a score that was killed continues and one
    that is finished is adopted. The predictions' producer is the score's own run id.
    """
    lake = Lake.open(root)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    config = resolve(lake, config)
    with reading(lake, config, "score", place.rank):
        return _score(lake, config, place, progress)


def _score(lake: Lake, config: TrainConfig, place: Place, progress: Progress) -> dict[str, Any]:
    samples = read_samples(lake, config)
    folds = range(config.folds)
    views = config.views
    if views == "auto":
        views = "one" if "flip" not in config.augment else "shift" if "shift" in config.augment else "flip"
    runs: list[dict[str, Any]] = []
    dataset = None
    for fold in folds:
        part = {"fold": fold, "of": config.folds}
        one = config.changed(hold_out=part, predict="out_of_sample", views=views, seeds=config.seeds[:1])
        task = Task.of(lake, one, samples)
        if dataset is not None:
            task.__dict__["dataset"] = dataset  # the pixels decoded for the first fold serve them all
        runs.append(train_run(task, one.seeds[0], place, progress))
        dataset = task.__dict__.get("dataset", dataset)
    if place.rank == 0:
        dynamics.combine(lake, [r["run_id"] for r in runs])
    run = score_id(runs)
    done = finished(lake.store, run)
    if place.sum([done is not None])[0] == place.world and done is not None:
        return done
    result: dict[str, Any] = {}
    if place.rank == 0:
        classes = tuple(lake.manifest(str(config.content_id)).classes)
        table = combine(samples, [lake.predictions(r["run_id"]) for r in runs], classes, str(config.content_id))
        lake.write_predictions(run, table)
        result = _result(run, config, runs, table, classes)
        write_json(lake.store, run_key(run, "config.json"), {**result["about"], "run_id": run})
        write_json(lake.store, run_key(run, "result.json"), result)
    place.wait()
    return result


def score_id(runs: list[dict[str, Any]]) -> str:
    """`score-` and 16 hex digits over the fold runs' ids, in fold order."""
    return f"score-{digest_json([r['run_id'] for r in runs])[:16]}"


def combine(samples: pa.Table, parts: list[pa.Table], classes: tuple[str, ...], content_id: str) -> pa.Table:
    """One prediction per sample from the fold models' out-of-sample predictions.

    A sample held out in a fold takes that model's probabilities and the fold's number; a sample that every model can
    judge takes their mean and fold -1. `in_sample` is false throughout.
    """
    ids = samples["id"].combine_chunks()
    n = samples.num_rows
    total = np.zeros((n, len(classes)))
    count = np.zeros(n, np.int64)
    fold = np.full(n, -1, np.int64)
    for part in parts:
        part = part.filter(pc.invert(part["in_sample"]))
        at = pc.index_in(part["id"], value_set=ids).to_numpy().astype(np.int64)
        probs = part["probs"].combine_chunks().flatten().to_numpy().reshape(-1, len(classes))
        held = part["fold"].to_numpy()
        total[at] += probs
        count[at] += 1
        fold[at[held >= 0]] = held[held >= 0]
    rows = np.flatnonzero(count)
    mean = total[rows] / count[rows, None]
    logs = np.log(np.maximum(mean / mean.sum(1, keepdims=True), 1e-30))
    labels = label_numbers(samples["label"], classes)[rows]
    return prediction_table(
        samples, rows, labels, logs, classes, content_id=content_id,
        in_sample=np.zeros(len(rows), bool), folds=fold[rows],
    )  # fmt: skip


def _result(
    run: str, config: TrainConfig, runs: list[dict[str, Any]], table: pa.Table, classes: tuple[str, ...]
) -> dict[str, Any]:
    held = np.asarray(table["fold"]) >= 0
    labels = label_numbers(table["label"], classes)
    probs = table["probs"].combine_chunks().flatten().to_numpy().reshape(-1, len(classes))
    logs = np.log(np.maximum(probs, 1e-30))
    about = {
        "dataset": config.dataset,
        "content_id": config.content_id,
        "folds": config.folds,
        "classes": list(classes),
    }
    return {
        "run_id": run,
        **about,
        "about": about,
        "fold_runs": [r["run_id"] for r in runs],
        "out_of_fold": measure(np.where(held, labels, -1), logs),
        "predicted": table.num_rows,
        "held_out": int(held.sum()),
        "seconds": sum(r["seconds"] for r in runs),
        "adopted": False,
    }
