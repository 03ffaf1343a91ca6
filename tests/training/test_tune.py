"""tune-loader: the choice as a function of what was measured, and a short measurement of a real lake."""

from __future__ import annotations

import tomllib
from multiprocessing import active_children

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.training.loader import ByteDataset, SampleDataset
from sevenfold.training.probe import probe
from sevenfold.training.tune import Rates, Setting, candidates, choose, report

SERIAL, ONE, TWO = Setting(), Setting(threads=1), Setting(threads=2)
WORKER, WORKERS = Setting(workers=1), Setting(workers=2)


def rates(*found: float, reading: float, decoding: float) -> Rates:
    decoded = dict(zip((SERIAL, ONE, TWO, WORKER, WORKERS), found, strict=True))
    return Rates(decoded, dict.fromkeys(decoded, reading), reading, decoding)


PHOTOS = rates(900, 900, 1750, 850, 1500, reading=50_000, decoding=950)
SMALL = rates(95e3, 92e3, 99e3, 60e3, 90e3, reading=1e6, decoding=110e3)
RAW = rates(400e3, 380e3, 390e3, 200e3, 900e3, reading=500e3, decoding=3e6)


def test_large_images_take_threads() -> None:
    choice = choose(PHOTOS, 128)
    assert choice.setting == TWO
    text = " ".join(choice.reasons)
    assert "95% of it is decoding" in text and "1.9 times as many as serial" in text and "handing" in text


def test_images_too_small_for_threads_take_one_ahead() -> None:
    choice = choose(SMALL, 128)
    assert choice.setting == ONE
    assert "Python's lock" in " ".join(choice.reasons)


def test_no_workers_where_decoding_does_not_dominate() -> None:
    choice = choose(RAW, 128)
    assert choice.setting.workers == 0
    assert "Decoding is 13%" in " ".join(choice.reasons)


def test_workers_where_they_win() -> None:
    assert choose(rates(20e3, 20e3, 21e3, 19e3, 38e3, reading=1e6, decoding=21e3), 128).setting == WORKERS


def test_a_slow_step_needs_one_thread_only() -> None:
    choice = choose(PHOTOS, 128, step_ms=400)  # 320 samples/s
    assert choice.setting == ONE and "the training is what limits" in choice.reasons[-1]
    choice = choose(PHOTOS, 128, step_ms=20)  # 6,400 samples/s
    assert choice.setting == TWO and "the loader limits" in choice.reasons[-1]


def test_a_busy_machine_is_told() -> None:
    busy = Rates(PHOTOS.decoded, PHOTOS.bytes_only, PHOTOS.reading, PHOTOS.decoding, load=1.5)
    assert "busy (load 1.5 per core)" in choose(busy, 128).reasons[0]
    assert not any("busy" in r for r in choose(PHOTOS, 128).reasons)


rate = st.floats(10, 1e6)


@given(st.lists(rate, min_size=5, max_size=5), rate, rate)
def test_the_choice_is_never_much_slower_than_what_is_allowed(
    found: list[float], reading: float, decoding: float
) -> None:
    measured = rates(*found, reading=reading, decoding=decoding)
    choice = choose(measured, 64)
    threads = max(r for s, r in measured.decoded.items() if not s.workers)
    assert measured.decoded[choice.setting] * 1.1 >= threads or choice.setting == ONE
    settings = tomllib.loads(choice.to_toml())["train"]
    assert settings == {"workers": choice.setting.workers, "loader_threads": choice.setting.threads}


def test_candidates_never_exceed_the_cores() -> None:
    assert candidates(1) == [SERIAL, ONE, WORKER]
    assert [s.threads for s in candidates(6) if s.threads] == [1, 2, 4, 6]
    assert all(max(s.threads, s.workers) <= 6 for s in candidates(6))


def test_a_probe_of_a_real_lake(toy_lake: Lake) -> None:
    samples = toy_lake.samples("toy")
    images = SampleDataset(toy_lake.shard_path, samples, ["class0"], 16, 3)
    files = ByteDataset(toy_lake.shard_path, samples, ["class0"])
    found = probe(images, files, np.arange(len(samples)), 32, seconds=0.5, cores=1)
    assert list(found.decoded) == list(found.bytes_only) == candidates(1)
    assert all(r > 0 for r in [*found.decoded.values(), *found.bytes_only.values(), found.decoding])
    shown = report(found, choose(found, 32))
    assert len(shown["settings"]) == 3 and shown["reasons"]
    assert not active_children()
    with pytest.raises(SevenfoldError, match="no samples"):
        probe(images, files, np.zeros(0, np.int64), 32, seconds=0.5)
