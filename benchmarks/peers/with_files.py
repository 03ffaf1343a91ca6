"""Plain files in class folders, as torchvision's ImageFolder lists them, read in a DataLoader's batches."""

from __future__ import annotations

from typing import Any

import torch
from peers.collating import collate
from peers.protocol import Peer, Spec, run
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder


class Files(ImageFolder):
    """Bytes instead of decoded images; a whole batch in one call, which spares a call and a tuple per sample."""

    def __getitems__(self, rows: list[int]) -> list[tuple[bytes, int]]:
        found = []
        for row in rows:
            path, label = self.samples[row]
            with open(path, "rb", buffering=0) as file:
                found.append((file.read(), label))
        return found


class FilesPeer(Peer):
    packages = ("torch", "torchvision", "torchdata", "pillow", "simplejpeg", "numpy")

    def build(self, spec: Spec, ready: Any) -> None:
        kind = DataLoader
        more: dict[str, Any] = {}
        if "seed" in spec:
            from torchdata.stateful_dataloader import StatefulDataLoader as kind  # type: ignore[no-redef]

            more["generator"] = torch.Generator().manual_seed(spec["seed"])
        self.loader = kind(
            Files(spec["store"]),
            batch_size=spec["batch"],
            shuffle=True,
            num_workers=spec["workers"],
            persistent_workers=spec["workers"] > 0,
            worker_init_fn=ready,
            collate_fn=collate(spec),
            **more,
        )


if __name__ == "__main__":
    run(FilesPeer())
