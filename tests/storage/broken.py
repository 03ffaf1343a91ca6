"""Two hundred broken or odd image files of thirty kinds, made from nothing: what ingest must judge and survive.

`make(folder)` writes them and returns what each must become. Expected is "accepted", or the quarantine reasons that may
be given (a decoder decides whether a cut file is "truncated" or "unreadable", not we).
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, PngImagePlugin

ACCEPTED = frozenset({"accepted"})
CUT = frozenset({"truncated", "unreadable", "not_an_image"})
DAMAGED = frozenset({"truncated", "unreadable", "not_an_image", "unsupported", "too_large"})
EITHER = ACCEPTED | DAMAGED
"""A decoder may see nothing wrong, and what it sees is what every reader will see."""

BOMB = 48 << 20
"""Bytes that a zlib bomb unpacks to."""


@dataclass(frozen=True)
class Case:
    """One file: its path below the folder, its kind, and what it may become."""

    path: str
    kind: str
    expected: frozenset[str]


def picture(seed: int = 0, size: tuple[int, int] = (40, 56), channels: int = 3) -> Image.Image:
    """Smooth noise, so that files have some length: of (height, width)."""
    shape = (size[0] // 4 + 1, size[1] // 4 + 1, channels)
    small = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    image = Image.fromarray(small if channels == 3 else small[..., 0])
    return image.resize((size[1], size[0]), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    """The file's bytes."""
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def chunk(kind: bytes, data: bytes, *, crc: int | None = None) -> bytes:
    """A chunk of a PNG."""
    check = zlib.crc32(kind + data) if crc is None else crc
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)


def png_of(width: int, height: int, body: bytes, *, bits: int = 8, colour: int = 2, before: bytes = b"") -> bytes:
    """A PNG with a header of my own choosing."""
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def files() -> Iterator[tuple[str, str, frozenset[str], bytes]]:
    """(name, kind, expected, bytes) of everything that is a plain file."""
    whole = {
        "jpg": encoded(picture(1), "JPEG", quality=90), "png": encoded(picture(2), "PNG"),
        "gif": encoded(picture(3).convert("P"), "GIF"), "webp": encoded(picture(4), "WEBP", quality=90),
        "bmp": encoded(picture(5), "BMP"), "tif": encoded(picture(6), "TIFF"),
    }  # fmt: skip
    progressive = encoded(picture(7, (80, 80)), "JPEG", quality=95, progressive=True)
    for suffix, data in whole.items():
        yield f"good.{suffix}", "sound", ACCEPTED, data
        yield (
            f"good.{suffix.upper()}",
            "sound",
            ACCEPTED,
            encoded(picture(20 + len(suffix)), *{"tif": ("TIFF",), "jpg": ("JPEG",)}.get(suffix, (suffix.upper(),))),
        )
    # 1-4: truncations of each format, in the header, inside the pixels, at the end
    for suffix in ("jpg", "png", "gif", "webp"):
        data = whole[suffix]
        for cut in (
            1,
            2,
            8,
            12,
            20,
            len(data) // 4,
            len(data) // 2,
            len(data) * 9 // 10,
            len(data) - 20,
            len(data) - 2,
            len(data) - 1,
        ):
            near = cut >= len(data) - 20 and suffix == "png"  # the pixels are all there
            yield f"cut{cut}.{suffix}", f"truncated {suffix}", EITHER if near or suffix == "gif" else CUT, data[:cut]
    for suffix in ("bmp", "tif"):
        for cut in (2, 10, 40, 60, len(whole[suffix]) // 2):
            yield f"cut{cut}.{suffix}", "truncated bmp, tiff", DAMAGED, whole[suffix][:cut]
    for share in (2, 3, 4, 5, 6, 7, 8, 9):
        yield f"prog{share}.jpg", "progressive jpeg, cut", CUT, progressive[: len(progressive) * share // 10]
    # wrong suffix
    for suffix, data in whole.items():
        for other in ("jpg", "png", "gif"):
            if other != suffix:
                yield f"is-{suffix}.{other}", "wrong suffix", frozenset({"wrong_suffix"}), data
    # modes
    for i, quality in enumerate((50, 95)):
        yield (
            f"cmyk{i}.jpg",
            "cmyk",
            frozenset({"unsupported"}),
            encoded(picture(30 + i).convert("CMYK"), "JPEG", quality=quality),
        )
    yield "cmyk.tif", "cmyk", frozenset({"unsupported"}), encoded(picture(32).convert("CMYK"), "TIFF")
    deep = np.random.default_rng(0).integers(0, 65536, (9, 12), dtype=np.uint16)
    yield "deep.png", "16 bits", frozenset({"unsupported"}), encoded(Image.fromarray(deep), "PNG")
    yield "deep.tif", "16 bits", frozenset({"unsupported"}), encoded(Image.fromarray(deep), "TIFF")
    rows = b"".join(b"\0" + bytes(12 * 6) for _ in range(9))
    yield "deep-colour.png", "16 bits", frozenset({"unsupported"}), png_of(12, 9, zlib.compress(rows), bits=16)
    for mode in ("I", "F"):
        yield (
            f"{mode}.tif",
            "32 bits",
            frozenset({"unsupported"}),
            encoded(picture(34).convert("L").convert(mode), "TIFF"),
        )
    for mode in ("LA", "RGBA"):
        image = picture(35 + len(mode)).convert(mode)
        image.putalpha(128)
        yield f"{mode}.png", "transparency", ACCEPTED, encoded(image, "PNG")
    palette = picture(40).convert("P")
    yield "palette.png", "palette", ACCEPTED, encoded(palette, "PNG")
    yield "palette-clear.png", "transparency", ACCEPTED, encoded(palette, "PNG", transparency=3)
    yield "palette-clear.gif", "transparency", ACCEPTED, encoded(picture(41).convert("P"), "GIF", transparency=3)
    yield "clear.webp", "transparency", ACCEPTED, encoded(picture(42).convert("RGBA"), "WEBP")
    yield "two-colours.png", "palette", ACCEPTED, encoded(picture(43).convert("1"), "PNG")
    # animations
    frames = [picture(50 + i) for i in range(3)]
    for suffix, form in (("gif", "GIF"), ("webp", "WEBP"), ("png", "PNG"), ("tif", "TIFF")):
        data = encoded(frames[0], form, save_all=True, append_images=frames[1:])
        yield f"animated.{suffix}", "animated", frozenset({"unsupported"}), data
        yield (
            f"animated-cut.{suffix}",
            "animated",
            DAMAGED | (ACCEPTED if suffix == "gif" else frozenset()),
            data[: len(data) * 2 // 3],
        )
    # EXIF
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = turn
        for suffix, form in (("jpg", "JPEG"), ("png", "PNG"), ("webp", "WEBP")):
            yield f"exif{turn}.{suffix}", "exif", ACCEPTED, encoded(picture(60 + turn), form, exif=exif)
    exif = Image.Exif()
    exif[0x0112] = 77
    yield "exif77.jpg", "exif", ACCEPTED, encoded(picture(69), "JPEG", exif=exif)
    bad_exif = b"\xff\xd8\xff\xe1\x00\x10Exif\0\0MM\0*\xff\xff\xff\xff" + whole["jpg"][2:]
    yield "exif-damaged.jpg", "exif", EITHER, bad_exif
    # what is no image
    yield "zero.jpg", "zero bytes", frozenset({"not_an_image"}), b""
    yield "zero.png", "zero bytes", frozenset({"not_an_image"}), b""
    yield "nul.jpg", "zero bytes", frozenset({"not_an_image"}), bytes(5000)
    for i, text in enumerate(
        (b"<!DOCTYPE html><html><body>404</body></html>", b"\n <html>", b'{"error": 404}', b"Not found\n")
    ):
        yield f"page{i}.jpg", "html, text", frozenset({"not_an_image"}), text
    svg = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
    yield "drawing.svg", "svg", frozenset({"not_an_image"}), svg
    yield "drawing.png", "svg", frozenset({"not_an_image"}), svg
    video = struct.pack(">I", 32) + b"ftypisom\0\0\2\0isomiso2avc1mp41" + bytes(4000)
    yield "film.jpg", "video", frozenset({"not_an_image"}), video
    yield (
        "film.webp",
        "video",
        frozenset({"not_an_image"}),
        b"RIFF" + struct.pack("<I", 4000) + b"AVI LIST" + bytes(4000),
    )
    yield "paper.jpg", "other formats", frozenset({"not_an_image"}), b"%PDF-1.4\n%\xe2\xe3\n" + bytes(300)
    yield "net.png", "other formats", frozenset({"not_an_image"}), encoded(picture(70), "PPM")
    yield "icon.png", "other formats", frozenset({"not_an_image"}), encoded(picture(71, (32, 32)), "ICO")
    yield "j2k.jpg", "other formats", frozenset({"not_an_image"}), encoded(picture(72), "JPEG2000")
    yield "eps.jpg", "other formats", frozenset({"not_an_image"}), b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"
    # bombs
    little = zlib.compress(bytes(100))
    for side in (14_000, 60_000, 2**31 - 1):
        yield f"declared{side}.png", "declared size", frozenset({"too_large", "unreadable"}), png_of(side, side, little)
    yield (
        "declared.bmp",
        "declared size",
        frozenset({"too_large", "unreadable", "truncated", "not_an_image"}),
        bmp(60_000, 60_000),
    )
    gif = bytearray(whole["gif"])
    gif[6:10] = struct.pack("<HH", 65535, 65535)
    yield "declared.gif", "declared size", frozenset({"too_large"}), bytes(gif)
    big = bytearray(whole["jpg"])
    at = big.index(b"\xff\xc0")
    big[at + 5 : at + 9] = struct.pack(">HH", 65500, 65500)
    yield "declared.jpg", "declared size", frozenset({"too_large"}), bytes(big)
    text = chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(BOMB), 1))
    yield (
        "text-bomb.png",
        "zlib bomb",
        DAMAGED,
        png_of(8, 8, zlib.compress(b"".join(b"\0" + bytes(24) for _ in range(8))), before=text),
    )
    itxt = chunk(b"iTXt", b"k\0\1\0\0\0" + zlib.compress(bytes(BOMB), 1))
    yield (
        "itxt-bomb.png",
        "zlib bomb",
        DAMAGED,
        png_of(8, 8, zlib.compress(b"".join(b"\0" + bytes(24) for _ in range(8))), before=itxt),
    )
    icc = chunk(b"iCCP", b"k\0\0" + zlib.compress(bytes(BOMB), 1))
    yield (
        "icc-bomb.png",
        "zlib bomb",
        EITHER,
        png_of(8, 8, zlib.compress(b"".join(b"\0" + bytes(24) for _ in range(8))), before=icc),
    )
    yield "pixels-bomb.png", "zlib bomb", EITHER, png_of(8, 8, zlib.compress(bytes(BOMB), 1))
    # sizes that lie
    yield "short.png", "size lies", CUT, png_of(60, 60, zlib.compress(b"\0" + bytes(30)))
    yield "long.png", "size lies", ACCEPTED, png_of(4, 4, zlib.compress(b"".join(b"\0" + bytes(12) for _ in range(90))))
    for name, height, width in (("zero-high", 0, 9), ("zero-wide", 9, 0)):
        yield f"{name}.png", "size lies", DAMAGED, png_of(width, height, little)
        wrong = bytearray(whole["jpg"])
        wrong[at + 5 : at + 9] = struct.pack(">HH", height, width)
        yield f"{name}.jpg", "size lies", DAMAGED, bytes(wrong)
    taller = bytearray(whole["jpg"])
    taller[at + 5 : at + 7] = struct.pack(">H", 4000)
    yield "taller.jpg", "size lies", CUT, bytes(taller)
    # checksums
    for i, where in enumerate((16, 29, 45, len(whole["png"]) - 16)):
        spoiled = bytearray(whole["png"])
        spoiled[where] ^= 0x55
        yield f"crc{i}.png", "checksum", DAMAGED if i < 3 else EITHER, bytes(spoiled)
    # behind the end
    for suffix in ("jpg", "png", "gif", "bmp"):
        fresh = encoded(picture(80 + len(suffix) + ord(suffix[0])), {"jpg": "JPEG"}.get(suffix, suffix.upper()))
        yield f"garbage.{suffix}", "trailing garbage", ACCEPTED, fresh + b"GARBAGE" * 300
    yield "two.jpg", "trailing garbage", ACCEPTED, encoded(picture(90), "JPEG") + whole["jpg"]
    yield "zip.jpg", "trailing garbage", ACCEPTED, encoded(picture(91), "JPEG") + b"PK\x03\x04" + bytes(500)
    # odd JPEG
    arithmetic = bytearray(whole["jpg"])
    arithmetic[at + 1] = 0xC9
    yield "arithmetic.jpg", "arithmetic jpeg", EITHER, bytes(arithmetic)
    for marker in (0xC3, 0xC5, 0xCF):
        odd = bytearray(whole["jpg"])
        odd[at + 1] = marker
        yield f"sof{marker:x}.jpg", "arithmetic jpeg", DAMAGED, bytes(odd)
    twelve = bytearray(whole["jpg"])
    twelve[at + 4] = 12
    yield "twelve-bit.jpg", "arithmetic jpeg", DAMAGED, bytes(twelve)
    tables = whole["jpg"][: whole["jpg"].index(b"\xff\xda")] + b"\xff\xd9"
    yield "no-scan.jpg", "arithmetic jpeg", DAMAGED, tables
    # colour profiles
    for i, profile in enumerate((b"junk", b"\0" * 128, bytes(range(256)) * 100)):
        yield f"icc{i}.jpg", "icc junk", ACCEPTED, encoded(picture(95 + i), "JPEG", icc_profile=profile)
        yield f"icc{i}.png", "icc junk", ACCEPTED, encoded(picture(105 + i), "PNG", icc_profile=profile)
    # TIFF
    yield "cycle.tif", "tiff directories", EITHER, cyclic_tiff()
    for i, offset in enumerate((0, 4, 0xFFFFFFF0)):
        yield f"offset{i}.tif", "tiff directories", DAMAGED, b"II*\0" + struct.pack("<I", offset) + bytes(50)
    many = b"II*\0\x08\0\0\0\xff\xff" + b"\x00\x01\x04\0\xff\xff\xff\xff\x08\0\0\0" * 50
    yield "many-tags.tif", "tiff directories", DAMAGED, many
    # BMP
    for i, data in enumerate(
        (bmp(-5, 5), bmp(5, -(2**31)), bmp(0, 0), bmp(5, 5, bits=77), bmp(5, 5, header=9), bmp(5, 5, offset=2**31))
    ):
        yield f"absurd{i}.bmp", "absurd bmp", EITHER if i == 5 else DAMAGED, data
    info = PngImagePlugin.PngInfo()
    for i in range(200):
        info.add_text(f"k{i}", "x" * 100)
    yield "many-texts.png", "icc junk", ACCEPTED, encoded(picture(120), "PNG", pnginfo=info)


def bmp(width: int, height: int, *, bits: int = 24, header: int = 40, offset: int = 54) -> bytes:
    """A BMP of a few bytes with a header of my own choosing."""
    body = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 154, 0, 0, offset) + body + bytes(100)


def cyclic_tiff() -> bytes:
    """A TIFF whose directory names itself as the next one."""
    data = bytearray(encoded(picture(110), "TIFF"))
    first = struct.unpack_from("<I", data, 4)[0]
    count = struct.unpack_from("<H", data, first)[0]
    struct.pack_into("<I", data, first + 2 + 12 * count, first)
    return bytes(data)


def make(folder: Path) -> list[Case]:
    """Write all of them below `folder`, and what is no file beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    cases = []
    for name, kind, expected, data in files():
        path = folder / kind.replace(" ", "-").replace(",", "") / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        cases.append(Case(path.relative_to(folder).as_posix(), kind, expected))
    odd = folder / "no-file"
    odd.mkdir()
    (odd / "nothing.jpg").symlink_to(folder / "there-is-none.jpg")
    (odd / "round.jpg").symlink_to("round.jpg")
    os.mkfifo(odd / "pipe.jpg")
    for name in ("nothing.jpg", "round.jpg", "pipe.jpg"):
        cases.append(Case(f"no-file/{name}", "no file", frozenset({"unreadable", "outside"})))
    (odd / "folder.jpg").mkdir()  # an empty folder is no input, whatever it is called
    (odd / "deep.jpg").mkdir()
    (odd / "deep.jpg" / "in.png").write_bytes(encoded(picture(130), "PNG"))
    cases.append(Case("no-file/deep.jpg/in.png", "no file", ACCEPTED))
    if os.geteuid():
        (odd / "locked.jpg").write_bytes(encoded(picture(131), "JPEG"))
        (odd / "locked.jpg").chmod(0)
        cases.append(Case("no-file/locked.jpg", "no file", frozenset({"unreadable"})))
    return cases
