"""Resume is exact: a training killed with SIGKILL and started again ends with the very bytes of one left alone."""

from __future__ import annotations

import hashlib
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

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.bucket import BucketStore
from sevenfold.storage.store import LocalStore, Store, open_store
from sevenfold.training import checkpoint
from sevenfold.training.config import TrainConfig, parse
from sevenfold.training.launch import command, launch, prepare
from sevenfold.training.place import Place
from sevenfold.training.steps import read_steps
from sevenfold.training.trainer import train

LEFT = ("model.safetensors", "trained.parquet", "dynamics.parquet")
"""Files of a run that are the same, byte for byte, whether it was killed or not."""


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


def newest_checkpoint(store: Store) -> int:
    """The newest step that has a checkpoint, of the one run there is; 0 for none."""
    runs = [n for n in store.names("runs") if n.startswith("run-")]
    return max((s for r in runs for s in checkpoint.steps(store, f"runs/{r}/checkpoints")), default=0)


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


def finish(root: Path | str, settings: TrainConfig) -> dict[str, Any]:
    """Train to the end; one rank needs no process of its own."""
    return (train(str(root), settings, Place()) if settings.ranks == 1 else launch(root, settings)["runs"])[0]


def kill_during_training(root: Path | str, settings: TrainConfig, after: int) -> None:
    """Start a launch, wait for a checkpoint past step `after`, and SIGKILL only the process that was started."""
    spec, store = prepare(root, settings), open_store(root)
    process = subprocess.Popen(command(spec), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and process.poll() is None:
            if newest_checkpoint(store) > after:
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
    ended = [e.key for e in store.entries("runs") if e.key.endswith("/result.json")]
    assert newest_checkpoint(store) and not ended, "it was killed too late to prove anything"


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("where", "ranks"),
    [
        ("disk", 1),
        pytest.param("disk", 2, marks=pytest.mark.slow),
        ("bucket", 1),
        pytest.param("bucket", 2, marks=pytest.mark.slow),
    ],
)
def test_killed_and_resumed_equals_uninterrupted(
    toy_root: Path,
    tmp_path: Path,
    where: str,
    ranks: int,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one that is killed runs on a disk or in a bucket, the one that is left alone always on a disk."""
    killed: Path | str = tmp_path / "killed" if where == "disk" else request.getfixturevalue("bucket")
    store, quiet = open_store(killed), LocalStore(toy_root)
    for entry in quiet.entries(""):
        store.create(entry.key, quiet.read(entry.key))
    settings = config(ranks=ranks)
    kill_during_training(killed, settings, after=7)
    if where == "bucket":  # it goes on on another machine, which has no copies yet
        monkeypatch.setenv("SEVENFOLD_CACHE", str(tmp_path / "another"))
    found, expected = finish(killed, settings), finish(toy_root, settings)
    assert found["run_id"] == expected["run_id"] and not found["adopted"] and found["notes"] == []
    assert found["resumed_from"] >= 5 and expected["resumed_from"] == 0

    key = f"runs/{found['run_id']}"
    ours, theirs = ([s.read(f"{key}/{n}") for n in LEFT] for s in (store, quiet))
    assert ours == theirs
    drop = ("seconds",)
    histories = [[{k: v for k, v in p.items() if k not in drop} for p in r["history"]] for r in (found, expected)]
    assert histories[0] == histories[1]
    assert found["splits"] == expected["splits"]
    columns = ["rank", "epoch", "step", "samples", "loss", "lr"]
    steps = [read_steps(s, f"{key}/steps") for s in (store, quiet)]
    assert steps[0].select(columns).equals(steps[1].select(columns))
    predictions = [Lake.open(s).predictions(found["run_id"]) for s in (store, quiet)]
    assert predictions[0].equals(predictions[1])
    assert [e.key for e in store.entries("runs")] == [e.key for e in quiet.entries("runs")], "nothing else is left"


@pytest.mark.e2e
@pytest.mark.parametrize("torn", [checkpoint.TENSORS, checkpoint.META])
def test_a_run_goes_on_from_the_checkpoint_before_a_torn_one_and_says_so(toy_root: Path, torn: str) -> None:
    store, settings = LocalStore(toy_root), config(epochs=1)
    (whole,) = train(str(toy_root), settings, Place())
    key = f"runs/{whole['run_id']}"
    weights = store.read(f"{key}/model.safetensors")
    for name in ("result.json", "model.safetensors"):
        store.delete(f"{key}/{name}")
    *_, last = checkpoint.steps(store, f"{key}/checkpoints")
    file = f"{key}/checkpoints/step-{last:08d}/{torn}"
    store.replace(file, store.read(file)[:-10])
    (again,) = train(str(toy_root), settings, Place())
    assert len(again["notes"]) == 1 and f"step {last} is not whole" in again["notes"][0]
    assert store.read(f"{key}/model.safetensors") == weights and again["splits"] == whole["splits"]


@pytest.mark.parametrize("forged", ["plan", "state", "step", "tensors", "shapes", "precision"])
def test_a_whole_checkpoint_of_another_run_is_refused(toy_root: Path, forged: str) -> None:
    """Its digests are right; what it says is not."""
    store, settings = LocalStore(toy_root), config(epochs=1, widths=[4])
    (whole,) = train(str(toy_root), settings, Place())
    key = f"runs/{whole['run_id']}"
    store.delete(f"{key}/result.json")
    folder = f"{key}/checkpoints"
    found, _ = checkpoint.load_newest(store, folder)
    assert found is not None
    meta, values = found.meta, dict(found.tensors)
    if forged == "plan":
        meta["sampler"]["plan"] = "0" * 64
    elif forged == "state":
        meta["state"]["more"] = 1
    elif forged == "step":
        meta["state"]["step"] = 1
    elif forged == "precision":
        del meta["precision"]
    elif forged == "tensors":
        del values[next(n for n in values if n.startswith("model.") and n.endswith("weight"))]
    else:
        values = {name: value.new_zeros(*value.shape, 2) for name, value in values.items()}
    checkpoint.clean(store, folder, 0)
    checkpoint.save(store, folder, found.step, values, meta, keep=1)
    with pytest.raises(SevenfoldError, match="not one of this run") as caught:
        train(str(toy_root), settings, Place())
    assert folder in caught.value.where and "attempt" in caught.value.do


def test_a_checkpoint_that_names_bytes_which_are_no_tensors_is_passed_over(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    three(store)
    at, data = f"{FOLDER}/step-00000015", b"../../etc/passwd"
    named = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "path": "../../../etc/passwd"}
    for meta in ({"tensors": named, "meta": {}}, {"tensors": named, "meta": []}, [], {"tensors": 1, "meta": {}}):
        store.replace(f"{at}/{checkpoint.TENSORS}", data)
        store.replace(f"{at}/{checkpoint.META}", json.dumps(meta).encode())
        step, passed = taken(store)
        assert step == 10 and len(passed) == 1 and "step 15 is not whole" in passed[0]


def tensors(value: float) -> dict[str, torch.Tensor]:
    return {"model.w": torch.full((3,), value)}


@pytest.fixture(params=["disk", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of either kind."""
    return open_store(tmp_path / "lake" if request.param == "disk" else request.getfixturevalue("bucket"))


FOLDER = "runs/run-1/checkpoints"


def three(store: Store, keep: int = 3) -> None:
    for step in (5, 10, 15):
        checkpoint.save(store, FOLDER, step, tensors(step), {"step": step}, keep)


def taken(store: Store) -> tuple[int, list[str]]:
    """(the step a resume takes, what it says of newer ones)."""
    found, passed = checkpoint.load_newest(store, FOLDER)
    if found is None:
        return 0, passed
    assert found.meta == {"step": found.step} and found.tensors["model.w"].tolist() == [float(found.step)] * 3
    return found.step, passed


def test_the_newest_checkpoints_are_kept_and_nothing_else(store: Store) -> None:
    assert checkpoint.load_newest(store, FOLDER) == (None, [])
    three(store, keep=2)
    names = (checkpoint.META, checkpoint.TENSORS)
    assert [e.key for e in store.entries("", hidden=True)] == [
        f"{FOLDER}/step-{step:08d}/{name}" for step in (10, 15) for name in names
    ]
    assert store.names(FOLDER) == ["step-00000010", "step-00000015"] and taken(store) == (15, [])


@pytest.mark.parametrize("torn", ["cut short", "other bytes", "absent", "no meta", "half a meta"])
def test_a_torn_checkpoint_is_never_believed(store: Store, torn: str) -> None:
    """Injected: what a writer that died, or a store that lost bytes, may leave of the newest checkpoint."""
    three(store)
    at = f"{FOLDER}/step-00000015"
    whole = store.read(f"{at}/{checkpoint.TENSORS}")
    if torn == "cut short":
        store.replace(f"{at}/{checkpoint.TENSORS}", whole[:-5])
    elif torn == "other bytes":
        store.replace(f"{at}/{checkpoint.TENSORS}", whole[:-1] + bytes([whole[-1] ^ 1]))
    elif torn == "absent":
        store.delete(f"{at}/{checkpoint.TENSORS}")
    elif torn == "no meta":
        store.delete(f"{at}/{checkpoint.META}")
    else:
        store.replace(f"{at}/{checkpoint.META}", b'{"meta": {"st')
    step, passed = taken(store)
    assert step == 10 and len(passed) == (torn != "no meta") and all("step 15 is not whole" in p for p in passed)

    checkpoint.clean(store, FOLDER, step)
    assert {e.key.split("/")[3] for e in store.entries("", hidden=True)} == {"step-00000005", "step-00000010"}
    checkpoint.save(store, FOLDER, 15, tensors(15), {"step": 15}, keep=3)
    assert taken(store) == (15, [])


class Cut(Exception):
    """The process ended here."""


class _Counting:
    """A store that ends its process instead of its n-th write."""

    left = 0

    def _one(self) -> None:
        if self.left == 0:
            raise Cut
        self.left -= 1

    def replace(self, key: str, data: bytes) -> None:
        self._one()
        super().replace(key, data)  # type: ignore[misc]

    def delete(self, key: str) -> bool:
        self._one()
        return bool(super().delete(key))  # type: ignore[misc]


class CutDisk(_Counting, LocalStore):
    """A disk."""


class CutBucket(_Counting, BucketStore):
    """A bucket."""


def test_a_process_that_ends_between_any_two_writes_leaves_a_whole_checkpoint(store: Store) -> None:
    for after in range(6):
        cut: Any = CutDisk(store.root) if isinstance(store, LocalStore) else CutBucket(store.url)
        for step in (5, 10):
            checkpoint.save(store, FOLDER, step, tensors(step), {"step": step}, keep=2)
        cut.left = after
        ended = after < 4  # tensors, meta, and the two files of the oldest
        try:
            checkpoint.save(cut, FOLDER, 15, tensors(15), {"step": 15}, keep=2)
        except Cut:
            assert ended
        else:
            assert not ended
        assert taken(store) == (10 if after < 2 else 15, [])
        step, _ = taken(store)
        checkpoint.clean(store, FOLDER, step)
        checkpoint.save(store, FOLDER, 15, tensors(15), {"step": 15}, keep=2)
        assert checkpoint.steps(store, FOLDER) == [10, 15] and len(store.entries("", hidden=True)) == 4
        checkpoint.clean(store, FOLDER, 0)
        assert store.entries("", hidden=True) == []


def test_what_killed_writers_left_is_cleared_away(store: Store) -> None:
    three(store)
    for left in (
        "step-00000010/.tmp-ab12",
        "step-00000020/tensors.safetensors",
        "step-00000020/.tmp-cd34",
        ".tmp-ef56",
    ):
        store.replace(f"{FOLDER}/{left}", b"half")
    checkpoint.clean(store, FOLDER, 15)
    assert checkpoint.steps(store, FOLDER) == [5, 10, 15] and taken(store) == (15, [])
    assert len(store.entries("", hidden=True)) == 6


def test_a_bad_copy_on_this_machine_is_fetched_again(bucket: str) -> None:
    store = open_store(bucket)
    three(store)
    store.local(f"{FOLDER}/step-00000015/{checkpoint.TENSORS}").write_bytes(b"damaged")
    assert taken(store) == (15, [])


def test_resuming_on_another_number_of_ranks_sees_the_same_sequence(toy_root: Path) -> None:
    """Stopped by hand after an epoch on one rank, finished on two: same steps, same samples, nearly the same loss."""
    whole = config(epochs=2, batch_size=30, widths=[4], precision="fp32", attempt=7)
    (expected,) = train(str(toy_root), whole, Place())
    folder = toy_root / "runs" / expected["run_id"]
    for name in ("result.json", "model.safetensors"):
        (folder / name).unlink()
    store, key = LocalStore(toy_root), f"runs/{expected['run_id']}"
    newest = checkpoint.steps(store, f"{key}/checkpoints")[-1]
    (folder / "checkpoints" / f"step-{newest:08d}").rename(folder / "gone")
    (found,) = launch(toy_root, whole, ranks=2)["runs"]
    assert found["run_id"] == expected["run_id"] and found["steps"] == expected["steps"] == 6
    steps = read_steps(store, f"{key}/steps").to_pylist()
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
