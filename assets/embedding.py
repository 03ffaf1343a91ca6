"""Embeddings and dynamics of a version: which encoder is taken, and what the checks are given of both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.assets import fitting
from sevenfold.storage import embeddings
from sevenfold.storage.index import read_parquet
from sevenfold.storage.lake import Lake
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.project import Project

if TYPE_CHECKING:
    from sevenfold.training.config import TrainConfig

DYNAMICS = ("el2n", "forgetting", "aum", "learned")
"""The signals of training dynamics (see training.dynamics)."""


def embed(
    lake: Lake, project: Project, ref: str = "main", encoder: str = "own",
    overrides: Mapping[str, Any] | None = None, progress: Progress = silent,
) -> dict[str, Any]:  # fmt: skip
    """Embed what is new in a version (see training.embed); `own` is trained first where no network is there.

    Returns what training.embed.embed does, and `trained`, the run that was trained for it or None.
    """
    from sevenfold.training.embed import embed as run

    config = fitting.settings(lake, project, ref, overrides)
    trained = None
    if encoder == "own":
        found = own_run(lake, project.dataset, str(config.content_id))
        trained = None if found else _train(lake, config, progress)
        encoder = found or str(trained)
    return {**run(lake, config, encoder, progress=progress), "encoder": encoder, "trained": trained}


def own_run(lake: Lake, dataset: str, content_id: str) -> str | None:
    """The run whose network is `own`: the one that embedded this dataset before, so that versions stay comparable.

    Else the newest that learned all of this version, else of any version of the dataset; None when there is none.
    """
    store = lake.store
    finished = {e.key.split("/")[1]: e.modified for e in store.entries("runs") if e.key.endswith("/result.json")}
    used = [embeddings.described(store, p) for p in embeddings.producers(store) if p.startswith("own-")]
    before = [a["run"] for a in used if a.get("dataset") == dataset and a["run"] in finished and not a["hold_out"]]
    if before:
        return str(max(before, key=lambda run: finished[run]))
    best: tuple[bool, float, str] | None = None
    for run, modified in finished.items():
        if not run.startswith("run-"):
            continue
        result = json.loads(store.read(f"runs/{run}/result.json"))
        config = result["config"]
        if result["dataset"] != dataset or config.get("hold_out") or config.get("epochs") == 0:
            continue
        found = (result["content_id"] == content_id, modified, run)
        best = found if best is None or found > best else best
    return best[2] if best else None


def _train(lake: Lake, config: TrainConfig, progress: Progress) -> str:
    from sevenfold.training.launch import launch

    one = config.changed(seeds=config.seeds[:1])
    return str(launch(lake.store.url, one, progress=progress)["runs"][0]["run_id"])


def vectors_of(lake: Lake, *ids: pa.ChunkedArray) -> tuple[embeddings.Embeddings | None, ...]:
    """The vectors of several sets of samples by one encoder, the one that covers most of them: they can be compared.

    None for each when there are no embeddings of any.
    """
    every = pc.unique(pa.chunked_array([c for one in ids for c in one.chunks], pa.string()))
    producer = embeddings.newest_for(lake.store, every)
    if producer is None:
        return tuple(None for _ in ids)
    found = embeddings.read(lake.store, producer, every)
    parts = [found.take(one) for one in ids]
    return tuple(p if len(p.ids) else None for p in parts)


def dynamics_of(lake: Lake, samples: pa.Table) -> pa.Table | None:
    """id and DYNAMICS of the samples that still have the label they were trained under; None when there are none.

    They are all of one producer: the one that covers most of the samples, of equals the newest.
    """
    entries = [e for e in lake.store.entries("signals/learned") if e.key.endswith(".parquet")]
    best: tuple[int, float, str] | None = None
    for entry in entries:
        count = len(_of_label(read_parquet(lake.store, entry.key, columns=["id", "label"]), samples))
        found = (count, entry.modified, entry.key.split("/")[2])
        if count and (best is None or found > best):
            best = found
    if best is None:
        return None
    columns: dict[str, Any] = {}
    for name in DYNAMICS:
        signal = lake.signal(name, best[2])
        if not columns:  # learned and aum are of every sample that was used; el2n may not be
            signal = lake.signal("aum", best[2])
            columns["id"] = signal["id"].take(_of_label(signal, samples))
            signal = lake.signal(name, best[2])
        place = pc.index_in(columns["id"], value_set=signal["id"].combine_chunks())
        columns[name] = signal["value"].take(place)
    return pa.table(columns)


def _of_label(signal: pa.Table, samples: pa.Table) -> pa.Array:
    """The rows of a signal whose sample is among these, with the same label."""
    place = pc.index_in(signal["id"], value_set=samples["id"].combine_chunks())
    same = pc.fill_null(pc.equal(samples["label"].take(place), signal["label"]), False)
    return pc.indices_nonzero(same)
