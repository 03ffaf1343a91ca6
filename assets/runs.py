"""What training left in the lake, found again by content id: finished runs, their results, their steps, their pairs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sevenfold.assets.mining import HARD, RANDOM
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project
from sevenfold.storage.records import Version

SUBSET = "subset"
"""What the lists of ids of a forecast's subsets are called, so that their runs are not taken for runs of a version."""

if TYPE_CHECKING:
    from sevenfold.quality.context import Gain


def results_of(lake: Lake, content_id: str, *, whole: bool = True) -> list[dict[str, Any]]:
    """The results of the finished runs that trained on this content id, oldest first.

    `whole`: only runs that trained on all of it; a fold of out-of-fold scoring is none, nor a subset of a forecast.
    """
    found = []
    ended = [e for e in lake.store.entries("runs") if e.key.endswith("/result.json")]
    for entry, data in zip(ended, lake.store.together(lambda e: lake.store.read(e.key), ended), strict=True):
        result = json.loads(data)
        config = result.get("config")  # the combined result of out-of-fold scoring has none
        trained = config and config.get("epochs") != 0  # an evaluation of another version's model trains nothing
        if trained and result["content_id"] == content_id and not (whole and _of_a_part(config)):
            found.append((entry.modified, result["run_id"], result))
    return [result for _, _, result in sorted(found, key=lambda f: f[:2])]


def _of_a_part(config: dict[str, Any]) -> bool:
    """Whether a run trained on a fold, or on a subset that a forecast chose."""
    listed = str(config.get("select_ids") or "").rpartition("/")[2]
    return bool(config.get("hold_out")) or listed.startswith(f"{SUBSET}-")


def steps_of(lake: Lake, run: str) -> pa.Table:
    """The per-step times of a run, of every rank."""
    from sevenfold.training.run import run_key
    from sevenfold.training.steps import read_steps

    return read_steps(lake.store, run_key(run, "steps"))


def newest_steps(lake: Lake, content_id: str) -> pa.Table | None:
    """The per-step times of the newest run of a version; None when none was trained."""
    results = results_of(lake, content_id)
    steps = steps_of(lake, results[-1]["run_id"]) if results else None
    return steps if steps is not None and steps.num_rows else None


def control_of(lake: Lake, project: Project, version: Version) -> Version | None:
    """The random control of a mined version: of the same parents, its review from a random queue of the same size."""
    queues = {r.name: r.queues for r in lake.reviews(project.dataset)}

    def asked(v: Version, kind: str) -> bool:
        names = [q for r in v.provenance.get("reviews", ()) for q in queues.get(r, ())]
        return any(q.startswith(f"{kind}-") for q in names)

    if not asked(version, HARD):
        return None
    others = [v for v in lake.versions(project.dataset) if v.parents == version.parents and v.number != version.number]
    return next((v for v in others if asked(v, RANDOM) and not asked(v, HARD)), None)


def arms_of(lake: Lake, project: Project, version: Version) -> dict[str, dict[int, float]]:
    """Test accuracy by seed of a mined version's parent, of itself and of its random control, in this order.

    The keys say which (`v1 before`, `v2 mined`, `v3 random`); empty when the version has no control.
    """
    control = control_of(lake, project, version)
    if control is None:
        return {}
    base = lake.version(project.dataset, f"v{version.parents[0]}")
    named = ((f"{base.name} before", base), (f"{version.name} mined", version), (f"{control.name} random", control))
    return {
        name: {int(r["seed"]): a for r in results_of(lake, v.content_id) if (a := accuracy(r)) is not None}
        for name, v in named
    }


def compare_arms(arms: dict[str, dict[int, float]]) -> str:
    """What the arms of :func:`arms_of` say, over the seeds that all three have; empty without any."""
    from sevenfold.training.gains import compare_gains

    if not arms:
        return ""
    before, mined, random = arms.values()
    seeds = sorted(before.keys() & mined.keys() & random.keys())
    if not seeds:
        return ""
    return compare_gains(*([arm[s] for s in seeds] for arm in (mined, random, before))).sentence


def mined_gain(lake: Lake, project: Project, version: Version, split: str = "test") -> Gain | None:
    """Held-out accuracies of a mined version and of its random control, seed by seed, where both were trained alike."""
    from sevenfold.quality.context import Gain

    control = control_of(lake, project, version)
    if control is None:
        return None
    chosen, other = (
        {_alike(r): a for r in results_of(lake, v.content_id) if (a := accuracy(r, split)) is not None}
        for v in (version, control)
    )
    both = sorted(chosen.keys() & other.keys())
    if not both:
        return None
    return Gain([chosen[k] for k in both], [other[k] for k in both], reference=control.name)


def accuracy(result: dict[str, Any], split: str = "test") -> float | None:
    """A run's accuracy on a split; None when it has no labelled sample there."""
    value = result["splits"].get(split, {}).get("accuracy")
    return None if value is None else float(value)


def _alike(result: dict[str, Any]) -> tuple[int, str]:
    """Seed, and everything that was configured but the data and how the run was carried out."""
    from sevenfold.training.config import EXECUTION

    apart = {"ref", "content_id", "seeds", "select_ids", "select_digest", "mix", *EXECUTION}
    config = {k: v for k, v in result["config"].items() if k not in apart}
    return int(result["seed"]), json.dumps(config, sort_keys=True)
