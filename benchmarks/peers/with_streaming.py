"""MosaicML Streaming on MDS shards that are all local: shuffled by py1e, read by its StreamingDataLoader."""

from __future__ import annotations

from typing import Any

from peers.collating import collate
from peers.protocol import Peer, Spec, run
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from torchvision.datasets import ImageFolder


class Pairs:
    """Its samples are dicts; the collate of every peer takes pairs."""

    def __init__(self, spec: Spec) -> None:
        self.collate = collate(spec)

    def __call__(self, samples: list[dict[str, Any]]) -> Any:
        return self.collate([(s["image"], s["label"]) for s in samples])


class StreamingPeer(Peer):
    packages = ("mosaicml-streaming",)

    def prepare(self, spec: Spec) -> None:
        columns = {"image": "bytes", "label": "int"}
        with MDSWriter(out=spec["store"], columns=columns, size_limit=spec["shard_bytes"]) as out:
            for path, label in ImageFolder(spec["files"]).samples:
                with open(path, "rb") as file:
                    out.write({"image": file.read(), "label": label})

    def build(self, spec: Spec, ready: Any) -> None:
        dataset = StreamingDataset(local=spec["store"], shuffle=True, batch_size=spec["batch"])
        self.loader = StreamingDataLoader(
            dataset,
            batch_size=spec["batch"],
            num_workers=spec["workers"],
            persistent_workers=spec["workers"] > 0,
            worker_init_fn=ready,
            collate_fn=Pairs(spec),
        )


if __name__ == "__main__":
    run(StreamingPeer())
