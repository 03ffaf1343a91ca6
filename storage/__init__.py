"""Keeping: sources, samples, shards, the index, manifests, versions and queries. Names load when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sevenfold.storage.errors import SevenfoldError
    from sevenfold.storage.lake import Lake
    from sevenfold.storage.progress import Progress
    from sevenfold.storage.records import Batch, Manifest, Version

__all__ = ["Batch", "Lake", "Manifest", "Progress", "SevenfoldError", "Version"]

_HOMES = {
    "Batch": "records",
    "Lake": "lake",
    "Manifest": "records",
    "Progress": "progress",
    "SevenfoldError": "errors",
    "Version": "records",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"sevenfold.storage.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'sevenfold.storage' has no attribute {name!r}")
