"""What runs by the clock."""

import dagster as dg

from sevenfold.pipelines.jobs import check

nightly_check = dg.ScheduleDefinition(
    name="nightly_check",
    job=check,
    cron_schedule="0 3 * * *",
    description="Judge the newest version every night: freshness and drift change without a commit.",
    default_status=dg.DefaultScheduleStatus.STOPPED,
)
