"""Sevenfold behind the benchmark's protocol: a lake's version, the epoch plan's order, `make_loader`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from peers.protocol import Peer, Spec, run

from sevenfold.storage import Lake
from sevenfold.training import loader as loading
from sevenfold.training import plan as planning
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
        plan = planning.EpochPlan((version.content_id,), "all", len(rows), spec.get("seed", 0))
        if spec["work"] == "bytes":
            dataset: Any = _byte_dataset(lake, samples, classes)
        else:
            dataset = loading.SampleDataset(lake.shard_path, samples, classes, spec["side"], 3)
        if hasattr(planning, "layout"):
            order: Any = (plan, planning.layout(rows, dataset.groups, np.zeros(len(rows), np.int64)))
        else:
            order = (plan, rows, dataset.groups)
        self.sampler = PlannedBatchSampler(*order, spec["batch"])
        more = {"threads": spec["threads"]} if hasattr(loading, "ByteDataset") else {}
        self.loader = loading.make_loader(dataset, self.sampler, workers=spec["workers"], **more)
        if spec["workers"] and ready is not None:
            self.loader.worker_init_fn = ready

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


def _byte_dataset(lake: Any, samples: Any, classes: Any) -> Any:
    if hasattr(loading, "ByteDataset"):
        return loading.ByteDataset(lake.shard_path, samples, classes)
    return _Bytes(lake.shard_path, samples, classes, 1, 3)


class _Bytes(loading.SampleDataset):
    """The bytes of each sample through today's reader, until there is a ByteDataset."""

    def __getitems__(self, rows: list[int]) -> Any:
        import torch

        at = np.asarray([r for r in rows if r >= 0])
        read = partial(map, self.reader.read)
        files = list(read(self.groups[at].tolist(), self.offsets[at].tolist(), self.sizes[at].tolist()))
        offsets = np.zeros(len(at) + 1, np.int64)
        np.cumsum(self.sizes[at], out=offsets[1:])
        return {
            "data": torch.frombuffer(bytearray().join(files), dtype=torch.uint8),
            "offsets": torch.from_numpy(offsets),
            "label": torch.from_numpy(self.labels[at]),
            "mask": torch.ones(len(at), dtype=torch.bool),
        }


if __name__ == "__main__":
    run(OursPeer())
