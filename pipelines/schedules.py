"""What runs by the clock."""

import dagster as dg

from sevenfold.pipelines.jobs import check
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.project import Project


@dg.schedule(job=check, cron_schedule="0 3 * * *", default_status=dg.DefaultScheduleStatus.RUNNING)
def nightly_check(
    context: dg.ScheduleEvaluationContext, project: dg.ResourceParam[Project]
) -> dg.RunRequest | dg.SkipReason:
    """Judge the newest version every night: freshness and backlog change without a commit."""
    try:
        version = project.open_lake().version(project.dataset)
    except SevenfoldError as e:
        return dg.SkipReason(f"there is nothing to judge yet: {e.found}")
    return dg.RunRequest(tags={"sevenfold/version": version.name})
