"""What runs by itself: a landing when a folder appears, a retrain when the policy says so, and news of CLI versions."""

import dagster as dg

from sevenfold.assets.inbox import batches, entries, settled, unusable
from sevenfold.pipelines import jobs, retrain
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.project import Project

SETTLE_SECONDS = 5.0
"""An inbox entry is taken when nothing in it has changed for this long."""


@dg.sensor(job=jobs.land, minimum_interval_seconds=10, default_status=dg.DefaultSensorStatus.RUNNING)
def landing_sensor(
    context: dg.SensorEvaluationContext, project: dg.ResourceParam[Project]
) -> dg.SensorResult | dg.SkipReason:
    """Land each new entry of the inbox: one partition and one run each, ever, unless someone runs it again."""
    known = set(context.instance.get_dynamic_partitions(batches.name or ""))
    fresh = [b for b, path in entries(project).items() if b not in known and settled(path, SETTLE_SECONDS)]
    if refused := unusable(project):
        context.log.warning(f"rename these, their names cannot be batch ids: {', '.join(map(repr, refused))}")
    if not fresh:
        return dg.SkipReason(f"nothing new in {project.path('inbox')}")
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=f"land-{b}", partition_key=b) for b in fresh],
        dynamic_partitions_requests=[batches.build_add_request(fresh)],
    )


@dg.sensor(jobs=[jobs.round_, jobs.survey], minimum_interval_seconds=60, default_status=dg.DefaultSensorStatus.RUNNING)
def retrain_sensor(
    context: dg.SensorEvaluationContext, project: dg.ResourceParam[Project]
) -> dg.RunRequest | dg.SkipReason:
    """Ask the retrain policy; its reasons are the skip message, its run key makes a second start impossible.

    With nothing new to learn from, the new data is surveyed instead, so that people find its queues waiting.
    """
    try:
        lake = project.open_lake()
        decision = retrain.propose(lake, project, context.instance)
    except SevenfoldError as e:
        return dg.SkipReason(f"there is nothing to retrain yet: {e.found}")
    if not decision.retrain:
        return dg.SkipReason(" ".join(decision.reasons))
    tags = {"sevenfold/why": " ".join(decision.triggers)}
    if not retrain.to_learn(lake, project):
        return dg.RunRequest(run_key=f"survey-{decision.run_key}", job_name=jobs.survey.name, tags=tags)
    return dg.RunRequest(
        run_key=decision.run_key, job_name=jobs.round_.name, run_config=retrain.round_config(), tags=tags
    )


@dg.sensor(minimum_interval_seconds=30, default_status=dg.DefaultSensorStatus.RUNNING)
def versions_sensor(
    context: dg.SensorEvaluationContext, project: dg.ResourceParam[Project]
) -> dg.SensorResult | dg.SkipReason:
    """Show versions that the command line made: each new one becomes an observation of dataset_version, once."""
    try:
        lake = project.open_lake()
    except SevenfoldError as e:
        return dg.SkipReason(e.found)
    seen = int(context.cursor or 0)
    new = [v for v in lake.versions(project.dataset) if v.number > seen]
    events = [
        dg.AssetObservation(
            "dataset_version",
            description=v.message,
            metadata={"version": v.name, "content id": v.content_id, "made by": v.provenance.get("by", "unknown")},
        )
        for v in new
        if v.provenance.get("by") != "dagster"
    ]
    return dg.SensorResult(asset_events=events, cursor=str(max([seen, *(v.number for v in new)])))
