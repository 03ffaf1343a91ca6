"""A takedown and training: all other samples come in the same order, a killed run goes on, nothing sees the sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sevenfold.storage import Lake, takedown
from sevenfold.training.config import TrainConfig
from sevenfold.training.place import Place
from sevenfold.training.task import Task, resolve
from sevenfold.training.trainer import train


def take_down(lake: Lake, ids: list[str]) -> None:
    request = takedown.Request(where=f"id in ({', '.join(repr(i) for i in ids)})")
    found = takedown.find(lake.store, request)
    assert not isinstance(found, takedown.Takedown)
    takedown.carry_out(lake.store, request, found, "asked for")


def some(lake: Lake) -> list[str]:
    """One sample of each of train, val, test and pool, and a second of train."""
    rows = lake.samples("toy").to_pylist()
    of = {s: [r["id"] for r in rows if r["split"] == s] for s in ("train", "val", "test", "pool")}
    return [of["train"][3], of["train"][-1], of["val"][0], of["test"][1], of["pool"][2]]


@pytest.fixture
def own_lake(toy_root: Path, tmp_path: Path) -> Lake:
    """The toy lake's bytes in files of its own."""
    for path in [p for p in toy_root.rglob("*") if p.is_file()]:
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
    return Lake.open(toy_root)


@pytest.mark.parametrize("decoded", [False, True])
def test_every_other_sample_keeps_its_place_in_every_epoch(own_lake: Lake, decoded: bool) -> None:
    config = resolve(own_lake, TrainConfig(dataset="toy", window=1, cache_decoded=10**9 if decoded else 0))
    before = Task.of(own_lake, config)
    ids = some(own_lake)
    pixels = before.dataset.__getitems__(list(range(before.samples.num_rows)))
    take_down(own_lake, ids)
    after = Task.of(own_lake, config)
    after.decode()
    assert before.plan(7) == after.plan(7)
    for epoch in range(3):
        orders = []
        for task in (before, after):
            order = task.plan(7).order(task.layout, epoch)
            positions, _ = order.take(0, order.samples)
            orders.append(task.samples["id"].take(task.layout.rows_of(positions)).to_pylist())
        assert orders[0] == orders[1]
    same = after.dataset.__getitems__(list(range(after.samples.num_rows)))
    gone = np.asarray(pc.is_in(after.samples["id"], value_set=pa.array(ids)))
    assert gone.sum() == len(ids)
    assert same["mask"].numpy().tolist() == (~gone).tolist()
    assert not same["images"].numpy()[gone].any()
    assert (same["label"].numpy()[gone] == -1).all()
    for name in ("images", "label", "weight"):
        assert np.array_equal(same[name].numpy()[~gone], pixels[name].numpy()[~gone])
    for split in ("val", "test"):
        assert not set(after.samples["id"].take(after.rows_of_split(split)).to_pylist()) & set(ids)


def test_a_run_that_was_killed_goes_on_on_what_is_left_and_says_so(
    own_lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    config = TrainConfig(
        dataset="toy", epochs=2, batch_size=15, checkpoint_every=1, threads=1, widths=(4, 8), predict="all"
    )
    ids = some(own_lake)

    class Killed(Exception):
        pass

    def stop(done: int, total: int, what: str) -> None:
        if done == 8:
            raise Killed

    with pytest.raises(Killed):
        train(str(own_lake.root), config, Place(), stop)
    take_down(own_lake, ids)
    (result,) = train(str(own_lake.root), config, Place())
    assert (result["steps"], result["taken_down"], result["failed"]) == (12, 5, [])
    assert "5 samples of this version were taken down" in capsys.readouterr().err
    predicted = own_lake.predictions(result["run_id"])["id"].to_pylist()
    assert sorted(predicted) == sorted(own_lake.samples("toy")["id"].to_pylist())
    assert result["splits"]["test"]["n"] == 23
