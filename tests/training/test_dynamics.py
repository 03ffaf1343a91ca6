"""Training dynamics: EL2N, forgetting events and AUM as their papers define them, kept as signals of label scope."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.storage import Lake, SevenfoldError, takedown
from sevenfold.storage.index import read_parquet
from sevenfold.training import dynamics
from sevenfold.training.config import TrainConfig, parse
from sevenfold.training.dynamics import Dynamics, early
from sevenfold.training.launch import launch
from sevenfold.training.place import Place
from sevenfold.training.trainer import train


def config(**values: object) -> TrainConfig:
    base = {"dataset": "toy", "epochs": 3, "batch_size": 16, "lr": 0.1, "widths": [4, 8], "threads": 1}
    return parse({**base, **values})


def naive(steps: list[tuple[np.ndarray, np.ndarray]], labels: np.ndarray, window: tuple[int, int]) -> list[dict]:
    """The definitions, one sample at a time."""
    found = []
    for row, label in enumerate(labels):
        errors, margins = [], []
        for step, (rows, logits) in enumerate(steps):
            for z in logits[rows == row]:
                p = np.exp(z - z.max())
                p = p / p.sum()
                if window[0] <= step < window[1]:
                    errors.append(np.linalg.norm(p - np.eye(len(z))[label]))
                margins.append(z[label] - np.delete(z, label).max())
        right = [m > 0 for m in margins]
        events = sum(a and not b for a, b in pairwise(right))
        found.append(
            {
                "uses": len(margins),
                "el2n": float(np.mean(errors)) if errors else None,
                "forgetting": float(events if any(right) else len(right)),
                "aum": float(np.mean(margins)) if margins else None,
                "learned": float(np.mean(right)) if right else None,
            }
        )
    return found


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(2, 5), st.integers(1, 8))
def test_the_statistics_are_those_of_the_papers(seed: int, n: int, classes: int, epochs: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    window = (1, 1 + int(rng.integers(1, 4)))
    noted = Dynamics(n, window)
    steps = []
    for step in range(epochs):
        rows = rng.permutation(n + 2)[: int(rng.integers(1, n + 2))]  # the last two are mixed in from elsewhere
        logits = rng.normal(size=(len(rows), classes)).astype(np.float32) * 3
        of_row = torch.tensor(np.append(labels, [0, 0])[rows])
        noted.watch(step, torch.tensor(rows), of_row, torch.tensor(logits))
        steps.append((rows, logits))
        if rng.integers(2):  # whenever a checkpoint comes
            noted.gather(Place())
    noted.gather(Place())
    samples = pa.table({"id": [f"{i}" for i in range(n + 2)], "label": [str(c) for c in [*labels, 0, 0]]})
    table = {row["id"]: row for row in noted.table(samples, "c" * 64).to_pylist()}
    for i, expected in enumerate(naive(steps, labels, window)):
        if not expected["uses"]:
            assert str(i) not in table
            continue
        for name, value in expected.items():
            assert table[str(i)][name] == (None if value is None else pytest.approx(value, abs=1e-4)), name
    assert set(table) <= {str(i) for i in range(n)}


def test_el2n_looks_at_the_second_quarter() -> None:
    assert early(40 * 10, 10) == (100, 200)
    assert early(4 * 10, 10) == (10, 20)
    assert early(10, 10) == (0, 10)
    assert early(2 * 10, 10) == (0, 10)
    assert early(3, 10) == (0, 10), "a training of less than an epoch counts as one"


def test_one_class_has_no_rival() -> None:
    noted = Dynamics(1, (0, 1))
    noted.watch(0, torch.tensor([0]), torch.tensor([0]), torch.tensor([[2.0]]))
    noted.gather(Place())
    row = noted.table(pa.table({"id": ["a"], "label": ["x"]}), "c")
    assert (row["el2n"][0].as_py(), row["aum"][0].as_py()) == (0.0, 2.0)


def test_seeds_are_averaged_into_signals_of_label_scope(toy_root: Path) -> None:
    lake = Lake.open(toy_root)
    runs = train(str(toy_root), config(seeds=[0, 1]), Place())
    parts = [read_parquet(lake.store, f"runs/{r['run_id']}/dynamics.parquet", dynamics.TABLE) for r in runs]
    assert [p.num_rows for p in parts] == [90, 90]
    assert pc.all(pc.equal(parts[0]["uses"], 3)).as_py()
    for name in dynamics.SIGNALS:
        signal = lake.signal(name).sort_by("id")
        assert signal.num_rows == 90
        assert pc.unique(signal["scope"]).to_pylist() == ["label"] and pc.all(signal["in_sample"]).as_py()
        assert pc.unique(signal["producer"])[0].as_py().startswith("dynamics-")
        both = [p.sort_by("id")[name].to_numpy() for p in parts]
        np.testing.assert_allclose(signal["value"].to_numpy(), np.mean(both, axis=0), rtol=1e-12)
    found = lake.sql("select count(*) n, count(el2n) k from scored where split = 'train'", "toy").to_pylist()
    assert found == [{"n": 90, "k": 90}]
    key = next(e for e in lake.store.entries("signals/learned") if e.key.endswith(".parquet"))
    train(str(toy_root), config(seeds=[0, 1]), Place())
    assert lake.store.stat(key.key) == key, "runs that are adopted write nothing anew"


def test_a_wrong_label_stands_out(toy_root: Path) -> None:
    """Swap the label of three samples: theirs are the lowest AUM and high EL2N."""
    lake = Lake.open(toy_root)
    samples = lake.samples("toy").filter(pc.equal(lake.samples("toy")["split"], "train"))
    ids, labels = samples["id"].to_pylist()[:3], samples["label"].to_pylist()[:3]
    other = ["class1" if name == "class0" else "class0" for name in labels]
    lake.commit("toy", message="wrong", overlays=[pa.table({"id": ids, "label": other})])
    train(str(toy_root), config(epochs=6), Place())
    aum = lake.signal("aum").sort_by("value")
    assert set(ids) <= set(aum["id"].to_pylist()[:6])
    el2n = lake.signal("el2n")
    mine = el2n.filter(pc.is_in(el2n["id"], value_set=pa.array(ids)))
    assert pc.mean(mine["value"]).as_py() > 1.5 * pc.mean(el2n["value"]).as_py()


def test_off_means_off_and_no_number_is_a_yes(toy_root: Path) -> None:
    (run,) = train(str(toy_root), config(epochs=1, dynamics=False), Place())
    lake = Lake.open(toy_root)
    assert not lake.store.exists(f"runs/{run['run_id']}/dynamics.parquet") and "aum" not in lake.store.names("signals")
    for wrong in (1, "yes"):
        with pytest.raises(SevenfoldError, match="dynamics"):
            config(dynamics=wrong)
    with pytest.raises(SevenfoldError, match="neither a number nor a name"):
        config(epochs=True)


def test_a_run_that_goes_on_from_other_weights_notes_nothing(toy_root: Path) -> None:
    (first,) = train(str(toy_root), config(epochs=1), Place())
    more = config(epochs=1, init_from=str(toy_root / "runs" / first["run_id"]))
    (second,) = train(str(toy_root), more, Place())
    lake = Lake.open(toy_root)
    assert lake.store.names("signals/aum") == [first["run_id"]] and first["run_id"] != second["run_id"]


def test_takedown_erases_what_was_noted(toy_root: Path) -> None:
    (run,) = train(str(toy_root), config(epochs=1), Place())
    lake = Lake.open(toy_root)
    gone = lake.signal("aum")["id"][5].as_py()
    request = takedown.Request(key=gone)
    takedown.carry_out(lake.store, request, takedown.find(lake.store, request), "asked")  # type: ignore[arg-type]
    left = read_parquet(lake.store, f"runs/{run['run_id']}/dynamics.parquet")
    assert left.num_rows == 89 and gone not in left["id"].to_pylist()
    assert gone not in lake.signal("el2n")["id"].to_pylist()


@pytest.mark.slow
def test_two_ranks_note_what_one_does(toy_root: Path, tmp_path: Path) -> None:
    tables = []
    for ranks in (1, 2):
        root = tmp_path / f"of-{ranks}"
        for path in (p for p in toy_root.rglob("*") if p.is_file()):
            target = root / path.relative_to(toy_root)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.hardlink_to(path)
        settings_ = config(ranks=ranks, norm="group", precision="fp32", batch_size=14, checkpoint_every=4)
        (run,) = launch(root, settings_)["runs"]
        store = Lake.open(root).store
        tables.append(read_parquet(store, f"runs/{run['run_id']}/dynamics.parquet", dynamics.TABLE))
    one, two = tables
    assert one["id"].equals(two["id"]) and one["uses"].equals(two["uses"])
    for name in ("el2n", "aum"):
        np.testing.assert_allclose(one[name].to_numpy(), two[name].to_numpy(), rtol=1e-3, atol=1e-4)
    for name in ("forgetting", "learned"):  # a margin within rounding of 0 may fall on either side
        assert np.mean(one[name].to_numpy() != two[name].to_numpy()) < 0.03
