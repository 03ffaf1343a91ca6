"""The loader: the same batches by any path (in process, workers, decoded once), broken samples masked in place."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from sevenfold.storage import Lake
from sevenfold.training.decode import BROKEN, decode
from sevenfold.training.loader import SampleDataset, make_loader
from sevenfold.training.plan import PAD, EpochPlan, layout
from sevenfold.training.sampler import PlannedBatchSampler


def dataset_of(lake: Lake, samples: pa.Table | None = None) -> SampleDataset:
    version = lake.version("toy")
    table = lake.samples("toy") if samples is None else samples
    return SampleDataset(lake.shard_path, table, lake.manifest(version.content_id).classes, 16, 3)


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
        "weight": (torch.float32, (4,)), "mask": (torch.bool, (4,)),
    }  # fmt: skip
    assert batch["mask"].tolist() == [True, False, True, True]
    assert batch["row"].tolist() == [3, PAD, 140, 3]
    assert batch["weight"].tolist() == [1.0, 0.0, 1.0, 1.0]
    assert not batch["images"][1].any() and batch["label"][1] == -1
    raw = toy_lake.read_images(samples.take([3, 140]))
    for slot, data in ((0, raw[0]), (2, raw[1])):
        pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        assert np.abs(batch["images"][slot].numpy().astype(int) - pixels).max() <= 2  # JPEG decoders round differently
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
    assert not batch["images"][1:3].any()


def test_the_dataset_travels_without_its_open_files(toy_lake: Lake) -> None:
    dataset = dataset_of(toy_lake)
    before = dataset.__getitems__([0, 1])
    assert same(pickle.loads(pickle.dumps(dataset)).__getitems__([0, 1]), before)


def test_a_missing_shard_masks_its_samples(toy_lake: Lake, tmp_path: Path) -> None:
    dataset = SampleDataset(lambda digest: tmp_path / digest, toy_lake.samples("toy"), ["class0"], 16, 3)
    assert dataset.__getitems__([0])["mask"].tolist() == [False]


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "CMYK", "1", "LA", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_becomes_what_the_model_wants(mode: str, channels: int) -> None:
    if mode == "I;16":
        image = Image.fromarray(np.full((8, 12), 0x8000, np.uint16))
    else:
        image = Image.new("L", (12, 8), 128).convert(mode)
    pixels = decode(encoded(image, "JPEG" if mode == "CMYK" else "PNG"), 10, channels)
    assert pixels.shape == (10, 10, channels) and pixels.dtype == np.uint8
    if mode != "1":
        assert np.abs(pixels.astype(int) - 128).max() <= 3


def test_exif_orientation_is_applied_once() -> None:
    pixels = np.zeros((8, 8), np.uint8)
    pixels[:, :4] = 255  # the left half is white
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise: left becomes top
    turned = decode(encoded(Image.fromarray(pixels), "JPEG", exif=exif, quality=95), 8, 1)[..., 0]
    assert turned[:3].min() > 200 and turned[5:].max() < 55


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff", b"not an image", b"\x89PNG\r\n\x1a\n" + b"\0" * 30])
def test_damage_raises_what_the_loader_catches(data: bytes) -> None:
    with pytest.raises(BROKEN):
        decode(data, 8, 3)
