"""Worker processes of the loader end with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sevenfold.storage import Lake

_KILLED = """
import os, signal, sys, threading, time
from pathlib import Path
from sevenfold.storage import Lake
from sevenfold.training.loader import SampleDataset, make_loader

def kill():  # as soon as both are born: they import torch for seconds yet
    while True:
        pids = [p for task in Path("/proc/self/task").glob("*/children") for p in task.read_text().split()]
        workers = [p for p in pids if b"spawn_main" in Path(f"/proc/{p}/cmdline").read_bytes()]
        if len(workers) == 2:
            print(*pids, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)

if __name__ == "__main__":
    lake = Lake.open(sys.argv[1])
    samples = lake.samples("toy")
    dataset = SampleDataset(lake.shard_path, samples, ("class0", "class1", "class2"), 16, 3)
    threading.Thread(target=kill, daemon=True).start()
    for batch in make_loader(dataset, [[i] for i in range(100)], workers=2):
        time.sleep(0.1)
"""


def running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed_while_they_start(toy_lake: Lake, tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(_KILLED)
    out = tmp_path / "pids"
    with out.open("wb") as file:
        ended = subprocess.run([sys.executable, str(script), str(toy_lake.root)], stdout=file, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    pids = [int(p) for p in out.read_text().split()]
    assert len(pids) >= 2
    try:
        deadline = time.monotonic() + 40
        while any(map(running, pids)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not [p for p in pids if running(p)]
    finally:
        for pid in filter(running, pids):
            os.kill(pid, signal.SIGKILL)
