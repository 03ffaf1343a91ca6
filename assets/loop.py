"""The assets around learning: versions, review queues, decisions, the report, and the checks of a version."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from sevenfold.assets import committing, judging, mining, reporting, reviewing, twinning
from sevenfold.assets.checks import as_results, specs
from sevenfold.assets.landing import shards
from sevenfold.quality.verdict import VS
from sevenfold.storage.progress import Progress
from sevenfold.storage.project import Project


class CommitConfig(dg.Config):
    """Which branch to commit to; `start` is where a new branch begins."""

    branch: str = "main"
    start: str | None = None
    message: str = "admitted batches and reviewed decisions"


class RefConfig(dg.Config):
    """Which branch's newest version to work on."""

    branch: str = "main"


class MineConfig(RefConfig):
    """How many samples each queue holds, and which batches' pool they come from (empty: all)."""

    size: int = 500
    seed: int = 0
    batches: list[str] = []  # noqa: RUF012  Dagster copies config defaults


class DecisionsConfig(dg.Config):
    """Decisions about a version's samples, and the branches they are for.

    `file` is a CSV (id, label or exclude); `twins` excludes the copies of val and test pictures in other splits.
    """

    file: str = ""
    twins: bool = False
    name: str
    ref: str = "main"
    branches: list[str] = ["main"]  # noqa: RUF012
    queues: list[str] = []  # noqa: RUF012
    reviewer: str = "reviewer"


@dg.asset(group_name="data", kinds={"parquet"}, deps=[shards])
def dataset_version(
    context: dg.AssetExecutionContext,
    config: CommitConfig,
    project: dg.ResourceParam[Project],
    progress: dg.ResourceParam[Progress],
) -> dg.MaterializeResult:
    """The next version: every admitted batch that the branch lacks, and every review that waits for it."""
    lake = project.open_lake()
    version, new = committing.commit(
        lake,
        project,
        message=config.message,
        branch=config.branch,
        start=config.start,
        provenance={"by": "dagster", "run": context.run_id},
        progress=progress,
    )
    manifest = lake.manifest(version.content_id)
    return dg.MaterializeResult(
        metadata={
            "version": version.name,
            "new": new,
            "content id": version.content_id,
            "batches": dg.MetadataValue.json(list(manifest.batch_ids)),
            "samples": lake.samples_of(version.content_id).num_rows,
            "overlays": len(manifest.overlays),
        },
        data_version=dg.DataVersion(version.content_id),
    )


@dg.multi_asset_check(specs=specs("dataset_version", VS))
def version_checks(project: dg.ResourceParam[Project]) -> Iterator[dg.AssetCheckResult]:
    """Every V of the newest version, model-based ones included once it has been scored."""
    lake = project.open_lake()
    yield from as_results("dataset_version", VS, judging.judge_version(lake, project, "main"))


@dg.asset(group_name="loop", kinds={"parquet"}, deps=["predictions"])
def queues(
    context: dg.AssetExecutionContext, config: MineConfig, project: dg.ResourceParam[Project]
) -> dg.MaterializeResult:
    """What people should look at next: suspected labels, hard samples, and as many at random for comparison."""
    lake = project.open_lake()
    version = lake.version(project.dataset, config.branch)
    mined = mining.mine(lake, project, version.name, size=config.size, seed=config.seed, batches=config.batches or None)
    return dg.MaterializeResult(metadata={name: table.num_rows for name, table in mined.items()})


@dg.asset(group_name="loop", kinds={"csv"})
def decisions(
    context: dg.AssetExecutionContext, config: DecisionsConfig, project: dg.ResourceParam[Project]
) -> dg.MaterializeResult:
    """What people decided about queued samples, kept as an overlay for the next commit of each branch."""
    lake = project.open_lake()
    version = lake.version(project.dataset, config.ref)
    decided = reviewing.read_decisions(Path(config.file)) if config.file else []
    if config.twins:
        decided += reviewing.exclude_twins(twinning.cross_split(lake, project, config.ref))
    reviewed = reviewing.decisions_to_overlay(
        lake.samples_of(version.content_id),
        decided,
        lake.manifest(version.content_id).classes,
        reviewer=config.reviewer,
        reason=f"review {config.name}",
    )
    if reviewed.overlay.num_rows:
        for branch in config.branches:
            name = f"{config.name}-{branch}" if len(config.branches) > 1 else config.name
            lake.add_review(
                project.dataset, name, reviewed.overlay, branch=branch, queues=config.queues, reviewer=config.reviewer
            )
    return dg.MaterializeResult(metadata={**reviewed.counts, "branches": ", ".join(config.branches)})


@dg.asset(group_name="loop", kinds={"html"}, deps=["champion"])
def report(
    context: dg.AssetExecutionContext, config: RefConfig, project: dg.ResourceParam[Project]
) -> dg.MaterializeResult:
    """One self-contained HTML page about the branch's newest version."""
    path = reporting.write_report(project.open_lake(), project, config.branch)
    return dg.MaterializeResult(metadata={"path": dg.MetadataValue.path(path), "bytes": path.stat().st_size})
