"""Numbers that stand for keys: equal keys agree, and what is called repeated is."""

import hashlib
from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.quality import keys64, veracity

DIGESTS = [hashlib.sha256(bytes([i])).hexdigest() for i in range(6)]


def chunked(values: list[str | None], cut: int) -> pa.ChunkedArray:
    """In two chunks, the second a slice that starts within its buffer."""
    second = pa.array(["x" * 64, *values[cut:]], pa.string()).slice(1)
    return pa.chunked_array([pa.array(values[:cut], pa.string()), second])


@settings(max_examples=80, deadline=None)
@given(
    values=st.lists(st.one_of(st.sampled_from(DIGESTS), st.none(), st.text(max_size=3)), max_size=20),
    cut=st.integers(0, 20),
)
def test_a_key_is_repeated_when_it_is_there_twice(values: list[str | None], cut: int) -> None:
    for keys in (values, [v for v in values if v in DIGESTS]):
        count = Counter(keys)
        column = chunked(keys, min(cut, len(keys)))
        assert keys64.repeated(column).tolist() == [v is not None and count[v] > 1 for v in keys]
        found = keys64.numbers(column)
        assert len(set(found.tolist())) == len(count), "different keys, different numbers"


@settings(max_examples=60, deadline=None)
@given(
    mine=st.lists(st.one_of(st.sampled_from(DIGESTS), st.none()), max_size=9),
    theirs=st.lists(st.sampled_from([*DIGESTS, "short"]), max_size=9),
)
def test_among_is_what_a_set_says(mine: list[str | None], theirs: list[str]) -> None:
    found = keys64.among(chunked(mine, len(mine) // 2), chunked(theirs, len(theirs) // 2))
    assert found.tolist() == [key is not None and key in set(theirs) for key in mine]


def test_digests_of_two_columns_compare() -> None:
    one, two = keys64.numbers(pa.array(DIGESTS)), keys64.numbers(chunked(DIGESTS[::-1], 2))
    assert (one == two[::-1]).all()
    assert keys64.member(one, np.sort(two[:3])).tolist() == [False] * 3 + [True] * 3


def test_keys_that_share_a_number_are_told_apart() -> None:
    """A number is made of both ends of a digest: these two differ only in the middle."""
    alike = ["a" * 16 + "b" * 32 + "c" * 16, "a" * 16 + "d" * 32 + "c" * 16]
    assert len(set(keys64.numbers(pa.array(alike)).tolist())) == 1, "the case is not the one meant"
    assert not keys64.repeated(pa.array(alike)).any()
    rows = pa.table({"id": ["1", "2"], "pixel_digest": alike, "label": ["x", "y"]})
    assert veracity.contradictory(rows, None, subject="b").result == "pass"


ROWS = st.lists(
    st.tuples(st.sampled_from(DIGESTS[:4]), st.sampled_from(["a", "b", "c", None])), min_size=0, max_size=12
)


def table(rows: list[tuple[str, str | None]], width: int) -> pa.Table:
    columns = {
        "id": [f"{i:03d}" for i in range(len(rows))],
        "pixel_digest": [d[:width] for d, _ in rows],
        "label": [x for _, x in rows],
    }
    return pa.table({k: pa.array(v, pa.string()) for k, v in columns.items()})


@settings(max_examples=150, deadline=None)
@given(rows=ROWS, others=ROWS, width=st.sampled_from([5, 64]))
def test_contradictions_are_those_that_a_loop_finds(
    rows: list[tuple[str, str | None]], others: list[tuple[str, str | None]], width: int
) -> None:
    def loop(mine: list[tuple[str, str | None]], theirs: list[tuple[str, str | None]]) -> list[str]:
        return [
            f"{i:03d}"
            for i, (digest, label) in enumerate(mine)
            if label is not None and {x for d, x in theirs if d == digest and x is not None} - {label}
        ]

    found = veracity.contradictory(table(rows, width), None, subject="b", reference_rows=table(others, width))
    assert list(found.findings) == (loop(rows, rows) or loop(rows, others))
    assert found.result == ("fail" if loop(rows, rows) else "warn" if loop(rows, others) else "pass")


def test_places_are_where_the_same_key_lies() -> None:
    others = chunked([DIGESTS[3], DIGESTS[0], DIGESTS[5]], 2)
    for odd in ([], ["short"]):
        asked = chunked([DIGESTS[0], DIGESTS[1], DIGESTS[5], DIGESTS[0], *odd], 1)
        assert keys64.places(asked, others).tolist() == [1, -1, 2, 1, *[-1 for _ in odd]]
