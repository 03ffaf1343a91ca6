import numpy as np
import pyarrow as pa
import pytest

from sevenfold.quality import velocity
from sevenfold.quality.policy import Policy, Velocity

LIMITS = Policy().velocity
DAY = 86400.0


def test_a_slow_ingest_breaches_its_slo(rows, quarantine, record) -> None:
    fine = record(rows(100), quarantine())
    v = velocity.ingest_rate(fine, subject="b1", policy=LIMITS)
    assert (v.result, v.statistic, v.blocking) == ("pass", 100.0, False)
    slow = fine | {"seconds": {"ingest": 10.0}}
    assert velocity.ingest_rate(slow, subject="b1", policy=LIMITS).result == "fail"
    assert velocity.ingest_rate(fine | {"seconds": {}}, subject="b1", policy=LIMITS).result == "not_measurable"


def batch(name: str, landed: float, age: float, status: str = "committed") -> dict:
    return {"batch": name, "status": status, "times": {"landed": landed, "newest_input": landed - age}}


def test_stale_inputs_breach_the_p95_and_are_named() -> None:
    fresh = [batch(f"b{i}", 100 * DAY, 3600) for i in range(40)]
    assert velocity.freshness(fresh, subject="v1", policy=LIMITS).result == "pass"
    v = velocity.freshness([*fresh, batch("old", 100 * DAY, 30 * DAY)], subject="v1", policy=LIMITS)
    assert (v.result, v.findings) == ("pass", ("batch:old",))
    stale = [batch(f"s{i}", 100 * DAY, (30 + i) * DAY) for i in range(5)]
    v = velocity.freshness([*fresh, *stale], subject="v1", policy=LIMITS)
    assert (v.result, v.findings[0]) == ("fail", "batch:s4")
    assert velocity.freshness([], subject="v1", policy=LIMITS).result == "not_measurable"


def test_the_backlog_counts_what_waits_and_its_age() -> None:
    records = [
        batch("a", 90 * DAY, 0),
        batch("b", 91 * DAY, 0, "rejected"),
        batch("c", 99 * DAY, 0, "admitted"),
        batch("d", 98 * DAY, 0, "landed"),
    ]
    v = velocity.backlog(records, now=100 * DAY, subject="v1", policy=LIMITS)
    assert (v.result, v.statistic, v.findings) == ("pass", 2.0, ("batch:d", "batch:c"))
    assert "2.0 days" in v.message
    assert velocity.backlog(records, now=120 * DAY, subject="v1", policy=LIMITS).result == "fail"
    few = Velocity(max_backlog_batches=1)
    assert velocity.backlog(records, now=100 * DAY, subject="v1", policy=few).result == "fail"


def steps(share: float, n: int = 200) -> pa.Table:
    rng = np.random.default_rng(0)
    total = rng.gamma(20, 0.005, n)
    return pa.table({"data": total * np.clip(rng.normal(share, share / 4, n), 0, 1), "total": total})


def test_waiting_for_the_loader_breaches_its_slo() -> None:
    v = velocity.loader_idle(steps(0.1), subject="v1", policy=LIMITS)
    assert v.result == "pass" and v.statistic == pytest.approx(0.1, abs=0.01)
    assert v.interval[0] < v.statistic < v.interval[1] and v.interval[1] - v.interval[0] < 0.02
    assert velocity.loader_idle(steps(0.5), subject="v1", policy=LIMITS).result == "fail"
    assert velocity.loader_idle(steps(0.5, 10), subject="v1", policy=LIMITS).result == "not_measurable"


def timed(name: str, samples: int, **seconds: float) -> dict:
    return {"batch": name, "counts": {"samples": samples}, "seconds": seconds}


def test_a_slow_stage_breaches_its_slo_and_names_the_slow_batches() -> None:
    records = [timed(f"b{i}", 1000, check=2.0) for i in range(6)]
    v = velocity.stage_rate(records, "check", 20, subject="v1", policy=LIMITS)
    assert (v.check, v.result, v.statistic, v.findings) == ("check_rate", "pass", 500.0, ())
    v = velocity.stage_rate([*records, timed("slow", 1000, check=900.0)], "check", 20, subject="v1", policy=LIMITS)
    assert (v.result, v.findings) == ("fail", ("batch:slow",)) and v.interval[0] < v.statistic < v.interval[1]
    for few in ([], [timed("b", 1000)], [timed("b", 5, check=9.0)]):
        assert velocity.stage_rate(few, "check", 20, subject="v1", policy=LIMITS).result == "not_measurable"


def test_lead_time_counts_what_still_waits_once_it_is_late() -> None:
    def modelled(name: str, landed: float, days: float | None, status: str = "committed") -> dict:
        times = {"landed": landed} | ({} if days is None else {"modelled": landed + days * DAY})
        return {"batch": name, "status": status, "times": times}

    quick = [modelled(f"b{i}", 50 * DAY, 1 + i / 10) for i in range(10)]
    v = velocity.lead_time(quick, now=100 * DAY, subject="v1", policy=LIMITS)
    assert (v.result, v.n, v.findings) == ("pass", 10, ()) and v.interval[0] <= v.statistic <= v.interval[1]
    young = velocity.lead_time([*quick, modelled("new", 99 * DAY, None)], now=100 * DAY, subject="v1", policy=LIMITS)
    assert young.n == 10  # its time is not known yet, and it is not late
    late = [*quick, modelled("late", 60 * DAY, None), modelled("refused", 1 * DAY, None, "rejected")]
    v = velocity.lead_time(late, now=100 * DAY, subject="v1", policy=LIMITS)
    assert (v.result, v.findings, v.notes) == ("fail", ("batch:late",), ("40.0 days, still waiting",))
    assert velocity.lead_time([], now=1.0, subject="v1", policy=LIMITS).result == "not_measurable"


def test_a_review_queue_that_nobody_answers_breaches_its_slo() -> None:
    def queues(*rows: tuple[str, float, float | None]) -> pa.Table:
        names, made, reviewed = zip(*rows, strict=True) if rows else ((), (), ())
        return pa.table({"name": pa.array(names, pa.string()), "made": pa.array(made, pa.float64()),
                         "reviewed": pa.array(reviewed, pa.float64())})  # fmt: skip

    answered = ("hard-v1", 1 * DAY, 2 * DAY)
    v = velocity.review_age(queues(answered, ("hard-v2", 95 * DAY, None)), now=100 * DAY, subject="v1", policy=LIMITS)
    assert (v.result, v.statistic, v.findings) == ("pass", 5 * DAY, ())
    v = velocity.review_age(queues(answered, ("hard-v2", 50 * DAY, None)), now=100 * DAY, subject="v1", policy=LIMITS)
    assert (v.result, v.findings) == ("fail", ("queue:hard-v2",))
    assert velocity.review_age(queues(), now=1.0, subject="v1", policy=LIMITS).result == "not_measurable"


def test_the_interval_of_the_p95_covers_it() -> None:
    rng = np.random.default_rng(0)
    truth = -np.log(0.05)
    spans = [velocity.high_quantile(rng.exponential(1, 200))[1] for _ in range(300)]
    assert np.mean([low <= truth <= high for low, high in spans]) > 0.9
    assert velocity.high_quantile([3.0]) == (3.0, None)
