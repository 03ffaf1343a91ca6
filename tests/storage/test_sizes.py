"""Sizes: what people write is read, what is advised is enough, what is no size is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.sizes import bytes_of, said, setting

SIZES = {
    "20GB": 20 * 10**9, "500 mb": 5 * 10**8, "1.5TB": 1500 * 10**9, "10k": 10**4, "1GiB": 1 << 30, "1000": 1000, "0": 0,
}  # fmt: skip


@pytest.mark.parametrize("text", SIZES)
def test_sizes_are_read(text: str) -> None:
    assert bytes_of(text) == SIZES[text]


@pytest.mark.parametrize("text", ["big", "", "-1GB", "5 XB", "1e9", "GB", "5GB5", "iB"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(SevenfoldError, match="no size"):
        bytes_of(text, "here")


@given(st.integers(1, 10**13))
def test_what_is_advised_is_enough(count: int) -> None:
    assert bytes_of(setting(count), least=1) >= count


def test_people_are_told_in_the_unit_that_fits() -> None:
    told = [said(n) for n in (999_999, 2 * 10**6, 1_200_000_000, 34_100_000_000, 2 * 10**12)]
    assert told == ["999,999 bytes", "2.0 MB", "1.2 GB", "34.1 GB", "2.0 TB"]
