"""What a finished run leaves: weights, the ids it saw, predictions and, last, the result that makes it complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from sevenfold.storage.index import write_parquet
from sevenfold.storage.progress import Progress, silent
from sevenfold.training.inputs import trained_path
from sevenfold.training.learner import Learner
from sevenfold.training.models import weights_bytes
from sevenfold.training.predict import log_probabilities, measure, prediction_table, slices
from sevenfold.training.run import run_key, write_json
from sevenfold.training.task import Task

TRAINED = pa.schema([("id", pa.string())])
"""runs/<run id>/trained.parquet: the ids the model was ever trained on, those of the model it began from included."""

_EXPLAINED = 10
"""Samples that failed of which the result says why: trying them again takes time."""


def publish(
    task: Task, learner: Learner, about: Mapping[str, Any], training: Mapping[str, Any], failed: Sequence[int],
    progress: Progress = silent,
) -> dict[str, Any]:  # fmt: skip
    """Predict with the final model and write runs/<run id>/{model.safetensors, trained.parquet, result.json}.

    Every rank calls this; rank 0 writes, `result.json` last.

    Parameters
    ----------
    about : what config.json says of the run.
    training : history, steps, seconds and rates of the training itself.
    failed : rows that did not decode while training.
    """
    place, run = learner.place, about["run_id"]
    trained, in_sample = trained_ids(task)
    rows = task.rows_to_predict(in_sample)
    begun = perf_counter()
    logs, good = log_probabilities(
        learner.model, task.dataset, rows, place, learner.autocast(), progress, task.in_order,
        views=task.config.views,
    )  # fmt: skip
    broken = pa.array(sorted({*failed, *rows[~good].tolist()} - set(task.taken_down.tolist())), pa.int64())
    rows, logs = rows[good], logs[good]
    labels = task.dataset.labels[rows]
    result = {
        **about,
        "splits": split_results(task, rows, labels, logs, in_sample),
        **training,
        "predict_seconds": perf_counter() - begun,
        "failed": task.samples["id"].take(broken).to_pylist(),
        "failed_why": [task.dataset.explain(row) for row in broken.to_pylist()[:_EXPLAINED]],
        "taken_down": len(task.taken_down),
        "adopted": False,
    }
    if place.rank == 0:
        store = task.lake.store
        store.replace(run_key(run, "model.safetensors"), weights_bytes(learner.model))
        write_parquet(store, run_key(run, "trained.parquet"), [trained], TRAINED, overwrite=True)
        if task.config.predict != "none":
            table = prediction_table(
                task.samples, rows, labels, logs, task.classes, content_id=str(task.config.content_id),
                in_sample=in_sample[rows], folds=task.folds[rows],
            )  # fmt: skip
            task.lake.write_predictions(run, table)
        write_json(store, run_key(run, "result.json"), result)
    place.wait()
    return result


def describe(task: Task, run: str, seed: int, code: str, learner: Learner) -> dict[str, Any]:
    """What config.json says of a run: its identity, its data, and how it is carried out."""
    mixed = task.sources()
    return {
        "run_id": run,
        "dataset": task.config.dataset,
        "content_id": task.config.content_id,
        "seed": seed,
        "attempt": task.config.attempt,
        "code": code,
        "classes": list(task.classes),
        "selection": task.selection.description,
        "selection_digest": task.selection.digest,
        "trained": len(task.selection.rows),
        "precision": learner.precision,
        "ranks": learner.place.world,
        "threads": torch.get_num_threads(),
        "device": learner.place.device.type,
        "torch": torch.__version__,
        "config": task.config.model_dump(mode="json"),
        **({"mix": mixed} if mixed else {}),
    }


def split_results(
    task: Task, rows: np.ndarray, labels: np.ndarray, logs: np.ndarray, in_sample: np.ndarray
) -> dict[str, Any]:
    """Per evaluation split: accuracy and loss in all, by landing batch and by class; also of the fold held out."""
    split = np.asarray(task.samples["split"].take(pa.array(rows)).to_pylist(), dtype=object)
    batch = task.samples["batch"].take(pa.array(rows)).to_pylist()
    chosen = {s: (split == s) & ~in_sample[rows] for s in task.config.eval_splits}
    if task.config.hold_out is not None:
        chosen["held_out"] = (task.folds[rows] >= 0) & (labels >= 0)
    results = {}
    for name, flag in chosen.items():
        at = np.flatnonzero(flag)
        results[name] = {
            **measure(labels[at], logs[at]),
            "by_batch": slices(labels[at], logs[at], [batch[i] for i in at]),
            "by_class": slices(labels[at], logs[at], [task.classes[c] if c >= 0 else "" for c in labels[at]]),
        }
    return results


def trained_ids(task: Task) -> tuple[pa.Table, np.ndarray]:
    """(the ids this model has ever seen, bool [n]: which rows of the version are among them)."""
    rows = np.unique(task.selection.rows) if task.config.epochs != 0 else np.zeros(0, np.int64)
    ids = task.samples["id"].take(pa.array(rows))
    everything = [pa.table({"id": ids}, schema=TRAINED)]
    if task.config.init_from is not None:
        beside = trained_path(task.lake.store, task.config.init_from)
        if beside is not None:
            everything.append(pq.read_table(beside, schema=TRAINED))
        else:  # of unknown descent: believe the worst
            known = pc.is_in(task.samples["split"], value_set=pa.array(task.config.train_splits, pa.string()))
            everything.append(pa.table({"id": task.samples["id"].filter(known)}, schema=TRAINED))
    trained = pa.concat_tables(everything).group_by("id").aggregate([]).sort_by("id")
    seen = pc.is_in(task.samples["id"], value_set=trained["id"].combine_chunks())
    return trained, np.asarray(seen).astype(bool)
