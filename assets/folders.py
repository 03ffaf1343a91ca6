"""Judging a plain source (a folder, a zip, a table ...) that is in no lake: measured in a temporary one, then gone.

The code path is that of a landed batch. Nothing is written into the source or beside it.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from sevenfold.assets.judging import batch_context, pixel_reader
from sevenfold.quality.checks import judge, registered
from sevenfold.quality.context import Check
from sevenfold.quality.policy import Policy
from sevenfold.quality.verdict import Verdict, to_table
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.lake import Lake
from sevenfold.storage.progress import Progress
from sevenfold.storage.project import Project
from sevenfold.storage.records import Batch
from sevenfold.storage.sources import Source, open_source
from sevenfold.storage.sources.base import InputError

REFERENCE = "reference"
"""The batch that the other source becomes."""

_OF_VERSIONS = ("veracity.cross_split_duplicates",)
"""Checks of versions that a folder gets too: they need no model and no other batch."""


@dataclass(frozen=True)
class Judged:
    """What was found about a source: its verdicts, and the lake in which it is a batch for the time being."""

    verdicts: list[Verdict]
    lake: Lake
    project: Project
    batch: str


@contextmanager
def temporary_project(project: Project | None) -> Iterator[Project]:
    """The project, or one of defaults, with a lake in a temporary folder that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="sevenfold-check-") as folder:
        lake = str(Path(folder) / "lake")
        if project is None:
            yield Project(folder=Path(folder), lake=lake, dataset="main")
        else:
            yield project.model_copy(update={"lake": lake, "dataset": "main"})


@contextmanager
def judged_source(
    source: str,
    project: Project | None = None,
    *,
    reference: str | None = None,
    kind: str | None = None,
    policy: Policy | None = None,
    clock: Callable[[], float] = time.time,
    progress: Progress | None = None,
) -> Iterator[Judged]:
    """Run the checks of a batch, and those of a version that need no model, on a source in no lake.

    At the end of the context the temporary lake is gone.

    Velocity is left out: when the files of a folder were written says nothing about how fast data arrives.

    Parameters
    ----------
    project : whose policy, suite, classes and workers count; None takes the defaults.
    reference : another source to compare with: for drift, and for falls in variety.
    policy : instead of the project's.

    Raises SevenfoldError for a source that cannot be opened or has no inputs.
    """
    opened = open_source(source, kind)
    with temporary_project(project) as temporary:
        lake = temporary.create_lake()
        if reference is not None:
            _land(lake, temporary, open_source(reference), REFERENCE, progress)
            lake.set_status(temporary.dataset, REFERENCE, "admitted", clock=clock)
            lake.commit(temporary.dataset, message="what is compared with", progress=progress, clock=clock)
        batch = _land(lake, temporary, opened, _named(opened), progress).batch
        context = batch_context(lake, temporary, batch, now=clock(), policy=policy)
        context = replace(context, docs_dir=None, read_pixels=pixel_reader(_Pictures(opened), context.rows))
        if context.reference is not None and reference is not None:
            context = replace(context, reference=replace(context.reference, subject=Path(reference).name))
        broken = [b.verdict(batch) for b in registered()[1]]
        verdicts = [*broken, *judge(context, checks=_checks(opened), progress=progress)]
        lake.append_verdicts(temporary.dataset, batch, to_table(verdicts, at=context.now))
        yield Judged(verdicts, lake, temporary, batch)


def _named(source: Source) -> str:
    """A batch id that looks like the source's name."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", source.name.partition(".")[0]).strip("_-")[:64] or "source"
    return f"{name}-checked" if name == REFERENCE else name


def _land(lake: Lake, project: Project, source: Source, batch: str, progress: Progress | None) -> Batch:
    return lake.ingest(
        source,
        project.dataset,
        batch,
        classes=project.classes or None,
        workers=project.workers,
        accepts=project.decode,
        progress=progress,
    )[0]


def _checks(source: Source) -> list[Check]:
    """Those of a batch, without velocity; across splits only where the source itself has splits."""
    checks, _ = registered()
    split = any(i.split for i in source.inputs)
    of_versions = [replace(c, kinds=("batch",)) for c in checks if split and c.key in _OF_VERSIONS]
    return [c for c in checks if "batch" in c.kinds and c.v != "velocity"] + [
        c for c in of_versions if "batch" not in next(x for x in checks if x.key == c.key).kinds
    ]


@dataclass(frozen=True)
class _Pictures:
    """Reads the pictures of landed rows from their source."""

    source: Source

    def read_images(self, samples: pa.Table) -> list[bytes]:
        """The image files of some rows, in their order. Raises SevenfoldError for one that is gone."""
        images = []
        paths = samples["path"].to_pylist()
        for path, data in zip(paths, self.source.read_many(paths), strict=True):
            if isinstance(data, InputError):
                raise SevenfoldError(
                    f"it changed while it was checked: {data.detail}", where=path, do="run the check again"
                )
            images.append(data)
        return images
