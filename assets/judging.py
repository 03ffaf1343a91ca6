"""Judging: quality's checks put together with what the lake holds; Dagster and the command line run the same code."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.assets import forecasting, twinning
from sevenfold.assets.embedding import dynamics_of, vectors_of
from sevenfold.assets.runs import mined_gain, newest_steps
from sevenfold.assets.scored import scored
from sevenfold.assets.timing import review_queues, timed_records
from sevenfold.quality.checks import judge, names
from sevenfold.quality.context import Context, Curve, Gain, ReadPixels
from sevenfold.quality.policy import Policy, load_policy
from sevenfold.quality.predictions import out_of_sample
from sevenfold.quality.verdict import Verdict, blocks, to_table
from sevenfold.storage import embeddings
from sevenfold.storage.lake import Lake
from sevenfold.storage.progress import Progress
from sevenfold.storage.project import Project
from sevenfold.storage.records import Version

if TYPE_CHECKING:
    import numpy as np


PREVIEW = 64
"""Pictures of different sizes are compared at this many pixels a side."""


def judge_batch(
    lake: Lake,
    project: Project,
    batch: str,
    clock: Callable[[], float] = time.time,
    *,
    policy: Policy | None = None,
    progress: Progress | None = None,
) -> list[Verdict]:
    """Run the admission checks of one landed batch, store their verdicts and set its status: admitted or rejected.

    A batch with a check that crashed stays as it is: nothing is known about it. The reference is the newest version on
    main without this batch. `policy`: instead of the project's file.
    """
    started = time.perf_counter()
    context = batch_context(lake, project, batch, now=clock(), policy=policy)
    verdicts = judge(context, progress=progress)
    took = {"check": time.perf_counter() - started}
    lake.append_verdicts(project.dataset, batch, to_table(verdicts, at=context.now))
    if blocks(verdicts):
        lake.set_status(project.dataset, batch, "rejected", seconds=took, clock=clock)
    elif not any(v.result == "crashed" for v in verdicts):
        lake.set_status(project.dataset, batch, "admitted", seconds=took, clock=clock)
    return verdicts


def judge_version(
    lake: Lake,
    project: Project,
    ref: str = "main",
    producer: str | None = None,
    *,
    clock: Callable[[], float] = time.time,
    policy: Policy | None = None,
    gain: Gain | None = None,
    curve: Curve | None = None,
    progress: Progress | None = None,
) -> list[Verdict]:
    """Run the checks of a version and store their verdicts; model-based ones when a run has scored it.

    Parameters
    ----------
    producer : the run whose out-of-sample predictions are used (None: the newest there is).
    gain : accuracies of a mined selection beside its random control; found among the trained models when None.
    curve : training sizes and errors, for the learning curve.
    """
    context = version_context(lake, project, ref, producer, now=clock(), policy=policy, gain=gain, curve=curve)
    verdicts = judge(context, progress=progress)
    lake.append_verdicts(project.dataset, context.subject, to_table(verdicts, at=context.now))
    return verdicts


def batch_context(lake: Lake, project: Project, batch: str, *, now: float, policy: Policy | None = None) -> Context:
    """What the admission checks look at: the landed rows, and the newest version on main without them."""
    record = lake.batch(project.dataset, batch)
    reference = _reference_of_batch(lake, project.dataset, batch)
    policy = policy or policy_of(project)
    return Context(
        subject=batch,
        kind="batch",
        rows=lake.batch_rows(project.dataset, batch),
        properties=lake.batch_properties(project.dataset, batch),
        now=now,
        policy=policy,
        classes=tuple(project.classes or ()),
        metadata=lake.batch_metadata(project.dataset, batch),
        annotations=lake.batch_annotations(project.dataset, batch),
        quarantine=lake.quarantine(project.dataset, batch),
        record=dataclasses.asdict(record),
        suite_path=_file(project, "suite"),
        docs_dir=docs_of(project, batch),
        reference=_reference(lake, project, reference, now, policy) if reference else None,
    )


def version_context(
    lake: Lake,
    project: Project,
    ref: str = "main",
    producer: str | None = None,
    *,
    now: float,
    policy: Policy | None = None,
    gain: Gain | None = None,
    curve: Curve | None = None,
) -> Context:
    """What the checks of a version look at; its reference is its first parent. Parameters: :func:`judge_version`."""
    version = lake.version(project.dataset, ref)
    samples = lake.samples_of(version.content_id)
    parent = lake.version(project.dataset, f"v{version.parents[0]}") if version.parents else None
    policy = policy or policy_of(project)
    found = scored(lake, version, producer)
    predictions = out_of_sample(found[1] if found else None)
    reference = _reference(lake, project, parent, now, policy) if parent else None
    vectors: embeddings.Embeddings | None
    if reference is None:
        (vectors,) = vectors_of(lake, samples["id"])
    else:
        vectors, known = vectors_of(lake, samples["id"], reference.rows["id"])
        before = predictions and predictions.filter(pc.is_in(predictions["id"], reference.rows["id"].combine_chunks()))
        reference = dataclasses.replace(
            reference, predictions=before if before and before.num_rows else None, embeddings=known
        )
    return Context(
        subject=version.name,
        kind="version",
        rows=samples,
        properties=lake.properties(project.dataset, version.name),
        now=now,
        policy=policy,
        classes=tuple(lake.manifest(version.content_id).classes),
        metadata=lake.metadata(project.dataset, version.name),
        annotations=lake.annotations(project.dataset, version.name),
        records=timed_records(lake, project),
        queues=review_queues(lake, project),
        predictions=predictions,
        embeddings=vectors,
        dynamics=dynamics_of(lake, samples),
        steps=newest_steps(lake, version.content_id),
        gain=gain or mined_gain(lake, project, version),
        curve=curve or forecasting.curve_of(lake, project, version),
        forecasts=forecasting.outcomes(lake, project, version),
        read_pixels=pixel_reader(lake, samples),
        described=twinning.described(lake, project.dataset, samples).described,
        suite_path=_file(project, "suite"),
        reference=reference,
    )


def _reference(lake: Lake, project: Project, version: Version, now: float, policy: Policy) -> Context:
    """A version as something to compare with."""
    return Context(
        subject=version.name,
        kind="version",
        rows=lake.samples_of(version.content_id),
        properties=lake.properties(project.dataset, version.name),
        now=now,
        policy=policy,
        classes=tuple(lake.manifest(version.content_id).classes),
        metadata=lake.metadata(project.dataset, version.name),
    )


def policy_of(project: Project) -> Policy:
    """The project's policy; the defaults when it has no policy file and names none."""
    return load_policy(_file(project, "policy"), names=names())


def docs_of(project: Project, subject: str) -> Path:
    """Where the Data Docs about a subject are built: beside the project's settings, never in the lake."""
    return project.home / "data-docs" / project.dataset / subject


class Pictures(Protocol):
    """Where pictures are read: a lake, or a source in none."""

    def read_images(self, samples: pa.Table) -> list[bytes]:
        """The image files of some samples, in their order."""


def pixel_reader(lake: Pictures, samples: pa.Table) -> ReadPixels:
    """ids -> uint8 [n, h, w, 3]: the version's pictures, brought to one size when they are not of one already."""
    sizes = samples.select(["width", "height"]).group_by(["width", "height"]).aggregate([])
    one = sizes.num_rows == 1 and max(sizes["width"][0].as_py(), sizes["height"][0].as_py()) <= PREVIEW
    size = (sizes["width"][0].as_py(), sizes["height"][0].as_py()) if one else (PREVIEW, PREVIEW)

    def read(ids: Sequence[str]) -> np.ndarray:
        import numpy as np
        from PIL import Image

        from sevenfold.storage.decode import accepted_pixels

        place = pc.index_in(pa.array(ids, pa.string()), value_set=samples["id"].combine_chunks())
        pixels = np.zeros((len(ids), size[1], size[0], 3), np.uint8)
        for i, (key, data) in enumerate(zip(ids, lake.read_images(samples.take(place)), strict=True)):
            picture = accepted_pixels(data, key, channels=3)
            if picture.shape[:2] != pixels.shape[1:3]:
                picture = np.asarray(Image.fromarray(picture).resize(size))
            pixels[i] = picture
        return pixels

    return read


def _file(project: Project, name: str) -> Path | None:
    """A file that the settings name; None for the default name while there is no such file."""
    path = project.path(name)
    chosen = name in project.model_fields_set
    return path if chosen or path.exists() else None


def _reference_of_batch(lake: Lake, dataset: str, batch: str) -> Version | None:
    """The newest version on main that does not hold the batch."""
    number = lake.refs(dataset, "branches").get("main")
    while number is not None:
        version = lake.version(dataset, f"v{number}")
        if batch not in lake.manifest(version.content_id).batch_ids:
            return version
        number = version.parents[0] if version.parents else None
    return None
