"""Samples are chosen by their ids alone, fast."""

import hashlib

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.quality.sampling import hash_ids, seed_of, subsample


def test_the_choice_depends_on_the_ids_alone() -> None:
    ids = [f"id{i}" for i in range(1000)]
    chosen = [ids[i] for i in subsample(ids, 100)]
    backwards = ids[::-1]
    assert chosen == [backwards[i] for i in subsample(backwards, 100)] and len(set(chosen)) == 100
    more = ids + [f"new{i}" for i in range(100)]
    assert len(set(chosen) & {more[i] for i in subsample(more, 100)}) >= 75
    assert sorted(subsample(ids[:10], 100).tolist()) == list(range(10))
    assert subsample([], 10).tolist() == []


@given(st.lists(st.text(max_size=20), max_size=50), st.integers(0, 49))
def test_an_id_has_one_hash_wherever_it_stands(ids: list[str], cut: int) -> None:
    whole = hash_ids(ids)
    parts = hash_ids(pa.chunked_array([pa.array(ids[:cut], pa.string()), pa.array(ids[cut:], pa.string())]))
    sliced = hash_ids(pa.array(["first", *ids], pa.large_string())[1:])
    assert whole.tolist() == parts.tolist() == sliced.tolist() == [hash_ids([i])[0] for i in ids]
    assert len(set(whole.tolist())) == len(set(ids))


def test_the_hash_is_even_and_differs_in_every_bit() -> None:
    ids = [hashlib.sha256(str(i).encode()).hexdigest() for i in range(4000)]
    bits = np.unpackbits(hash_ids(ids).view(np.uint8).reshape(-1, 8), axis=1).mean(axis=0)
    assert (np.abs(bits - 0.5) < 0.04).all()
    alike = ["0" * 63 + c for c in "0123456789abcdef"]  # only the last digit differs
    assert len(set(hash_ids(alike).tolist())) == 16


def test_the_seed_depends_on_both_sides_and_on_no_order() -> None:
    assert seed_of(["a", "b"], ["c"]) == seed_of(["b", "a"], ["c"]) != seed_of(["a"], ["b", "c"])
    assert seed_of([], ["a"]) != seed_of(["a"], [])
