"""A training task, resolved: the samples, the rows to train, evaluate and predict, the plan, and the decoded pixels."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from sevenfold.storage import Lake, SevenfoldError, redactions, tombstones
from sevenfold.storage.canonical import digest_bytes, digest_json
from sevenfold.storage.leases import lease
from sevenfold.storage.progress import Progress, silent
from sevenfold.training.config import MixSource, TrainConfig
from sevenfold.training.draws import DrawPlan, digest_of
from sevenfold.training.inputs import local_file, on_this_machine, weights_path
from sevenfold.training.loader import SampleDataset, masked_rows
from sevenfold.training.order import Layout, layout
from sevenfold.training.plan import EpochPlan
from sevenfold.training.prefetch import Prefetcher
from sevenfold.training.sampler import PlannedBatchSampler
from sevenfold.training.selection import Selection, image_shape, read_ids, select
from sevenfold.training.sources import blend, same_samples


def resolve(lake: Lake, config: TrainConfig) -> TrainConfig:
    """Fill in what the configuration leaves to the lake: content id, image shape, digests of the files it names."""
    content_id = config.content_id or lake.version(config.dataset, config.ref).content_id
    chosen = config.variant
    stored = (
        lake.samples_of(content_id)
        if chosen is None
        else lake.variant_samples(content_id, chosen, dataset=config.dataset)
    )
    size, channels = image_shape(stored.filter(pc.is_valid(stored["offset"])), config)
    values: dict[str, Any] = {"content_id": content_id, "size": size, "channels": channels}
    values["mix"] = [_resolve_source(lake, config, content_id, source) for source in config.mix]
    if config.select_ids is not None:
        values["select_digest"] = digest_json(read_ids(local_file(lake.store, config.select_ids)))
    if config.init_from is not None:
        values["init_digest"] = digest_bytes(weights_path(lake.store, config.init_from).read_bytes())
    return config.changed(**values)


def _resolve_source(lake: Lake, config: TrainConfig, base: str, source: MixSource) -> dict[str, Any]:
    own = source.dataset in (None, config.dataset) and source.ref is None
    found = source.content_id or (
        base if own else lake.version(source.dataset or config.dataset, source.ref or "main").content_id
    )
    digest = digest_json(read_ids(local_file(lake.store, source.ids))) if source.ids is not None else None
    return {**source.model_dump(mode="json"), "content_id": found, "ids_digest": digest}


def content_ids(config: TrainConfig) -> list[str]:
    """The versions that a resolved configuration reads, each once, the base first."""
    return list(dict.fromkeys([str(config.content_id), *(str(source.content_id) for source in config.mix)]))


def read_samples(lake: Lake, config: TrainConfig, content_id: str | None = None) -> pa.Table:
    """The samples of a version (default: the base), of the variant that is configured, if one is.

    Samples that were taken down keep their rows, so that a resumed run meets all others in the same order, and the
    pixel digests of their tombstones, so that the same of those that are mixed in are left out.
    """
    wanted = content_id or str(config.content_id)
    if config.variant is not None:
        mixed = {source.content_id: source.dataset for source in config.mix}
        of = config.dataset if wanted == config.content_id else mixed.get(wanted)
        return _with_pixels(lake, lake.variant_samples(wanted, config.variant, masked=True, dataset=of))
    return _with_pixels(lake, lake.samples_of(wanted, masked=True))


def _with_pixels(lake: Lake, samples: pa.Table) -> pa.Table:
    digests = samples["pixel_digest"]
    if not digests.null_count:
        return samples
    known = {stone.id: stone.pixel_digest for stone in tombstones.read(lake.store).values()}
    gone = pa.array([known.get(i) for i in samples["id"].filter(pc.is_null(digests)).to_pylist()], pa.string())
    filled = pc.replace_with_mask(digests.combine_chunks(), pc.is_null(digests).combine_chunks(), gone)
    return samples.set_column(samples.column_names.index("pixel_digest"), "pixel_digest", filled)


def reading(lake: Lake, config: TrainConfig, what: str, rank: int) -> AbstractContextManager[object]:
    """Rank 0 holds a lease on the versions that are read, so that no file of them is deleted meanwhile."""
    return lease(lake.store, what, content_ids=content_ids(config)) if rank == 0 else nullcontext()


@dataclass(frozen=True)
class Task:
    """What the runs of one launch share.

    Parameters
    ----------
    config : resolved.
    samples : those of the version, then those that are mixed in from others.
    classes : of the version.
    selection : what is trained on.
    base : how many rows are the version's own; only they are evaluated and predicted.
    """

    lake: Lake
    config: TrainConfig
    samples: pa.Table
    classes: tuple[str, ...]
    selection: Selection
    base: int

    @staticmethod
    def of(lake: Lake, config: TrainConfig, samples: pa.Table | None = None) -> Task:
        """Read the versions and choose the rows; nothing is decoded yet.

        `samples` (from :func:`read_samples`) saves reading the base version again.
        """
        assert config.content_id is not None
        table = read_samples(lake, config) if samples is None else samples
        classes = tuple(lake.manifest(config.content_id).classes)
        if not classes:
            raise SevenfoldError("this version has no classes", where=config.dataset, do="label some samples first")
        read = {config.content_id: table}
        for source in content_ids(config)[1:]:
            read[source] = read_samples(lake, config, source)
        here = on_this_machine(lake.store, config)
        others = [read[str(source.content_id)] for source in config.mix]
        every, selection = blend(table, select(table, here), others, here, classes)
        return Task(lake, config, every, classes, selection, table.num_rows)

    @cached_property
    def dataset(self) -> SampleDataset:
        """The whole version as a dataset."""
        assert self.config.size is not None and self.config.channels is not None
        shape = self.config.size, self.config.channels
        return SampleDataset(self.lake.shard_path, self.samples, self.classes, *shape, self.config.decode)

    def decode(self, progress: Progress = silent) -> None:
        """Decode everything once if the configuration's limit allows; order and pixels are the same either way."""
        if self.dataset.decoded is not None or self.dataset.decoded_bytes() > self.config.cache_decoded:
            return
        with self.in_order(np.arange(len(self.dataset))) as tell:

            def told(done: int, total: int, what: str) -> None:
                tell(done)
                progress(done, total, what)

            self.dataset.decode_all(torch.get_num_threads(), told)

    @contextmanager
    def in_order(self, rows: np.ndarray) -> Iterator[Callable[[int], None]]:
        """Fetch a bucket's shards ahead of who reads these rows one after another, and tells how many are behind.

        A cache without room for two shards is left to the reader, which fetches what it opens.
        """
        store = self.lake.store
        here = rows[rows >= 0] if store.remote and self.dataset.decoded is None else rows[:0]
        groups = np.where(self.dataset.masked[here], -1, self.dataset.groups[here])
        begins = np.flatnonzero(np.diff(groups, prepend=-2) != 0)
        turns = [(at, n) for at, n in zip(begins.tolist(), groups[begins].tolist(), strict=True) if n in self._read]
        largest = max((self._shards[n][1] for _, n in turns), default=0)
        if not turns or 2 * largest > (store.room() or 0):
            yield lambda done: None
            return

        def windows(epoch: int, consumed: int) -> Iterator[tuple[int, list[int]]]:
            first = bisect(turns, consumed, key=lambda turn: turn[0]) - 1
            return ((turns[i][0], [turns[i][1]]) for i in range(max(first, 0), len(turns)))

        with Prefetcher(store, self._shards, windows, epochs=1, ahead=2 * torch.get_num_threads()) as shards:
            shards.advance(0, 0)
            yield lambda done: shards.advance(0, done)

    @cached_property
    def layout(self) -> Layout:
        """How the selection lies in shards."""
        chosen = self.selection
        same = same_samples(self.samples, chosen.rows) if chosen.parts is not None else None
        return layout(chosen.rows, self.dataset.groups[chosen.rows], chosen.parts, samples=same)

    def shards_ahead(self, sampler: PlannedBatchSampler) -> AbstractContextManager[Prefetcher | None]:
        """What fetches a bucket's shards in the order in which the sampler comes to them; None where nothing need be.

        Draws read every shard all the time: no window of theirs could be held.
        """
        plan = sampler.plan
        if not self.lake.store.remote or self.dataset.decoded is not None or not isinstance(plan, EpochPlan):
            return nullcontext()

        def windows(epoch: int, consumed: int) -> Iterator[tuple[int, list[int]]]:
            for first, numbers in plan.order(self.layout, epoch).windows(consumed, plan.samples):
                yield first, [n for n in numbers if n in self._read]

        epochs = None if self.config.steps else self.config.epochs
        return Prefetcher(self.lake.store, self._shards, windows, epochs=epochs)

    def plan(self, seed: int) -> EpochPlan | DrawPlan:
        """The plan of one run."""
        chosen, config = self.selection, self.config
        described = f"{chosen.description} {chosen.digest}"
        versions = tuple(content_ids(config))
        if config.sampling == "with_replacement":
            assert config.steps is not None
            weights = digest_of(self._weights[chosen.rows])
            return DrawPlan(versions, described, weights, config.steps * config.batch_size, seed)
        samples = sum(source[2] for source in chosen.mix) if chosen.mix else len(chosen.rows)
        return EpochPlan(versions, described, samples, seed, config.window, config.tail, chosen.mix)

    def sampler(self, seed: int, rank: int = 0, world: int = 1) -> PlannedBatchSampler:
        """One rank's sampler over the plan of a run."""
        weights = self._weights[self.layout.rows] if self.config.sampling == "with_replacement" else None
        return PlannedBatchSampler(
            self.plan(seed), self.layout, self.config.batch_size, rank, world, weights=weights
        )  # fmt: skip

    def sources(self) -> list[dict[str, Any]]:
        """What is mixed: {name, samples, slots in an epoch, left_out} per source; [] where nothing is."""
        counts = [] if self.selection.parts is None else np.bincount(self.selection.parts).tolist()
        told = zip(self.selection.mix, counts, self.selection.left_out, strict=False)
        return [{"name": m[0], "samples": n, "slots": m[2], "left_out": out} for m, n, out in told]

    @property
    def shard_bytes(self) -> np.ndarray:
        """int64 [shards]: the length of each shard's file, by its number in the dataset."""
        return np.array([size for _, size in self._shards], np.int64)

    @cached_property
    def _shards(self) -> list[tuple[str, int]]:
        """(digest, bytes) of the shards, by their numbers in the dataset."""
        sizes: dict[str, int] = {}
        redacted = redactions.current(self.lake.store)
        for content_id in content_ids(self.config):
            manifest = redactions.opened(self.lake.manifest(content_id), redacted)
            chosen = [v.shards for v in self.lake.variants(content_id) if v.name == self.config.variant]
            sizes |= {s["digest"]: s["bytes"] for shards in (manifest.shards, *chosen) for s in shards}
        return [(digest, sizes.get(digest, 0)) for digest in self.dataset.shards]

    @cached_property
    def _read(self) -> frozenset[int]:
        """Numbers of the shards of which anything is left after takedowns."""
        return frozenset(np.unique(self.dataset.groups[~self.dataset.masked]).tolist())

    @cached_property
    def _weights(self) -> np.ndarray:
        return self.samples["weight"].to_numpy()

    @cached_property
    def taken_down(self) -> np.ndarray:
        """int64: the rows of samples that were taken down: never decoded, evaluated or predicted."""
        return np.flatnonzero(masked_rows(self.samples))

    def rows_of_split(self, split: str) -> np.ndarray:
        """int64: the rows of a split that are not trained on."""
        rows = np.flatnonzero(np.asarray(self.samples["split"].to_pylist()[: self.base], dtype=object) == split)
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
            return np.setdiff1d(np.arange(self.base), self.taken_down)
        if self.config.predict == "out_of_sample":
            return np.setdiff1d(np.flatnonzero(~in_sample[: self.base]), self.taken_down)
        return np.concatenate([self.rows_of_split(s) for s in self.config.eval_splits]).astype(np.int64)
