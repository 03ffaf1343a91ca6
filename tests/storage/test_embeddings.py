"""Embeddings: one vector per sample and encoder, joined by id, erased by takedown, watched by verify and gc."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sevenfold.storage import Lake, SevenfoldError, embeddings, takedown
from sevenfold.storage.gc import gc
from sevenfold.storage.store import LocalStore
from sevenfold.storage.verify import verify


def write(lake: Lake, producer: str, ids: pa.Array, vectors: np.ndarray, seen: np.ndarray | None = None) -> str:
    embeddings.describe(lake.store, producer, {"kind": "test", "dimension": vectors.shape[1]})
    return embeddings.write_part(lake.store, producer, ids, vectors, seen)


def vectors(n: int, d: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def test_a_version_gets_its_vectors_in_its_own_order(filled: Callable[..., Lake]) -> None:
    lake = filled(20)
    ids = lake.samples("d")["id"].combine_chunks()
    given, seen = vectors(20), np.arange(20) % 3 == 0
    at = np.random.default_rng(1).permutation(20)
    write(lake, "enc-1", ids.take(at[:8]), given[at[:8]], seen[at[:8]])
    write(lake, "enc-1", ids.take(at[8:18]), given[at[8:18]], seen[at[8:18]])
    write(lake, "enc-1", pa.array(["f" * 64]), vectors(1))  # of another dataset
    found = lake.embeddings("d")
    kept = np.sort(at[:18])
    assert found is not None and found.producer == "enc-1"
    assert found.ids.equals(ids.take(pa.array(kept))), "two samples without a vector are left out"
    assert found.vectors.dtype == np.float32
    np.testing.assert_allclose(found.vectors, given[kept], rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(found.in_sample, seen[kept])


def test_the_encoder_that_covers_most_is_taken_unless_one_is_named(filled: Callable[..., Lake]) -> None:
    lake = filled(20)
    assert lake.embeddings("d") is None
    ids = lake.samples("d")["id"].combine_chunks()
    write(lake, "all", ids, vectors(20, 3))
    write(lake, "few", ids[:5], vectors(5, 7))
    assert lake.embeddings("d").producer == "all"  # type: ignore[union-attr]
    assert lake.embeddings("d", producer="few").vectors.shape == (5, 7)  # type: ignore[union-attr]
    with pytest.raises(SevenfoldError, match="one of: all, few"):
        lake.embeddings("d", producer="none")


@settings(max_examples=30)
@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 6), st.integers(1, 4)),
        elements=st.floats(-(2.0**20), 2.0**20, width=32, allow_subnormal=False),
    )
)
def test_no_vector_loses_more_than_float16_does(tmp_path_factory: pytest.TempPathFactory, given: np.ndarray) -> None:
    store = LocalStore(tmp_path_factory.mktemp("store"))
    ids = pa.array([f"{i:064x}" for i in range(len(given))])
    embeddings.describe(store, "e", {})
    embeddings.write_part(store, "e", ids, given)
    found = embeddings.read(store, "e", ids).vectors
    largest = np.abs(given).max()
    np.testing.assert_allclose(found, given, rtol=2e-3, atol=1e-3 * largest)


def test_a_part_is_written_once_and_a_vector_is_finite(lake: Lake) -> None:
    ids = pa.array(["a" * 64, "b" * 64])
    assert write(lake, "e", ids, vectors(2)) == write(lake, "e", ids, vectors(2))
    assert len(embeddings.embedded_ids(lake.store, "e")) == 2
    with pytest.raises(SevenfoldError, match="1 of 2 vectors are not finite, the first is that of bbbb"):
        write(lake, "e", ids, np.array([[0.0], [np.nan]]))


def test_takedown_leaves_no_vector_and_all_others(filled: Callable[..., Lake]) -> None:
    lake = filled(20)
    ids = lake.samples("d")["id"].combine_chunks()
    given = vectors(20)
    key = write(lake, "e", ids, given)
    gone = ids[3].as_py()
    request = takedown.Request(key=gone)
    takedown.carry_out(lake.store, request, takedown.find(lake.store, request), "asked")  # type: ignore[arg-type]
    left = embeddings.read(lake.store, "e")
    assert gone not in left.ids.to_pylist() and len(left.ids) == 19
    np.testing.assert_allclose(left.vectors, np.delete(given, 3, 0), rtol=1e-3, atol=1e-4)
    assert pa.types.is_float16(pq.read_schema(lake.root / key).field("vector").type.value_type)
    assert gone.encode() not in (lake.root / key).read_bytes()
    assert verify(lake.store, ["d"]).clean


def test_verify_sees_a_flipped_bit_and_another_dimension(filled: Callable[..., Lake]) -> None:
    lake = filled(20)
    ids = lake.samples("d")["id"].combine_chunks()
    key = write(lake, "e", ids[:10], vectors(10, 64))
    assert verify(lake.store, ["d"]).clean
    other = write(lake, "e", ids[10:], vectors(10, 9))
    found = verify(lake.store, ["d"]).findings
    assert [(f.problem, f.key in (key, other)) for f in found] == [("embedding", True)]
    (lake.root / other).unlink()
    data = bytearray((lake.root / key).read_bytes())
    data[len(data) // 2] ^= 1
    (lake.root / key).write_bytes(data)
    assert [(f.problem, f.key) for f in verify(lake.store, ["d"]).findings] == [("unreadable", key)]


def test_gc_takes_the_parts_of_an_encoder_that_nobody_describes(filled: Callable[..., Lake]) -> None:
    lake = filled(20)
    ids = lake.samples("d")["id"].combine_chunks()
    kept, gone = write(lake, "kept", ids, vectors(20)), write(lake, "gone", ids, vectors(20))
    (lake.root / "embeddings/gone/about.json").unlink()
    assert [g.key for g in gc(lake.store, grace=0, delete=True, alone=True)] == [gone]
    assert (lake.root / kept).exists() and not (lake.root / gone).exists()


def test_embeddings_in_a_bucket(bucket: str) -> None:
    lake = Lake.create(bucket)
    ids = pa.array([f"{i:064x}" for i in range(6)])
    write(lake, "e", ids, vectors(6))
    assert embeddings.newest_for(lake.store, ids[2:]) == "e"
    np.testing.assert_allclose(
        embeddings.read(lake.store, "e", ids[::-1]).vectors, vectors(6)[::-1], rtol=1e-3, atol=1e-4
    )
