"""Decoding: every mode, the right way up once, scaled within bounds, and nothing that hostile bytes can do."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile, ImageOps

from sevenfold.training.decode import Undecodable, decode, decode_into, resize


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def smooth(width: int, height: int) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    return np.stack([x * 255 // width, y * 255 // height, (x + y) * 255 // (width + height)], 2).astype(np.uint8)


def npy(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, pixels)
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


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_once(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(smooth(32, 32)), kind, exif=exif)
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
    assert np.abs(decode(data, 32, 3).astype(int) - upright).max() <= 3
    half = np.asarray(Image.fromarray(upright).resize((16, 16), Image.Resampling.BILINEAR))
    assert np.abs(decode(data, 16, 3).astype(int) - half).max() <= 3


def test_an_orientation_in_xmp_counts_too() -> None:
    plain = encoded(Image.fromarray(smooth(32, 32)), "JPEG")
    xmp = b'http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation="3"/>'
    data = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(xmp) + 2) + xmp + plain[2:]
    assert np.array_equal(decode(data, 32, 3), decode(plain, 32, 3)[::-1, ::-1])


@pytest.mark.parametrize("options", [{}, {"optimize": True}, {"progressive": True}, {"comment": b"a"}, {"quality": 20}])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_jpeg_in_a_batch_is_the_jpeg_alone(options: dict[str, object], channels: int) -> None:
    for side in (16, 24, 32):
        for image in (Image.fromarray(smooth(side, side)), Image.fromarray(smooth(side, side)).convert("L")):
            data = encoded(image, "JPEG", **options)
            images = np.zeros((3, 24, 24, channels), np.uint8)
            assert decode_into(images, [2], [data]) == []
            assert np.array_equal(images[2], decode(data, 24, channels)) and not images[:2].any()
            if channels == 3 and side == 24:
                assert np.array_equal(images[2], np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


def test_a_jpeg_cut_off_fails_in_its_own_slot() -> None:
    data = encoded(Image.fromarray(smooth(24, 24)), "JPEG")
    images = np.zeros((3, 24, 24, 3), np.uint8)
    assert decode_into(images, [0, 1, 2], [data, data[:-40], data]) == [1]
    assert np.array_equal(images[0], images[2]) and images[0].any()


@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 40), st.sampled_from([1, 3]))
@settings(max_examples=60, deadline=None)
def test_resizing_is_pillows_within_one(width: int, height: int, size: int, channels: int) -> None:
    pixels = smooth(width, height)[..., :channels]
    flat = pixels[..., 0] if channels == 1 else pixels
    wanted = np.asarray(Image.fromarray(np.ascontiguousarray(flat)).resize((size, size), Image.Resampling.BILINEAR))
    found = resize(np.ascontiguousarray(pixels), size)
    assert np.abs(found.astype(int) - wanted.reshape(found.shape)).max() <= 1


def test_scaling_shrinks_only_what_is_far_too_large() -> None:
    data = encoded(Image.fromarray(smooth(400, 300)), "JPEG", quality=95)
    for size in (151, 200, 400):  # not twice the wanted size after halving
        assert np.array_equal(decode(data, size, 3, "scaled"), decode(data, size, 3, "exact"))
    scaled, exact = decode(data, 32, 3, "scaled"), decode(data, 32, 3, "exact")
    assert 0 < np.abs(scaled.astype(int) - exact).max() <= 6


@pytest.mark.parametrize("channels", [1, 3])
def test_raw_arrays_are_read_as_they_are(channels: int) -> None:
    pixels = smooth(20, 20)
    assert np.array_equal(decode(npy(pixels), 20, 3), pixels)
    assert decode(npy(pixels), 10, channels).shape == (10, 10, channels)
    images = np.zeros((1, 20, 20, channels), np.uint8)
    assert decode_into(images, [0], [memoryview(npy(pixels[..., :channels].copy()))]) == []
    assert np.array_equal(images[0], pixels[..., :channels])


@pytest.mark.parametrize(
    "array",
    [np.zeros((4, 4, 3), np.float32), np.zeros((4, 4), np.uint8), np.zeros((4, 4, 2), np.uint8),
     np.zeros((4, 4, 3), np.uint8, order="F"), np.zeros((2, 4, 4, 3), np.uint8), np.zeros((0, 4, 3), np.uint8),
     np.array([{}], dtype=object), np.zeros(16, np.uint8)],
)  # fmt: skip
def test_arrays_that_are_no_images_are_refused(array: np.ndarray) -> None:
    with pytest.raises(Undecodable, match="npy"):
        decode(npy(array), 8, 3)


HEADER = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%s), }\n"


@pytest.mark.parametrize(
    "header",
    [HEADER % b"4, 4, 3", HEADER % b"99999999999, 99999999999, 3", HEADER % b"-1, 4, 3", HEADER % b"4" * 400, b"",
     b"__import__('os').abort()\n", b"{'descr': '|O', 'fortran_order': False, 'shape': (4, 4, 3), }\n"],
)  # fmt: skip
@pytest.mark.parametrize("version", [0, 1, 2, 3, 255])
def test_headers_that_lie_are_refused(header: bytes, version: int) -> None:
    for length in {len(header), 0, 10, 65535}:
        width = "<I" if version == 2 else "<H"
        data = b"\x93NUMPY" + bytes([version, 0]) + struct.pack(width, length) + header + b"\0" * 47
        with pytest.raises(Undecodable):
            decode(data, 4, 3)


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xd8\xff", b"not an image", b"\x89PNG\r\n\x1a\n" + b"\0" * 30, b"\x93NUMPY"]
)
def test_damage_is_undecodable(data: bytes) -> None:
    with pytest.raises(Undecodable):
        decode(data, 8, 3)


def test_bombs_are_refused_by_their_header() -> None:
    jpeg = bytearray(encoded(Image.fromarray(smooth(24, 24)), "JPEG"))
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5 : frame + 9] = struct.pack(">HH", 65535, 65535)
    fooling = jpeg[:2] + b"\xff\xfe\x00\x0c\xff\xc0\x00\x11\x08\x00\x18\x00\x18\x03" + jpeg[2:]  # a frame in a comment
    chunk = struct.pack(">II5B", 40000, 40000, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + chunk + b"\0" * 4
    for data in (bytes(jpeg), bytes(fooling), png):
        with pytest.raises(Undecodable):
            decode(data, 24, 3)
        assert decode_into(np.zeros((1, 24, 24, 3), np.uint8), [0], [data]) == [0]
    with pytest.raises(Undecodable, match="bomb"):
        decode(bytes(jpeg), 24, 3)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_no_bytes_crash_it(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP", "npy"]))
    pixels = smooth(24, 24)
    file = bytearray(npy(pixels) if kind == "npy" else encoded(Image.fromarray(pixels), kind))
    for _ in range(data.draw(st.integers(0, 6))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(file)))
    assert not ImageFile.LOAD_TRUNCATED_IMAGES
    images = np.zeros((1, 24, 24, 3), np.uint8)
    for hostile in (bytes(file), bytes(file[:cut])):
        failed = decode_into(images, [0], [hostile])
        try:
            alone = decode(hostile, 24, 3)
        except Undecodable as error:
            assert failed == [0] and str(error)
        else:
            assert failed == [] and np.array_equal(images[0], alone)
