"""The per-batch assets: land an inbox entry, judge it without a model, shard it when it was admitted."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from sevenfold.assets.checks import as_results, specs
from sevenfold.assets.inbox import batches, entry
from sevenfold.assets.judging import docs_of, judge_batch
from sevenfold.storage.progress import Progress
from sevenfold.storage.project import Project

ADMISSION = ("validity", "variety", "veracity", "volume", "volatility", "velocity")
"""The Vs that can be judged before a model exists; value follows training."""


@dg.asset(
    partitions_def=batches,
    group_name="data",
    kinds={"parquet"},
    check_specs=specs("landing", ADMISSION, blocking=("validity", "veracity")),
)
def landing(
    context: dg.AssetExecutionContext, project: dg.ResourceParam[Project], progress: dg.ResourceParam[Progress]
) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
    """One landing batch: its samples measured, its bad inputs in quarantine, its admission judged."""
    lake = project.create_lake()
    batch, new = lake.ingest(
        entry(project, context.partition_key),
        project.dataset,
        context.partition_key,
        classes=project.classes,
        accepts=project.decode,
        workers=project.workers,
        progress=progress,
    )
    verdicts = judge_batch(lake, project, batch.batch)
    reasons = dg.MetadataValue.json(batch.reasons)
    metadata: dict[str, Any] = {**batch.counts, "new": new, "digest": batch.digest, "rejects by reason": reasons}
    metadata["data docs"] = dg.MetadataValue.path(docs_of(project, batch.batch) / "index.html")
    yield dg.MaterializeResult(metadata=metadata)
    yield from as_results("landing", ADMISSION, verdicts)


@dg.asset(partitions_def=batches, group_name="data", kinds={"webdataset"}, deps=[landing])
def shards(
    context: dg.AssetExecutionContext, project: dg.ResourceParam[Project], progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """The batch's samples as deterministic WebDataset tars with their index; only an admitted batch gets any."""
    lake = project.open_lake()
    batch = lake.batch(project.dataset, context.partition_key)
    if batch.status == "rejected":
        raise dg.Failure(f"the batch {batch.batch} was rejected: see its checks", allow_retries=False)
    if batch.status != "committed":
        batch = lake.pack(project.dataset, batch.batch, progress=progress)
    packed = batch.packed or {"samples": 0, "shards": []}
    return dg.MaterializeResult(
        metadata={
            **batch.counts,
            "shards": len(packed["shards"]),
            "bytes": sum(s["bytes"] for s in packed["shards"]),
            "digests": dg.MetadataValue.json([s["digest"] for s in packed["shards"]]),
        }
    )
