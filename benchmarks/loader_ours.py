"""Sevenfold behind the benchmark's protocol: a lake's version, the epoch plan's order, `make_loader`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from peers.protocol import Peer, Spec, run

from sevenfold.storage import Lake
from sevenfold.training import loader as loading
from sevenfold.training.order import layout
from sevenfold.training.plan import EpochPlan
from sevenfold.training.sampler import PlannedBatchSampler


class OursPeer(Peer):
    """Batches are the dicts of the datasets' `__getitems__`."""

    packages = ("torch", "pillow", "simplejpeg", "numpy", "pyarrow")

    def prepare(self, spec: Spec) -> None:
        lake = Lake.create(spec["store"], shard_bytes=spec["shard_bytes"])
        batch, _ = lake.ingest(Path(spec["files"]), "bench", workers=2)
        lake.set_status("bench", batch.batch, "admitted")
        lake.commit("bench", message="benchmark")
        tars: list[str] = []
        for split in ("train", "val", "test"):
            tars += [u for u in lake.urls("bench", split=split) if u not in tars]
        rows = lake.samples("bench").num_rows
        Path(spec["urls"]).write_text(json.dumps(tars))
        Path(spec["about"]).write_text(json.dumps({"samples": rows, "tars": len(tars)}))

    def build(self, spec: Spec, ready: Any) -> None:
        lake = Lake.open(spec["store"])
        version = lake.version("bench")
        samples = lake.samples_of(version.content_id, masked=True)
        classes = lake.manifest(version.content_id).classes
        rows = np.arange(samples.num_rows)
        plan = EpochPlan((version.content_id,), "all", len(rows), spec.get("seed", 0))
        parts = (lake.shard_path, samples, classes)
        # exact, as the peers decode: no help of libjpeg's scales
        dataset: Any = Bytes(*parts) if spec["work"] == "bytes" else Images(*parts, spec["side"], 3, "exact")
        dataset.ready = ready
        self.sampler = PlannedBatchSampler(plan, layout(rows, dataset.groups), spec["batch"])
        self.loader = loading.make_loader(dataset, self.sampler, spec["workers"], threads=spec["threads"])

    def used(self) -> None:
        self.sampler.advance()

    def size(self, batch: Any) -> int:
        return int(batch["mask"].sum())

    def samples(self, batch: Any) -> Iterator[tuple[Any, int]]:
        keep = batch["mask"].tolist()
        if "images" in batch:
            payload: Any = batch["images"].numpy()
        else:
            at = batch["offsets"].tolist()
            flat = memoryview(batch["data"].numpy())
            payload = [flat[a:b] for a, b in pairwise(at)]
        labels = batch["label"].tolist()
        return ((d, label) for d, label, there in zip(payload, labels, keep, strict=True) if there)

    def state(self) -> Any:
        return self.sampler.state()

    def resume(self, state: Any) -> None:
        self.sampler.load_state(state)


class Announced:
    """A dataset that says when a worker process has got it: then it is up."""

    ready: Any = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.ready is not None:
            self.ready(os.getpid())


class Images(Announced, loading.SampleDataset):
    """Pixels."""


class Bytes(Announced, loading.ByteDataset):
    """Bytes."""


if __name__ == "__main__":
    run(OursPeer())
