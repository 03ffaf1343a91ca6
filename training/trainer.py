"""The training loop, run by every rank: plan, loader, steps, checkpoints, evaluation, predictions, result."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.progress import Progress, silent
from sevenfold.training import checkpoint, dynamics
from sevenfold.training.augment import sample_keys
from sevenfold.training.config import TrainConfig
from sevenfold.training.inputs import weights_path
from sevenfold.training.learner import Learner, choose_precision, learning_rate
from sevenfold.training.loader import make_loader
from sevenfold.training.models import build_model, load_weights, to_input
from sevenfold.training.outcome import describe, publish
from sevenfold.training.place import Place
from sevenfold.training.predict import log_probabilities, measure
from sevenfold.training.prefetch import Prefetcher
from sevenfold.training.run import code_digest, finished, run_id, run_key, write_json
from sevenfold.training.sampler import PlannedBatchSampler
from sevenfold.training.steps import StepLog, drop_parts
from sevenfold.training.task import Task, reading, resolve

PREPARED = 2000
"""Training images that a model sees to set itself up, if it has a method `prepare`."""


def train(root: str, config: TrainConfig, place: Place, progress: Progress = silent) -> list[dict[str, Any]]:
    """Train one run per seed, one after another, and return their results; finished runs are adopted.

    Every rank calls this with the same arguments; rank 0 writes.
    """
    lake = Lake.open(root)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    task = Task.of(lake, resolve(lake, config))
    with reading(lake, task.config, "train", place.rank):
        runs = [train_run(task, seed, place, progress) for seed in config.seeds]
        if place.rank == 0:
            dynamics.combine(lake, [run["run_id"] for run in runs])
        return runs


def train_run(task: Task, seed: int, place: Place, progress: Progress = silent) -> dict[str, Any]:
    """Train, evaluate and predict one run, or adopt it when its result is there; a killed one continues.

    Returns the result that is also at runs/<run id>/result.json.
    """
    config, store = task.config, task.lake.store
    code = code_digest(config.model)
    run = run_id(config, seed, code)
    adopted = finished(store, run)
    if place.sum([adopted is not None])[0] == place.world and adopted is not None:
        return adopted
    begun = perf_counter()
    if len(task.taken_down) and place.rank == 0:
        found = f"{len(task.taken_down)} samples of this version were taken down"
        print(f"{run}: {found}; their places stay empty, all others come in the same order", file=sys.stderr)
    for source in task.sources() if place.rank == 0 else ():
        if source["left_out"]:
            found = f"{source['left_out']} samples of {source['name']} are not mixed in"
            print(f"{run}: {found}: {config.dataset} evaluates models on them", file=sys.stderr)
    task.decode(progress)
    learner = Learner(_new_model(task, seed), config, seed, place, choose_precision(config.precision, place.device))
    sampler = task.sampler(seed, place.rank, place.world)
    total = config.steps or (config.epochs or 0) * len(sampler)
    if config.epochs != 0 and not (total and len(sampler)):
        raise SevenfoldError(
            f"{len(task.selection.rows)} samples make no block of {config.batch_size}",
            where=config.dataset,
            do="lower batch_size, or use tail: pad",
        )
    drawing = config.sampling == "with_replacement"
    noted = _watched(task, learner, total, sampler)
    state, notes = _resume(task, run, learner, sampler, noted)
    resumed_from = state.step
    about = describe(task, run, seed, code, learner)  # the precision of a run that goes on is its checkpoint's
    if place.rank == 0:
        drop_parts(store, run_key(run, "steps"), state.step)
        checkpoint.clean(store, run_key(run, "checkpoints"), state.step)
        write_json(store, run_key(run, "config.json"), about)
    place.wait()
    log = StepLog(store, run_key(run, "steps"), run, place.rank)
    loader = make_loader(task.dataset, sampler, config.workers, config.loader_threads, config.prefetch)
    learner.model.train()

    with closing(loader), task.shards_ahead(sampler) as shards:
        while state.step < total:
            mark = perf_counter()
            _wait(shards, sampler, partial(progress, state.step, total))
            for batch in loader:
                fetched = perf_counter()
                lr = learning_rate(state.step, total, config.lr, config.warmup)
                keys = sample_keys(task.dataset.keys[batch["row"].numpy()], sampler.occurrences())
                done = learner.step(batch, keys, state.step, lr)
                _must_be_finite(done["loss_sum"], f"the training loss at step {state.step + 1} of {total}", config)
                now = perf_counter()
                log.add(
                    **({} if drawing else {"epoch": sampler.epoch}),
                    step=state.step, data=fetched - mark + done["augment"], forward=done["forward"],
                    backward=done["backward"], optimizer=done["optimizer"], total=now - mark, samples=done["samples"],
                    loss=done["loss_sum"] / max(done["weight"], 1e-12), lr=lr,
                )  # fmt: skip
                before = sampler.consumed
                sampler.advance()
                state.count(done, fetched - mark + done["augment"], now - mark, batch)
                ended = state.step == total or _ends(sampler, before, len(task.selection.rows), drawing)
                if ended:
                    if shards is not None:
                        shards.rest()
                    val = _evaluate(task, "val", learner, place)
                    _must_be_finite(val["loss"] or 0.0, f"the val loss after step {state.step} of {total}", config)
                    state.add_point(val, {"draws": sampler.consumed} if drawing else {"epoch": len(state.history) + 1})
                if ended or (config.checkpoint_every and state.step % config.checkpoint_every == 0):
                    _save(task, learner, sampler, state, log, noted)
                what = f"draw {sampler.consumed:,}" if drawing else f"epoch {len(state.history) + (not ended)}"
                progress(state.step, total, f"training {run}, {what}")
                mark = perf_counter()
                if state.step == total:
                    break
                _wait(shards, sampler, partial(progress, state.step, total))

    training = state.training(place) | {"total_seconds": perf_counter() - begun, "notes": notes}
    training["resumed_from"] = resumed_from
    if shards is not None:
        training["shard_wait_seconds"] = shards.waited
    if noted is not None and place.rank == 0:
        dynamics.write(task.lake, run, noted.table(task.samples, str(config.content_id)))
    return publish(task, learner, about, training, place.union(state.failed), progress)


def _watched(task: Task, learner: Learner, total: int, sampler: PlannedBatchSampler) -> dynamics.Dynamics | None:
    """What notes the dynamics of the version's own samples, told of every step from here on.

    None where they are not wanted, and for a run that goes on from other weights: its course is that of the new
    samples, and EL2N early in it is none.
    """
    config = task.config
    if not config.dynamics or config.init_from is not None or not total:
        return None
    drawing = config.sampling == "with_replacement"
    per_epoch = -(-len(task.selection.rows) // config.batch_size) if drawing else len(sampler)
    noted = dynamics.Dynamics(task.base, dynamics.early(total, per_epoch))
    learner.watch = noted.watch
    return noted


def _wait(shards: Prefetcher | None, sampler: PlannedBatchSampler, tell: Callable[[str], None]) -> None:
    """Tell the prefetcher where the run is, and while the window there is still coming, say so."""
    if shards is not None:
        shards.advance(sampler.epoch, sampler.consumed)
        while not shards.wait(1.0):
            tell(f"fetching {len(shards.missing)} shards")


def _ends(sampler: PlannedBatchSampler, before: int, samples: int, drawing: bool) -> bool:
    """Whether the block just used ended an epoch; for draws, as many draws as there are samples."""
    return sampler.consumed // samples > before // samples if drawing else sampler.consumed == 0


@dataclass
class _State:
    """How far a run is: everything a checkpoint holds beside the tensors and the sampler's state."""

    step: int = 0
    loss_sum: float = 0.0
    weight: float = 0.0
    samples: int = 0
    seconds: float = 0.0
    idle: float = 0.0
    failed: list[int] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)

    def count(self, done: dict[str, float], idle: float, seconds: float, batch: dict[str, torch.Tensor]) -> None:
        self.step += 1
        self.loss_sum += done["loss_sum"]
        self.weight += done["weight"]
        self.samples += int(done["samples"])
        self.seconds += seconds
        self.idle += idle
        bad = batch["row"][~batch["mask"] & (batch["row"] >= 0)]
        if len(bad):
            self.failed = sorted({*self.failed, *bad.tolist()})

    def add_point(self, val: dict[str, Any], place: dict[str, int]) -> None:
        """Add a point to the learning curve; `place` is {"epoch": it} or {"draws": so far}."""
        self.history.append(
            {
                **place,
                "step": self.step,
                "train_loss": self.loss_sum / max(self.weight, 1e-12),
                "val_loss": val["loss"],
                "val_accuracy": val["accuracy"],
                "seconds": self.seconds,
            }
        )
        self.loss_sum = self.weight = 0.0

    def training(self, place: Place) -> dict[str, Any]:
        """What the result says of the training: samples of all ranks, seconds and rates of this one."""
        samples, *_ = place.sum([self.samples])
        return {
            "history": self.history,
            "steps": self.step,
            "samples": int(samples),
            "seconds": self.seconds,
            "samples_per_second": samples / self.seconds if self.seconds else None,
            "idle_share": self.idle / self.seconds if self.seconds else None,
        }


def _must_be_finite(loss: float, what: str, config: TrainConfig) -> None:
    if not math.isfinite(loss):
        raise SevenfoldError(
            f"{what} is {loss}: the training has diverged",
            where=f"lr {config.lr:g}, {config.model}",
            do="lower lr (--lr), or look for a division or a logarithm of zero in the model",
        )


def _new_model(task: Task, seed: int) -> torch.nn.Module:
    config = task.config
    assert config.size is not None and config.channels is not None
    torch.manual_seed(seed % 2**64)  # any whole number is a seed
    model = build_model(
        config.model, num_classes=len(task.classes), channels=config.channels, size=config.size,
        widths=config.widths, norm=config.norm,
    )  # fmt: skip
    if hasattr(model, "prepare"):
        _prepare(model, task)
    if config.init_from is not None:
        load_weights(model, weights_path(task.lake.store, config.init_from))
    return model


def _prepare(model: torch.nn.Module, task: Task) -> None:
    """Show the model the training images whose ids come first: on every rank the same ones, whatever the seed."""
    layout = task.layout
    rows = np.arange(int(layout.sizes.sum())) if layout.rows is None else np.unique(layout.rows)
    rows = rows[:PREPARED]
    if not len(rows):
        return
    images = [
        to_input(batch["images"][batch["mask"]], torch.device("cpu"), torch.contiguous_format)
        for batch in make_loader(task.dataset, [rows[i : i + 500].tolist() for i in range(0, len(rows), 500)])
    ]
    model.prepare(torch.cat(images))  # type: ignore[operator]


def _resume(
    task: Task, run: str, learner: Learner, sampler: PlannedBatchSampler, noted: dynamics.Dynamics | None
) -> tuple[_State, list[str]]:
    """(where the run goes on from, what was wrong with newer checkpoints); every rank takes the same one."""
    found, notes = checkpoint.load_newest(task.lake.store, run_key(run, "checkpoints"))
    step, place = found.step if found else 0, learner.place
    if place.rank == 0:
        for note in notes:
            print(f"{run}: {note}", file=sys.stderr)
    (first,) = place.sum([step if place.rank == 0 else 0])
    if place.sum([step != first])[0]:  # after this sum all have read it, and rank 0 may clear away what lies past it
        raise SevenfoldError(
            f"rank {place.rank} found the checkpoint of step {step} whole, rank 0 that of step {first:g}",
            where=run,
            do="start again",
        )
    if found is None:
        return _State(), notes
    try:
        state = _State(**found.meta["state"])
        sampler.load_state(found.meta["sampler"])
        learner.load_tensors(found.tensors)
        if noted is not None:
            noted.load_tensors(found.tensors)
        learner.precision = found.meta["precision"]
        wrong = "" if state.step == step else f"it counts {state.step} steps"
    except (KeyError, TypeError, ValueError, RuntimeError, SevenfoldError) as error:
        wrong = error.found if isinstance(error, SevenfoldError) else f"{type(error).__name__}: {error}"
    if wrong:
        raise SevenfoldError(
            f"the checkpoint of step {step} is whole, but not one of this run: {wrong}",
            where=f"{task.lake.store.url}/{run_key(run, 'checkpoints')}",
            do="remove that folder, or start the run under another `attempt`",
        )
    return (state if place.rank == 0 else replace(state, samples=0)), notes  # those of all ranks, once


def _save(
    task: Task, learner: Learner, sampler: PlannedBatchSampler, state: _State, log: StepLog,
    noted: dynamics.Dynamics | None,
) -> None:  # fmt: skip
    place = learner.place
    log.flush()
    place.wait()  # the steps of every rank are on disk before the checkpoint that counts them
    if noted is not None:
        noted.gather(place)
    told = {**vars(state), "samples": int(place.sum([state.samples])[0]), "failed": place.union(state.failed)}
    if place.rank == 0:
        meta = {"sampler": sampler.state(), "state": told, "precision": learner.precision}
        keep = learner.config.keep_checkpoints
        folder = run_key(log.run_id, "checkpoints")
        tensors = learner.tensors() | (noted.tensors() if noted is not None else {})
        checkpoint.save(task.lake.store, folder, state.step, tensors, meta, keep)


def _evaluate(task: Task, split: str, learner: Learner, place: Place) -> dict[str, Any]:
    rows = task.rows_of_split(split)
    logs, good = log_probabilities(learner.model, task.dataset, rows, place, learner.autocast(), ahead=task.in_order)
    return measure(np.where(good, task.dataset.labels[rows], -1), logs)
