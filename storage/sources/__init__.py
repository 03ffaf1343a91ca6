"""Where raw inputs come from: folders, archives, tables, arrays, tars, buckets. A source lists and copies nothing."""

from __future__ import annotations

from sevenfold.storage.sources.base import (
    MAX_FILE_BYTES,
    MAX_INPUTS,
    Input,
    InputError,
    Selected,
    Source,
    as_root,
    in_blocks,
)
from sevenfold.storage.sources.beside import Beside, Table, with_tables
from sevenfold.storage.sources.folder import FolderSource
from sevenfold.storage.sources.opening import SOURCES, open_source

__all__ = [
    "MAX_FILE_BYTES",
    "MAX_INPUTS",
    "SOURCES",
    "Beside",
    "FolderSource",
    "Input",
    "InputError",
    "Selected",
    "Source",
    "Table",
    "as_root",
    "in_blocks",
    "open_source",
    "with_tables",
]
