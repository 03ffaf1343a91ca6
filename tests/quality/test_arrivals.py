import numpy as np
import pytest

from sevenfold.quality.arrivals import arrivals, capacity, control_limits, windows_of
from sevenfold.quality.policy import Policy, Velocity

LIMITS = Policy().velocity
DAY = 86400.0


def landed(times: list[float], *, settle: float | None = 60.0, busy: float = 10.0) -> list[dict]:
    return [
        {
            "batch": f"b{i}",
            "status": "committed" if settle is not None else "landed",
            "times": {"landed": t} | ({"committed": t + settle} if settle is not None else {}),
            "seconds": {"ingest": busy},
        }
        for i, t in enumerate(times)
    ]


def stream(rate: float, days: int, seed: int) -> list[float]:
    """A Poisson stream of so many batches a day."""
    rng = np.random.default_rng(seed)
    return np.sort(rng.uniform(0, days * DAY, rng.poisson(rate * days))).tolist()


@pytest.mark.parametrize("rate", [0.5, 3.0, 20.0])
def test_control_limits_are_quiet_on_a_poisson_stream(rate: float) -> None:
    """400 streams of 12 windows: alarms stay within the binomial bound of the limits' own 0.27 % (and of 1 % for the
    individuals chart, which the dispersion test lets in by chance)."""
    rng = np.random.default_rng(int(10 * rate))
    alarms = 0
    for _ in range(400):
        counts = rng.poisson(rate, 13)
        low, high, _ = control_limits(counts[:-1])
        alarms += not low <= counts[-1] <= high
    assert alarms <= 8  # binomial(400, 0.0037) exceeds 8 with probability 1e-5


def test_counts_that_vary_more_get_an_individuals_chart() -> None:
    bursts = np.array([0, 30, 0, 28, 1, 33, 0, 29, 2, 31])
    low, high, kind = control_limits(bursts)
    assert kind == "individuals" and low == 0 and high > 33
    assert control_limits(np.array([4, 5, 3, 4, 6, 5, 4, 3]))[2] == "c"


def test_a_silent_source_and_a_flood_leave_the_limits() -> None:
    usual = [d * DAY + h * 3600 for d in range(20) for h in (3, 9, 15, 21)]
    now = 20 * DAY
    assert arrivals(landed(usual), now=now, subject="v1", policy=LIMITS).result == "pass"
    silent = arrivals(landed(usual), now=now + 3 * DAY, subject="v1", policy=LIMITS)
    assert silent.result == "warn" and silent.statistic == 0 and "stopped" in silent.remedy
    one_day = arrivals(landed(usual), now=now + DAY, subject="v1", policy=LIMITS)
    assert one_day.result == "pass"  # where four a day are usual, none may happen
    flood = arrivals(landed([*usual, *(19.5 * DAY + i for i in range(20))]), now=now, subject="v1", policy=LIMITS)
    assert flood.result == "warn" and len(flood.findings) == 24
    assert flood.interval is None  # control limits are no interval of what arrived
    low, high = flood.data["series"]["limits"]
    assert low <= high < flood.statistic and len(flood.data["series"]["points"]) == flood.n


def test_a_dataset_that_landed_at_once_or_lately_has_no_limits() -> None:
    at_once = landed([1000.0 + i for i in range(50)])
    assert arrivals(at_once, now=5000.0, subject="v1", policy=LIMITS).result == "not_measurable"
    assert arrivals(landed([0.0, DAY]), now=30 * DAY, subject="v1", policy=LIMITS).result == "not_measurable"
    assert arrivals([], now=5.0, subject="v1", policy=LIMITS).result == "not_measurable"
    assert capacity([], now=5.0, subject="v1", policy=LIMITS).result == "not_measurable"


def test_every_batch_after_the_first_window_is_counted_once() -> None:
    times = stream(4, 30, seed=1)
    seen = windows_of(landed(times), 30 * DAY, DAY)
    first = 30 * DAY - len(seen.arrived) * DAY
    assert seen.arrived.sum() == sum(t > first for t in times) == sum(len(m) for m in seen.members)
    assert seen.busy.sum() == pytest.approx(10 * seen.arrived.sum())


def test_more_than_can_be_worked_off_fails() -> None:
    times = stream(5, 20, seed=2)
    assert capacity(landed(times), now=20 * DAY, subject="v1", policy=LIMITS).result == "pass"
    busy = capacity(landed(times, busy=0.25 * DAY), now=20 * DAY, subject="v1", policy=LIMITS)
    assert busy.result == "fail" and busy.statistic > 1
    growing = capacity(landed(times, settle=None), now=20 * DAY, subject="v1", policy=LIMITS)
    assert growing.result == "fail" and growing.findings[0] == "batch:b0" and len(growing.findings) == len(times)
    few = Velocity(max_backlog_batches=1000)
    assert capacity(landed(times, settle=None), now=20 * DAY, subject="v1", policy=few).result == "pass"
