"""Which way is worse: for each built-in check, whether a larger or a smaller statistic (or effect) is.

Baselines read it (quality/baseline.py). None: the number has no better side, or means now one thing and now another;
then only results and findings are compared. A check of your own says it itself: ``Check(..., worse="larger")``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from sevenfold.quality.context import Check

WORSE: dict[str, Literal["larger", "smaller"] | None] = {
    "validity.reconciled": "larger",
    "validity.rejected_share": "larger",
    "validity.invalid_share": "larger",
    "validity.suite": "larger",
    "validity.columns": "larger",
    "validity.captions": "larger",
    "variety.effective_classes": "smaller",
    "variety.balance": "smaller",
    "variety.duplicate_share": "larger",
    "variety.smallest_slice": "smaller",
    "variety.metadata_slices": "smaller",
    "variety.vendi": "smaller",
    "variety.cluster_coverage": "smaller",
    "variety.foreign_samples": "larger",
    "variety.odd_images": "larger",
    "variety.columns": "larger",
    "variety.captions": "larger",
    "variety.near_duplicates": "larger",
    "veracity.contradictory_labels": "larger",
    "veracity.cross_split_duplicates": "larger",
    "veracity.label_errors": "larger",
    "veracity.annotators": "smaller",
    "value.selection_gain": "smaller",
    "value.sample_value": "larger",
    "value.dynamics": "larger",
    "volume.testable_slices": "larger",
    "volume.learning_curve": None,
    "volume.forecast_score": "larger",
    "volatility.property_drift": "larger",
    "volatility.label_shift": "larger",
    "volatility.output_drift": "larger",
    "volatility.metadata_drift": "larger",
    "volatility.embedding_mmd": "larger",
    "volatility.embedding_classifier": "larger",
    "volatility.label_change": "larger",
    "volatility.accuracy_by_age": "larger",
    "velocity.ingest_rate": "smaller",
    "velocity.check_rate": "smaller",
    "velocity.shard_rate": "smaller",
    "velocity.freshness": "larger",
    "velocity.lead_time": "larger",
    "velocity.backlog": "larger",
    "velocity.review_queues": "larger",
    "velocity.loader_idle": "larger",
    "velocity.arrivals": None,
    "velocity.capacity": None,
}


def directed(check: Check) -> Check:
    """The check with its direction of worse, from the table where it does not say one itself."""
    return check if check.worse is not None else replace(check, worse=WORSE.get(check.key))
