"""Training through the launcher: results, predictions, adoption, selections, out-of-fold scores, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.leases import active
from sevenfold.storage.store import LocalStore
from sevenfold.training.config import TrainConfig, parse
from sevenfold.training.launch import launch
from sevenfold.training.learner import learning_rate
from sevenfold.training.loader import make_loader
from sevenfold.training.models import build_model, load_weights, to_input
from sevenfold.training.place import Place
from sevenfold.training.score import score
from sevenfold.training.selection import fold_of, select
from sevenfold.training.steps import read_steps
from sevenfold.training.task import Task, resolve
from sevenfold.training.trainer import train

ALONE = Place()


def config(**values: Any) -> TrainConfig:
    base = {
        "dataset": "toy",
        "epochs": 2,
        "batch_size": 32,
        "lr": 0.1,
        "widths": [8, 16],
        "precision": "fp32",
        "threads": 1,
    }
    return parse({**base, "threads": 1, **values})


def test_a_run_leaves_everything_and_is_adopted_the_second_time(toy_root: Path) -> None:
    lake = Lake.open(toy_root)
    calls: list[tuple[int, int, str]] = []
    first, second = train(str(toy_root), config(seeds=[0, 1]), ALONE, lambda *call: calls.append(call))
    assert first["run_id"] != second["run_id"] and not first["adopted"]
    folder = toy_root / "runs" / first["run_id"]
    assert json.loads((folder / "result.json").read_bytes()) == json.loads(json.dumps(first))
    assert json.loads((folder / "config.json").read_bytes())["run_id"] == first["run_id"]
    assert [p["epoch"] for p in first["history"]] == [1, 2]
    assert first["history"][1]["train_loss"] < first["history"][0]["train_loss"]
    assert first["splits"]["test"]["n"] == first["splits"]["val"]["n"] == 24
    assert first["splits"]["test"]["accuracy"] == first["splits"]["test"]["by_batch"]["b1"]["accuracy"] > 0.5
    assert first["samples"] == 180 and first["steps"] == 6

    steps = read_steps(lake.store, f"runs/{first['run_id']}/steps")
    assert steps["step"].to_pylist() == list(range(6)) and steps["samples"].to_pylist() == [32, 32, 26] * 2
    phases = sum(steps[c].to_numpy() for c in ("data", "forward", "backward", "optimizer"))
    assert (phases <= steps["total"].to_numpy() + 1e-9).all() and phases.sum() > 0.9 * pc.sum(steps["total"]).as_py()

    table, samples = lake.predictions(first["run_id"]), lake.samples("toy")
    assert table["id"].to_pylist() == samples["id"].to_pylist()
    assert table["in_sample"].to_pylist() == [s == "train" for s in samples["split"].to_pylist()]
    assert set(table["fold"].to_pylist()) == {-1}
    probs = np.array(table["probs"].to_pylist())
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(table["confidence"], probs.max(1), rtol=1e-5)
    pool = np.array([s == "pool" for s in samples["split"].to_pylist()])
    assert [v is None for v in table["loss"].to_pylist()] == pool.tolist()
    top = np.sort(probs, 1)
    np.testing.assert_allclose(table["margin"].to_numpy()[pool], (top[:, -1] - top[:, -2])[pool], rtol=1e-4, atol=1e-6)
    assert calls[-1][2] == "predicting" and any("training" in c[2] for c in calls)

    mark = (folder / "result.json").stat().st_mtime_ns
    again = train(str(toy_root), config(seeds=[0, 2], threads=2, workers=1), ALONE)
    assert again[0]["adopted"] and again[0]["run_id"] == first["run_id"] and not again[1]["adopted"]
    assert (folder / "result.json").stat().st_mtime_ns == mark


@pytest.mark.parametrize(("work", "values"), [(train, {}), (score, {"folds": 2, "epochs": 1})])
def test_a_lease_on_the_version_is_held_while_it_is_read(toy_root: Path, work: Any, values: dict[str, Any]) -> None:
    lake = Lake.open(toy_root)
    held: list[Any] = []
    work(str(toy_root), config(**values), ALONE, lambda *call: held.extend(active(lake.store)))
    assert {(x.what, x.content_ids) for x in held} == {(work.__name__, (lake.version("toy").content_id,))}
    assert active(lake.store) == []


@pytest.mark.e2e
def test_two_ranks_through_the_launcher(toy_root: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    result = launch(toy_root, config(epochs=1, batch_size=31), ranks=2, progress=lambda *call: calls.append(call))
    (run,) = result["runs"]
    assert run["ranks"] == 2 and run["samples"] == 90 and run["splits"]["test"]["n"] == 24
    steps = read_steps(LocalStore(toy_root), f"runs/{run['run_id']}/steps")
    assert steps["rank"].to_pylist() == [0, 0, 0, 1, 1, 1]
    losses = steps["loss"].to_numpy()
    assert (losses[:3] == losses[3:]).all(), "the loss of a step is the global block's, the same on both ranks"
    assert Lake.open(toy_root).predictions(run["run_id"]).num_rows == 150
    assert calls[-1][:2] == (150, 150)
    alone = train(str(toy_root), config(epochs=1, batch_size=31, attempt=1), ALONE)[0]
    assert alone["history"][0]["train_loss"] == pytest.approx(run["history"][0]["train_loss"], rel=1e-3)


@pytest.mark.e2e
def test_an_error_in_a_rank_comes_back_as_one_that_says_what_happened(toy_root: Path) -> None:
    with pytest.raises(SevenfoldError, match="no_such_package"):
        launch(toy_root, config(model="no_such_package:make"))
    (toy_root / "bad_model.py").write_text("def make(**kw):\n    raise RuntimeError('out of luck')\n")
    with pytest.raises(SevenfoldError, match=r"bad_model.py, line 2: (.|\n)*RuntimeError: out of luck"):
        launch(toy_root, config(model="bad_model:make"), ranks=2, extra_env={"PYTHONPATH": str(toy_root)})


def test_out_of_fold_scores(toy_root: Path) -> None:
    lake = Lake.open(toy_root)
    result = score(str(toy_root), config(folds=3, epochs=1), ALONE)
    table, samples = lake.predictions(result["run_id"]), lake.samples("toy")
    assert not any(table["in_sample"].to_pylist())
    assert table["id"].to_pylist() == samples["id"].to_pylist()
    splits = np.array(samples["split"].to_pylist())
    folds = np.array(table["fold"].to_pylist())
    expected = np.where(splits == "train", fold_of(samples["id"].to_pylist(), 3), -1)
    assert (folds == expected).all()
    for fold, run in enumerate(result["fold_runs"]):
        seen = set(pq.read_table(toy_root / "runs" / run / "trained.parquet")["id"].to_pylist())
        held = set(samples["id"].filter(np.asarray(expected == fold)).to_pylist())
        assert not seen & held and len(seen) + len(held) == 90
        part = lake.predictions(run)
        ours = {i: p for i, p in zip(table["id"].to_pylist(), table["probs"].to_pylist(), strict=True) if i in held}
        theirs = {i: p for i, p in zip(part["id"].to_pylist(), part["probs"].to_pylist(), strict=True) if i in held}
        assert all(np.allclose(ours[i], theirs[i], atol=1e-6) for i in held)
    assert result["held_out"] == 90 and result["out_of_fold"]["n"] == 90
    assert score(str(toy_root), config(folds=3, epochs=1), ALONE)["adopted"]


def test_score_looks_at_mirror_images_too_if_the_model_was_trained_on_them(toy_root: Path) -> None:
    lake = Lake.open(toy_root)
    for augment, views in ((["flip"], "flip"), (["flip", "shift"], "shift"), ([], "one")):
        result = score(str(toy_root), config(folds=2, epochs=1, augment=augment), ALONE)
        run = result["fold_runs"][0]
        about = json.loads((toy_root / "runs" / run / "config.json").read_text())
        assert about["config"]["views"] == views
        task = Task.of(lake, resolve(lake, config()))
        model = build_model("residual_cnn", num_classes=len(task.classes), channels=3, size=16, widths=(8, 16)).eval()
        load_weights(model, toy_root / "runs" / run / "model.safetensors")
        table = lake.predictions(run)
        rows = pc.index_in(table["id"], value_set=task.samples["id"].combine_chunks()).to_pylist()
        (batch,) = make_loader(task.dataset, [rows])
        with torch.inference_mode():
            images = to_input(batch["images"], torch.device("cpu"))
            logits = model(images)
            if views != "one":
                logits = (logits + model(images.flip(3))) / 2
            if views == "shift":
                padded = torch.nn.functional.pad(images, (1, 1, 1, 1), mode="reflect")
                corners = [padded[:, :, at : at + 16, at : at + 16] for at in (0, 2)]
                logits = logits / 2 + sum(model(x) + model(x.flip(3)) for x in corners) / 8
        assert np.allclose(np.array(table["probs"].to_pylist()), logits.softmax(1).numpy(), atol=1e-4)


def test_a_listed_selection_repeats_and_refuses(toy_root: Path, tmp_path: Path) -> None:
    samples = Lake.open(toy_root).samples("toy")
    ids = samples["id"].to_pylist()
    train_ids = samples.filter(pc.equal(samples["split"], "train"))["id"].to_pylist()
    listed = [train_ids[5], train_ids[2], train_ids[5]]
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(listed))
    chosen = select(samples, config(select_ids=str(path)))
    assert [ids[r] for r in chosen.rows] == listed
    (run,) = train(str(toy_root), config(select_ids=str(path), batch_size=2, epochs=1), ALONE)
    assert run["trained"] == 3 and run["samples"] == 3
    assert sum(Lake.open(toy_root).predictions(run["run_id"])["in_sample"].to_pylist()) == 2
    path.write_text(json.dumps(listed[::-1][:2]))
    assert (
        train(str(toy_root), config(select_ids=str(path), batch_size=2, epochs=1), ALONE)[0]["run_id"] != run["run_id"]
    )
    test_id = samples.filter(pc.equal(samples["split"], "test"))["id"][0].as_py()
    for bad, message in (("0" * 64, "not in this version"), (test_id, "cannot be trained on")):
        path.write_text(json.dumps([bad]))
        with pytest.raises(SevenfoldError, match=message):
            select(samples, config(select_ids=str(path)))


def test_fine_tuning_remembers_what_its_ancestors_saw(toy_root: Path, tmp_path: Path) -> None:
    lake = Lake.open(toy_root)
    samples = lake.samples("toy")
    train_ids = samples.filter(pc.equal(samples["split"], "train"))["id"].to_pylist()
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(train_ids[:40]))
    (parent,) = train(str(toy_root), config(select_ids=str(path)), ALONE)
    folder = str(toy_root / "runs" / parent["run_id"])
    path.write_text(json.dumps(train_ids[40:60]))
    (child,) = train(str(toy_root), config(select_ids=str(path), init_from=folder, epochs=1, lr=0.01), ALONE)
    table = lake.predictions(child["run_id"])
    seen = set(table["id"].filter(table["in_sample"]).to_pylist())
    assert seen == set(train_ids[:60])
    (same,) = train(str(toy_root), config(init_from=folder, epochs=0), ALONE)
    assert same["splits"]["test"]["accuracy"] == parent["splits"]["test"]["accuracy"] and same["steps"] == 0
    assert sum(lake.predictions(same["run_id"])["in_sample"].to_pylist()) == 40


def test_settings_that_are_wrong_name_the_right_ones() -> None:
    with pytest.raises(SevenfoldError, match=r"'epocs'(.|\n)*did you mean 'epochs'"):
        config(epocs=3)
    with pytest.raises(SevenfoldError, match="a seed occurs twice"):
        config(seeds=[1, 1])
    with pytest.raises(SevenfoldError, match="fold 2 of 2"):
        config(hold_out={"fold": 2, "of": 2})


def test_the_learning_rate_rises_then_falls_to_nearly_nothing() -> None:
    rates = [learning_rate(i, 100, 0.3, 0.25) for i in range(100)]
    assert max(rates) == pytest.approx(0.3) and rates.index(max(rates)) in (24, 25)
    assert rates[0] == pytest.approx(0.3 / 25) and rates[-1] == pytest.approx(0.3 / 75)
    assert [learning_rate(i, 4, 1.0, 0.0) for i in range(4)] == [1.0, 0.75, 0.5, 0.25]


def test_folds_are_a_function_of_the_id_and_about_equal() -> None:
    ids = [f"{i:064x}" for i in range(3000)]
    folds = fold_of(ids, 3)
    assert np.bincount(folds).min() > 900
    assert (fold_of(ids[::-1], 3)[::-1] == folds).all()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise RuntimeError('out of luck')", "RuntimeError: out of luck"),
        ("return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes + 2))", "logits"),
        ("return nn.Conv2d(channels, num_classes, 1)", "logits"),
        ("return nn.Flatten()", "no parameter"),
        ("return nn.Linear(7, num_classes)", "shapes cannot be multiplied"),
    ],
)
def test_a_model_of_the_wrong_shape_is_one_clear_error(
    body: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"odd_model_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(f"from torch import nn\ndef make(num_classes, channels, size):\n    {body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SevenfoldError) as error:
        build_model(f"{name}:make", num_classes=3, channels=3, size=8)
    assert said in error.value.found + error.value.expected and name in error.value.where


def test_a_training_that_diverges_says_so(toy_root: Path) -> None:
    with pytest.raises(SevenfoldError, match=r"diverged(.|\n)*lower lr"):
        train(str(toy_root), config(lr=1e30), ALONE)
    with pytest.raises(SevenfoldError, match="lr: Input should be a finite number"):
        config(lr=float("inf"))
