"""10^9 samples in 10^5 shards: an order takes the memory of a window, and any place of it is found at once."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, time
import numpy as np
from sevenfold.training.order import Layout
from sevenfold.training.plan import EpochPlan
from sevenfold.training.sampler import PlannedBatchSampler

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024

SHARDS, PER = 10**5, 10**4
def sampler(mix):
    if mix:  # the same shards as two sources, of which the second is small
        few = SHARDS // 10
        first = (SHARDS - few) * PER
        sources = (0, first, 0, SHARDS - few), (first, few * PER, SHARDS - few, few)
        layout = Layout(None, np.full(SHARDS, PER), np.arange(SHARDS), sources)
        slots = first, first // 3
        plan = EpochPlan(("c",), "all", sum(slots), seed=5, window=8, mix=(("a", "1", slots[0]), ("b", "2", slots[1])))
    else:
        layout = Layout(None, np.full(SHARDS, PER), np.arange(SHARDS), ((0, SHARDS * PER, 0, SHARDS),))
        plan = EpochPlan(("c",), "all", SHARDS * PER, seed=5, window=8)
    return PlannedBatchSampler(plan, layout, 256)

found = {}
before = peak()
for mix in (False, True):
    one = sampler(mix)
    times = []
    for share in (0.0, 0.5, 0.9, 0.999999):
        one.epoch, one.consumed = 3, int(one.plan.samples * share)
        begun = time.perf_counter()
        block = next(iter(one))
        times.append(time.perf_counter() - begun)
        assert len(set(block)) > 200
    begun = time.perf_counter()
    one.consumed = one.plan.samples // 2
    blocks = iter(one)
    for _ in range(1000):
        next(blocks)
    found["mix" if mix else "plain"] = {
        "bytes": peak() - before, "first block seconds": times, "seconds a block": (time.perf_counter() - begun) / 1000,
    }
print(json.dumps(found))
"""


def test_memory_is_a_windows_and_seek_is_immediate() -> None:
    out = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    found = json.loads(out.stdout)
    print(found)
    for case in found.values():
        assert case["bytes"] < 64 << 20, "layout and order; 10^9 positions as int64 would be 8 GB"
        first, *further = case["first block seconds"]
        assert max(case["first block seconds"]) < 1.0
        assert min(further) < 10 * first + 0.05, "the end of an epoch is found as fast as its start"
        assert case["seconds a block"] < 0.01
