"""Resume is exact: a training killed with SIGKILL and started again ends with the very bytes of one left alone."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from sevenfold.storage import Lake
from sevenfold.training import checkpoint
from sevenfold.training.config import TrainConfig, parse
from sevenfold.training.launch import command, launch, prepare
from sevenfold.training.place import Place
from sevenfold.training.steps import read_steps
from sevenfold.training.trainer import train


def config(**values: Any) -> TrainConfig:
    base = {
        "dataset": "toy",
        "epochs": 4,
        "batch_size": 8,
        "lr": 0.05,
        "widths": [4, 8],
        "checkpoint_every": 5,
        "threads": 1,
    }
    return parse({**base, "threads": 1, **values})


def run_folder(root: Path) -> Path | None:
    return next(iter((root / "runs").glob("run-*")), None)


def alive(pids: list[int]) -> list[int]:
    """Those that have not ended (a zombie has)."""
    found = []
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if "\nState:\tZ" not in status:
            found.append(pid)
    return found


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *descendants(child)]
    return found


def finish(root: Path, settings: TrainConfig) -> dict[str, Any]:
    """Train to the end; one rank needs no process of its own."""
    return (train(str(root), settings, Place()) if settings.ranks == 1 else launch(root, settings)["runs"])[0]


def kill_during_training(root: Path, settings: TrainConfig, after: int) -> None:
    """Start a launch, wait for a checkpoint past step `after`, and SIGKILL only the process that was started."""
    spec = prepare(root, settings)
    process = subprocess.Popen(command(spec), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and process.poll() is None:
            folder = run_folder(root)
            if folder is not None and max(checkpoint.steps(folder / "checkpoints"), default=0) > after:
                break
            time.sleep(0.005)
        below = descendants(process.pid)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + 10
    while alive(below) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(below), "ranks end with the process that started them"
    folder = run_folder(root)
    assert folder is not None and not (folder / "result.json").exists(), "it was killed too late to prove anything"


@pytest.mark.e2e
@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_and_resumed_equals_uninterrupted(toy_root: Path, tmp_path: Path, ranks: int) -> None:
    quiet = tmp_path / "quiet"
    for path in toy_root.rglob("*"):
        if path.is_file():
            (quiet / path.relative_to(toy_root)).parent.mkdir(parents=True, exist_ok=True)
            (quiet / path.relative_to(toy_root)).hardlink_to(path)
    settings = config(ranks=ranks)
    kill_during_training(toy_root, settings, after=7)
    found, expected = finish(toy_root, settings), finish(quiet, settings)
    assert found["run_id"] == expected["run_id"] and not found["adopted"]

    ours, theirs = (r / "runs" / found["run_id"] for r in (toy_root, quiet))
    assert (ours / "model.safetensors").read_bytes() == (theirs / "model.safetensors").read_bytes()
    drop = ("seconds",)
    histories = [[{k: v for k, v in p.items() if k not in drop} for p in r["history"]] for r in (found, expected)]
    assert histories[0] == histories[1]
    assert found["splits"] == expected["splits"]
    columns = ["rank", "epoch", "step", "samples", "loss", "lr"]
    assert read_steps(ours / "steps").select(columns).equals(read_steps(theirs / "steps").select(columns))
    predictions = [Lake.open(r).predictions(found["run_id"]) for r in (toy_root, quiet)]
    assert predictions[0].equals(predictions[1])


def test_a_checkpoint_is_complete_or_absent(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    for step in (5, 10, 15):
        checkpoint.save(folder, step, {"model.w": torch.full((3,), float(step))}, {"step": step}, keep=2)
    assert checkpoint.steps(folder) == [10, 15]
    half = folder / ".tmp-killed"
    half.mkdir()
    (half / checkpoint.META).write_text("{")
    found = checkpoint.load_newest(folder)
    assert found is not None and found[1] == {"step": 15} and found[0]["model.w"].tolist() == [15.0] * 3
    checkpoint.clean(folder)
    assert sorted(p.name for p in folder.iterdir()) == ["step-00000010", "step-00000015"]
    assert checkpoint.load_newest(tmp_path / "none") is None


def test_resuming_on_another_number_of_ranks_sees_the_same_sequence(toy_root: Path) -> None:
    """Stopped by hand after an epoch on one rank, finished on two: same steps, same samples, nearly the same loss."""
    whole = config(epochs=2, batch_size=30, widths=[4], precision="fp32", attempt=7)
    (expected,) = train(str(toy_root), whole, Place())
    folder = toy_root / "runs" / expected["run_id"]
    for name in ("result.json", "model.safetensors"):
        (folder / name).unlink()
    newest = checkpoint.steps(folder / "checkpoints")[-1]
    (folder / "checkpoints" / f"step-{newest:08d}").rename(folder / "gone")
    (found,) = launch(toy_root, whole, ranks=2)["runs"]
    assert found["run_id"] == expected["run_id"] and found["steps"] == expected["steps"] == 6
    steps = read_steps(folder / "steps").to_pylist()
    per_step: dict[int, int] = {}
    for row in steps:
        per_step[row["step"]] = per_step.get(row["step"], 0) + row["samples"]
    assert per_step == dict.fromkeys(range(6), 30)
    assert found["history"][-1]["train_loss"] == pytest.approx(expected["history"][-1]["train_loss"], rel=1e-3)
    a, b = load_file(folder / "model.safetensors"), load_file(folder / "gone" / checkpoint.TENSORS)
    for name, value in a.items():
        torch.testing.assert_close(value, b[f"model.{name}"], rtol=1e-2, atol=1e-4)
    assert pq.read_table(folder / "trained.parquet").num_rows == 90
    assert json.loads((folder / "result.json").read_bytes())["ranks"] == 2
