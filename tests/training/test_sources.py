"""Mixing in other datasets, slices and replay lists: by class name, never what the base evaluates on."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sevenfold.storage import Lake, SevenfoldError, takedown
from sevenfold.storage.index import OVERLAY
from sevenfold.training.config import TrainConfig, parse
from sevenfold.training.place import Place
from sevenfold.training.replay import replay_selection
from sevenfold.training.run import run_id
from sevenfold.training.score import score
from sevenfold.training.selection import fold_of
from sevenfold.training.task import Task, content_ids, resolve
from sevenfold.training.trainer import train


def config(**values: Any) -> TrainConfig:
    base = {"dataset": "toy", "epochs": 2, "batch_size": 32, "lr": 0.1, "widths": [8], "precision": "fp32"}
    return parse({**base, "threads": 1, **values})


@pytest.fixture
def lake(toy_root: Path, tmp_path: Path) -> Lake:
    """The toy lake and a dataset `more`: 20 new images of class1, 3 zebras, 5 that toy tests on, 7 it trains on."""
    lake = Lake.open(toy_root)
    samples = lake.samples("toy")
    rows = ["path,label,split"]
    (tmp_path / "more").mkdir()

    def add(name: str, data: bytes, label: str) -> None:
        (tmp_path / "more" / name).write_bytes(data)
        rows.append(f"{name},{label},train")

    rng = np.random.default_rng(1)
    for i in range(23):
        path = tmp_path / "new.png"
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(path)
        add(f"new{i}.png", path.read_bytes(), "class1" if i < 20 else "zebra")
    for split, count in (("test", 5), ("train", 7)):
        part = samples.filter(pc.equal(samples["split"], split)).slice(0, count)
        for i, data in enumerate(lake.read_images(part)):
            add(f"{split}{i}.{part['ext'][i].as_py()}", data, part["label"][i].as_py())
    (tmp_path / "more" / "index.csv").write_text("\n".join(rows) + "\n")
    lake.ingest(tmp_path / "more" / "index.csv", "more", "b1")
    lake.set_status("more", "b1", "admitted")
    lake.commit("more", message="more")
    return lake


def without_zebras(lake: Lake, tmp_path: Path) -> str:
    more = lake.samples("more")
    path = tmp_path / "known.json"
    path.write_text(json.dumps(more.filter(pc.not_equal(more["label"], "zebra"))["id"].to_pylist()))
    return str(path)


def task_of(lake: Lake, **values: Any) -> Task:
    return Task.of(lake, resolve(lake, config(**values)))


def epoch_ids(task: Task, epoch: int, seed: int = 0) -> list[str]:
    order = task.plan(seed).order(task.layout, epoch)  # type: ignore[union-attr]
    return task.samples["id"].take(task.layout.rows_of(order.take(0, order.samples)[0])).to_pylist()


def test_another_dataset_comes_in_its_ratio_without_what_the_base_tests_on(lake: Lake, tmp_path: Path) -> None:
    listed = without_zebras(lake, tmp_path)
    task = task_of(lake, mix=[{"dataset": "more", "ids": listed, "ratio": 0.5}])
    assert [(s["samples"], s["slots"], s["left_out"]) for s in task.sources()] == [(90, 90, 0), (27, 45, 5)]
    toy, more = lake.samples("toy"), lake.samples("more")
    base = toy.filter(pc.equal(toy["split"], "train"))["id"].to_pylist()
    tested = set(toy.filter(pc.equal(toy["split"], "test"))["id"].to_pylist())
    ids = epoch_ids(task, 0)
    counts = {i: ids.count(i) for i in set(ids)}
    both = set(more["id"].to_pylist()) & set(base)
    assert len(ids) == 135 and len(both) == 7
    assert all(counts[i] == 1 for i in set(base) - both)
    assert all(counts[i] in (1, 2) for i in set(ids) - set(base)), "45 slots over 27 samples: once or twice"
    assert all(counts[i] in (2, 3) for i in both)
    assert not set(ids) & tested
    more_label = dict(zip(more["id"].to_pylist(), more["label"].to_pylist(), strict=True))
    batch = task.dataset.__getitems__(task.selection.rows.tolist())
    assert batch["mask"].all()
    for row, label in zip(task.selection.rows[90:].tolist(), batch["label"][90:].tolist(), strict=True):
        assert task.classes[label] == more_label[task.samples["id"][row].as_py()]


def twins(lake: Lake, tmp_path: Path) -> dict[str, list[str]]:
    """A dataset `twins`: the pixels of six images each of toy's test and train in other files; ids by that split."""
    rows, ids = ["path,label,split"], {}
    (tmp_path / "twins").mkdir()
    toy = lake.samples("toy")
    for split in ("test", "train"):
        part = toy.filter(pc.and_(pc.equal(toy["split"], split), pc.equal(toy["label"], "class1"))).slice(0, 6)
        ids[split] = part["pixel_digest"].to_pylist()
        for i, data in enumerate(lake.read_images(part)):
            Image.open(io.BytesIO(data)).save(tmp_path / "twins" / f"{split}{i}.tiff")
            rows.append(f"{split}{i}.tiff,class1,train")
    (tmp_path / "twins" / "index.csv").write_text("\n".join(rows) + "\n")
    lake.ingest(tmp_path / "twins" / "index.csv", "twins", "b1")
    lake.set_status("twins", "b1", "admitted")
    lake.commit("twins", message="twins")
    stored = lake.samples("twins")
    assert not set(stored["id"].to_pylist()) & set(toy["id"].to_pylist())
    of = dict(zip(stored["pixel_digest"].to_pylist(), stored["id"].to_pylist(), strict=True))
    return {split: [of[p] for p in digests] for split, digests in ids.items()}


def test_the_pixels_of_a_test_sample_stay_out_under_another_id_too(lake: Lake, tmp_path: Path) -> None:
    own_files(lake)
    ids = twins(lake, tmp_path)
    settings = resolve(lake, config(mix=[{"dataset": "twins", "ratio": 0.5}]))
    task = Task.of(lake, settings)
    assert [s["left_out"] for s in task.sources()] == [0, 6]
    assert sorted(task.samples["id"].take(task.selection.rows[90:]).to_pylist()) == sorted(ids["train"])
    for fold in range(2):
        held = Task.of(lake, settings.changed(hold_out={"fold": fold, "of": 2}))
        seen = held.samples.take(held.selection.rows)["pixel_digest"].to_pylist()
        out = held.samples.take(held.selection.held_out)["pixel_digest"].to_pylist()
        assert out and not set(seen) & set(out), "nor do those of the fold that is held out"
        assert held.samples.equals(task.samples), "the folds of a score share the pixels of one table"
    pixels = dict(zip(task.samples["id"].to_pylist(), task.samples["pixel_digest"].to_pylist(), strict=True))
    test = lake.samples("twins").filter(pc.is_in(lake.samples("twins")["id"], pa.array(ids["test"])))
    gone = [test["id"][0].as_py(), by_pixels(lake.samples("toy"), test["pixel_digest"][1].as_py()), ids["train"][0]]
    for key in gone:
        take_down(lake, key)
    after = Task.of(lake, settings)
    assert after.plan(0) == task.plan(0), "a takedown, of either, brings nothing in"
    now = zip(after.samples["id"].to_pylist(), after.samples["pixel_digest"].to_pylist(), strict=True)
    assert all(pixels[i] == digest for i, digest in now if i in pixels)


def by_pixels(samples: pa.Table, digest: str) -> str:
    return str(samples.filter(pc.equal(samples["pixel_digest"], digest))["id"][0].as_py())


def own_files(lake: Lake) -> None:
    """Files of its own, not links to those of others."""
    for path in [p for p in lake.root.rglob("*") if p.is_file()]:
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)


def take_down(lake: Lake, key: str) -> None:
    request = takedown.Request(key=key)
    found = takedown.find(lake.store, request)
    assert not isinstance(found, takedown.Takedown)
    takedown.carry_out(lake.store, request, found, "asked for")


def test_two_uses_of_a_sample_in_one_epoch_are_told_apart(lake: Lake, tmp_path: Path) -> None:
    task = task_of(lake, mix=[{"dataset": "more", "ids": without_zebras(lake, tmp_path), "ratio": 0.5}])
    sampler, seen = task.sampler(0), []
    for _ in range(12):
        rows, uses = next(iter(sampler)), sampler.occurrences().tolist()
        seen += [(task.samples["id"][r].as_py(), u) for r, u in zip(rows, uses, strict=True) if r >= 0]
        sampler.advance()
    assert len(seen) > 300 and len(set(seen)) == len(seen)


def test_an_unknown_class_is_an_error_that_names_it(lake: Lake) -> None:
    with pytest.raises(SevenfoldError, match=r"first is 'zebra' \(3 samples\)"):
        task_of(lake, mix=[{"dataset": "more", "ratio": 1}])


@pytest.mark.parametrize(
    ("ratios", "size", "found"),
    [
        ([1e-300], None, "train of .* has no slot"),
        ([1e308], None, r"would have \(90, \d{10}\) slots"),
        ([1e308, 1e308], None, "slots"),
        ([1e308], 40, "the base selection has no slot"),
        ([0.5], 10**30, "slots"),
    ],
)
def test_ratios_that_leave_a_source_without_a_slot_or_with_too_many_are_refused(
    lake: Lake, ratios: list[float], size: int | None, found: str
) -> None:
    with pytest.raises(SevenfoldError, match=found):
        task_of(lake, mix=[{"ref": "v1", "ratio": r} for r in ratios], mix_size=size)


@pytest.mark.parametrize("seed", [-1, 2**64 - 1, 10**30, -(10**30)])
def test_any_whole_number_is_a_seed(lake: Lake, seed: int) -> None:
    (run,) = train(str(lake.root), config(seeds=[seed], epochs=1), Place())
    assert run["seed"] == seed and run["samples"] == 90


def test_all_content_ids_and_ratios_are_in_the_plan_and_the_identity(lake: Lake, tmp_path: Path) -> None:
    listed = without_zebras(lake, tmp_path)

    def of(**source: Any) -> tuple[str, str]:
        settings = resolve(lake, config(mix=[{"dataset": "more", "ids": listed, "ratio": 0.5, **source}]))
        return run_id(settings, 0, "code"), Task.of(lake, settings).plan(0).digest

    task = task_of(lake, mix=[{"dataset": "more", "ids": listed, "ratio": 0.5}])
    assert list(task.plan(0).content_ids) == content_ids(task.config)
    assert content_ids(task.config) == [lake.version(d).content_id for d in ("toy", "more")]
    copy = tmp_path / "copy.json"
    copy.write_text(Path(listed).read_text())
    assert of() == of(ids=str(copy)) == of(ref="v1"), "paths and names are no part of what is mixed"
    copy.write_text(json.dumps(json.loads(Path(listed).read_text())[:-1]))
    assert len({of(), of(ids=str(copy)), of(ratio=0.6)}) == 3
    alone = resolve(lake, config())
    assert run_id(alone, 0, "code") != of()[0] and Task.of(lake, alone).plan(0).digest != of()[1]


def test_a_replay_is_a_list_of_ids_with_a_ratio(lake: Lake, tmp_path: Path) -> None:
    toy = lake.samples("toy")
    train_ids = toy.filter(pc.equal(toy["split"], "train"))["id"].to_pylist()
    new = train_ids[:10]
    replayed = replay_selection(new, toy, ratio=3)
    for name, ids in (("new", new), ("old", replayed)):
        (tmp_path / f"{name}.json").write_text(json.dumps(list(ids)))
    ratio = len(replayed) / len(new)
    replay = {"ids": str(tmp_path / "old.json"), "ratio": ratio}
    task = task_of(lake, select_ids=str(tmp_path / "new.json"), mix=[replay])
    assert task.samples.num_rows == task.base == toy.num_rows, "nothing is appended for the version itself"
    for epoch in range(3):
        ids = epoch_ids(task, epoch)
        assert sorted(ids) == sorted([*new, *replayed])
        for begin in range(0, 36, 4):
            assert 0 <= sum(i in new for i in ids[begin : begin + 4]) <= 2, "one in four, evenly"
    fold = {"fold": 0, "of": 2}
    task = task_of(lake, select_ids=str(tmp_path / "new.json"), mix=[replay], hold_out=fold)
    held = task.samples["id"].take(task.selection.held_out).to_pylist()
    rows = set(task.samples["id"].take(task.selection.rows).to_pylist())
    assert held and not set(held) & rows
    assert set(fold_of(sorted(rows), 2).tolist()) == {1}, "the fold held out is not replayed either"


def test_a_run_on_a_mix_evaluates_and_predicts_the_base_alone_and_says_what_it_left_out(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mix = [{"dataset": "more", "ids": without_zebras(lake, tmp_path), "ratio": 0.5}]
    (run,) = train(str(lake.root), config(mix=mix), Place())
    assert "5 samples of listed ids of" in capsys.readouterr().err
    assert run["samples"] == 270 and run["steps"] == 10 and [h["epoch"] for h in run["history"]] == [1, 2]
    assert [s["left_out"] for s in run["mix"]] == [0, 5]
    assert lake.predictions(run["run_id"])["id"].to_pylist() == lake.samples("toy")["id"].to_pylist()
    assert run["splits"]["test"]["n"] == 24
    trained = pq.read_table(lake.root / "runs" / run["run_id"] / "trained.parquet")["id"].to_pylist()
    assert len(trained) == 110, "20 of them from the other dataset"


def test_out_of_fold_scores_of_a_mix_are_of_samples_that_no_fold_model_saw(lake: Lake, tmp_path: Path) -> None:
    mix = [{"dataset": "more", "ids": without_zebras(lake, tmp_path), "ratio": 0.5}]
    result = score(str(lake.root), config(mix=mix, folds=2, epochs=1), Place())
    table = lake.predictions(result["run_id"])
    assert table["id"].to_pylist() == lake.samples("toy")["id"].to_pylist()
    for fold, run in enumerate(result["fold_runs"]):
        seen = pq.read_table(lake.root / "runs" / run / "trained.parquet")["id"].to_pylist()
        assert seen and fold not in fold_of(seen, 2).tolist(), "samples of the other dataset fall into folds too"


def test_edits_of_a_version_apply_before_its_order_is_planned(lake: Lake) -> None:
    before = task_of(lake)
    ids = epoch_ids(before, 0)
    edits = [
        {"id": ids[0], "exclude": True}, {"id": ids[1], "split": "val"}, {"id": ids[2], "weight": 0.0},
        {"id": ids[3], "weight": 5.0}, {"id": ids[4], "label": "class2"},
    ]  # fmt: skip
    lake.commit("toy", message="edits", overlays=[pa.Table.from_pylist(edits, schema=OVERLAY)])
    after = task_of(lake)
    assert sorted(epoch_ids(after, 0)) == sorted(ids[3:])
    assert after.plan(0).digest != before.plan(0).digest
    rows = pc.index_in(pa.array(ids[3:5]), value_set=after.samples["id"].combine_chunks()).to_pylist()
    batch = after.dataset.__getitems__(rows)
    assert batch["weight"].tolist()[0] == 5.0 and after.classes[int(batch["label"][1])] == "class2"
    drawn = task_of(lake, sampling="with_replacement", steps=1000, epochs=None)
    sampler = drawn.sampler(0)
    positions, _ = sampler.order(0).take(0, 32000)
    counts = np.bincount(drawn.layout.rows_of(positions), minlength=drawn.samples.num_rows)
    assert counts[rows[0]] == pytest.approx(5 * 32000 / 91, rel=0.1), "a weight of 5 among 86 of 1"
    state = before.sampler(0).state()
    with pytest.raises(SevenfoldError, match=r"content_ids was(.|\n)*selection was"):
        after.sampler(0).load_state(state)


def test_a_takedown_of_what_is_mixed_in_leaves_every_other_place(lake: Lake, tmp_path: Path) -> None:
    own_files(lake)
    listed = without_zebras(lake, tmp_path)
    settings = resolve(lake, config(mix=[{"dataset": "more", "ids": listed, "ratio": 0.5}]))
    before = Task.of(lake, settings)
    expected = [epoch_ids(before, epoch) for epoch in range(2)]
    gone = before.samples["id"][-1].as_py()
    take_down(lake, gone)
    after = Task.of(lake, settings)
    assert after.plan(0) == before.plan(0)
    assert [epoch_ids(after, epoch) for epoch in range(2)] == expected
    batch = after.dataset.__getitems__(after.selection.rows.tolist())
    masked = {after.samples["id"][r].as_py() for r in batch["row"][~batch["mask"]].tolist()}
    assert masked == {gone}


def test_draws_by_weight_train_without_an_epoch(lake: Lake) -> None:
    (run,) = train(
        str(lake.root), parse({"dataset": "toy", "sampling": "with_replacement", "steps": 7, "batch_size": 32,
                               "widths": [8], "precision": "fp32", "threads": 1}), Place(),
    )  # fmt: skip
    assert run["steps"] == 7 and run["samples"] == 224
    assert [h["draws"] for h in run["history"]] == [96, 192, 224]
    written = json.loads((lake.root / "runs" / run["run_id"] / "result.json").read_bytes())
    assert "epoch" not in json.dumps(written)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SevenfoldError, match="make no epoch"):
        parse({"dataset": "toy", "sampling": "with_replacement", "steps": 7, "epochs": 3})
    with pytest.raises(SevenfoldError, match="needs steps"):
        parse({"dataset": "toy", "sampling": "with_replacement"})
    with pytest.raises(SevenfoldError, match="takes no mix"):
        parse({"dataset": "toy", "sampling": "with_replacement", "steps": 7, "mix": [{"ids": "x.json", "ratio": 1}]})
    with pytest.raises(SevenfoldError, match="test is not trained on"):
        config(mix=[{"dataset": "more", "splits": ["test"], "ratio": 1}])
    with pytest.raises(SevenfoldError, match=r"'mix.0.ration'(.|\n)*'ratio'"):
        config(mix=[{"dataset": "more", "ration": 1}])
    for key in ("mix_size", "workers", "loader_threads", "prefetch", "window", "batch_size", "seeds", "variant"):
        with pytest.raises(SevenfoldError, match=key):
            config(**{key: True})
    for key in ("workers", "loader_threads", "prefetch"):
        with pytest.raises(SevenfoldError, match=f"{key}: .*1024"):
            config(**{key: 10**30})
    with pytest.raises(SevenfoldError, match=r"mix\.0: ratio is true"):
        config(mix=[{"dataset": "more", "ratio": True}])
    with pytest.raises(SevenfoldError, match="ids and splits"):
        config(mix=[{"ids": "x.json", "splits": ["pool"], "ratio": 1}])
    with pytest.raises(SevenfoldError, match="splits: there is no split 'tset'"):
        config(mix=[{"splits": ["train", "tset"], "ratio": 1}])
    for name, splits in (("eval_splits", ["vall"]), ("train_splits", ["tran"]), ("train_splits", ["train", "test"])):
        with pytest.raises(SevenfoldError, match=name):
            config(**{name: splits})
    for ignored in ({"window": 3}, {"tail": "drop"}):
        with pytest.raises(SevenfoldError, match="no window and no tail"):
            parse({"dataset": "toy", "sampling": "with_replacement", "steps": 7, **ignored})
    again = parse({"dataset": "toy", "sampling": "with_replacement", "steps": 7}).changed(lr=0.2)
    assert again.epochs is None and "epochs" not in again.model_dump()
