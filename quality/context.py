"""The context: everything a check may look at, about one batch or one version; and what a check is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from sevenfold.quality.keys64 import among
from sevenfold.quality.policy import Policy
from sevenfold.quality.verdict import VS, Verdict
from sevenfold.storage.embeddings import Embeddings

if TYPE_CHECKING:
    import numpy as np

    from sevenfold.quality.twins_describe import Described

Kind = Literal["batch", "version"]
ReadPixels = Callable[[Sequence[str]], "np.ndarray"]
"""ids -> uint8 [n, h, w, 3], one common shape for all (resized if the samples differ), in the order asked."""


@dataclass(frozen=True)
class Gain:
    """Held-out accuracies (0..1) of two selections over the same seeds in the same order."""

    chosen: Sequence[float]
    control: Sequence[float]
    reference: str
    what: str = "mined"


@dataclass(frozen=True)
class Curve:
    """Training sizes and held-out errors (0..1), one entry per run."""

    sizes: Sequence[float]
    errors: Sequence[float]


@dataclass(frozen=True)
class Context:
    """What is judged, and everything known about it. What there is none of is None or empty.

    Parameters
    ----------
    subject, kind : a batch id or a version such as ``v3``.
    rows : the samples (``lake.batch_rows`` or ``lake.samples``).
    properties : id and the measured float columns of the same samples.
    now : unix time, from the caller's clock.
    classes : the dataset's classes, in the order of ``predictions.probs``; empty while they are not fixed.
    metadata : id and the user's own columns.
    quarantine, record : of a batch: its quarantine table, and its record as a mapping.
    records : all batch records of the dataset, as mappings.
    predictions : predictions by models that were not trained on the sample's label.
    embeddings : vectors of the samples, or of some of them.
    dynamics : id and el2n, forgetting, aum, learned (see training/dynamics.py).
    annotations : id, annotator, label: several labels of one sample.
    steps : per-step times of a training run.
    queues : name, made, reviewed (unix times) of the review queues that are to be answered.
    gain, curve : paired accuracies of two selections; runs on subsets.
    forecasts : forecasts made about earlier versions, as mappings.
    read_pixels : reads pictures; None where there are none to read.
    described : descriptors of the rows' pictures, in their order, where the lake keeps them (see twins_describe).
    suite_path, docs_dir : the Great Expectations suite (None: the default one); where Data Docs are built (None: not).
    reference : the pinned version, as a context of its own.
    """

    subject: str
    kind: Kind
    rows: pa.Table
    properties: pa.Table
    now: float
    policy: Policy = field(default_factory=Policy)
    classes: tuple[str, ...] = ()
    metadata: pa.Table | None = None
    quarantine: pa.Table | None = None
    record: Mapping[str, Any] | None = None
    records: Sequence[Mapping[str, Any]] = ()
    predictions: pa.Table | None = None
    embeddings: Embeddings | None = None
    dynamics: pa.Table | None = None
    annotations: pa.Table | None = None
    steps: pa.Table | None = None
    queues: pa.Table | None = None
    gain: Gain | None = None
    curve: Curve | None = None
    forecasts: Sequence[Mapping[str, Any]] = ()
    read_pixels: ReadPixels | None = None
    described: Described | None = None
    suite_path: Path | None = None
    docs_dir: Path | None = None
    reference: Context | None = None

    @property
    def reference_name(self) -> str | None:
        """What the reference is called; None without one."""
        return self.reference.subject if self.reference else None

    def fresh(self, name: str, columns: Sequence[str] | None = None) -> pa.Table | None:
        """The part of a table (``rows``, ``properties``, ``metadata``, ``predictions`` ...) about samples that the
        reference does not have: what drift is asked about. Without a reference: all of it.

        `columns`: only these, with the id among them. A copy is what costs at 10^7 rows: there is none where all are
        new.
        """
        table: pa.Table | None = getattr(self, name)
        if table is None:
            return None
        table = table.select(columns) if columns else table
        if self.reference is None:
            return table
        beside = table["id"].equals(self.rows["id"])
        old = self._old if beside else among(table["id"], self.reference.rows["id"])
        return table.filter(pa.array(~old)) if old.any() else table

    @cached_property
    def fresh_embeddings(self) -> Embeddings | None:
        """The embeddings of samples that the reference does not have."""
        found = self.embeddings
        if found is None or self.reference is None:
            return found
        old = among(pa.chunked_array([found.ids]), self.reference.rows["id"])
        return found.take(found.ids.filter(pa.array(~old))) if old.any() else found

    @cached_property
    def _old(self) -> np.ndarray:
        """bool [n]: the reference has this row's sample too."""
        known = self.reference.rows["id"] if self.reference else self.rows["id"].slice(0, 0)
        return among(self.rows["id"], known)


@dataclass(frozen=True)
class Check:
    """A check: `run` looks at a context and answers with a verdict or several, of the V and under the name given here.

    `kinds` says what it is for; on other subjects it is not run. `worse` says whether a larger or a smaller statistic
    (the effect, where its verdicts have one) is worse, for baselines; None: neither.
    """

    v: str
    name: str
    run: Callable[[Context], Verdict | Sequence[Verdict]]
    kinds: tuple[Kind, ...] = ("batch", "version")
    worse: Literal["larger", "smaller"] | None = None

    def __post_init__(self) -> None:
        if self.v not in VS:
            raise ValueError(f"v is {self.v!r}; expected one of {', '.join(VS)}")
        if not re.fullmatch("[a-z0-9_]+", self.name):
            raise ValueError(f"a check's name is lower-case letters, digits and underscores, not {self.name!r}")

    @property
    def key(self) -> str:
        """`v.name`, as the policy and the reports call it."""
        return f"{self.v}.{self.name}"
