"""webdataset on the very tars of the lake: shards and a buffer shuffled, batched inside the workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import webdataset as wds
from peers.collating import collate
from peers.protocol import Peer, Spec, run


class WebDatasetPeer(Peer):
    packages = ("webdataset",)

    def build(self, spec: Spec, ready: Any) -> None:
        urls = json.loads(Path(spec["store"]).read_text())
        more: dict[str, Any] = {"seed": spec["seed"], "detshuffle": True} if "seed" in spec else {}
        dataset = wds.WebDataset(urls, shardshuffle=len(urls), **more)
        dataset = dataset.shuffle(spec["buffer"], **({"seed": spec["seed"]} if "seed" in spec else {}))
        dataset = dataset.to_tuple("jpg", "cls").batched(spec["batch"], collation_fn=collate(spec))
        kind = wds.WebLoader
        if "seed" in spec:
            from torchdata.stateful_dataloader import StatefulDataLoader as kind
        self.loader = kind(
            dataset,
            batch_size=None,
            num_workers=spec["workers"],
            persistent_workers=spec["workers"] > 0,
            worker_init_fn=ready,
        )


if __name__ == "__main__":
    run(WebDatasetPeer())
