"""A small lake of real images: three classes that differ by colour, in train, val, test and pool."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sevenfold.storage import Lake

PER_CLASS = {"train": 30, "val": 8, "test": 8}
POOL = 12
SIDE = 16


@pytest.fixture(scope="session")
def toy_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Dataset `toy`, v1: 90 train, 24 val, 24 test, 12 pool; 16 x 16 RGB PNG and JPEG."""
    home = tmp_path_factory.mktemp("toy")
    rng = np.random.default_rng(0)
    for split, count in PER_CLASS.items():
        for c in range(3):
            folder = home / "src" / split / f"class{c}"
            folder.mkdir(parents=True)
            for i in range(count):
                _image(rng, c).save(folder / f"{i}.{'jpg' if i % 3 == 0 else 'png'}")
    rows = ["path,label,split"]
    for path in sorted((home / "src").rglob("*.*")):
        split, label, _ = path.relative_to(home / "src").parts
        rows.append(f"{path.relative_to(home / 'src')},{label},{split}")
    pool = home / "src" / "pool"
    pool.mkdir()
    for i in range(POOL):
        _image(rng, i % 3).save(pool / f"{i}.png")
        rows.append(f"pool/{i}.png,,pool")
    (home / "src" / "index.csv").write_text("\n".join(rows) + "\n")
    lake = Lake.create(home / "lake")
    lake.ingest(home / "src" / "index.csv", "toy", "b1")
    lake.set_status("toy", "b1", "admitted")
    lake.commit("toy", message="first")
    return lake


def _image(rng: np.random.Generator, c: int) -> Image.Image:
    pixels = rng.integers(0, 120, (SIDE, SIDE, 3), dtype=np.uint8)
    pixels[..., c] += 60
    return Image.fromarray(pixels)


@pytest.fixture
def toy_root(toy_lake: Lake, tmp_path: Path) -> Path:
    """A lake of its own for a test that writes runs: the toy lake's files, linked."""
    root = tmp_path / "lake"
    for path in toy_lake.root.rglob("*"):
        if path.is_file() and "runs" not in path.parts:
            target = root / path.relative_to(toy_lake.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.hardlink_to(path)
    return root
