"""Forecasts about a dataset's growth, kept as they were made: append-only JSON, to be held against what happened.

forecasts/<dataset>/<version>/<first 16 digits of the digest>.json
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sevenfold.storage.canonical import canonical_json, digest_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.names import check_name
from sevenfold.storage.records import FORMAT, read_json
from sevenfold.storage.store import Store

NEEDED = ("dataset", "version", "content_id", "settings", "split", "largest", "runs", "points")
"""What every forecast says; the rest is its maker's."""


def append_forecast(store: Store, forecast: Mapping[str, Any], *, at: float) -> tuple[str, bool]:
    """Keep a forecast made at a unix time; returns its key and whether it is new. What is there is never changed.

    The same forecast made again is the one that is there, under the time at which it was first made.

    Raises
    ------
    SevenfoldError
        When it does not say what it is about (see :data:`NEEDED`).
    """
    absent = [name for name in NEEDED if name not in forecast]
    if absent:
        raise SevenfoldError(f"a forecast has no {absent[0]}", expected=", ".join(NEEDED))
    dataset, version = str(forecast["dataset"]), str(forecast["version"])
    folder = f"forecasts/{check_name(dataset, 'dataset name')}/{check_name(version, 'version')}"
    key = f"{folder}/{digest_json(dict(forecast))[:16]}.json"
    return key, store.create(key, canonical_json({"format": FORMAT, "at": at, **forecast}))


def read_forecasts(store: Store, dataset: str, version: str | None = None) -> list[dict[str, Any]]:
    """The forecasts of a dataset (or made from one version), oldest first. Raises SevenfoldError for a damaged one."""
    folder = f"forecasts/{check_name(dataset, 'dataset name')}"
    if version is not None:
        folder += f"/{check_name(version, 'version')}"
    keys = [e.key for e in store.entries(folder) if e.key.endswith(".json")]
    found = store.together(lambda key: read_json(store, key, "forecast"), keys)
    for key, value in zip(keys, found, strict=True):
        absent = [name for name in (*NEEDED, "at") if name not in value]
        if absent:
            raise SevenfoldError(
                f"this forecast has no {absent[0]}", where=f"{store.url}/{key}", do="restore it from a copy"
            )
    return sorted(found, key=lambda f: (f["at"], f["version"]))
