"""idx files: what is read, and how each kind of damage or lie is refused with a reason."""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.idx import read_idx

FASHION = Path(__file__).parents[2] / "examples" / "fashion-mnist"


def idx_bytes(shape: tuple[int, ...], values: bytes, kind: int = 8) -> bytes:
    return bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + values


def written(folder: Path, data: bytes, name: str = "a.idx") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@given(
    array=npst.arrays(np.uint8, npst.array_shapes(min_dims=1, max_dims=4, max_side=6)),
    zipped=st.booleans(),
    lying_suffix=st.booleans(),
)
def test_what_was_written_is_read_back(
    array: np.ndarray, zipped: bool, lying_suffix: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = idx_bytes(array.shape, array.tobytes())
    name = "a.idx.gz" if zipped != lying_suffix else "a.idx"
    path = written(tmp_path_factory.mktemp("idx"), gzip.compress(data) if zipped else data, name)
    got = read_idx(path)
    assert got.dtype == np.uint8
    assert got.flags.c_contiguous
    assert got.flags.writeable
    np.testing.assert_array_equal(got, array)


def test_no_items_is_an_empty_array(tmp_path: Path) -> None:
    assert read_idx(written(tmp_path, idx_bytes((0, 28, 28), b""))).shape == (0, 28, 28)


def test_the_embedded_fashion_mnist() -> None:
    images = read_idx(FASHION / "t10k-images-idx3-ubyte.gz")
    labels = read_idx(FASHION / "t10k-labels-idx1-ubyte.gz")
    assert images.shape == (10_000, 28, 28)
    assert np.bincount(labels).tolist() == [1000] * 10
    assert hashlib.md5(idx_bytes(images.shape, images.tobytes())).hexdigest() == "8181f5470baa50b63fa0f6fddb340f0a"
    assert len((FASHION / "classes.txt").read_text().splitlines()) == 10
    for line in (FASHION / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((FASHION / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize(
    ("data", "found"),
    [
        pytest.param(b"", "empty", id="empty file"),
        pytest.param(b"\0\0", "00 00", id="cut inside the magic"),
        pytest.param(b"<!DOCTYPE html>", "3c 21 44 4f", id="a web page"),
        pytest.param(b"\x89PNG\r\n\x1a\n", "89 50", id="a PNG"),
        pytest.param(b"\0\0\x08\0", "00 00 08 00", id="no dimensions"),
        pytest.param(b"\0\0\x07\x01" + b"\0" * 8, "00 00 07 01", id="unknown type"),
        pytest.param(idx_bytes((2,), b"\0" * 8, kind=0x0D), "float32", id="floats"),
        pytest.param(idx_bytes((1,) * 5, b"x"), "5 dimensions", id="too many dimensions"),
        pytest.param(b"\0\0\x08\xff", "255 dimensions", id="255 dimensions"),
        pytest.param(idx_bytes((2, 3), b"")[:7], "ends after 7 bytes", id="cut inside the header"),
        pytest.param(idx_bytes((2, 3), b"12345"), "2 x 3 = 6 bytes", id="one value short"),
        pytest.param(idx_bytes((2, 3), b"1234567"), "more follow", id="one value over"),
        pytest.param(idx_bytes((0,), b"1"), "more follow", id="none declared, one there"),
        pytest.param(idx_bytes((4_000_000_000, 0, 28), b""), "without any content", id="billions of nothings"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
def test_a_bad_file_is_refused_and_named(data: bytes, found: str, zipped: bool, tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(data) if zipped else data)
    with pytest.raises(SevenfoldError) as caught:
        read_idx(path)
    assert found in caught.value.found
    assert caught.value.where == str(path)
    assert caught.value.expected
    assert caught.value.do


@pytest.mark.parametrize("cut", [3, 9, 20, -9, -4, -1])
def test_a_cut_gzip_is_refused(cut: int, tmp_path: Path) -> None:
    whole = gzip.compress(idx_bytes((64,), os.urandom(64)))
    with pytest.raises(SevenfoldError, match="gzip stream"):
        read_idx(written(tmp_path, whole[:cut]))


def test_a_gzip_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(idx_bytes((64,), os.urandom(64))))
    whole[-6] ^= 1
    with pytest.raises(SevenfoldError, match="gzip stream"):
        read_idx(written(tmp_path, bytes(whole)))


@given(data=st.binary(max_size=80), zipped=st.booleans())
def test_noise_is_refused_or_read_but_never_crashes(
    data: bytes, zipped: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = written(tmp_path_factory.mktemp("idx"), gzip.compress(b"\0\0\x08" + data) if zipped else data)
    try:
        array = read_idx(path)
    except SevenfoldError:
        return
    assert array.size <= len(data)


@pytest.mark.parametrize("shape", [(1 << 29,), (0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF,) * 4, (0, *[0xFFFFFFFF] * 3)])
@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
def test_a_lying_size_costs_no_memory(shape: tuple[int, ...], zipped: bool, tmp_path: Path) -> None:
    data = idx_bytes(shape, b"12")
    path = written(tmp_path, gzip.compress(data) if zipped else data)
    tracemalloc.start()
    try:
        with pytest.raises(SevenfoldError, match="declares"):
            read_idx(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_bomb_is_not_unpacked_past_its_declared_size(tmp_path: Path) -> None:
    """64 MB of zeros behind a header that admits to 100 bytes never lie in memory."""
    path = written(tmp_path, gzip.compress(idx_bytes((100,), bytes(64 << 20)), 1))
    tracemalloc.start()
    try:
        with pytest.raises(SevenfoldError, match="more follow"):
            read_idx(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_limit_is_on_the_declared_size_and_can_be_raised(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(idx_bytes((3, 40, 40), bytes(4800))))
    with pytest.raises(SevenfoldError, match=r"max_bytes"):
        read_idx(path, max_bytes=4799)
    assert read_idx(path, max_bytes=4800).shape == (3, 40, 40)


def test_the_best_that_deflate_can_do_is_still_believed(tmp_path: Path) -> None:
    """An honest file of one repeated value reaches deflate's ratio and must not be taken for a lie."""
    shape = (1000, 100, 100)
    path = written(tmp_path, gzip.compress(idx_bytes(shape, bytes(math.prod(shape))), 9))
    assert math.prod(shape) / path.stat().st_size > 900
    assert not read_idx(path).any()


def test_a_pipe_or_a_folder_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(SevenfoldError, match="not a regular file"):
            read_idx(path)
