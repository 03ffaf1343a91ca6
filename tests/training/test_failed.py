"""Samples that fail to decode are named in the result, whichever rank met them, on one rank as on several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from sevenfold.storage import Lake
from sevenfold.training import checkpoint
from sevenfold.training.config import TrainConfig, parse
from sevenfold.training.launch import launch
from sevenfold.training.place import Place
from sevenfold.training.trainer import train


def config(**values: Any) -> TrainConfig:
    base = {"dataset": "toy", "epochs": 2, "batch_size": 16, "lr": 0.05, "widths": [4], "precision": "fp32"}
    return parse({**base, "threads": 1, "predict": "out_of_sample", **values})


def damage(lake: Lake, samples: Any) -> None:
    """Overwrite the image bytes of samples where they lie, in files that no other lake shares."""
    for row in samples.to_pylist():
        path = lake.shard_path(row["shard"])
        data = bytearray(path.read_bytes())
        data[row["offset"] : row["offset"] + row["size"]] = bytes(row["size"])
        path.unlink()
        path.write_bytes(data)


def finish(lake: Lake, settings: TrainConfig) -> list[dict[str, Any]]:
    """Train to the end; one rank needs no process of its own."""
    return train(str(lake.root), settings, Place()) if settings.ranks == 1 else launch(lake.root, settings)["runs"]


@pytest.fixture
def broken(toy_root: Path) -> tuple[Lake, list[str]]:
    """A lake of which ten training samples are no images any more, and their ids."""
    lake = Lake.open(toy_root)
    toy = lake.samples("toy")
    chosen = toy.filter(pc.equal(toy["split"], "train")).slice(0, 10)
    damage(lake, chosen)
    return lake, sorted(chosen["id"].to_pylist())


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_what_failed_is_named_and_counted_whichever_rank_met_it(broken: tuple[Lake, list[str]], ranks: int) -> None:
    lake, ids = broken
    settings = config(ranks=ranks, checkpoint_every=1, keep_checkpoints=99)
    (run,) = finish(lake, settings)
    assert sorted(run["failed"]) == ids and len(run["failed_why"]) == 10
    assert (run["steps"], run["samples"]) == (12, 160), "no step is missing, and only what decoded counts"

    folder = f"runs/{run['run_id']}"
    for step in range(9, 13):  # as if it had been killed after step 8, in its second epoch
        lake.store.delete(f"{folder}/checkpoints/step-{step}/{checkpoint.META}")
    lake.store.delete(f"{folder}/result.json")
    (again,) = finish(lake, settings)
    assert again["history"][0]["seconds"] == run["history"][0]["seconds"], "it went on from there"
    assert (again["failed"], again["samples"]) == (run["failed"], 160)
