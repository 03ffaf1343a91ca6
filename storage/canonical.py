"""Digests that depend on content alone: canonical JSON, and Arrow tables by value rather than by file bytes."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pyarrow as pa


def canonical_json(value: Any) -> bytes:
    """UTF-8 JSON with sorted keys, no spaces and no NaN: equal values give equal bytes.

    Raises ValueError for NaN or infinity, TypeError for what JSON cannot hold.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest_bytes(data: bytes | memoryview) -> str:
    """sha256 in hex (64 characters)."""
    return hashlib.sha256(data).hexdigest()


def digest_json(value: Any) -> str:
    """sha256 in hex of :func:`canonical_json`."""
    return digest_bytes(canonical_json(value))


def digest_table(table: pa.Table) -> str:
    """sha256 in hex over a table's values, column by column; Parquet and Arrow versions do not matter.

    Each column contributes its name, its logical type, one validity byte per row and its values: little-endian
    fixed-width values with nulls as zero, or 64-bit lengths and UTF-8 bytes for strings; lists add their own
    lengths before their values; dictionary columns count as their plain values.

    Raises TypeError for a column type that has no canonical form here.
    """
    h = hashlib.sha256()
    h.update(canonical_json({"rows": table.num_rows, "columns": table.num_columns}))
    for name, column in zip(table.column_names, table.columns, strict=True):
        h.update(canonical_json(name))
        _feed(h, column)
    return h.hexdigest()


def _feed(h: Any, column: pa.ChunkedArray | pa.Array) -> None:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = kind.value_type
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if isinstance(column, pa.ChunkedArray):  # combine_chunks of an empty column
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], type=kind)
    valid = np.asarray(column.is_valid(), dtype=np.uint8)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        h.update(b"string")
        h.update(valid.tobytes())
        filled = column.fill_null("").cast(pa.large_string())
        lengths, data = _string_buffers(filled)
        h.update(lengths.tobytes())
        h.update(data)
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        h.update(str(kind).encode())
        h.update(valid.tobytes())
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        h.update(np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False).tobytes())
    elif pa.types.is_boolean(kind):
        h.update(b"bool")
        h.update(valid.tobytes())
        h.update(np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.uint8).tobytes())
    elif pa.types.is_list(kind):
        h.update(b"list")
        h.update(valid.tobytes())
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        h.update(lengths.astype("<i8").tobytes())
        _feed(h, column.flatten())
    elif pa.types.is_struct(kind):
        h.update(b"struct")
        h.update(valid.tobytes())
        for i, field in enumerate(kind):
            h.update(canonical_json(field.name))
            _feed(h, column.field(i))
    else:
        raise TypeError(f"no canonical form for a column of type {kind}")


def _string_buffers(column: pa.Array) -> tuple[np.ndarray, memoryview]:
    """(int64 lengths [n], concatenated UTF-8 bytes) of a large_string array without nulls."""
    if len(column) == 0:
        return np.zeros(0, "<i8"), memoryview(b"")
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype="<i8")[column.offset : column.offset + len(column) + 1]
    data = memoryview(data_buffer or b"")[int(offsets[0]) : int(offsets[-1])]
    return np.diff(offsets).astype("<i8"), data
