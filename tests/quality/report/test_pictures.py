"""Thumbnails: what can be shown is small and faithful, what cannot be shown is a tile of words, never an error."""

from __future__ import annotations

import base64
import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sevenfold.quality.report import album, grids
from sevenfold.quality.report import model as m

from .conftest import png


def decoded(uri: str | None) -> Image.Image:
    assert uri is not None
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


def saved(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def test_tiny_pictures_are_kept_pixel_by_pixel() -> None:
    uri = album.thumbnail(png(3, 28))
    assert uri is not None and uri.startswith("data:image/png;base64,")
    assert np.array_equal(np.asarray(decoded(uri)), np.asarray(Image.open(io.BytesIO(png(3, 28)))))


def test_large_pictures_shrink_to_a_thumbnail_and_keep_their_shape() -> None:
    shown = decoded(album.thumbnail(saved(Image.new("RGB", (600, 300), "red"))))
    assert shown.size == (96, 48)
    assert shown.format == "JPEG"


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "F"])
def test_every_mode_can_be_shown(mode: str) -> None:
    kind = {"CMYK": "JPEG", "F": "TIFF"}.get(mode, "PNG")
    assert decoded(album.thumbnail(saved(Image.new(mode, (20, 20)), kind))).mode in ("L", "RGB")


def test_sixteen_bit_pictures_use_their_whole_range() -> None:
    pixels = np.linspace(1000, 3000, 400).reshape(20, 20).astype(np.uint16)
    shown = np.asarray(decoded(album.thumbnail(saved(Image.fromarray(pixels)))))
    assert (shown.min(), shown.max()) == (0, 255)


def test_exif_orientation_is_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert decoded(album.thumbnail(saved(Image.new("RGB", (80, 40)), "JPEG", exif=exif))).size == (40, 80)


def bomb() -> bytes:
    """A PNG of a few bytes that claims 60,000 x 60,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("data", [b"hello", png()[:200], bomb()], ids=["text", "truncated", "bomb"])
def test_what_cannot_be_shown_becomes_a_tile_of_words(data: bytes) -> None:
    assert album.thumbnail(data) is None
    tile = grids.tile(m.Tile("in/a.png", data, "truncated", missing="cannot be shown"), album.Album())
    assert "<img" not in tile and "cannot be shown" in tile and "truncated" in tile


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 500), st.binary(max_size=8))
def test_damaged_bytes_never_raise(at: int, junk: bytes) -> None:
    data = png(1, 20)
    damaged = data[: at % len(data)] + junk + data[at % len(data) + len(junk) :]
    album.thumbnail(damaged)


def test_a_tile_says_given_suggested_and_the_review() -> None:
    tile = grids.tile(
        m.Tile("a" * 64, png(), change=("coat", "shirt"), lines=("confidence 93 %",), review="is hat", agreed=False),
        album.Album(),
    )
    for said in ("coat", "shirt", "confidence 93 %", "✕ is hat", "a" * 12):
        assert said in tile


def test_an_album_makes_thumbnails_smaller_until_all_fit_and_then_leaves_out_the_last() -> None:
    images = [png(i, 96, "RGB") for i in range(20)]
    roomy, tight, tiny = (album.Album(images, budget) for budget in (10**6, 60_000, 9_000))
    assert decoded(roomy[images[0]]).size == (96, 96)
    assert max(decoded(tight[images[0]]).size) < 96 and all(tight[one] for one in images)
    assert sum(len(tiny[one] or "") for one in images) <= 9_000
    assert tiny[images[0]] and tiny[images[-1]] is None


def test_a_picture_shown_twice_counts_twice() -> None:
    images = [png(i, 96, "RGB") for i in range(3)]
    once = sum(len(album.thumbnail(one) or "") for one in images)
    assert decoded(album.Album(images, once)[images[0]]).size == (96, 96)
    assert len(album.Album(images * 2, once)[images[0]] or "") < len(album.thumbnail(images[0]) or "")


def test_a_large_file_is_kept_as_a_preview() -> None:
    large = png(1, 400, "RGB")
    kept = album.preview(large)
    assert len(large) > 300_000 and len(kept) < 65_536 and max(Image.open(io.BytesIO(kept)).size) == 192
    assert album.preview(png()) == png()
    assert album.preview(b"x" * 100_000) == b""
