"""The jobs: land a batch, turn a round, record a review, check what is there."""

import dagster as dg

from sevenfold.assets import learning, loop
from sevenfold.assets.landing import landing, shards

_IN_PROCESS = dg.in_process_executor
"""Steps share the run's process: training and ingest have their own, and starting a step costs a second."""

land = dg.define_asset_job(
    "land",
    selection=dg.AssetSelection.assets(landing, shards),
    executor_def=_IN_PROCESS,
    description="One landing batch: ingest, admission checks, shards.",
)
round_ = dg.define_asset_job(
    "round",
    selection=dg.AssetSelection.assets(
        loop.dataset_version, learning.model, learning.predictions, loop.queues, learning.champion, loop.report
    ),
    executor_def=_IN_PROCESS,
    description="One turn of the loop: commit, train, score out of fold, mine, gate, report.",
)
train = dg.define_asset_job(
    "train",
    selection=dg.AssetSelection.assets(loop.dataset_version, learning.model),
    executor_def=_IN_PROCESS,
    description="Commit what waits for a branch and train on it, without scoring or mining.",
)
survey = dg.define_asset_job(
    "survey",
    selection=dg.AssetSelection.assets(loop.dataset_version, learning.predictions, loop.queues),
    executor_def=_IN_PROCESS,
    description="Commit, score out of fold and mine, so that people can review before anything is trained.",
)
review = dg.define_asset_job(
    "review",
    selection=dg.AssetSelection.assets(loop.decisions),
    executor_def=_IN_PROCESS,
    description="Record a file of decisions about queued samples for the next commit.",
)
gate = dg.define_asset_job(
    "gate",
    selection=dg.AssetSelection.assets(learning.champion, loop.report),
    executor_def=_IN_PROCESS,
    description="The newest model meets the champion; then the report.",
)
check = dg.define_asset_job(
    "check",
    selection=dg.AssetSelection.checks(loop.version_checks),
    executor_def=_IN_PROCESS,
    description="Judge the newest version again, without changing anything.",
)

ALL = (land, round_, train, survey, review, gate, check)
