"""A training task, resolved: the version's samples, the rows to train, evaluate and predict, and the decoded pixels."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import torch

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.canonical import digest_bytes, digest_json
from sevenfold.storage.leases import lease
from sevenfold.storage.progress import Progress, silent
from sevenfold.training.config import TrainConfig
from sevenfold.training.inputs import local_file, on_this_machine, weights_path
from sevenfold.training.loader import SampleDataset, masked_rows
from sevenfold.training.plan import EpochPlan
from sevenfold.training.selection import Selection, image_shape, read_ids, select


def resolve(lake: Lake, config: TrainConfig) -> TrainConfig:
    """Fill in what the configuration leaves to the lake: content id, image shape, digests of the files it names."""
    content_id = config.content_id or lake.version(config.dataset, config.ref).content_id
    size, channels = image_shape(lake.samples_of(content_id), config)
    values = {"content_id": content_id, "size": size, "channels": channels}
    if config.select_ids is not None:
        values["select_digest"] = digest_json(read_ids(local_file(lake.store, config.select_ids)))
    if config.init_from is not None:
        values["init_digest"] = digest_bytes(weights_path(lake.store, config.init_from).read_bytes())
    return config.changed(**values)


def reading(lake: Lake, content_id: str, what: str, rank: int) -> AbstractContextManager[object]:
    """Rank 0 holds a lease on a version while it is read, so that no file of it is deleted meanwhile."""
    return lease(lake.store, what, content_ids=[content_id]) if rank == 0 else nullcontext()


@dataclass(frozen=True)
class Task:
    """What the runs of one launch share. `config` is resolved."""

    lake: Lake
    config: TrainConfig
    samples: pa.Table
    classes: tuple[str, ...]
    selection: Selection

    @staticmethod
    def of(lake: Lake, config: TrainConfig, samples: pa.Table | None = None) -> Task:
        """Read the version and choose the rows; nothing is decoded yet. `samples` saves reading them again.

        Samples that were taken down keep their rows, so that a resumed run meets all others in the same order.
        """
        assert config.content_id is not None
        table = lake.samples_of(config.content_id, masked=True) if samples is None else samples
        classes = tuple(lake.manifest(config.content_id).classes)
        if not classes:
            raise SevenfoldError("this version has no classes", where=config.dataset, do="label some samples first")
        return Task(lake, config, table, classes, select(table, on_this_machine(lake.store, config)))

    @cached_property
    def dataset(self) -> SampleDataset:
        """The whole version as a dataset."""
        assert self.config.size is not None and self.config.channels is not None
        shape = self.config.size, self.config.channels
        return SampleDataset(self.lake.shard_path, self.samples, self.classes, *shape)

    def decode(self, progress: Progress = silent) -> None:
        """Decode everything once if the configuration's limit allows; order and pixels are the same either way."""
        if self.dataset.decoded is None and self.dataset.decoded_bytes() <= self.config.cache_decoded:
            self.dataset.decode_all(torch.get_num_threads(), progress)

    def plan(self, seed: int) -> EpochPlan:
        """The epoch plan of one run."""
        assert self.config.content_id is not None
        return EpochPlan(
            content_ids=(self.config.content_id,),
            selection=f"{self.selection.description} {self.selection.digest}",
            samples=len(self.selection.rows),
            seed=seed,
            window=self.config.window,
            tail=self.config.tail,
        )

    @cached_property
    def taken_down(self) -> np.ndarray:
        """int64: the rows of samples that were taken down: never decoded, evaluated or predicted."""
        return np.flatnonzero(masked_rows(self.samples))

    def rows_of_split(self, split: str) -> np.ndarray:
        """int64: the rows of a split that are not trained on."""
        rows = np.flatnonzero(np.asarray(self.samples["split"].to_pylist(), dtype=object) == split)
        return np.setdiff1d(rows, np.concatenate([self.selection.rows, self.taken_down]))

    @cached_property
    def folds(self) -> np.ndarray:
        """int64 [n]: the fold each row was held out in, -1 for none."""
        folds = np.full(self.samples.num_rows, -1, np.int64)
        if self.config.hold_out is not None:
            folds[self.selection.held_out] = self.config.hold_out.fold
        return folds

    def rows_to_predict(self, in_sample: np.ndarray) -> np.ndarray:
        """int64: the rows whose predictions the run writes, by `config.predict`."""
        if self.config.predict == "all":
            return np.setdiff1d(np.arange(self.samples.num_rows), self.taken_down)
        if self.config.predict == "out_of_sample":
            return np.setdiff1d(np.flatnonzero(~in_sample), self.taken_down)
        return np.concatenate([self.rows_of_split(s) for s in self.config.eval_splits]).astype(np.int64)
