"""Mining a version: three review queues from one run's out-of-sample predictions, stored under the version's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.assets.scored import scored
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project
from sevenfold.storage.records import Version

if TYPE_CHECKING:
    from sevenfold.quality.label_noise import LabelNoise
    from sevenfold.quality.labels import JudgedLabels

SUSPECTED, HARD, RANDOM = "suspected", "hard", "random"
"""The queues of a version are named `suspected-v1`, `hard-v1` and `random-v1`."""


def mine(
    lake: Lake,
    project: Project,
    ref: str = "main",
    producer: str | None = None,
    size: int = 100,
    seed: int = 0,
    *,
    batches: Sequence[str] | None = None,
) -> dict[str, pa.Table]:
    """Mine a version and store its queues; returns them (index.QUEUE) by name, in the order suspected, hard, random.

    Parameters
    ----------
    producer : the run whose predictions are used; the newest that scored this version out of sample when None.
    size : rows of the hard queue and of its random control, which end where the pool does; and the most suspected
        labels kept. That queue holds the findings of the verdict `label_errors`, the worst first, and a control of a
        tenth is added to it.
    batches : only these batches' pool is mined for the hard and random queues (None: all).

    Raises SevenfoldError when nothing scored the version.
    """
    from sevenfold.training.mine import hard_queue, random_queue, suspected_labels

    version, run, predictions, judged = _judged(lake, project, ref, producer)
    samples = lake.samples_of(version.content_id)
    pool = samples if batches is None else samples.filter(pc.is_in(samples["batch"], pa.array(batches, pa.string())))
    queues = {
        SUSPECTED: suspected_labels(
            judged.table, judged.cut, samples, content_id=version.content_id, producer=run, limit=size, seed=seed
        ),
        HARD: hard_queue(predictions, pool, size, producer=run, seed=seed),
        RANDOM: random_queue(predictions, pool, size, producer=run, seed=seed),
    }
    named = {f"{kind}-{version.name}": table for kind, table in queues.items()}
    for name, table in named.items():
        lake.write_queue(project.dataset, name, table)
    return named


def label_errors(
    lake: Lake, project: Project, ref: str = "main", producer: str | None = None
) -> tuple[str, LabelNoise]:
    """(the run judged by, how many labels of the train and val splits are likely wrong), for a scored version."""
    _, run, _, judged = _judged(lake, project, ref, producer)
    return run, judged.noise


def queue_names(lake: Lake, project: Project, version: Version | None = None) -> list[str]:
    """The stored queues of the dataset, or of one version, by name."""
    names = lake.queues(project.dataset)
    return [n for n in names if version is None or n.endswith(f"-{version.name}")]


def _judged(
    lake: Lake, project: Project, ref: str, producer: str | None
) -> tuple[Version, str, pa.Table, JudgedLabels]:
    """The version, the run, its predictions, and quality's judgement of the labels: the same as the verdict's."""
    from sevenfold.quality.labels import judge_labels

    version, run, predictions = _scored(lake, project, ref, producer)
    samples = lake.samples_of(version.content_id)
    return version, run, predictions, judge_labels(predictions, samples, lake.manifest(version.content_id).classes)


def _scored(lake: Lake, project: Project, ref: str, producer: str | None) -> tuple[Version, str, pa.Table]:
    version = lake.version(project.dataset, ref)
    found = scored(lake, version, producer)
    if found is None or not pc.any(pc.greater_equal(found[1]["fold"], 0)).as_py():  # a training run scores no fold
        raise SevenfoldError(
            f"no run has scored {version.name}",
            where=f"{lake.store.url}/predictions",
            expected="out-of-sample predictions of this version",
            do=f"run `sevenfold score {version.name}` first",
        )
    return version, *found
