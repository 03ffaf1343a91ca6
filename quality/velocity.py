"""Velocity: does data arrive, and reach training, in time? Rates, freshness, backlog, lead time, waits against SLOs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sevenfold.quality import policy as limits
from sevenfold.quality.arrivals import arrivals, capacity
from sevenfold.quality.context import Check, Context
from sevenfold.quality.verdict import Verdict, missing

OPEN_STATUSES = ("landed", "admitted")
"""A batch in one of these waits for a decision or a commit."""


def ingest_rate(record: Mapping[str, Any], *, subject: str, policy: limits.Velocity) -> Verdict:
    """Inputs per second of one batch's ingest (decoded, measured and digested)."""
    inputs, seconds = int(record["counts"]["inputs"]), float(record["seconds"].get("ingest", 0.0))
    common = {"v": "velocity", "check": "ingest_rate", "subject": subject, "n": inputs}
    thresholds = {"min_ingest_rate": policy.min_ingest_rate}
    if inputs == 0 or seconds <= 0:
        return Verdict(**common, result="not_measurable", message="No input was timed.")  # type: ignore[arg-type]
    if inputs < policy.min_inputs:
        said = f"{inputs} inputs in {seconds:.1f} s: the rate is judged from {policy.min_inputs}."
        return Verdict(**common, result="not_measurable", message=said)  # type: ignore[arg-type]
    rate = inputs / seconds
    slow = rate < policy.min_ingest_rate
    return Verdict(
        **common,  # type: ignore[arg-type]
        result="fail" if slow else "pass",
        statistic=rate,
        statistic_name="inputs ingested per second",
        thresholds=thresholds,
        message=f"{inputs} inputs in {seconds:.1f} s: {rate:,.0f} per second; the SLO is {policy.min_ingest_rate:g}.",
        remedy="Use more ingest workers, or move the source nearer." if slow else "",
    )


def stage_rate(
    records: Sequence[Mapping[str, Any]], stage: str, minimum: float, *, subject: str, policy: limits.Velocity
) -> Verdict:
    """Samples per second of a stage (``check``, ``shard``) over all batches that were timed there.

    The interval is a bootstrap over batches; fails when the rate is below `minimum`. Findings: the batches below it,
    the slowest first.
    """
    name = f"{stage}_rate"
    timed = [
        (str(r["batch"]), int(r["counts"]["samples"]), float(r["seconds"][stage]))
        for r in records
        if float(r.get("seconds", {}).get(stage, 0.0)) > 0 and int(r["counts"]["samples"]) >= policy.min_inputs
    ]
    if not timed:
        why = f"No batch of {policy.min_inputs} samples or more was timed in this stage."
        return missing("velocity", name, subject, why)
    samples = np.array([k for _, k, _ in timed], np.float64)
    seconds = np.array([s for _, _, s in timed])
    rate = float(samples.sum() / seconds.sum())
    interval = None
    if len(timed) >= 5:
        at = np.random.default_rng(len(timed)).integers(0, len(timed), (1000, len(timed)))
        low, high = np.quantile(samples[at].sum(1) / seconds[at].sum(1), [0.025, 0.975])
        interval = (min(rate, float(low)), max(rate, float(high)))
    slow = sorted((b for b, k, s in timed if k / s < minimum), key={b: k / s for b, k, s in timed}.__getitem__)
    return Verdict(
        v="velocity",
        check=name,
        subject=subject,
        result="fail" if rate < minimum else "pass",
        statistic=rate,
        statistic_name=f"samples per second, {stage}",
        interval=interval,
        n=len(timed),
        thresholds={f"min_{name}": minimum},
        message=f"{len(timed)} batches went through at {rate:,.0f} samples per second; the SLO is {minimum:g}.",
        remedy="Use more workers, or see what slows the batches listed." if rate < minimum else "",
        findings=tuple(f"batch:{b}" for b in slow),
    )


def freshness(records: Sequence[Mapping[str, Any]], *, subject: str, policy: limits.Velocity) -> Verdict:
    """p95 over batches of (landed - newest input); with one batch, that batch's. Findings: the stale batches.

    ``newest_input`` is the file time of a batch's newest input: a copied or unpacked file may carry an older one.
    """
    ages = {
        str(r.get("batch", subject)): max(0.0, r["times"]["landed"] - r["times"]["newest_input"])
        for r in records
        if r["times"].get("landed") is not None and r["times"].get("newest_input")
    }
    common = {"v": "velocity", "check": "freshness", "subject": subject, "n": len(ages)}
    if not ages:
        return Verdict(**common, result="not_measurable", message="No batch has both times.")  # type: ignore[arg-type]
    p95, interval = high_quantile(list(ages.values()))
    limit = policy.max_freshness_seconds
    stale = sorted((b for b, age in ages.items() if age > limit), key=lambda b: -ages[b])
    return Verdict(
        **common,  # type: ignore[arg-type]
        result="fail" if p95 > limit else "pass",
        statistic=p95,
        statistic_name="seconds from newest input to landing, p95 over batches",
        interval=interval,
        thresholds={"max_freshness_seconds": limit},
        message=f"Inputs were {_span(p95)} old when they landed (p95 of {len(ages)}); the SLO is {_span(limit)}.",
        remedy="Land batches sooner, or raise the SLO for an archive." if p95 > limit else "",
        findings=tuple(f"batch:{b}" for b in stale),
    )


def lead_time(records: Sequence[Mapping[str, Any]], *, now: float, subject: str, policy: limits.Velocity) -> Verdict:
    """p95 over batches of (first model trained on a version that holds the batch - landed). Findings: the late ones.

    Reads ``times["modelled"]`` beside ``times["landed"]``. A batch that no model has learned yet counts with its age
    once that exceeds the SLO; before, its time is not known. Rejected batches are left out.
    """
    times = {
        str(r["batch"]): r["times"]
        for r in records
        if r.get("status") != "rejected" and r["times"].get("landed") is not None
    }
    limit = policy.max_lead_seconds
    done = {b: max(0.0, t["modelled"] - t["landed"]) for b, t in times.items() if t.get("modelled") is not None}
    waiting = {b: now - t["landed"] for b, t in times.items() if b not in done and now - t["landed"] > limit}
    ages = {**done, **waiting}
    if not ages:
        why = "No model has been trained on any batch yet."
        return missing("velocity", "lead_time", subject, why, "Train and register a model: sevenfold train.")
    p95, interval = high_quantile(list(ages.values()))
    late = sorted((b for b, age in ages.items() if age > limit), key=lambda b: -ages[b])
    over = p95 > limit
    return Verdict(
        v="velocity",
        check="lead_time",
        subject=subject,
        result="fail" if over else "pass",
        statistic=p95,
        statistic_name="seconds from landing to the first model trained on it, p95 over batches",
        interval=interval,
        n=len(ages),
        thresholds={"max_lead_seconds": limit},
        message=f"A batch reached a model within {_span(p95)} (p95 of {len(ages)}); the SLO is {_span(limit)}"
        + (f"; {len(waiting)} have waited longer and still wait." if waiting else "."),
        remedy="Train more often, or see which batch is held back." if over else "",
        findings=tuple(f"batch:{b}" for b in late),
        notes=tuple(f"{_span(ages[b])}{', still waiting' * (b in waiting)}" for b in late),
    )


def review_age(queues: pa.Table, *, now: float, subject: str, policy: limits.Velocity) -> Verdict:
    """How long the oldest review queue that nobody has answered has waited at ``now``.

    Parameters
    ----------
    queues : name (string), made and reviewed (float64 unix seconds; reviewed null while it waits).
    """
    if not queues.num_rows:
        return missing("velocity", "review_age", subject, "There is no review queue.", "Mine one: sevenfold mine.")
    made = dict(zip(queues["name"].to_pylist(), queues["made"].to_pylist(), strict=True))
    waits = dict(zip(queues["name"].to_pylist(), queues["reviewed"].to_pylist(), strict=True))
    ages = {name: max(0.0, now - made[name]) for name, reviewed in waits.items() if reviewed is None}
    limit = policy.max_review_seconds
    oldest = max(ages.values(), default=0.0)
    late = sorted((q for q, age in ages.items() if age > limit), key=lambda q: -ages[q])
    return Verdict(
        v="velocity",
        check="review_age",
        subject=subject,
        result="fail" if late else "pass",
        statistic=oldest,
        statistic_name="seconds that the oldest review queue has waited",
        n=queues.num_rows,
        thresholds={"max_review_seconds": limit},
        message=f"{len(ages)} of {queues.num_rows} review queues wait"
        + (f", the oldest for {_span(oldest)}; the SLO is {_span(limit)}." if ages else "."),
        remedy="Review the queues listed: sevenfold review." if late else "",
        findings=tuple(f"queue:{q}" for q in late),
        notes=tuple(_span(ages[q]) for q in late),
    )


def high_quantile(values: Sequence[float], q: float = 0.95) -> tuple[float, tuple[float, float] | None]:
    """The q quantile of n values, and its interval from order statistics (95 %).

    The high end is the largest value where too few are there to bound it. None for a single value.
    """
    from scipy.stats import binom

    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    value = float(np.quantile(ordered, q, method="higher"))
    if n < 2:
        return value, None
    low = int(binom.ppf(0.025, n, q)) - 1
    high = int(binom.ppf(0.975, n, q))
    return value, (min(value, float(ordered[max(low, 0)])), max(value, float(ordered[min(high, n - 1)])))


def backlog(records: Sequence[Mapping[str, Any]], *, now: float, subject: str, policy: limits.Velocity) -> Verdict:
    """How many batches landed and are neither committed nor rejected, and how old the oldest is at ``now``."""
    waiting = {
        str(r["batch"]): max(0.0, now - float(r["times"].get("landed", now)))
        for r in records
        if r.get("status") in OPEN_STATUSES
    }
    oldest = max(waiting.values(), default=0.0)
    many, old = len(waiting) > policy.max_backlog_batches, oldest > policy.max_backlog_age_seconds
    return Verdict(
        v="velocity",
        check="backlog",
        subject=subject,
        result="fail" if many or old else "pass",
        statistic=float(len(waiting)),
        statistic_name="batches landed and not yet committed",
        n=len(records),
        thresholds={
            "max_backlog_batches": float(policy.max_backlog_batches),
            "max_backlog_age_seconds": policy.max_backlog_age_seconds,
        },
        message=f"{len(waiting)} of {len(records)} batches wait for a commit"
        + (f"; the oldest landed {_span(oldest)} ago." if waiting else "."),
        remedy="Run the checks and `sevenfold commit`; see which batch is held back." if many or old else "",
        findings=tuple(f"batch:{b}" for b in sorted(waiting, key=lambda b: -waiting[b])),
    )


def loader_idle(
    steps: pa.Table,
    *,
    subject: str,
    policy: limits.Velocity,
    wait: str = "data",
    total: str = "total",
) -> Verdict:
    """The share of training time spent waiting for the loader, with a moving-block bootstrap interval over steps.

    Parameters
    ----------
    steps : a row per step and rank, in order.
    wait, total : the columns with seconds waited for data and seconds the whole step took.
    """
    waited, took = steps[wait].to_numpy().astype(np.float64), steps[total].to_numpy().astype(np.float64)
    n, limit = len(took), policy.max_idle_share
    common = {"v": "velocity", "check": "loader_idle", "subject": subject, "n": n}
    thresholds = {"max_idle_share": limit, "min_steps": float(policy.min_steps)}
    if n < policy.min_steps or not np.isfinite(waited + took).all() or took.sum() <= 0:
        return Verdict(
            **common,  # type: ignore[arg-type]
            result="not_measurable",
            thresholds=thresholds,
            message=f"{n} steps were timed; the idle share needs {policy.min_steps}."
            if n < policy.min_steps
            else "The steps have no times.",
        )
    share = float(waited.sum() / took.sum())
    interval = _ratio_interval(waited, took)
    over = share > limit
    return Verdict(
        **common,  # type: ignore[arg-type]
        result="fail" if over else "pass",
        statistic=share,
        statistic_name="share of step time spent waiting for data",
        interval=(min(interval[0], share), max(interval[1], share)),
        thresholds=thresholds,
        message=f"Training waited for data {share:.1%} of the time over {n} steps; the SLO is {limit:.0%}.",
        remedy="Add loader workers, or decode at a smaller size." if over else "",
    )


def _ratio_interval(top: np.ndarray, bottom: np.ndarray, draws: int = 400) -> tuple[float, float]:
    """95 % moving-block bootstrap of sum(top) / sum(bottom); blocks of about n^(1/3), since steps are correlated."""
    n = len(top)
    block = max(1, round(n ** (1 / 3)))
    rng = np.random.default_rng(n)
    cumulative = [np.concatenate([[0.0], np.cumsum(x)]) for x in (top, bottom)]
    sums = [c[block:] - c[:-block] for c in cumulative]
    starts = rng.integers(0, n - block + 1, (draws, max(1, n // block)))
    shares = sums[0][starts].sum(1) / np.maximum(sums[1][starts].sum(1), 1e-12)
    low, high = np.quantile(shares, [0.025, 0.975])
    return float(low), float(high)


def _span(seconds: float) -> str:
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"


def _ingest(context: Context) -> Verdict:
    if context.record is None:
        raise ValueError("a batch is judged with its record")
    return ingest_rate(context.record, subject=context.subject, policy=context.policy.velocity)


def _freshness(context: Context) -> Verdict:
    records = [context.record] if context.record is not None else context.records
    return freshness(records, subject=context.subject, policy=context.policy.velocity)


def _backlog(context: Context) -> Verdict:
    return backlog(context.records, now=context.now, subject=context.subject, policy=context.policy.velocity)


def _idle(context: Context) -> Verdict:
    if context.steps is None:
        why, remedy = "No training run's step times were given.", "Train this version."
        return missing("velocity", "loader_idle", context.subject, why, remedy)
    return loader_idle(context.steps, subject=context.subject, policy=context.policy.velocity)


def _check_rate(context: Context) -> Verdict:
    limit = context.policy.velocity
    return stage_rate(context.records, "check", limit.min_check_rate, subject=context.subject, policy=limit)


def _shard_rate(context: Context) -> Verdict:
    limit = context.policy.velocity
    return stage_rate(context.records, "shard", limit.min_shard_rate, subject=context.subject, policy=limit)


def _arrivals(context: Context) -> Verdict:
    return arrivals(context.records, now=context.now, subject=context.subject, policy=context.policy.velocity)


def _capacity(context: Context) -> Verdict:
    return capacity(context.records, now=context.now, subject=context.subject, policy=context.policy.velocity)


def _lead(context: Context) -> Verdict:
    return lead_time(context.records, now=context.now, subject=context.subject, policy=context.policy.velocity)


def _review(context: Context) -> Verdict:
    if context.queues is None:
        why, remedy = "No review queue was given.", "Mine a queue: `sevenfold mine`."
        return missing("velocity", "review_age", context.subject, why, remedy)
    return review_age(context.queues, now=context.now, subject=context.subject, policy=context.policy.velocity)


CHECKS = (
    Check("velocity", "ingest_rate", _ingest, ("batch",)),
    Check("velocity", "check_rate", _check_rate, ("version",)),
    Check("velocity", "shard_rate", _shard_rate, ("version",)),
    Check("velocity", "freshness", _freshness),
    Check("velocity", "arrivals", _arrivals, ("version",)),
    Check("velocity", "capacity", _capacity, ("version",)),
    Check("velocity", "backlog", _backlog, ("version",)),
    Check("velocity", "lead_time", _lead, ("version",)),
    Check("velocity", "review_age", _review, ("version",)),
    Check("velocity", "loader_idle", _idle, ("version",)),
)
