"""The built-in checks by name: which way is worse, and what each asks in a sentence.

Baselines read the first (quality/baseline.py): whether a larger or a smaller statistic is worse (the effect, where a
verdict has one); None where the number has no better side, or means now one thing and now another. SARIF shows the
second as a rule's help. Your own check says both itself: ``Check(..., worse="larger")``, its function's docstring.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from sevenfold.quality.context import Check

Worse = Literal["larger", "smaller"]

CHECKS: dict[str, tuple[Worse | None, str]] = {
    "validity.reconciled": ("larger", "Is every input a sample, an alias or in quarantine?"),
    "validity.rejected_share": ("larger", "How large a share of the inputs went to quarantine?"),
    "validity.invalid_share": ("larger", "Do the admitted samples obey the rules of form, labels and keys?"),
    "validity.suite": ("larger", "Do the expectations of the suite hold: schema, nulls, sets and ranges?"),
    "validity.columns": ("larger", "Are your own columns whole, and of the kind they were?"),
    "validity.captions": ("larger", "Can the captions be read?"),
    "variety.effective_classes": ("smaller", "Over how many classes are the samples effectively spread?"),
    "variety.balance": ("smaller", "How rare is the rarest class beside the commonest?"),
    "variety.duplicate_share": ("larger", "How many samples repeat the pixels of another?"),
    "variety.near_duplicates": ("larger", "How many samples nearly repeat another of their split?"),
    "variety.smallest_slice": ("smaller", "Has every class enough samples in every split?"),
    "variety.metadata_slices": ("smaller", "Has every value of your own columns enough samples?"),
    "variety.vendi": ("smaller", "How many different samples are there effectively?"),
    "variety.cluster_coverage": ("smaller", "How much of the reference's variety is reached?"),
    "variety.foreign_samples": ("larger", "How many new samples are like none of the reference's?"),
    "variety.odd_images": ("larger", "Which images are unlike the others in light, sharpness, size or shape?"),
    "variety.columns": ("larger", "Do your own columns vary?"),
    "variety.captions": ("larger", "How often are captions repeated?"),
    "veracity.contradictory_labels": ("larger", "Do equal pictures carry different labels?"),
    "veracity.cross_split_duplicates": ("larger", "Is a picture of val or test in another split too?"),
    "veracity.label_errors": ("larger", "How many labels are probably wrong?"),
    "veracity.annotators": ("smaller", "Do the people who label agree?"),
    "value.selection_gain": ("smaller", "Did the chosen samples bring more than as many random ones?"),
    "value.sample_value": ("larger", "Which training samples do harm, by kNN-Shapley?"),
    "value.dynamics": ("larger", "Which samples were never learned?"),
    "volume.testable_slices": ("larger", "Can the accuracy of every class be told from the test split?"),
    "volume.learning_curve": (None, "What would more labels bring, and how many does the target need?"),
    "volume.forecast_score": ("larger", "Did the newest forecast come true?"),
    "volatility.property_drift": ("larger", "Do the measured properties look as the reference's?"),
    "volatility.label_shift": ("larger", "Do the labels come in the reference's shares?"),
    "volatility.output_drift": ("larger", "Does a model answer as it does on the reference?"),
    "volatility.metadata_drift": ("larger", "Do your own columns look as the reference's?"),
    "volatility.embedding_mmd": ("larger", "Do the embeddings lie as the reference's do (kernel two-sample test)?"),
    "volatility.embedding_classifier": ("larger", "Can a classifier tell the embeddings from the reference's?"),
    "volatility.label_change": ("larger", "How many samples have another label than in the reference?"),
    "volatility.accuracy_by_age": ("larger", "Is the model worse on the newest samples?"),
    "velocity.ingest_rate": ("smaller", "How many inputs are ingested per second?"),
    "velocity.check_rate": ("smaller", "How many samples are checked per second?"),
    "velocity.shard_rate": ("smaller", "How many samples are sharded per second?"),
    "velocity.freshness": ("larger", "How old is the newest input when it lands?"),
    "velocity.lead_time": ("larger", "How long from landing to the first model trained on it?"),
    "velocity.backlog": ("larger", "How many batches wait to be committed?"),
    "velocity.review_age": ("larger", "How long has the oldest review queue waited?"),
    "velocity.loader_idle": ("larger", "How much of the training time is spent waiting for data?"),
    "velocity.arrivals": (None, "Does data arrive as it used to?"),
    "velocity.capacity": (None, "Does more arrive than can be taken in?"),
}


def worse(checks: Iterable[Check]) -> dict[str, Worse | None]:
    """`V.check` -> which way is worse, of all that is in the table and of the checks that say it themselves."""
    return {key: way for key, (way, _) in CHECKS.items()} | {c.key: c.worse for c in checks if c.worse is not None}


def question(check: Check) -> str:
    """What a check asks: from the table, else the first line of its function's docstring."""
    if check.key in CHECKS:
        return CHECKS[check.key][1]
    return (check.run.__doc__ or "").strip().partition("\n")[0]
