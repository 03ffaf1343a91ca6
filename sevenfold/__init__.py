"""The front door: `import sevenfold as sf; lake = sf.open("...")`. Names load their room only when used."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Lake": "sevenfold.storage",
    "SevenfoldError": "sevenfold.storage",
}
__all__ = ["Lake", "SevenfoldError", "open"]


def open(root: str) -> Any:
    """Open an existing lake (see :meth:`sevenfold.storage.Lake.open`)."""
    from sevenfold.storage import Lake

    return Lake.open(root)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'sevenfold' has no attribute {name!r}")
