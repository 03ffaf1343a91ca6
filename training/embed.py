"""Embedding a version: every sample that an encoder has no vector of yet, through the loader, kept part by part.

Vectors belong to the image alone, so that a later version computes only what is new. All vectors of one encoder come
from one network: fold models each have a space of their own, and distances between two spaces mean nothing. Which
samples that network learned under their labels is kept as `in_sample`; name a fold model of `score` (`run-<id>`) where
most must not be, and compare what is out of sample with what is out of sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from sevenfold.storage import Lake, SevenfoldError, embeddings
from sevenfold.storage.progress import Progress, silent
from sevenfold.training.config import TrainConfig
from sevenfold.training.encoders import Encoder, load_encoder
from sevenfold.training.loader import make_loader
from sevenfold.training.place import Place
from sevenfold.training.plan import PAD, rank_slice
from sevenfold.training.selection import Selection, flags
from sevenfold.training.task import Task, read_samples, reading, resolve

_BATCH = 256
PART = 1 << 14
"""Vectors of a part: what a job that is killed loses at most, on each rank."""


def embed(
    lake: Lake, config: TrainConfig, encoder: str, place: Place | None = None, progress: Progress = silent
) -> dict[str, Any]:
    """Embed the samples of a version that the encoder has no vector of; ranks share the work and each writes its own.

    Every rank calls this with the same arguments.

    Parameters
    ----------
    config : says which version and variant, and how to load; the encoder says size and channels if it cares.
    encoder : a name as in encoders.py, `own` excepted.

    Returns {producer, dimension, samples, computed, kept, failed, seconds}: `kept` had a vector before, `failed` did
    not decode. Raises SevenfoldError when the encoder cannot be had, or gives no float [n, d].
    """
    place = place or Place()
    begun = perf_counter()
    found = load_encoder(lake, encoder, place.device)
    given = {"size": found.size, "channels": found.channels}
    config = resolve(lake, config.changed(mix=[], **{k: v for k, v in given.items() if v is not None}))
    with reading(lake, config, "embed", place.rank):
        task = _task(lake, config)
        missing = _missing(lake, found, task)
        mine = rank_slice(missing, place.rank, place.world) if len(missing) else missing
        dimension, done, failed = 0, 0, 0
        for rows, vectors in _parts(task, found, mine[mine != PAD], len(missing), place, progress):
            failed += int((rows == PAD).sum())
            rows, vectors = rows[rows != PAD], vectors[rows != PAD]
            done, dimension = done + len(rows), vectors.shape[1]
            if len(rows):
                _keep(lake, found, task, rows, vectors)
        place.wait()
        done, failed = (int(x) for x in place.sum([done, failed]))
    if not dimension and len(embeddings.embedded_ids(lake.store, found.producer)):
        dimension = int(embeddings.described(lake.store, found.producer)["dimension"])
    samples = task.samples.num_rows - len(task.taken_down)
    return {
        "producer": found.producer, "dimension": dimension, "samples": samples, "computed": done,
        "kept": samples - len(missing), "failed": failed, "seconds": perf_counter() - begun,
    }  # fmt: skip


def _task(lake: Lake, config: TrainConfig) -> Task:
    """The version as a task that trains on nothing: it needs neither labels nor classes."""
    samples = read_samples(lake, config)
    nothing = np.zeros(0, np.int64)
    classes = tuple(lake.manifest(str(config.content_id)).classes)
    return Task(lake, config, samples, classes, Selection(nothing, nothing, "embedding", ""), samples.num_rows)


def _missing(lake: Lake, encoder: Encoder, task: Task) -> np.ndarray:
    """int64: the rows without a vector, in the order in which they lie in the shards; those taken down never."""
    known = flags(pc.is_in(task.samples["id"], value_set=embeddings.embedded_ids(lake.store, encoder.producer)))
    return np.setdiff1d(np.flatnonzero(~known), task.taken_down)


def _parts(
    task: Task, encoder: Encoder, rows: np.ndarray, total: int, place: Place, progress: Progress
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rows, PAD where the image does not decode; float32 [n, d]) of up to PART samples at a time."""
    config = task.config
    blocks = [rows[start : start + _BATCH].tolist() for start in range(0, len(rows), _BATCH)]
    waiting: list[tuple[np.ndarray, np.ndarray]] = []
    begun = perf_counter()
    with task.in_order(rows) as tell:
        loader = make_loader(task.dataset, blocks, config.workers, config.loader_threads, config.prefetch)
        for count, batch in enumerate(loader, 1):
            vectors = _encoded(encoder, batch["images"])
            waiting.append((np.where(batch["mask"].numpy(), batch["row"].numpy(), PAD), vectors))
            done = min(count * _BATCH, len(rows))
            tell(done)
            rate = done * place.world / max(perf_counter() - begun, 1e-9)
            progress(min(done * place.world, total), total, f"embedding, {rate:,.0f} images/s")
            if sum(len(r) for r, _ in waiting) >= PART or count == len(blocks):
                yield np.concatenate([r for r, _ in waiting]), np.concatenate([v for _, v in waiting])
                waiting = []


def _encoded(encoder: Encoder, images: torch.Tensor) -> np.ndarray:
    try:
        vectors = encoder.encode(images)
    except Exception as error:  # a user's module may fail in any way
        raise SevenfoldError(
            f"the encoder failed with {type(error).__name__}: {error}", where=encoder.producer,
            expected=f"[n, d] from images {list(images.shape)}",
            do="look at the size and channels it takes (its attributes `size` and `channels`, or --size)",
        ) from error  # fmt: skip
    if vectors.ndim != 2 or len(vectors) != len(images) or not vectors.shape[1]:
        raise SevenfoldError(
            f"{len(images)} images make {list(vectors.shape)}", where=encoder.producer, expected=f"[{len(images)}, d]"
        )
    return vectors.numpy()


def _keep(lake: Lake, encoder: Encoder, task: Task, rows: np.ndarray, vectors: np.ndarray) -> None:
    """Write one part, and before the first one what the encoder is."""
    ids: pa.Array = task.samples["id"].combine_chunks().take(pa.array(rows))
    about = {**encoder.about, "dimension": vectors.shape[1], "dataset": task.config.dataset}
    embeddings.describe(lake.store, encoder.producer, about)
    seen = None if encoder.trained is None else flags(pc.is_in(ids, value_set=encoder.trained))
    embeddings.write_part(lake.store, encoder.producer, ids, vectors, seen)
