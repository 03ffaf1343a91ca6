"""Learning: epoch plan, loader, trainer, scores, mining, replay, registry and gate. Names load when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sevenfold.training.config import TrainConfig
    from sevenfold.training.draws import DrawPlan
    from sevenfold.training.feed import collate
    from sevenfold.training.loader import ByteDataset, SampleDataset, make_loader
    from sevenfold.training.models import build_model, load_weights, residual_cnn
    from sevenfold.training.order import Layout, layout
    from sevenfold.training.plan import EpochPlan
    from sevenfold.training.sampler import PlannedBatchSampler

__all__ = [
    "ByteDataset",
    "DrawPlan",
    "EpochPlan",
    "Layout",
    "PlannedBatchSampler",
    "SampleDataset",
    "TrainConfig",
    "build_model",
    "collate",
    "layout",
    "load_weights",
    "make_loader",
    "residual_cnn",
]

_HOMES = {
    "ByteDataset": "loader",
    "DrawPlan": "draws",
    "EpochPlan": "plan",
    "Layout": "order",
    "PlannedBatchSampler": "sampler",
    "SampleDataset": "loader",
    "TrainConfig": "config",
    "build_model": "models",
    "collate": "feed",
    "layout": "order",
    "load_weights": "models",
    "make_loader": "loader",
    "residual_cnn": "models",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"sevenfold.training.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'sevenfold.training' has no attribute {name!r}")
