"""Training dynamics: what the course of a training says about each of its samples.

Every time a sample is used, the trainer has its logits z already. From these, before the step that learns from them:

    EL2N         ||softmax(z) - onehot(y)||, the mean of the uses in the second quarter of the training
                 (Paul et al., NeurIPS 2021: hard, and wrong, samples stand out early)
    forgetting   how often it was classified rightly and then wrongly at the next use; a sample that never was right
                 counts all its uses, more than any other can have (Toneva et al., ICLR 2019)
    AUM          mean of z_y - max over the others, of all uses (Pleiss et al., NeurIPS 2020: wrong labels are low)
    learned      the share of its uses at which it was right; 0: never learned (correctness of Swayamdipta et al., 2020)

All are in-sample by nature and belong to the pair of image and label. The images are those that were trained on,
augmented, so that nothing is computed twice: it costs half a per cent of a step (benchmarks/quality_value.py), where a
pass over all samples after each epoch would cost a quarter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from sevenfold.storage import Lake
from sevenfold.storage.canonical import digest_json
from sevenfold.storage.index import read_parquet, write_parquet
from sevenfold.training.place import Place
from sevenfold.training.run import run_key

SIGNALS = ("el2n", "forgetting", "aum", "learned")
"""The signals that :func:`combine` writes."""

TABLE = pa.schema(
    [
        ("id", pa.string()),
        ("label", pa.string()),
        ("content_id", pa.string()),
        ("uses", pa.int32()),
        *((name, pa.float64()) for name in SIGNALS),
    ]
)
"""runs/<run id>/dynamics.parquet: a row per sample trained on; el2n is null where no use fell into its window."""

_FILE = "dynamics.parquet"
_STATE = ("uses", "early", "right", "forgotten", "last", "error", "margin")


def early(steps: int, per_epoch: int) -> tuple[int, int]:
    """The steps [first, end) whose uses EL2N counts: the second quarter, in whole epochs, at least one of them.

    Before it the network knows nothing; after it even wrong labels are being learned by heart.

    Parameters
    ----------
    steps : of the training; `per_epoch` of them make an epoch.
    """
    epochs = max(steps // max(per_epoch, 1), 1)
    first = epochs // 4
    return first * per_epoch, max(epochs // 2, first + 1) * per_epoch


class Dynamics:
    """Running statistics of the first `rows` rows of a samples table, the same on every rank after :meth:`gather`.

    Parameters
    ----------
    rows : rows of the version that is trained on; those that are mixed in from others come after them.
    window : steps [first, end) of EL2N, see :func:`early`.
    """

    def __init__(self, rows: int, window: tuple[int, int]) -> None:
        self.rows, self.window = rows, window
        self._uses, self._early, self._right, self._forgotten = (np.zeros(rows, np.int32) for _ in range(4))
        self._last = np.zeros(rows, np.uint8)
        self._error, self._margin = np.zeros(rows, np.float64), np.zeros(rows, np.float64)
        self._waiting: list[torch.Tensor] = []

    def watch(self, step: int, rows: torch.Tensor, labels: torch.Tensor, logits: torch.Tensor) -> None:
        """Note the uses of one step on this rank.

        Parameters
        ----------
        rows, labels : int64 [b] of the samples that count.
        logits : [b, classes], before the step.
        """
        z = logits.detach().float()
        labels = labels.to(z.device)
        own = z.gather(1, labels[:, None])[:, 0]
        rival = z.scatter(1, labels[:, None], -torch.inf).amax(1)
        margin = torch.where(rival.isfinite(), own - rival, own)  # a single class has no rival
        p = torch.softmax(z, 1)
        p_own = p.gather(1, labels[:, None])[:, 0]
        error = (p.square().sum(1) - p_own.square() + (1 - p_own).square()).clamp(min=0).sqrt()
        noted = [rows.double(), torch.full((len(rows),), float(step)).double(), error.cpu(), margin.cpu()]
        mine = rows < self.rows
        self._waiting.append(torch.stack([x.double() for x in noted], 1)[mine])

    def gather(self, place: Place) -> None:
        """Count what all ranks noted since the last call, in the order of the steps. Every rank calls this."""
        mine = torch.cat(self._waiting) if self._waiting else torch.zeros((0, 4), dtype=torch.float64)
        self._waiting = []
        if place.world > 1:
            most = int(place.gather(torch.tensor([len(mine)], device=place.device)).max())
            filled = torch.full((most, 4), -1.0, dtype=torch.float64)
            filled[: len(mine)] = mine
            mine = place.gather(filled.to(place.device))
            mine = mine[mine[:, 0] >= 0]
        noted = mine.numpy()
        noted = noted[np.argsort(noted[:, 1], kind="stable")]
        edges = np.flatnonzero(np.diff(noted[:, 1], prepend=-1, append=-1))
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            self._count(noted[begin:end])

    def _count(self, noted: np.ndarray) -> None:
        """Count one step's uses: float64 [b, 4] of row, step, error, margin."""
        rows = noted[:, 0].astype(np.int64)
        right = noted[:, 3] > 0
        np.add.at(self._uses, rows, 1)
        np.add.at(self._right, rows, right)
        np.add.at(self._forgotten, rows, (self._last[rows] == 1) & ~right)
        self._last[rows] = right
        np.add.at(self._margin, rows, noted[:, 3])
        if len(noted) and self.window[0] <= noted[0, 1] < self.window[1]:
            np.add.at(self._early, rows, 1)
            np.add.at(self._error, rows, noted[:, 2])

    def tensors(self) -> dict[str, torch.Tensor]:
        """What a checkpoint needs: `dynamics.<name>`."""
        return {f"dynamics.{name}": torch.from_numpy(getattr(self, f"_{name}")) for name in _STATE}

    def load_tensors(self, tensors: dict[str, torch.Tensor]) -> None:
        """Continue from a checkpoint's tensors."""
        for name in _STATE:
            getattr(self, f"_{name}")[:] = tensors[f"dynamics.{name}"].numpy()

    def table(self, samples: pa.Table, content_id: str) -> pa.Table:
        """The rows of TABLE; `samples` is the table whose rows were watched."""
        rows = np.flatnonzero(self._uses)
        uses, counted = self._uses[rows].astype(np.float64), self._early[rows]
        right = self._right[rows]
        picked = samples.select(["id", "label"]).take(pa.array(rows))
        columns = {
            "id": picked["id"],
            "label": picked["label"],
            "content_id": pa.array([content_id] * len(rows), pa.string()),
            "uses": self._uses[rows],
            "el2n": pa.array(self._error[rows] / np.maximum(counted, 1), mask=counted == 0),
            "forgetting": np.where(right == 0, uses, self._forgotten[rows]),
            "aum": self._margin[rows] / np.maximum(uses, 1),
            "learned": right / np.maximum(uses, 1),
        }
        return pa.table(columns, schema=TABLE)


def write(lake: Lake, run: str, table: pa.Table) -> None:
    """Keep what one run noted."""
    write_parquet(lake.store, run_key(run, _FILE), [table], TABLE, overwrite=True)


def combine(lake: Lake, runs: Sequence[str]) -> str | None:
    """Write the signals of some runs of one version: of each sample the mean over the runs that trained on it.

    The producer is the run, or `dynamics-` and a digest where they are several. Returns it; None when no run noted
    anything (`dynamics = false`, or a run that was only evaluated).
    """
    keys = [key for run in runs if lake.store.exists(key := run_key(run, _FILE))]
    tables = [t for key in keys if (t := read_parquet(lake.store, key, TABLE)).num_rows]
    if not tables:
        return None
    producer = runs[0] if len(runs) == 1 else f"dynamics-{digest_json(sorted(runs))[:16]}"
    if lake.store.exists(f"signals/{SIGNALS[-1]}/{producer}/0.parquet"):  # written last, of runs that were adopted
        return producer
    table = tables[0] if len(tables) == 1 else mean(tables)
    for name in SIGNALS:
        rows = pa.table({"id": table["id"], "value": table[name], "label": table["label"],
                         "content_id": table["content_id"]})  # fmt: skip
        rows = rows.filter(pc.is_valid(rows["value"]))
        lake.write_signal(name, producer, rows, scope="label", in_sample=True)
    return producer


def mean(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows of TABLE averaged over the runs that have them, by sample and label; `uses` are added up."""
    every = pa.concat_tables(tables)
    keys = ["id", "label", "content_id"]
    found = every.group_by(keys, use_threads=False).aggregate([("uses", "sum"), *((name, "mean") for name in SIGNALS)])
    named = {**{k: found[k] for k in keys}, "uses": found["uses_sum"].cast(pa.int32())}
    named |= {name: found[f"{name}_mean"] for name in SIGNALS}
    return pa.table(named, schema=TABLE).sort_by("id")
