"""The PNG writer: any reader gets the same pixels back, and the bytes never change."""

from __future__ import annotations

import hashlib
import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from PIL import Image

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.png import encode_png

SHAPES = st.one_of(
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.tuples(st.integers(1, 40), st.integers(1, 40), st.just(3)),
)


def pattern(*shape: int) -> np.ndarray:
    """A fixed uint8 array of any shape that touches every value."""
    return (np.arange(np.prod(shape), dtype=np.uint64) * 2654435761 >> 13).astype(np.uint8).reshape(shape)


def decoded(png: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(png)) as image:
        assert image.format == "PNG"
        return np.asarray(image)


def chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    """(kind, data) of every chunk, each checksum verified."""
    found, at = [], 8
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", png, at + 8 + length) == (zlib.crc32(kind + data),)
        found.append((kind, data))
        at += 12 + length
    return found


@given(pixels=npst.arrays(np.uint8, SHAPES))
def test_pillow_reads_back_the_same_pixels(pixels: np.ndarray) -> None:
    np.testing.assert_array_equal(decoded(encode_png(pixels)), pixels)


@pytest.mark.parametrize(
    "shape",
    [
        (1, 1),
        (1, 65534),  # exactly one full block with the filter byte
        (1, 65535),  # one byte into a second block
        (2, 65534),  # exactly two full blocks: the last one is final, no empty block follows
        (300, 300, 3),
        (1, 70000, 3),
        (70000, 1),
    ],
    ids=str,
)
def test_sizes_around_the_block_limit(shape: tuple[int, ...]) -> None:
    pixels = pattern(*shape)
    png = encode_png(pixels)
    np.testing.assert_array_equal(decoded(png), pixels)
    raw = shape[0] * (1 + int(np.prod(shape[1:])))
    assert len(png) == raw + 5 * -(-raw // 65535) + 63


def test_only_the_chunks_a_png_needs_and_a_complete_stream() -> None:
    pixels = pattern(28, 28)
    found = chunks(encode_png(pixels))
    assert [kind for kind, _ in found] == [b"IHDR", b"IDAT", b"IEND"]
    stream = zlib.decompressobj()
    rows = stream.decompress(found[1][1])
    assert stream.eof
    assert not stream.unused_data
    assert rows == b"".join(b"\0" + row.tobytes() for row in pixels)


@given(pixels=npst.arrays(np.uint8, SHAPES))
def test_memory_layout_does_not_matter(pixels: np.ndarray) -> None:
    expected = encode_png(np.ascontiguousarray(pixels))
    assert encode_png(np.asfortranarray(pixels)) == expected
    assert encode_png(pixels[::-1][::-1]) == expected


@pytest.mark.parametrize(
    ("shape", "digest"),
    [
        ((1, 1), "686593006ba0db476865efa25ff90ccde940772284aa95d79ebef425e65394c7"),
        ((28, 28), "a935346c046cbcff1534f75857f479ffeb84234710c64c3bf1c6e88d3e5c48df"),
        ((32, 32, 3), "d4a0a26fa58055cbd28ffa8ec8a746aa987cd1d98d7e3dc5cd681b8aa0d938f0"),
        ((257, 263, 3), "ca4923cf98a1a75b23dbb20e03acfa6f03431d9ab564678f2a92b9b54af58b83"),
    ],
    ids=str,
)
def test_the_bytes_are_frozen(shape: tuple[int, ...], digest: str) -> None:
    """Sample ids are digests of these bytes: a change here changes the identity of every sample from an array."""
    assert hashlib.sha256(encode_png(pattern(*shape))).hexdigest() == digest


@pytest.mark.parametrize(
    "pixels",
    [
        np.zeros((4, 4), np.float32),
        np.zeros((4, 4), np.uint16),
        np.zeros((4, 4), bool),
        np.zeros(4, np.uint8),
        np.zeros((4, 4, 1), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((2, 4, 4, 3), np.uint8),
        np.zeros((0, 4), np.uint8),
        np.zeros((4, 0, 3), np.uint8),
    ],
    ids=lambda a: f"{a.dtype}{list(a.shape)}",
)
def test_what_is_not_an_8_bit_image_is_refused(pixels: np.ndarray) -> None:
    with pytest.raises(SevenfoldError, match="expected"):
        encode_png(pixels)


def test_an_image_over_the_chunk_limit_is_refused_before_memory_is_asked_for() -> None:
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (1 << 16, 1 << 15), (0, 0))
    with pytest.raises(SevenfoldError, match="tiles"):
        encode_png(huge)
