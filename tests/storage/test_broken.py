"""Broken and odd files: each is accepted or set aside as the policy says; none hangs, crashes or swells."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from sevenfold.storage import Lake
from sevenfold.storage.decode import Accepts
from sevenfold.storage.measure import measure
from sevenfold.storage.sources import InputError, open_source

SECONDS = 3.0
"""That one file may take, on a busy machine; nearly all take a millisecond."""

MEMORY = 300 << 20
"""Bytes that landing all of them may take, libraries included: four bombs of 48 MB are among them."""

LAND = """
import json, sys
from sevenfold.storage import Lake
record, _ = Lake.create(sys.argv[2]).ingest(sys.argv[1], "d", "b")
peak = next(x for x in open("/proc/self/status") if x.startswith("VmHWM"))  # ru_maxrss counts what forked this too
print(json.dumps([record.counts, int(peak.split()[1]) * 1024]))
"""


@pytest.fixture(scope="module")
def broken() -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("broken_files", Path(__file__).with_name("broken.py"))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["broken_files"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(broken: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """(the folder, its cases)."""
    folder = tmp_path_factory.mktemp("broken") / "s"
    return folder, broken.make(folder)


def test_two_hundred_files_are_judged_as_the_policy_says(made: tuple[Path, list[Any]], tmp_path: Path) -> None:
    folder, cases = made
    assert len([c for c in cases if c.kind != "sound"]) >= 190 and len({c.kind for c in cases}) >= 20
    run = subprocess.run(
        [sys.executable, "-c", LAND, str(folder), str(tmp_path / "lake")],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    counts, peak = json.loads(run.stdout)
    assert counts["inputs"] == len(cases) == counts["samples"] + counts["aliases"] + counts["quarantined"]
    assert peak < MEMORY, f"{peak / 2**20:.0f} MB"
    lake = Lake.open(tmp_path / "lake")
    aside = {row["path"]: row for row in lake.quarantine("d", "b").to_pylist()}
    taken = set(lake.batch_rows("d", "b")["path"].to_pylist())
    taken |= set(pq.read_table(lake.root / "batches/d/b.aliases.parquet")["path"].to_pylist())
    became = {c.path: aside[c.path]["reason"] if c.path in aside else "accepted" for c in cases}
    assert [c for c in cases if became[c.path] not in c.expected] == []
    assert {p for p, said in became.items() if said == "accepted"} == taken
    assert all(row["detail"] for row in aside.values()), "each with what was found"


def test_no_file_takes_long(made: tuple[Path, list[Any]]) -> None:
    source = open_source(made[0])
    for accepts in (Accepts(), Accepts(cmyk=True, sixteen_bit=True, animated=True), Accepts(alpha=False)):
        for item in source.inputs:
            began = time.perf_counter()
            with suppress(InputError):
                measure(source.read(item.path), item.path, accepts)
            assert time.perf_counter() - began < SECONDS, item.path


def test_the_policy_decides_about_the_unusual(made: tuple[Path, list[Any]]) -> None:
    cases = {c.path: c.kind for c in made[1]}
    source = open_source(made[0])

    def kinds(accepts: Accepts) -> set[str]:
        found = set()
        for path, kind in cases.items():
            try:
                measure(source.read(path), path, accepts)
            except InputError as e:
                if e.reason in ("unsupported", "too_large"):
                    found.add(kind)
        return found

    usual = kinds(Accepts())
    assert {"cmyk", "16 bits", "32 bits", "animated", "declared size"} <= usual
    assert "cmyk" not in kinds(Accepts(cmyk=True))
    assert "16 bits" not in kinds(Accepts(sixteen_bit=True)) and "32 bits" in kinds(Accepts(sixteen_bit=True))
    assert "transparency" in kinds(Accepts(alpha=False)) - usual
    assert "sound" in kinds(Accepts(max_pixels=1000)) - usual


def test_a_batch_is_read_again_when_more_is_accepted(broken: ModuleType, tmp_path: Path, lake: Lake) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    for name, _, _, data in broken.files():
        if name in ("good.png", "deep.png", "zero.png"):
            (folder / name).write_bytes(data)
        if name == "declared14000.png":
            break
    first, _ = lake.ingest(folder, "d", "b")
    assert first.reasons == {"not_an_image": 1, "unsupported": 1} and first.accepts == {}
    more = Accepts(sixteen_bit=True)
    retried, new = lake.retry_quarantine("d", "b", accepts=more)
    assert new and retried.counts["samples"] == 1 and retried.accepts == {"sixteen_bit": True}
    assert lake.retry_quarantine("d", "b", accepts=more) == (retried, False)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "webp", "bmp", "tif"])
def test_byte_flips_crash_nothing(broken: ModuleType, suffix: str) -> None:
    """Thousands of damaged copies of every sound or odd file of a format: measured, or refused with a known reason."""
    chance = np.random.default_rng(len(suffix))
    wholes = [d for n, kind, _, d in broken.files() if n.lower().endswith(suffix) and d and "bomb" not in kind]
    wholes = [d for d in wholes if len(d) > 100][:25]
    reasons: set[str] = set()
    for turn in range(3000):
        data = bytearray(wholes[turn % len(wholes)])
        head = turn % 3 == 0  # headers are small, and where the trouble is
        for _ in range(int(chance.integers(1, 9))):
            at = int(chance.integers(0, min(len(data), 200) if head else len(data)))
            data[at] = int(chance.integers(0, 256))
        if turn % 7 == 0:
            data = data[: int(chance.integers(1, len(data)))]
        accepts = Accepts(cmyk=True, sixteen_bit=True, animated=turn % 2 == 0, max_pixels=20_000_000)
        began = time.perf_counter()
        try:
            measure(bytes(data), f"a.{suffix}", accepts)
        except InputError as e:
            reasons.add(e.reason)
        assert time.perf_counter() - began < SECONDS
    assert reasons <= {"truncated", "unreadable", "not_an_image", "unsupported", "too_large", "wrong_suffix"}
