"""The loader: the same batches by any path (serial, threads, workers, decoded once), bad samples masked in place."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
from itertools import pairwise
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.training.decode import decode
from sevenfold.training.loader import (
    EMPTY,
    OK,
    TAKEN_DOWN,
    UNDECODABLE,
    UNREADABLE,
    ByteDataset,
    SampleDataset,
    make_loader,
)
from sevenfold.training.order import layout
from sevenfold.training.plan import PAD, EpochPlan
from sevenfold.training.sampler import PlannedBatchSampler


def dataset_of(lake: Lake, samples: pa.Table | None = None) -> SampleDataset:
    version = lake.version("toy")
    table = lake.samples("toy") if samples is None else samples
    return SampleDataset(lake.shard_path, table, lake.manifest(version.content_id).classes, 16, 3)


def bytes_of(lake: Lake) -> ByteDataset:
    return ByteDataset(lake.shard_path, lake.samples("toy"), ["class0", "class1", "class2"])


def sampler_of(dataset: SampleDataset, batch: int = 32, rank: int = 0, world: int = 1) -> PlannedBatchSampler:
    plan = EpochPlan(("c",), "all", len(dataset), seed=1, window=2)
    return PlannedBatchSampler(plan, layout(np.arange(len(dataset)), dataset.groups), batch, rank, world)


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_a_batch_is_what_the_index_says(toy_lake: Lake) -> None:
    samples = toy_lake.samples("toy")
    dataset = dataset_of(toy_lake)
    batch = dataset.__getitems__([3, PAD, 140, 3])
    assert {k: (v.dtype, tuple(v.shape)) for k, v in batch.items()} == {
        "images": (torch.uint8, (4, 16, 16, 3)), "label": (torch.int64, (4,)), "row": (torch.int64, (4,)),
        "weight": (torch.float32, (4,)), "mask": (torch.bool, (4,)), "status": (torch.uint8, (4,)),
    }  # fmt: skip
    assert batch["mask"].tolist() == [True, False, True, True]
    assert batch["row"].tolist() == [3, PAD, 140, 3]
    assert batch["weight"].tolist() == [1.0, 0.0, 1.0, 1.0]
    assert not batch["images"][1].any() and batch["label"][1] == -1
    raw = toy_lake.read_images(samples.take([3, 140]))
    for slot, data in ((0, raw[0]), (2, raw[1])):
        pixels = decode(data, 16, 3)
        assert np.array_equal(batch["images"][slot], pixels)
    classes = toy_lake.manifest(toy_lake.version("toy").content_id).classes
    names = [classes[i] if i >= 0 else None for i in dataset.labels]
    assert names == samples["label"].to_pylist() and None in names


@pytest.mark.parametrize("world", [1, 2])
def test_decoding_once_changes_nothing(toy_lake: Lake, world: int) -> None:
    plain, kept = dataset_of(toy_lake), dataset_of(toy_lake)
    kept.decode_all(threads=2)
    for rank in range(world):
        a = make_loader(plain, sampler_of(plain, 32, rank, world))
        b = make_loader(kept, sampler_of(kept, 32, rank, world))
        assert len(a) == len(b) == 5
        assert all(same(x, y) for x, y in zip(a, b, strict=True))


def test_two_workers_deliver_the_same_batches_over_two_epochs(toy_lake: Lake) -> None:
    dataset = dataset_of(toy_lake)
    dataset.__getitems__([0])  # opens a shard in this process, which the workers must not rely on
    sampler, other = sampler_of(dataset), sampler_of(dataset)
    loader = make_loader(dataset, sampler, workers=2)
    for _ in range(2):
        expected = list(make_loader(dataset, other))
        found = []
        for batch in loader:
            found.append(batch)
            sampler.advance()
            other.advance()
        assert len(found) == 5
        assert all(same(x, y) for x, y in zip(found, expected, strict=True))


def test_a_loader_ahead_of_the_trainer_consumes_nothing(toy_lake: Lake) -> None:
    sampler = sampler_of(dataset_of(toy_lake))
    iterator = iter(sampler)
    next(iterator), next(iterator)
    assert sampler.consumed == 0
    sampler.advance()
    assert sampler.consumed == 32
    assert len(sampler) == 4


@pytest.mark.parametrize("decoded", [False, True])
def test_a_broken_sample_keeps_its_slot_masked(toy_lake: Lake, decoded: bool) -> None:
    samples = toy_lake.samples("toy")
    offsets = samples["offset"].to_numpy().copy()
    offsets[7] += 9  # its bytes are no image any more
    offsets[8] = 1 << 40  # past the end of the shard
    i = samples.schema.get_field_index("offset")
    dataset = dataset_of(toy_lake, samples.set_column(i, "offset", pa.array(offsets)))
    if decoded:
        dataset.decode_all(threads=1)
    batch = dataset.__getitems__([6, 7, 8, 9])
    assert batch["mask"].tolist() == [True, False, False, True]
    assert batch["row"].tolist() == [6, 7, 8, 9]
    assert batch["weight"].tolist() == [1.0, 0.0, 0.0, 1.0]
    assert batch["status"].tolist() == [OK, UNDECODABLE, UNREADABLE, OK]
    assert not batch["images"][1:3].any()
    assert "cannot be decoded: UnidentifiedImageError" in dataset.explain(7)
    assert "cannot be read" in dataset.explain(8) and "0 of" in dataset.explain(8)
    assert dataset.explain(9).endswith("is fine") and samples["id"][9].as_py() in dataset.explain(9)


def test_the_dataset_travels_without_its_open_files(toy_lake: Lake) -> None:
    dataset = dataset_of(toy_lake)
    before = dataset.__getitems__([0, 1])
    assert same(pickle.loads(pickle.dumps(dataset)).__getitems__([0, 1]), before)


def test_a_missing_shard_is_an_error_that_says_what_to_do(toy_lake: Lake, tmp_path: Path) -> None:
    dataset = SampleDataset(lambda digest: tmp_path / digest, toy_lake.samples("toy"), ["class0"], 16, 3)
    for threads in (0, 2):
        with pytest.raises(SevenfoldError, match="sevenfold verify") as caught:
            list(make_loader(dataset, [[0, 1]], threads=threads))
        assert caught.value.where == str(tmp_path / dataset.shards[0])


def test_a_shard_cut_short_masks_what_lay_behind(toy_lake: Lake, tmp_path: Path) -> None:
    samples = toy_lake.samples("toy")
    first = samples["shard"][0].as_py()
    path = tmp_path / "cut.tar"
    path.write_bytes(toy_lake.shard_path(first).read_bytes()[: samples["offset"][5].as_py() + 10])
    dataset = SampleDataset(lambda d: path if d == first else toy_lake.shard_path(d), samples, ["class0"], 16, 3)
    for data in (dataset, ByteDataset(lambda d: path if d == first else toy_lake.shard_path(d), samples, [])):
        batch = data.__getitems__(range(8))
        assert batch["status"].tolist() == [OK] * 5 + [UNREADABLE] * 3
        assert batch["mask"].tolist() == [True] * 5 + [False] * 3


def without(samples: pa.Table, row: int, *names: str) -> pa.Table:
    for name in names:
        values = samples[name].to_pylist()
        values[row] = None
        at = samples.schema.get_field_index(name)
        samples = samples.set_column(at, name, pa.array(values, samples.schema.field(at).type))
    return samples


def test_a_sample_that_was_taken_down_is_told_apart_from_one_that_a_variant_lacks(toy_lake: Lake) -> None:
    samples = without(without(toy_lake.samples("toy"), 2, "offset", "size", "ext"), 3, "offset", "size")
    batch = dataset_of(toy_lake, samples).__getitems__([1, 2, 3, PAD])
    assert batch["status"].tolist() == [OK, TAKEN_DOWN, UNDECODABLE, EMPTY]
    assert batch["row"].tolist() == [1, 2, 3, PAD]
    assert "taken down" in dataset_of(toy_lake, samples).explain(2)
    assert "variant" in dataset_of(toy_lake, samples).explain(3)


def test_keys_depend_on_the_id_alone(toy_lake: Lake) -> None:
    samples = toy_lake.samples("toy")
    keys = dataset_of(toy_lake, samples).keys
    assert keys.dtype == np.uint64 and len(set(keys.tolist())) == len(samples)
    some = samples.take([9, 3, 9])
    assert dataset_of(toy_lake, some).keys.tolist() == keys[[9, 3, 9]].tolist()


@given(st.lists(st.lists(st.integers(-1, 149), max_size=40), max_size=6), st.integers(1, 3), st.integers(0, 4))
@settings(max_examples=12)
def test_threads_deliver_what_one_call_makes(
    toy_lake: Lake, batches: list[list[int]], threads: int, prefetch: int
) -> None:
    for dataset in (dataset_of(toy_lake), bytes_of(toy_lake)):
        expected = [dataset.__getitems__(rows) for rows in batches]
        for by in (0, threads):
            found = list(make_loader(dataset, batches, threads=by, prefetch=prefetch))
            assert len(found) == len(expected) and all(same(a, b) for a, b in zip(found, expected, strict=True))


def test_bytes_are_those_of_the_files(toy_lake: Lake) -> None:
    samples = toy_lake.samples("toy")
    files = toy_lake.read_images(samples)
    for rows in ([3, PAD, 140, 3], list(range(150)), []):
        batch = bytes_of(toy_lake).__getitems__(rows)
        data, offsets = batch["data"].numpy().tobytes(), batch["offsets"].tolist()
        assert offsets[0] == 0 and offsets[-1] == len(data)
        parts = [data[a:b] for a, b in pairwise(offsets)]
        assert parts == [files[row] if row != PAD else b"" for row in rows]


def test_a_batch_that_is_kept_is_not_written_over(toy_lake: Lake) -> None:
    """Buffers are used again once nobody holds them: keeping one tensor of a batch must be enough."""
    dataset = dataset_of(toy_lake)
    batches = [np.random.default_rng(i).integers(0, 150, 20).tolist() for i in range(40)]
    for threads in (0, 2):
        kept = [batch["images"] for batch in make_loader(dataset, batches, threads=threads)]
        assert all(
            torch.equal(images, dataset.__getitems__(rows)["images"])
            for images, rows in zip(kept, batches, strict=True)
        )


def test_memory_is_used_again(toy_lake: Lake) -> None:
    loader = make_loader(dataset_of(toy_lake), [[i] * 50 for i in range(60)], threads=2)
    places = set()
    for batch in loader:
        places.add(batch["images"].data_ptr())
    assert len(places) <= 6


def loader_threads() -> int:
    """Those of loaders: other tests' servers and caches may end threads of theirs meanwhile."""
    return sum(thread.name.startswith("sevenfold-loader") for thread in threading.enumerate())


def test_a_loop_left_early_leaves_no_thread(toy_lake: Lake) -> None:
    before = loader_threads()
    loader = make_loader(dataset_of(toy_lake), [[1, 2, 3]] * 50, threads=2, prefetch=4)
    for _ in range(3):
        for _batch in loader:
            break
        abandoned = iter(loader)
        next(abandoned)
        del abandoned
    gc.collect()
    assert loader_threads() == before


def test_an_error_in_the_consumer_ends_the_threads(toy_lake: Lake) -> None:
    before = loader_threads()
    with pytest.raises(ZeroDivisionError):
        for _batch in make_loader(dataset_of(toy_lake), [[1, 2, 3]] * 50, threads=2):
            _ = 1 / 0
    gc.collect()
    assert loader_threads() == before


def test_an_interpreter_that_exits_in_the_middle_does_not_hang(toy_lake: Lake) -> None:
    program = f"""
from sevenfold.storage import Lake
from sevenfold.training.loader import SampleDataset, make_loader
lake = Lake.open({str(toy_lake.root)!r})
dataset = SampleDataset(lake.shard_path, lake.samples("toy"), [], 16, 3)
batches = iter(make_loader(dataset, [[1] * 2000] * 1000, threads=2, prefetch=3))
print(len(next(batches)["row"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "2000", "")


def test_workers_deliver_bytes_epoch_after_epoch_and_end(toy_lake: Lake) -> None:
    batches = [[i, PAD, (i * 7) % 150] for i in range(60)]
    dataset = bytes_of(toy_lake)
    expected = [dataset.__getitems__(rows) for rows in batches]
    loader = make_loader(dataset, batches, workers=2)
    for _ in range(2):
        for _batch in loader:  # left early: what the workers have ready belongs to no later epoch
            break
        assert all(same(a, b) for a, b in zip(loader, expected, strict=True))
    assert len(active_children()) >= 2
    loader.close()
    gc.collect()
    assert not active_children()


def shared_memory() -> int:
    """Pieces of shared memory that this process has mapped, by any name or none."""
    return Path("/proc/self/maps").read_text().count("/torch_")


def test_workers_use_their_memory_again_but_never_under_a_batch_that_is_kept(toy_lake: Lake) -> None:
    dataset = dataset_of(toy_lake)
    batches = [np.random.default_rng(i).integers(0, 150, 20).tolist() for i in range(80)]
    expected = [dataset.__getitems__(rows) for rows in batches]
    before = shared_memory()
    loader = make_loader(dataset, batches, workers=2)
    early = []
    for batch in loader:
        early.append(batch["images"])  # of an iteration that is left early
        if len(early) == 30:
            break
    for _ in range(4):
        assert all(same(a, b) for a, b in zip(loader, expected, strict=True))
    pieces = shared_memory() - before
    assert 0 < pieces <= 30 + 2 * 6
    kept = [batch["images"] for batch in loader]
    for _ in range(2):
        assert all(same(a, b) for a, b in zip(loader, expected, strict=True))
    assert all(torch.equal(images, b["images"]) for images, b in zip(kept, expected, strict=True))
    assert all(torch.equal(images, b["images"]) for images, b in zip(early, expected, strict=False))
    del kept, early, batch
    loader.close()
    gc.collect()
    assert shared_memory() == before and not active_children()


def test_an_error_in_a_worker_is_raised_here(toy_lake: Lake, tmp_path: Path) -> None:
    dataset = SampleDataset(tmp_path.joinpath, toy_lake.samples("toy"), ["class0"], 16, 3)  # no shard lies there
    with pytest.raises(SevenfoldError, match="sevenfold verify"):
        list(make_loader(dataset, [[0, 1]], workers=1))


def test_less_than_nothing_is_refused(toy_lake: Lake) -> None:
    with pytest.raises(SevenfoldError, match="none below 0"):
        make_loader(dataset_of(toy_lake), [], threads=-1)
