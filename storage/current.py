"""What a manifest's entry is made of today. Manifests never change; what replaces their files is looked up here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sevenfold.storage.store import Store


def current(store: Store, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entry (batch, index, samples, shards) whose files lie in the lake now; most are the manifest's own.

    Verification, repair and garbage collection look at entries through this function alone.
    """
    return entry
