"""The layout of a lake: the key of every kind of file, in one place."""

from __future__ import annotations

from sevenfold.storage.names import ALIASES_SUFFIX, check_batch, check_name

LAKE = "lake.json"
"""What makes a folder a lake."""


def batch_key(dataset: str, batch: str) -> str:
    """Where a batch's record lies."""
    return f"batches/{check_name(dataset, 'dataset name')}/{check_batch(batch)}.json"


def landing_key(dataset: str, batch: str) -> str:
    """Where the rows a batch landed lie."""
    return f"batches/{dataset}/{batch}.parquet"


def aliases_key(dataset: str, batch: str) -> str:
    """Where a batch's aliases lie."""
    return f"batches/{dataset}/{batch}{ALIASES_SUFFIX}.parquet"


def quarantine_key(dataset: str, batch: str) -> str:
    """Where what a batch set aside lies."""
    return f"quarantine/{dataset}/{batch}.parquet"
