"""Dagster's code location: everything merged, built by a function so that a caller can swap the project or progress."""

import dagster as dg

from sevenfold.assets import learning, loop
from sevenfold.assets.landing import landing, shards
from sevenfold.pipelines import home, jobs, schedules, sensors
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.project import Project


def build(project: Project | None = None, progress: Progress = silent) -> dg.Definitions:
    """All definitions over `project` (default: the one this process belongs to)."""
    return dg.Definitions(
        assets=[
            landing,
            shards,
            loop.dataset_version,
            learning.model,
            learning.predictions,
            loop.queues,
            loop.decisions,
            learning.champion,
            loop.report,
        ],
        asset_checks=[loop.version_checks],
        jobs=list(jobs.ALL),
        schedules=[schedules.nightly_check],
        sensors=[sensors.landing_sensor, sensors.retrain_sensor, sensors.versions_sensor],
        resources={
            "project": project or home.current(),
            "progress": progress,
            "pipes": dg.PipesSubprocessClient(),
        },
    )


defs = build()
