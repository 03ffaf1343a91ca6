"""What the storage tests share: tiny images, folders of them, and a lake with one call per stage."""

from __future__ import annotations

import importlib.util
import io
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sevenfold.storage import Lake, Version
from sevenfold.storage.index import OVERLAY


def pixels(seed: int, height: int = 8, width: int = 8, channels: int = 1) -> np.ndarray:
    """Noise that depends on the seed alone: uint8 [h, w] or [h, w, 3]."""
    shape = (height, width) if channels == 1 else (height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encoded(array: np.ndarray | Image.Image, form: str = "PNG", **options: Any) -> bytes:
    """An image file's bytes."""
    image = array if isinstance(array, Image.Image) else Image.fromarray(array)
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def png(seed: int, height: int = 8, width: int = 8, channels: int = 1) -> bytes:
    """A PNG of noise."""
    return encoded(pixels(seed, height, width, channels))


def folder(root: Path, members: Mapping[str, bytes]) -> Path:
    """Write files under `root`, in the mapping's order."""
    for name, data in members.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def two_classes(n: int, start: int = 0) -> dict[str, bytes]:
    """`n` images in the folders cat and dog."""
    return {f"{'cat' if i % 2 else 'dog'}/{i:05d}.png": png(i) for i in range(start, start + n)}


def overlay(ids: Any, **columns: Any) -> pa.Table:
    """An overlay that says the same of every id, or a list's element of each."""
    values = {k: v if isinstance(v, list) else [v] * len(ids) for k, v in columns.items()}
    rows = {"id": list(ids), **values}
    return pa.table({k: pa.array(v, OVERLAY.field(k).type) for k, v in rows.items()})


def land(lake: Lake, source: Any, batch: str | None, dataset: str = "d", **options: Any) -> str:
    """Ingest and admit; returns the batch id."""
    record, _ = lake.ingest(source, dataset, batch, clock=lambda: 1.0, **options)
    return lake.set_status(dataset, record.batch, "admitted", clock=lambda: 2.0).batch


def commit(lake: Lake, dataset: str = "d", **options: Any) -> Version:
    """Commit what is admitted; returns the version."""
    return lake.commit(dataset, **{"message": "test", "clock": lambda: 3.0, **options})[0]


def reconciles(lake: Lake, dataset: str = "d") -> None:
    """Assert that every batch's counts add up, and that they count what its tables hold."""
    for b in lake.batches(dataset):
        c = b.counts
        assert c["inputs"] == c["samples"] + c["aliases"] + c["relabels"] + c["quarantined"], (b.batch, c)
        aside = lake.quarantine(dataset, b.batch)
        assert aside.num_rows == c["quarantined"] == sum(b.reasons.values())
        assert pq.read_table(lake.root / "batches" / dataset / f"{b.batch}.aliases.parquet").num_rows == c["aliases"]


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """The functions above."""
    return SimpleNamespace(
        pixels=pixels, encoded=encoded, png=png, folder=folder, two_classes=two_classes, overlay=overlay, land=land,
        commit=commit, reconciles=reconciles, upload=upload,
    )  # fmt: skip


def upload(url: str, members: Mapping[str, bytes]) -> str:
    """Put objects under a bucket's prefix; returns the prefix."""
    import boto3

    name, _, prefix = url.removeprefix("s3://").partition("/")
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    for key, data in members.items():
        client.put_object(Bucket=name, Key=f"{prefix}/{key}".lstrip("/"), Body=data)
    return url


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake with shards of 16 KiB."""
    return Lake.create(tmp_path / "lake", shard_bytes=16 << 10)


@pytest.fixture
def filled(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> Callable[..., Lake]:
    """The lake with one committed batch of `n` images."""

    def fill(n: int = 20) -> Lake:
        make.land(lake, make.folder(tmp_path / "filled", make.two_classes(n)), "first")
        make.commit(lake)
        return lake

    return fill


def beside(name: str) -> ModuleType:
    """A module of this folder, which is no package."""
    spec = importlib.util.spec_from_file_location(f"storage_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def proxying() -> ModuleType:
    """The module proxy.py."""
    return beside("proxy")


@pytest.fixture(scope="session")
def rounds() -> ModuleType:
    """The module one_round.py."""
    return beside("one_round")


@pytest.fixture
def proxy(bucket: str, proxying: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A proxy (see proxy.py) in front of the bucket's server, which stores opened from here on talk to."""
    between = proxying.Proxy(os.environ["AWS_ENDPOINT_URL"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", between.url)
    yield between
    between.close()
