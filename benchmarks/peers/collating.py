"""From a list of samples to one batch, for every peer alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from peers.decoding import DECODERS, decode_batch


class Collate:
    """(bytes, label) pairs to (payload, labels int64 [b]): what spec["work"] asks for: pixels or a list of bytes.

    A list of bytes is what the peers' own examples hand over.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self.decoder = DECODERS[spec["decoder"]] if spec["work"] == "decoded" else None
        self.side = spec["side"]

    def __call__(self, samples: Sequence[tuple[Any, Any]]) -> tuple[Any, torch.Tensor]:
        files = [s[0] for s in samples]
        labels = torch.tensor([int(s[1]) for s in samples])
        if self.decoder is not None:
            return decode_batch(files, self.decoder, self.side), labels
        return [bytes(f) for f in files], labels


def collate(spec: dict[str, Any]) -> Collate:
    return Collate(spec)
