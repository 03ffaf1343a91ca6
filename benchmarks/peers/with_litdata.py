"""LitData on chunks written by its `optimize`, mapped in place, shuffled, read by its StreamingDataLoader."""

from __future__ import annotations

from typing import Any

from litdata import StreamingDataLoader, StreamingDataset, optimize
from peers.collating import collate
from peers.protocol import Peer, Spec, run
from torchvision.datasets import ImageFolder


def read(sample: tuple[str, int]) -> tuple[bytes, int]:
    path, label = sample
    with open(path, "rb") as file:
        return file.read(), label


class LitDataPeer(Peer):
    packages = ("litdata",)

    def prepare(self, spec: Spec) -> None:
        samples = ImageFolder(spec["files"]).samples
        optimize(
            read, samples, spec["store"], chunk_bytes=spec["shard_bytes"], num_workers=2, verbose=False,
            start_method="fork",
        )  # fmt: skip

    def build(self, spec: Spec, ready: Any) -> None:
        self.loader = StreamingDataLoader(
            StreamingDataset(spec["store"], shuffle=True),
            batch_size=spec["batch"],
            num_workers=spec["workers"],
            persistent_workers=spec["workers"] > 0,
            worker_init_fn=ready,
            collate_fn=collate(spec),
        )


if __name__ == "__main__":
    run(LitDataPeer())
