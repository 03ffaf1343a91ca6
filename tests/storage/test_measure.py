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
from sevenfold.storage.decode import EVERYTHING, Accepts
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
    h, w = image.shape[:2]
    small = shrunk(image)
    luma = np.asarray(Image.fromarray(small).convert("L"), dtype=np.float64)
    green = (image if image.ndim == 2 else image[..., 1]).astype(np.float64)
    sharpness = 0.0
    if h > 2 and w > 2:
        inner = 4 * green[1:-1, 1:-1] - green[:-2, 1:-1] - green[2:, 1:-1] - green[1:-1, :-2] - green[1:-1, 2:]
        sharpness = np.abs(inner[:: max(1, h * w // 2**14)]).mean() / 255
    share = np.histogram(luma, bins=64, range=(0, 256))[0] / luma.size
    share = share[share > 0]
    colorfulness = 0.0
    if image.ndim == 3:
        r, g, b = np.moveaxis(small.astype(np.float64), -1, 0)
        rg, yb = r - g, (r + g) / 2 - b
        colorfulness = (np.hypot(rg.std(), yb.std()) + 0.3 * np.hypot(rg.mean(), yb.mean())) / 255
    values = (luma.mean() / 255, luma.std() / 255, sharpness, -(share * np.log2(share)).sum(), colorfulness, w / h)
    return dict(zip(PROPERTIES, (*values, size / (w * h)), strict=True))


def shrunk(image: np.ndarray) -> np.ndarray:
    """Means of f x f pixels, where both sides keep 64: one by one."""
    h, w = image.shape[:2]
    f = min(h, w) // 64
    if f < 2:
        return image
    top, left = h % f // 2, w % f // 2
    out = np.zeros((h // f, w // f, *image.shape[2:]), np.uint8)
    for y, x in np.ndindex(out.shape[:2]):
        block = image[top + y * f : top + (y + 1) * f, left + x * f : left + (x + 1) * f].astype(int)
        out[y, x] = (block.sum(axis=(0, 1)) + f * f // 2) // (f * f)
    return out


LARGE = st.sampled_from([(1, 130, 131, True), (2, 200, 129, False), (1, 300, 400, True), (1, 64, 3000, True)]).flatmap(
    lambda s: st.integers(0, 9).map(
        lambda seed: np.random.default_rng(seed).integers(0, 256, (*s[:3], 3) if s[3] else s[:3], dtype=np.uint8)
    )
)


def looked_at(images: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The properties of some images."""
    small = pixels.reduced(images)
    return pixels.properties(images, small, pixels.grey_of(small), sizes)


@settings(max_examples=60, deadline=None)
@given(images=st.one_of(BATCHES, BATCHES, LARGE), strip=st.sampled_from([7, 50, 300, pixels.STRIP]))
def test_properties_are_as_defined_in_any_batch_and_any_strips(images: np.ndarray, strip: int) -> None:
    sizes = np.arange(100, 100 + len(images))
    before, pixels.STRIP = pixels.STRIP, strip
    try:
        found = looked_at(images, sizes)
    finally:
        pixels.STRIP = before
    for image, row, size in zip(images, found, sizes, strict=True):
        small = pixels.reduced(image[None])[0]
        assert (small == shrunk(image)).all() and small.shape == shrunk(image).shape
        assert (pixels.grey_of(small[None])[0] == np.asarray(Image.fromarray(small).convert("L"))).all(), (
            "Pillow's luma"
        )
        expected = by_the_book(image, int(size))
        np.testing.assert_allclose(row, list(expected.values()), rtol=1e-9, atol=1e-7)
        assert (looked_at(image[None], np.array([size]))[0] == row).all(), "not a bit depends on the company"


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
    try:
        fast = decoding._plain_jpeg(bytes(damaged[:cut]), None)
    except InputError as error:
        assert error.reason == "truncated"
        return
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
    others = {"cmyk": buffer.getvalue(), "head": whole[:30]}
    for name, data in others.items():
        assert decoding._plain_jpeg(data, None) is None, name
    for cut in (whole[: len(whole) // 2], whole[: len(whole) * 3 // 4] + b"\xff\xd9", whole[:-1]):
        with pytest.raises(InputError, match="truncated"):
            measure(cut, "a.jpg")


@pytest.mark.parametrize("turn", [*range(10), 77])
def test_a_turned_jpeg_has_the_same_pixels_through_both_decoders(turn: int) -> None:
    chance = np.random.default_rng(turn)
    exif = Image.Exif()
    exif[0x010F] = "a camera"
    exif[0x0112] = turn
    for shape in ((8, 12), (8, 12, 3)):
        data = encoded(chance.integers(0, 256, shape, dtype=np.uint8), "JPEG", exif=exif, icc_profile=b"junk" * 9)
        fast, sure = decoding._plain_jpeg(data, None), decoding._with_pillow(data, None)
        assert fast is not None and fast.pixels.shape == sure.pixels.shape and (fast.pixels == sure.pixels).all()
        assert sure.pixels.shape[:2] == ((12, 8) if turn in (5, 6, 7, 8) else (8, 12))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_whatever_an_exif_says_both_decoders_turn_alike(data: st.DataObject) -> None:
    whole = bytearray(rotated_jpeg())
    start = whole.index(b"Exif")
    for _ in range(data.draw(st.integers(1, 3))):
        whole[start + data.draw(st.integers(0, 33))] = data.draw(st.integers(0, 255))
    fast = decoding._plain_jpeg(bytes(whole), None)
    if fast is not None:
        sure = decoding._with_pillow(bytes(whole), None)
        assert fast.pixels.shape == sure.pixels.shape and (fast.pixels == sure.pixels).all()


def test_an_orientation_that_only_xmp_gives_is_pillows_to_read() -> None:
    whole = SMALL[0]
    said = b'http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation="6"/>'
    marked = whole[:2] + b"\xff\xe1" + (len(said) + 2).to_bytes(2, "big") + said + whole[2:]
    assert decoding._plain_jpeg(marked, None) is None


def test_what_is_unusual_is_taken_on_demand_and_becomes_what_readers_make_of_it() -> None:
    deep = np.arange(0, 65536, 256, dtype=np.uint16).reshape(16, 16)
    cmyk = io.BytesIO()
    Image.new("CMYK", (8, 8), (10, 20, 30, 40)).save(cmyk, "JPEG")
    frames = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(frames, "WEBP", save_all=True, append_images=[Image.new("RGB", (8, 8))])
    clear = io.BytesIO()
    Image.new("RGBA", (8, 8), (1, 2, 3, 0)).save(clear, "PNG")
    for name, data, suffix, pixel in (
        ("sixteen_bit", encoded(deep), "png", None),
        ("cmyk", cmyk.getvalue(), "jpg", None),
        ("animated", frames.getvalue(), "webp", (255, 0, 0)),
    ):
        with pytest.raises(InputError, match="unsupported"):
            measure(data, f"a.{suffix}")
        found = decoding.decode(data, "", accepts=Accepts(**{name: True})).pixels
        assert (found == decoding.decode(data, "", accepts=EVERYTHING).pixels).all()
        assert pixel is None or np.abs(found[0, 0].astype(int) - pixel).max() <= 3
    assert (decoding.decode(encoded(deep), "", accepts=EVERYTHING).pixels == np.arange(256).reshape(16, 16)).all()
    assert decoding.decode(clear.getvalue(), "").pixels[0, 0].tolist() == [1, 2, 3]
    with pytest.raises(InputError, match="transparency"):
        measure(clear.getvalue(), "a.png", Accepts(alpha=False))
    for data in (encoded(deep), SMALL[0]):
        with pytest.raises(InputError, match="too_large"):
            measure(data, "a", Accepts(max_pixels=100, sixteen_bit=True))


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
