"""Version checks: the seven Vs of a committed version, with a model's out-of-sample predictions where there are any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality import validity, value, variety, velocity, veracity, volatility, volume
from sevenfold.quality.admission import carry_out, drift
from sevenfold.quality.leaks import ReadPixels
from sevenfold.quality.policy import Policy
from sevenfold.quality.predictions import out_of_sample, probabilities
from sevenfold.quality.verdict import Verdict
from sevenfold.storage.progress import Progress, silent


@dataclass(frozen=True)
class Gain:
    """Held-out accuracies of two selections over the same seeds in the same order."""

    chosen: Sequence[float]
    control: Sequence[float]
    reference: str
    what: str = "mined"


@dataclass(frozen=True)
class Curve:
    """Training sizes and held-out errors (0..1), one entry per run."""

    sizes: Sequence[float]
    errors: Sequence[float]


def judge(
    samples: pa.Table,
    properties: pa.Table,
    *,
    subject: str,
    now: float,
    classes: Sequence[str],
    policy: Policy | None = None,
    predictions: pa.Table | None = None,
    reference_predictions: pa.Table | None = None,
    steps: pa.Table | None = None,
    records: Sequence[Mapping[str, Any]] = (),
    reference_samples: pa.Table | None = None,
    reference_properties: pa.Table | None = None,
    reference: str | None = None,
    read_pixels: ReadPixels | None = None,
    gain: Gain | None = None,
    curve: Curve | None = None,
    progress: Progress | None = None,
) -> list[Verdict]:
    """Judge a version by all seven Vs; what lacks its input says so as ``not_measurable``, never silently.

    Parameters
    ----------
    samples, properties : ``lake.samples(dataset, ref)`` and ``lake.properties(dataset, ref)``.
    subject : the version's name, such as ``v3``.
    now : unix time, from the caller's clock.
    classes : the manifest's classes, in the order of ``predictions.probs``.
    predictions : out-of-fold predictions; rows with ``in_sample`` true are left out.
    reference_predictions : the same model's out-of-sample predictions on the reference, for output drift.
    steps : per-step times of a training run (see :func:`sevenfold.quality.velocity.loader_idle`).
    records : batch records as mappings, for freshness and backlog.
    reference_samples, reference_properties, reference : the pinned version; only samples that are new since it are
        compared with it.
    read_pixels : ids -> uint8 [n, ...] of one shape; without it near-duplicates across splits stay candidates.
    gain, curve : paired accuracies of two selections; runs on subsets.
    """
    policy, progress = policy or Policy(), progress or silent
    oof = out_of_sample(predictions)
    checks: list[tuple[str, Callable[[], list[Verdict]]]] = [
        (
            "validity",
            lambda: [validity.invalid_share(samples, subject=subject, policy=policy.validity, classes=classes)],
        ),
        ("variety", lambda: _variety(samples, subject, policy, classes, reference_samples, reference)),
        (
            "veracity",
            lambda: [
                veracity.contradictory(samples, None, subject=subject),
                veracity.cross_split_duplicates(
                    samples, subject=subject, policy=policy.veracity, read_pixels=read_pixels
                ),
                veracity.label_errors_of(oof, subject=subject, policy=policy.veracity, classes=classes),
            ],
        ),
        ("value", lambda: [_gain(gain, subject, policy)]),
        ("volume", lambda: _volume(samples, subject, policy, classes, curve)),
        (
            "volatility",
            lambda: _volatility(
                samples,
                properties,
                oof,
                out_of_sample(reference_predictions),
                reference_samples,
                reference_properties,
                subject,
                reference,
                policy,
                classes,
            ),
        ),
        ("velocity", lambda: _velocity(records, steps, now, subject, policy)),
    ]
    return carry_out(checks, policy, now, progress)


def _variety(
    samples: pa.Table,
    subject: str,
    policy: Policy,
    classes: Sequence[str],
    reference_samples: pa.Table | None,
    reference: str | None,
) -> list[Verdict]:
    limits = policy.variety
    return [
        variety.effective_classes(
            samples, subject=subject, policy=limits, reference_rows=reference_samples, reference=reference
        ),
        variety.balance(samples, subject=subject, policy=limits, classes=classes),
        variety.duplicate_share(samples, subject=subject, policy=limits),
        variety.smallest_slice(samples, subject=subject, policy=limits, classes=classes),
    ]


def _gain(gain: Gain | None, subject: str, policy: Policy) -> Verdict:
    if gain is None:
        return _missing(
            "value",
            "selection_gain",
            subject,
            "No pair of selections was trained.",
            "Mine a queue, and train its version and the random control's with the same seeds.",
        )
    return value.selection_gain(
        gain.chosen, gain.control, subject=subject, reference=gain.reference, policy=policy.value, what=gain.what
    )


def _volume(
    samples: pa.Table, subject: str, policy: Policy, classes: Sequence[str], curve: Curve | None
) -> list[Verdict]:
    sizes, errors = (curve.sizes, curve.errors) if curve else ((), ())
    return [
        volume.slice_precision(samples, subject=subject, policy=policy.volume, classes=classes),
        volume.learning_curve(sizes, errors, subject=subject, policy=policy.volume),
    ]


def _volatility(
    samples: pa.Table,
    properties: pa.Table,
    oof: pa.Table | None,
    reference_oof: pa.Table | None,
    reference_samples: pa.Table | None,
    reference_properties: pa.Table | None,
    subject: str,
    reference: str | None,
    policy: Policy,
    classes: Sequence[str],
) -> list[Verdict]:
    name = reference or "the reference"
    if reference_samples is not None:
        samples, properties = _new(samples, reference_samples), _new(properties, reference_samples)
    verdicts = drift(samples, properties, reference_samples, reference_properties, subject, name, policy)
    if oof is None or reference_oof is None:
        return [
            *verdicts,
            _missing(
                "volatility",
                "output_drift",
                subject,
                "One model's out-of-sample outputs on both sides are needed.",
                "Score this version and its reference with the same model.",
            ),
        ]
    oof = _new(oof, reference_oof)
    return [
        *verdicts,
        volatility.output_drift(
            probabilities(oof, classes),
            oof["id"].to_pylist(),
            probabilities(reference_oof, classes),
            reference_oof["id"].to_pylist(),
            classes=classes,
            subject=subject,
            reference=name,
            policy=policy.volatility,
        ),
    ]


def _velocity(
    records: Sequence[Mapping[str, Any]], steps: pa.Table | None, now: float, subject: str, policy: Policy
) -> list[Verdict]:
    limits = policy.velocity
    idle = (
        _missing("velocity", "loader_idle", subject, "No training run's step times were given.", "Train this version.")
        if steps is None
        else velocity.loader_idle(steps, subject=subject, policy=limits)
    )
    return [
        velocity.freshness(records, subject=subject, policy=limits),
        velocity.backlog(records, now=now, subject=subject, policy=limits),
        idle,
    ]


def _new(table: pa.Table, reference: pa.Table) -> pa.Table:
    """The rows whose id the reference does not have."""
    return table.filter(pc.invert(pc.is_in(table["id"], reference["id"].combine_chunks())))


def _missing(v: str, check: str, subject: str, message: str, remedy: str) -> Verdict:
    return Verdict(v, check, subject, "not_measurable", message=message, remedy=remedy)
