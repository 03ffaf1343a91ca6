"""Admission: the model-free checks of one landed batch. Validity and contradictory labels block; drift never does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from sevenfold.quality import suite, validity, variety, velocity, veracity, volatility
from sevenfold.quality.policy import Policy, apply_suppressions
from sevenfold.quality.verdict import Verdict, blocks
from sevenfold.storage.progress import Progress, silent

__all__ = ["admit", "blocks"]


def admit(
    rows: pa.Table,
    properties: pa.Table,
    quarantine: pa.Table,
    record: Mapping[str, Any],
    *,
    now: float,
    policy: Policy | None = None,
    classes: Sequence[str] | None = None,
    reference_rows: pa.Table | None = None,
    reference_properties: pa.Table | None = None,
    reference: str | None = None,
    suite_path: str | Path | None = None,
    docs_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> list[Verdict]:
    """Judge a landed batch without a model; :func:`blocks` of the answer says whether it may go on.

    Parameters
    ----------
    rows : the batch's landed samples (``lake.batch_rows``).
    properties : id and the measured float columns of the same samples (``lake.batch_properties``).
    quarantine : the batch's quarantine (path, reason, ...).
    record : the batch record as a mapping: batch, status, counts, reasons, times, seconds
        (``dataclasses.asdict(lake.batch(...))``).
    now : unix time, from the caller's clock; suppressions and Data Docs read it.
    policy : the thresholds; the defaults for None.
    classes : the dataset's classes; None or empty when they are not fixed yet.
    reference_rows, reference_properties, reference : samples and properties of the pinned version and its name;
        without them drift is not measurable.
    suite_path : the Great Expectations suite; the default one for None.
    docs_dir : where Data Docs are built; None builds none.
    """
    policy, progress = policy or Policy(), progress or silent
    subject = str(record["batch"])
    known = list(classes) if classes else None
    name = reference or "the reference"
    checks = [
        ("validity", lambda: _validity(rows, quarantine, record, policy, known)),
        (
            "the expectation suite",
            lambda: [
                suite.validate(rows, properties, subject=subject, suite_path=suite_path, docs_dir=docs_dir, at=now)
            ],
        ),
        ("variety", lambda: _variety(rows, record, policy, known, reference_rows, reference)),
        (
            "veracity",
            lambda: [veracity.contradictory(rows, quarantine, subject=subject, reference_rows=reference_rows)],
        ),
        (
            "volatility",
            lambda: drift(rows, properties, reference_rows, reference_properties, subject, name, policy),
        ),
        (
            "velocity",
            lambda: [
                velocity.ingest_rate(record, subject=subject, policy=policy.velocity),
                velocity.freshness([record], subject=subject, policy=policy.velocity),
            ],
        ),
    ]
    return carry_out(checks, policy, now, progress)


def carry_out(
    checks: Sequence[tuple[str, Callable[[], list[Verdict]]]], policy: Policy, now: float, progress: Progress
) -> list[Verdict]:
    """Run named groups of checks in order, reporting each, and apply the policy's suppressions as of `now`."""
    verdicts: list[Verdict] = []
    for done, (what, check) in enumerate(checks):
        progress(done, len(checks), what)
        verdicts += check()
    progress(len(checks), len(checks), "done")
    return apply_suppressions(verdicts, policy, today=day(now))


def drift(
    rows: pa.Table,
    properties: pa.Table,
    reference_rows: pa.Table | None,
    reference_properties: pa.Table | None,
    subject: str,
    reference: str,
    policy: Policy,
) -> list[Verdict]:
    """Property drift and label shift; an absent reference is judged as an empty one: not measurable."""
    return [
        volatility.property_drift(
            properties,
            properties.slice(0, 0) if reference_properties is None else reference_properties,
            subject=subject,
            reference=reference,
            policy=policy.volatility,
        ),
        volatility.label_shift(
            rows,
            rows.slice(0, 0) if reference_rows is None else reference_rows,
            subject=subject,
            reference=reference,
            policy=policy.volatility,
        ),
    ]


def day(now: float) -> date:
    """The UTC day of a unix time."""
    return datetime.fromtimestamp(now, UTC).date()


def _validity(
    rows: pa.Table,
    quarantine: pa.Table,
    record: Mapping[str, Any],
    policy: Policy,
    classes: Sequence[str] | None,
) -> list[Verdict]:
    subject = str(record["batch"])
    return [
        validity.reconciled(rows, quarantine, record, subject=subject),
        validity.rejected_share(quarantine, record, subject=subject, policy=policy.validity),
        validity.invalid_share(rows, subject=subject, policy=policy.validity, classes=classes),
    ]


def _variety(
    rows: pa.Table,
    record: Mapping[str, Any],
    policy: Policy,
    classes: Sequence[str] | None,
    reference_rows: pa.Table | None,
    reference: str | None,
) -> list[Verdict]:
    subject, aliases = str(record["batch"]), int(record["counts"].get("aliases", 0))
    return [
        variety.effective_classes(
            rows, subject=subject, policy=policy.variety, reference_rows=reference_rows, reference=reference
        ),
        variety.balance(rows, subject=subject, policy=policy.variety, classes=classes),
        variety.duplicate_share(rows, subject=subject, policy=policy.variety, aliases=aliases),
    ]
