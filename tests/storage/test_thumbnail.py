"""The picture that the perceptual hash sees: Pillow's, bit for bit, however it is computed."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from sevenfold.storage.thumbnail import thumbnail


def picture(kind: str, height: int, width: int) -> np.ndarray:
    chance = np.random.default_rng(height * width)
    noise = chance.integers(0, 256, (height, width), dtype=np.uint8)
    if kind == "noise":
        return noise
    if kind == "extremes":
        return np.where(noise > 127, 255, 0).astype(np.uint8)
    return np.asarray(Image.fromarray(noise[:9, :9]).resize((width, height), Image.Resampling.BICUBIC))


@pytest.mark.parametrize("kind", ["noise", "extremes", "smooth"])
def test_it_is_pillows_for_every_shape(kind: str) -> None:
    chance = np.random.default_rng(len(kind))
    shapes = [
        (375, 500),
        (256, 256),
        (480, 320),
        (32, 2048),
        (33, 2000),
        (1, 70_000),
        (70_000, 1),
        (700, 200),
        (40, 31),
    ]
    shapes += [tuple(chance.integers(200, 900, 2).tolist()) for _ in range(40)]
    for height, width in shapes:
        image = picture(kind, height, width)
        expected = np.asarray(Image.fromarray(image).resize((32, 32), Image.Resampling.LANCZOS))
        found = thumbnail(image)
        assert found.dtype == np.uint8 and (found == expected).all(), (height, width)


def test_a_large_picture_is_worked_on_in_strips() -> None:
    image = picture("smooth", 3000, 4000)
    assert (thumbnail(image) == np.asarray(Image.fromarray(image).resize((32, 32), Image.Resampling.LANCZOS))).all()
    turned = np.ascontiguousarray(image[::-1])[::-1]
    assert (thumbnail(turned) == thumbnail(image)).all(), "strides do not matter"
