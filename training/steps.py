"""Per-step times as Parquet: what each phase of each step took on each rank."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sevenfold.storage.index import read_parquet, write_parquet
from sevenfold.storage.store import Store

STEPS = pa.schema(
    [
        ("run_id", pa.string()),
        ("rank", pa.int32()),
        ("epoch", pa.int32()),
        ("step", pa.int64()),
        ("data", pa.float64()),
        ("forward", pa.float64()),
        ("backward", pa.float64()),
        ("optimizer", pa.float64()),
        ("total", pa.float64()),
        ("samples", pa.int64()),
        ("loss", pa.float64()),
        ("lr", pa.float64()),
    ]
)
"""Seconds per phase (`data` = waiting for the loader and augmenting, `backward` includes the exchange of gradients);
`samples` are this rank's; `loss` is the global block's mean."""


class StepLog:
    """Collects the steps of one rank and writes them as `part-<rank>-<first step>.parquet`.

    A part is written before the checkpoint at its end. A resumed run drops the parts past its checkpoint
    (:func:`drop_parts`), so that each step occurs once.
    """

    def __init__(self, store: Store, folder: str, run_id: str, rank: int) -> None:
        self.folder, self.run_id, self.rank = folder, run_id, rank
        self._store = store
        self._rows: list[dict[str, Any]] = []

    def add(self, **row: float) -> None:
        """One step: the columns of STEPS but run_id and rank."""
        self._rows.append({"run_id": self.run_id, "rank": self.rank, **row})

    def flush(self) -> None:
        """Write what was collected since the last call, atomically."""
        if self._rows:
            key = f"{self.folder}/part-{self.rank:03d}-{self._rows[0]['step']:08d}.parquet"
            write_parquet(self._store, key, [pa.Table.from_pylist(self._rows, STEPS)], STEPS, overwrite=True)
            self._rows = []


def drop_parts(store: Store, folder: str, step: int) -> None:
    """Remove the parts, of every rank, that begin at `step` or later: those steps are about to be done again."""
    for part in _parts(store, folder):
        if int(part.rpartition("-")[2]) >= step:
            store.delete(f"{folder}/{part}.parquet")


def read_steps(store: Store, folder: str) -> pa.Table:
    """All steps of a run, of every rank, in (rank, step) order; `folder` is the key of its folder `steps`."""
    tables = store.together(lambda p: read_parquet(store, f"{folder}/{p}.parquet", STEPS), _parts(store, folder))
    return pa.concat_tables([STEPS.empty_table(), *tables])


def _parts(store: Store, folder: str) -> list[str]:
    return [name for name in store.stems(folder, ".parquet") if name.startswith("part-")]
