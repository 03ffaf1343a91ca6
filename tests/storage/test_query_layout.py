"""How tables lie in Parquet: few row groups whatever the shards, and a page index that finds an id."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.storage.index import ROW_GROUP, parquet_into

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


def written(sizes: list[int]) -> tuple[pq.ParquetFile, pa.Table]:
    total = sum(sizes)
    table = pa.table({"id": [f"{i:064d}" for i in range(total)], "n": range(total)}, schema=SCHEMA)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    file = io.BytesIO()
    parquet_into(file, [table.slice(s, n) for s, n in zip(starts, sizes, strict=True)], SCHEMA)
    return pq.ParquetFile(file), table


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 1000, 50_000, ROW_GROUP - 1, ROW_GROUP, ROW_GROUP + 1]), max_size=5))
def test_rows_keep_their_order_in_groups_of_bounded_size(sizes: list[int]) -> None:
    file, table = written(sizes)
    assert file.read().equals(table)
    groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert all(n <= ROW_GROUP for n in groups)
    assert len(groups) <= 1 + 2 * sum(sizes) // ROW_GROUP + (not sum(sizes))


def test_a_thousand_shards_make_one_row_group_with_a_page_index() -> None:
    file, _ = written([100] * 1000)
    assert file.num_row_groups == 1
    column = file.metadata.row_group(0).column(0)
    assert column.has_offset_index and column.has_column_index
    assert file.metadata.serialized_size < 2000
