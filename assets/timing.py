"""When things happened: batches and the first model that learned them, review queues and their first answer."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa

from sevenfold.assets.mining import RANDOM
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project

RELABELS = "relabels"
"""Queues of relabels that a batch proposed: each waits for itself, while a newly mined queue replaces an older one."""

QUEUES = pa.schema([("name", pa.string()), ("made", pa.float64()), ("reviewed", pa.float64())])


def timed_records(lake: Lake, project: Project) -> list[dict[str, Any]]:
    """All batch records as mappings, ``times["modelled"]`` added where a registered model was trained on the batch.

    That is the creation of the first model that saw a version holding the batch.
    """
    from sevenfold.training import registry

    first: dict[str, float] = {}
    for model in registry.models(lake, project.model):
        for content_id in model.saw:
            first[content_id] = min(first.get(content_id, model.created), model.created)
    learned: dict[str, float] = {}
    known = {v.content_id for v in lake.versions(project.dataset)}
    for content_id, at in first.items():
        if content_id in known:
            for batch in lake.manifest(content_id).batch_ids:
                learned[batch] = min(learned.get(batch, at), at)
    records = [dataclasses.asdict(b) for b in lake.batches(project.dataset)]
    for record in records:
        if record["batch"] in learned:
            record["times"] = {**record["times"], "modelled": learned[record["batch"]]}
    return records


def review_queues(lake: Lake, project: Project) -> pa.Table:
    """Name, time of making and of the first answer of the review queues that are to be answered (:data:`QUEUES`).

    Of mined queues only the newest of each kind waits, and none that is a random control.
    """
    made = {
        entry.key.rpartition("/")[2].removesuffix(".parquet"): entry.modified
        for entry in lake.store.entries(f"queues/{project.dataset}")
        if entry.key.endswith(".parquet")
    }
    reviewed: dict[str, float] = {}
    for review in lake.reviews(project.dataset):
        for queue in review.queues:
            reviewed[queue] = min(reviewed.get(queue, review.time), review.time)
    newest: dict[str, str] = {}
    for name in sorted(made, key=lambda q: made[q]):
        kind = name.rpartition("-")[0] or name
        newest[name if kind.startswith(RELABELS) else kind] = name
    rows = [
        {"name": name, "made": made[name], "reviewed": reviewed.get(name)}
        for kind, name in newest.items()
        if kind != RANDOM
    ]
    return pa.Table.from_pylist(rows, schema=QUEUES)
