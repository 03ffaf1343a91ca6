"""The policy file: every threshold of the seven Vs and every suppression, validated, with defaults that work."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sevenfold.quality.verdict import VS, Verdict
from sevenfold.storage.errors import SevenfoldError

SUPPRESSED = "suppressed_until"
"""The key in a suppressed verdict's thresholds; its value is the last day as a number, 20270131."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Validity(_Section):
    """Does it obey its declared form? (Schema, null and range rules live in the Great Expectations suite.)"""

    max_rejected_share: float = Field(0.01, ge=0, le=1, description="share of a batch's inputs in quarantine")
    max_invalid_share: float = Field(
        0.001, ge=0, le=1, description="share of the admitted samples that break a rule; any in a test split fails"
    )


class Variety(_Section):
    """Does it cover the world it claims?"""

    max_fall: float = Field(
        0.05, ge=0, le=1, description="warn when the effective number of classes fell by more than this share"
    )
    min_balance: float = Field(0.1, ge=0, le=1, description="warn when rarest / commonest class is below this")
    max_duplicate_share: float = Field(
        0.01, ge=0, le=1, description="warn when more samples than this repeat another's pixels"
    )
    min_slice: int = Field(385, ge=1, description="samples in each class x split; 385 tells a share within 5 points")
    required_splits: tuple[str, ...] = Field(
        (), description="splits where a slice below min_slice fails; elsewhere it warns"
    )


class Veracity(_Section):
    """Can its labels be trusted?"""

    warn_error_share: float = Field(
        0.05, ge=0, le=1, description="warn when the upper bound of the label error share exceeds this"
    )
    fail_error_share: float = Field(0.15, ge=0, le=1, description="fail when that upper bound exceeds this")
    min_n: int = Field(500, ge=1, description="out-of-fold predictions needed to estimate label errors")
    max_hash_bits: int = Field(6, ge=0, le=7, description="perceptual hashes this close are near-duplicate candidates")
    max_pixel_distance: float = Field(
        6.0, ge=0, description="candidates confirm when their mean absolute pixel difference (0..255) is at most this"
    )


class Value(_Section):
    """What does each sample or batch contribute?"""

    min_pairs: int = Field(2, ge=2, description="paired seeds needed to judge a gain")
    confidence: float = Field(0.95, gt=0, lt=1, description="of the intervals")
    neighbours: int = Field(10, ge=1, description="of the nearest-neighbour classifier that kNN-Shapley values are for")
    min_train: int = Field(200, ge=2, description="labelled training samples with a vector needed to value them")
    min_points: int = Field(100, ge=2, description="labelled val samples with a vector needed to value others by")
    max_points: int = Field(500, ge=2, description="of those at most, chosen by id hash: time grows with it")
    sample_budget: int = Field(100_000, ge=100, description="training samples valued at most, chosen by id hash")
    max_negative_share: float = Field(
        0.35,
        ge=0,
        le=1,
        description="warn when surely more of the training samples than this are worth less than nothing",
    )
    max_never_learned: float = Field(
        0.2, ge=0, le=1, description="warn when surely more of the training samples than this were never learned"
    )


class Volume(_Section):
    """Is there enough?"""

    test_split: str = Field("test", description="the split that accuracy is told on")
    max_half_width: float = Field(
        0.1, gt=0, lt=1, description="fail when a class's test accuracy cannot be told within this"
    )
    min_sizes: int = Field(5, ge=4, description="training sizes a learning curve needs")
    min_seeds: int = Field(2, ge=1, description="runs at each size a learning curve needs")
    target_error: float | None = Field(None, gt=0, lt=1, description="the error to plan for (null: no target)")
    max_samples: int | None = Field(None, ge=1, description="the label budget; warn when the target needs more")


class Volatility(_Section):
    """Is it still true? (Never blocking: a drifted batch is what the loop is for.)"""

    alpha: float = Field(0.05, gt=0, lt=1, description="false discovery rate over all tests of one check")
    min_n: int = Field(50, ge=2, description="samples needed on both sides; below it: not measurable")
    sample_budget: int = Field(2000, ge=50, description="samples compared on each side, chosen by id hash")
    warn_effect: float = Field(
        0.1, gt=0, lt=1, description="smallest effect worth a warning (KS distance, excess total variation)"
    )
    fail_effect: float = Field(0.25, gt=0, lt=1, description="effect that fails")


class Velocity(_Section):
    """Does it arrive, and reach training, in time?"""

    min_ingest_rate: float = Field(20.0, ge=0, description="inputs per second")
    min_inputs: int = Field(100, ge=1, description="inputs needed to judge that rate: starting up takes a while")
    max_freshness_seconds: float = Field(604800.0, gt=0, description="landed minus newest input (p95 over batches)")
    max_backlog_batches: int = Field(10, ge=0, description="batches landed but not committed or rejected")
    max_backlog_age_seconds: float = Field(604800.0, gt=0, description="age of the oldest of them")
    max_idle_share: float = Field(0.3, ge=0, le=1, description="share of training time spent waiting for the loader")
    min_steps: int = Field(20, ge=2, description="steps needed to judge the idle share")


class Suppression(_Section):
    """A known finding that a person has accepted until a date: a fail becomes a warning and blocks nothing."""

    check: str = Field(pattern=rf"^({'|'.join(VS)})\.[a-z_]+$", description="V.check, such as variety.balance")
    subject: str | None = Field(None, description="one batch or version; null: all")
    reviewer: str = Field(min_length=1, description="who accepted it")
    until: date = Field(description="the last day it holds")
    reason: str = Field(min_length=1, description="why")


class Policy(_Section):
    """All thresholds, a section per V."""

    validity: Validity = Validity()
    variety: Variety = Variety()
    veracity: Veracity = Veracity()
    value: Value = Value()
    volume: Volume = Volume()
    volatility: Volatility = Volatility()
    velocity: Velocity = Velocity()
    suppressions: tuple[Suppression, ...] = ()


def load_policy(path: str | Path | None = None) -> Policy:
    """The policy in a YAML file; the defaults for None, and for what the file leaves out.

    Raises
    ------
    SevenfoldError
        For a missing file, broken YAML, an unknown key (naming the nearest right one) or a value out of range.
    """
    if path is None:
        return Policy()
    import yaml

    path = Path(path)
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SevenfoldError(
            "there is no such file", where=str(path), expected="a policy file", do="write one with `sevenfold init`"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SevenfoldError(f"this is not YAML: {error}", where=str(path), expected="a policy file") from None
    try:
        return Policy.model_validate({} if raw is None else raw)
    except ValidationError as error:
        raise _explain(error, str(path)) from None


def default_policy_yaml() -> str:
    """The default policy as commented YAML, one line per threshold; it loads back to ``Policy()``."""
    lines = [
        "# The policy: every threshold of the seven Vs. What you leave out keeps its default.",
        "# Schema, null and range rules live in the Great Expectations suite, not here.",
    ]
    for name in VS:
        section = Policy.model_fields[name].annotation
        assert isinstance(section, type) and issubclass(section, BaseModel)
        lines += ["", f"{name}:  # {(section.__doc__ or '').strip().splitlines()[0]}"]
        entries = [(f"  {key}: {_plain(info.default)}", info.description) for key, info in section.model_fields.items()]
        width = max(len(entry) for entry, _ in entries)
        lines += [f"{entry.ljust(width)}  # {description}" for entry, description in entries]
    lines += [
        "",
        "# Findings a person has accepted. After `until` the entry is ignored, and the verdict says so.",
        "# - {check: variety.balance, reviewer: ada, until: 2027-01-31, reason: rare class is rare in the field}",
        "suppressions: []",
        "",
    ]
    return "\n".join(lines)


def apply_suppressions(verdicts: Iterable[Verdict], policy: Policy, *, today: date) -> list[Verdict]:
    """Soften the verdicts that a valid suppression names, and say so in their messages.

    A suppressed ``fail`` becomes a non-blocking ``warn`` and a suppressed ``warn`` stays one; both carry
    :data:`SUPPRESSED` in their thresholds and do not count for ``--strict``. An expired suppression changes nothing
    but the message.
    """
    return [_suppress(v, policy.suppressions, today) for v in verdicts]


def is_suppressed(verdict: Verdict) -> bool:
    """Whether a valid suppression softened this verdict."""
    return SUPPRESSED in verdict.thresholds


def _suppress(verdict: Verdict, suppressions: Sequence[Suppression], today: date) -> Verdict:
    if verdict.result not in ("warn", "fail"):
        return verdict
    mine = [
        s for s in suppressions if s.check == f"{verdict.v}.{verdict.check}" and s.subject in (None, verdict.subject)
    ]
    valid = [s for s in mine if s.until >= today]
    if valid:
        s = max(valid, key=lambda s: s.until)
        note = f"Suppressed until {s.until} by {s.reviewer} ({s.reason}); it was a {verdict.result}. "
        return replace(
            verdict,
            result="warn",
            blocking=False,
            message=note + verdict.message,
            thresholds={**verdict.thresholds, SUPPRESSED: float(s.until.strftime("%Y%m%d"))},
        )
    if mine:
        s = max(mine, key=lambda s: s.until)
        note = f" (A suppression by {s.reviewer} expired on {s.until} and is ignored.)"
        return replace(verdict, message=verdict.message + note)
    return verdict


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return "[" + ", ".join(value) + "]"
    return str(value)


def _explain(error: ValidationError, where: str) -> SevenfoldError:
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")  # a misspelt key explains a missing one
    keys = [str(k) for k in first["loc"]]
    spot = ".".join(keys)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] != "extra_forbidden":
        found = f"{spot} is {first['input']!r}: {first['msg']}{more}" if keys else f"{first['msg']}{more}"
        return SevenfoldError(found, where=where, do="correct this value, or remove the line to take the default")
    known = _keys_of(first["loc"][:-1])
    nearest = difflib.get_close_matches(keys[-1], known, n=1, cutoff=0.4)
    return SevenfoldError(
        f"unknown key {spot!r}{more}",
        where=where,
        expected=f"one of {', '.join(known)}",
        do=f"did you mean {nearest[0]!r}?" if nearest else "remove the key",
    )


def _keys_of(loc: tuple[Any, ...]) -> list[str]:
    """The keys allowed at a place in the policy."""
    model: type[BaseModel] = Policy
    for part in loc:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        inner = next((a for a in get_args(annotation) if isinstance(a, type)), annotation)
        assert isinstance(inner, type) and issubclass(inner, BaseModel)
        model = inner
    return list(model.model_fields)
