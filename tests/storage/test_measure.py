"""Measuring: the definitions, checked against plain float64 formulas and Pillow, whatever the batch or the strips."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from PIL import Image

from sevenfold.storage import decode as decoding
from sevenfold.storage import pixels
from sevenfold.storage.canonical import digest_bytes
from sevenfold.storage.index import PROPERTIES
from sevenfold.storage.measure import MEASURED, measure, measure_many
from sevenfold.storage.sources import InputError

BATCHES = st.tuples(st.integers(1, 3), st.integers(1, 24), st.integers(1, 24), st.booleans()).flatmap(
    lambda s: npst.arrays(np.uint8, (*s[:3], 3) if s[3] else s[:3])
)


def encoded(array: np.ndarray, form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, form, **options)
    return buffer.getvalue()


def by_the_book(image: np.ndarray, size: int) -> dict[str, float]:
    """The definitions, one image, plain float64."""
    luma = np.asarray(Image.fromarray(image).convert("L"), dtype=np.float64)
    h, w = luma.shape
    sharpness = 0.0
    if h > 2 and w > 2:
        inner = 4 * luma[1:-1, 1:-1] - luma[:-2, 1:-1] - luma[2:, 1:-1] - luma[1:-1, :-2] - luma[1:-1, 2:]
        sharpness = np.abs(inner).mean() / 255
    share = np.histogram(luma, bins=64, range=(0, 256))[0] / luma.size
    share = share[share > 0]
    colorfulness = 0.0
    if image.ndim == 3:
        r, g, b = np.moveaxis(image.astype(np.float64), -1, 0)
        rg, yb = r - g, (r + g) / 2 - b
        colorfulness = (np.hypot(rg.std(), yb.std()) + 0.3 * np.hypot(rg.mean(), yb.mean())) / 255
    values = (luma.mean() / 255, luma.std() / 255, sharpness, -(share * np.log2(share)).sum(), colorfulness, w / h)
    return dict(zip(PROPERTIES, (*values, size / (w * h)), strict=True))


@settings(max_examples=60, deadline=None)
@given(images=BATCHES, strip=st.sampled_from([1, 7, 50, 300, pixels.STRIP]))
def test_properties_are_as_defined_in_any_batch_and_any_strips(images: np.ndarray, strip: int) -> None:
    sizes = np.arange(100, 100 + len(images))
    before, pixels.STRIP = pixels.STRIP, strip
    try:
        grey = pixels.grey_of(images)
        found = pixels.properties(images, grey, sizes)
    finally:
        pixels.STRIP = before
    for image, luma, row, size in zip(images, grey, found, sizes, strict=True):
        assert (luma == np.asarray(Image.fromarray(image).convert("L"))).all(), "Pillow's luma, bit for bit"
        expected = by_the_book(image, int(size))
        np.testing.assert_allclose(row, list(expected.values()), rtol=1e-9, atol=1e-7)
        alone = pixels.properties(image[None], luma[None], np.array([size]))[0]
        assert (alone == row).all(), "not a bit depends on the company"


@settings(max_examples=60, deadline=None)
@given(images=BATCHES)
def test_the_perceptual_hash_is_the_integer_dct_against_the_median(images: np.ndarray) -> None:
    grey = pixels.grey_of(images)
    found = pixels.phash(grey)
    assert found.dtype == np.int64
    basis = np.rint(4096 * np.cos(np.pi * np.outer(np.arange(8), 2 * np.arange(32) + 1) / 64)).astype(np.int64)
    for luma, value in zip(grey, found, strict=True):
        small = np.asarray(Image.fromarray(luma).resize((32, 32), Image.Resampling.LANCZOS)).astype(np.int64)
        low = (basis @ small @ basis.T).ravel()
        bits = "".join("1" if 2 * x > sum(sorted(low)[31:33]) else "0" for x in low)
        assert int(value) % 2**64 == int(bits, 2)


def test_similar_pictures_have_similar_hashes() -> None:
    coarse = np.random.default_rng(0).integers(0, 256, (9, 9), dtype=np.uint8)
    picture = np.asarray(Image.fromarray(coarse).resize((64, 64), Image.Resampling.BICUBIC))
    noise = np.random.default_rng(1).integers(0, 256, (64, 64), dtype=np.uint8)
    variants = [picture, np.clip(picture * 0.8 + 20, 0, 255).astype(np.uint8), noise]
    a, b, c = (int(pixels.phash(v[None])[0]) % 2**64 for v in variants)
    assert (a ^ b).bit_count() <= 4 < 16 < (a ^ c).bit_count()


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("quality", [1, 50, 90, 100])
def test_a_plain_jpeg_has_the_same_pixels_through_both_decoders(quality: int, progressive: bool) -> None:
    chance = np.random.default_rng(quality)
    for subsampling in (0, 1, 2):
        for shape in ((1, 1), (9, 7), (16, 16), (33, 17, 3), (40, 64, 3), (8, 8, 3)):
            small = chance.integers(0, 256, shape, dtype=np.uint8)
            image = np.asarray(Image.fromarray(small).resize((shape[1] * 2, shape[0] * 2)))
            data = encoded(
                image, "JPEG", quality=quality, progressive=progressive, subsampling=subsampling, comment=b"hello",
                restart_marker_blocks=int(chance.integers(0, 4)),
            )  # fmt: skip
            fast, sure = decoding._plain_jpeg(data, None), decoding._with_pillow(data, None)
            assert fast is not None and fast.mode == sure.mode == ("RGB" if len(shape) == 3 else "L")
            assert fast.pixels.shape == sure.pixels.shape and (fast.pixels == sure.pixels).all()


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_damaged_jpeg_that_the_fast_way_accepts_is_what_pillow_sees(data: st.DataObject) -> None:
    damaged = bytearray(SMALL[data.draw(st.integers(0, len(SMALL) - 1))])
    for _ in range(data.draw(st.integers(0, 2))):
        damaged[data.draw(st.integers(3, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([None, None, -1, -2, -9, 300]))
    fast = decoding._plain_jpeg(bytes(damaged[:cut]), None)
    if fast is not None:
        sure = decoding._with_pillow(bytes(damaged), None)
        assert sure.mode == fast.mode and (sure.pixels == fast.pixels).all()


SMALL = [
    encoded(np.kron(np.arange(27, dtype=np.uint8).reshape(3, 3, 3) * 9, np.ones((8, 8, 1), np.uint8)), "JPEG", **o)
    for o in ({}, {"progressive": True}, {"quality": 30})
]


def rotated_jpeg() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(np.arange(32, dtype=np.uint8).reshape(4, 8), "JPEG", exif=exif)


def test_what_is_not_plain_is_left_to_pillow() -> None:
    buffer = io.BytesIO()
    Image.new("CMYK", (8, 8)).save(buffer, "JPEG")
    whole = SMALL[0]
    others = {"turned": rotated_jpeg(), "cmyk": buffer.getvalue(), "cut": whole[: len(whole) // 2], "head": whole[:30]}
    for name, data in others.items():
        assert decoding._plain_jpeg(data, None) is None, name
    with pytest.raises(InputError, match="truncated"):
        measure(others["cut"], "a.jpg")


def test_pictures_are_measured_upright() -> None:
    row = measure(rotated_jpeg(), "a.jpg")
    assert (row.width, row.height) == (4, 8)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = measure(encoded(np.arange(32, dtype=np.uint8).reshape(4, 8), "PNG", exif=exif), "a.png")
    assert (turned.width, turned.height) == (4, 8)


@pytest.mark.parametrize(("mode", "channels"), [("1", 1), ("L", 1), ("LA", 1), ("P", 3), ("RGB", 3), ("RGBA", 3)])
def test_every_accepted_mode_becomes_grey_or_rgb(mode: str, channels: int) -> None:
    image = Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).convert(mode)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    row = measure(buffer.getvalue(), "a.png")
    assert (row.mode, row.channels) == (mode, channels)
    plain = image.convert("RGB" if channels == 3 else "L")
    assert row.pixel_digest == digest_bytes(f"{plain.mode} 8 8 ".encode() + plain.tobytes())


def test_two_files_of_the_same_pixels_share_the_pixel_digest_not_the_id() -> None:
    array = np.arange(64, dtype=np.uint8).reshape(8, 8)
    one, two = measure(encoded(array), "a.png"), measure(encoded(array, "BMP"), "a.bmp")
    assert one.pixel_digest == two.pixel_digest and one.phash == two.phash and one.id != two.id


def test_many_are_measured_as_each_alone_in_any_company() -> None:
    chance = np.random.default_rng(0)
    shapes = [(8, 8), (5, 9, 3), (8, 8), (32, 32, 3), (5, 9, 3), (40, 30)]
    files = [encoded(chance.integers(0, 256, s, dtype=np.uint8)) for s in shapes]
    missing = InputError("unreadable", "gone")
    table, failures = measure_many([*((f, "a.png") for f in files), (b"", "b.png"), (missing, "c.png")])
    assert table.schema == MEASURED
    assert [(i, e.reason) for i, e in failures] == [(6, "not_an_image"), (7, "unreadable")]
    for row, data in zip(table.to_pylist(), files, strict=True):
        alone = measure(data, "a.png")
        assert {k: row[k] for k in ("id", "phash", "pixel_digest", "width", "height")} == {
            k: getattr(alone, k) for k in ("id", "phash", "pixel_digest", "width", "height")
        }
        assert tuple(row[p] for p in PROPERTIES) == alone.properties
    empty, _ = measure_many([(b"", "b.png")])
    assert empty.num_rows == 0 and empty.schema == MEASURED
