"""The loop on a lake in a bucket: trained, scored, mined, registered, judged by the gate and promoted, as on a disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sevenfold.assets import fitting, gating
from sevenfold.assets.committing import commit
from sevenfold.assets.judging import judge_batch
from sevenfold.assets.mining import mine
from sevenfold.assets.runs import newest_steps, results_of
from sevenfold.assets.scored import scored_runs
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project
from sevenfold.training import aliases, registry
from sevenfold.training.place import Place
from sevenfold.training.score import score
from sevenfold.training.trainer import train

COUNTS = {"train": 24, "val": 6, "test": 40, "pool": 12}
QUICK = {"epochs": 4, "batch_size": 16, "widths": [8], "lr": 0.1, "precision": "fp32", "threads": 1}


def pictures(folder: Path) -> Path:
    """Two classes that differ by colour; the pool has no labels."""
    random = np.random.default_rng(0)
    for split, count in COUNTS.items():
        for c, name in enumerate(("cat", "dog")):
            place = folder / split if split == "pool" else folder / split / name
            place.mkdir(parents=True, exist_ok=True)
            for i in range(count):
                pixels = random.integers(0, 120, (8, 8, 3), dtype=np.uint8)
                pixels[..., c] += 70
                Image.fromarray(pixels).save(place / f"{name}-{i}.png")
    return folder


def loop(project: Project, source: Path) -> tuple[Lake, dict[str, Any]]:
    """One turn; returns the lake and what came out, without times and places."""
    lake = project.create_lake()
    lake.ingest(source, "pets", "one")
    judge_batch(lake, project, "one")
    version, _ = commit(lake, project, message="one")
    settings = fitting.settings(lake, project, "main", QUICK)
    (result,) = train(lake.store.url, settings, Place())
    model = fitting.register(lake, project, result)
    judged = gating.compare(lake, project, model.ref)
    moved = gating.run_gate(lake, project, model.ref)
    scores = score(lake.store.url, settings, Place())
    queues = mine(lake, project, size=8)
    steps = newest_steps(lake, version.content_id)
    assert steps is not None
    came_out = {
        "version": version.content_id, "runs": [r["run_id"] for r in results_of(lake, version.content_id)],
        "splits": result["splits"], "steps": steps["loss"].to_pylist(), "scored": scored_runs(lake, version.content_id),
        "out of fold": scores["out_of_fold"], "queues": {n: t.to_pylist() for n, t in queues.items()},
        "models": [(m.ref, m.weights_digest, m.metrics().to_pylist()) for m in registry.models(lake, project.model)],
        "gate": [(o.promoted, o.moved, o.reasons) for o in (judged, moved)],
        "recorded": [(o.challenger, o.moved) for o in gating.outcomes(lake, project.model)],
        "champion": [(a.alias, a.number) for a in aliases.aliases(lake, project.model)],
    }  # fmt: skip
    return lake, came_out


@pytest.mark.e2e
def test_the_loop_comes_out_the_same_in_a_bucket_and_on_a_disk(bucket: str, tmp_path: Path) -> None:
    source = pictures(tmp_path / "source")
    there, found = loop(Project(folder=tmp_path / "there", lake=bucket, dataset="pets"), source)
    here, expected = loop(Project(folder=tmp_path / "here", dataset="pets"), source)
    assert found == expected
    assert found["champion"] == [("champion", 1)] and found["recorded"] == [
        ("classifier/1", False),
        ("classifier/1", True),
    ]
    keys, local = ({_unnamed(e.key) for e in lake.store.entries("", hidden=True)} for lake in (there, here))
    assert keys == {k for k in local if "/." not in f"/{k}"}, "the same files under the same names, and nothing hidden"
    rows = "select count(*) as n from "
    for view in ("runs", "steps", "models", "predictions"):
        assert there.sql(rows + view).to_pylist() == here.sql(rows + view).to_pylist()


def _unnamed(key: str) -> str:
    """A check's run has a name of its own each time."""
    return key.rpartition("/")[0] if key.startswith("checks/") else key
