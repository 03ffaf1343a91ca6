"""What the retrain policy needs to know, gathered from the lake and from Dagster's run history."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import dagster as dg

from sevenfold.assets import fitting
from sevenfold.pipelines.policy import DriftWindow, RetrainDecision, RetrainPolicy, RetrainState, decide
from sevenfold.quality.scorecard import Scorecard
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project, section
from sevenfold.training import registry

JOB = "round"


def gather(
    lake: Lake, project: Project, runs: list[dg.DagsterRun], now: float, harm: Mapping[str, float] | None = None
) -> RetrainState:
    """The state of `project`'s loop.

    Batches count as new while the champion's version lacks them. `harm`: known accuracy change by batch.
    Raises SevenfoldError while there is no champion or no version.
    """
    champion = registry.resolve(lake, f"{project.model}@champion")
    there = set(lake.manifest(champion.content_id).batch_ids)
    waiting = [b for b in lake.batches(project.dataset) if b.status != "rejected" and b.batch not in there]
    waiting.sort(key=lambda b: b.times["landed"])
    version = lake.version(project.dataset)
    uncommitted = [b for b in waiting if b.status != "committed"]
    name = f"v{lake.versions(project.dataset)[-1].number + 1}" if uncommitted else version.name
    keyed = [r for r in runs if r.tags.get("dagster/run_key", "").startswith(f"retrain-{name}-")]
    models = registry.models(lake, project.model)
    return RetrainState(
        version=name,
        windows=tuple(_window(lake, project.dataset, b.batch, (harm or {}).get(b.batch)) for b in waiting),
        new_batches=len(waiting),
        reviewed_labels=sum(r.rows for r in lake.pending_reviews(project.dataset)),
        hours_since_retrain=(now - models[-1].created) / 3600 if len(models) > 1 else None,
        running=any(r.job_name == JOB and not r.is_finished for r in runs),
        attempts=len(keyed),
        last_attempt_failed=bool(keyed) and keyed[0].is_failure,
    )


def propose(
    lake: Lake,
    project: Project,
    instance: dg.DagsterInstance,
    now: float | None = None,
    harm: Mapping[str, float] | None = None,
) -> RetrainDecision:
    """Gather and decide: what the retrain sensor does at each tick, and the demo once."""
    runs = list(instance.get_runs(filters=dg.RunsFilter(job_name=JOB), limit=100))
    state = gather(lake, project, runs, time.time() if now is None else now, harm)
    return decide(state, section(project, "retrain", RetrainPolicy))


def to_learn(lake: Lake, project: Project) -> int:
    """Labels that a retrain would learn from: new on main, in admitted batches, or reviewed and not committed yet.

    Without any, people must label first: then a survey (commit, score, mine) is what helps, not a training run.
    """
    champion = registry.resolve(lake, f"{project.model}@champion")
    here = lake.version(project.dataset)
    count = len(fitting.new_to(lake, champion, lake.samples_of(here.content_id)))
    there = set(lake.manifest(here.content_id).batch_ids)
    for batch in lake.batches(project.dataset):
        if batch.status == "admitted" and batch.batch not in there:
            splits = lake.batch_rows(project.dataset, batch.batch)["split"].to_pylist()
            count += splits.count("train")  # a sample without a label is in the pool
    return count + sum(r.rows for r in lake.pending_reviews(project.dataset))


def round_config(branch: str = "main", replay: bool = True, **model: Any) -> dict[str, Any]:
    """Run config of the `round` job for a retrain: continue from the champion, with replay of what it knew."""
    return {
        "ops": {
            "dataset_version": {"config": {"branch": branch}},
            "model": {"config": {"branch": branch, "from_champion": replay, **model}},
            "predictions": {"config": {"branch": branch}},
            "queues": {"config": {"branch": branch}},
            "report": {"config": {"branch": branch}},
        }
    }


def _window(lake: Lake, dataset: str, batch: str, harm: float | None) -> DriftWindow:
    drift = Scorecard.of(lake.verdicts(dataset, batch), subject=batch).by_v["volatility"]  # the newest of each check
    if not drift:
        return DriftWindow(batch=batch, result="not_measurable", harm=harm)
    order = {"fail": 3, "warn": 2, "pass": 1, "not_measurable": 0, "crashed": 0}
    worst = max(drift, key=lambda v: order[v.result])
    return DriftWindow(batch=batch, result=worst.result, effect=worst.effect, harm=harm)
