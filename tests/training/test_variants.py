"""Training on a raw variant is training on the originals, whose pixels it holds within one level of 255."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sevenfold.storage import Lake, npy, resize
from sevenfold.training.decode import Undecodable, decode
from sevenfold.training.loader import SampleDataset

ROTATED = Image.Exif()
ROTATED[274] = 6


def image(mode: str, form: str, **options: Any) -> bytes:
    """A picture of 30 x 22 pixels, smooth enough for JPEG."""
    few = np.random.default_rng(3).integers(0, 256, (5, 5, 4), dtype=np.uint8)
    large = Image.fromarray(few, "RGBA").resize((30, 22), Image.Resampling.BICUBIC)
    made = large if mode == "RGBA" else large.convert("RGB").convert(mode)
    out = io.BytesIO()
    made.save(out, form, **options)
    return out.getvalue()


KINDS = {
    "jpeg": image("RGB", "JPEG"),
    "progressive jpeg": image("RGB", "JPEG", progressive=True, quality=60),
    "grey jpeg": image("L", "JPEG"),
    "turned jpeg": image("RGB", "JPEG", exif=ROTATED),
    "png": image("RGB", "PNG"),
    "turned png": image("RGB", "PNG", exif=ROTATED),
    "png with alpha": image("RGBA", "PNG"),
    "grey png with alpha": image("LA", "PNG"),
    "palette": image("P", "PNG"),
    "gif": image("P", "GIF"),
    "one bit": image("1", "PNG"),
    "webp": image("RGB", "WEBP", lossless=True),
    "bmp": image("RGB", "BMP"),
}
COMMENT = b"\xff\xfe" + (9002).to_bytes(2) + bytes(9000)
KINDS["jpeg that says late that it is turned"] = b"\xff\xd8" + COMMENT + KINDS["turned jpeg"][2:]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [1, 17, 22, 30, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_a_variant_holds_what_training_decodes(kind: str, size: int, channels: int) -> None:
    data = KINDS[kind]
    wanted = decode(data, size, channels, "exact")
    found = resize.squashed(data, size, channels)
    assert np.abs(found.astype(int) - wanted).max() <= 1  # Pillow resizes in one order of the axes, torch in the other
    assert np.array_equal(decode(npy.npy_bytes(wanted), size, channels), wanted)


def test_a_raw_member_of_another_shape_is_an_image_like_any_other() -> None:
    pixels = decode(KINDS["png"], 30, 3)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    for size, channels in ((30, 1), (12, 3), (12, 1)):
        expected = decode(buffer.getvalue(), size, channels)
        assert np.array_equal(decode(npy.npy_bytes(pixels), size, channels), expected)


@pytest.mark.parametrize("bad", [b"\x93NUMPY", npy.npy_bytes(np.zeros((4, 4, 3), np.uint8))[:-1]])
def test_a_damaged_raw_member_is_broken(bad: bytes) -> None:
    with pytest.raises(Undecodable):
        decode(bad, 4, 3)


def test_batches_are_the_same(toy_root: Path) -> None:
    lake = Lake.open(toy_root)
    content = lake.version("toy").content_id
    classes = lake.manifest(content).classes
    lake.materialize("toy", size=12, format="raw")
    lake.materialize("toy", size=12, format="jpeg", quality=95)
    derived = [lake.variant_samples(content, f"12-{form}", masked=True) for form in ("raw", "jpeg")]
    tables = [lake.samples_of(content), *derived]
    sets = [SampleDataset(lake.shard_path, t, classes, 12, 3) for t in tables]
    rows = [5, -1, *range(40, 90)]
    original, raw, jpeg = (s.__getitems__(rows) for s in sets)
    assert all(original[k].equal(raw[k]) for k in original)
    assert all(original[k].equal(jpeg[k]) for k in original if k != "images")
    assert (original["images"].int() - jpeg["images"].int()).abs().float().mean() < 12
