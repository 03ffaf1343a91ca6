"""A query's answer as it arrives, batch by batch: a table, CSV or JSON on stdout, or a Parquet file."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sevenfold.pipelines.cli.console import finite, print_table, say
from sevenfold.storage.errors import SevenfoldError

if TYPE_CHECKING:
    import pyarrow as pa

    from sevenfold.storage.query import Answer

MOST_TEXT = 72
"""Characters of a cell: a sha256 fits."""

_NUMBERS = ("int", "uint", "double", "float", "decimal")


def show(answer: Answer, limit: int) -> None:
    """The first `limit` rows (0: all) as a table, and how many more there are."""
    rows: list[list[Any]] = []
    total = 0
    for batch in answer.batches:
        keep = batch.num_rows if limit == 0 else min(batch.num_rows, max(0, limit - total))
        total += batch.num_rows
        columns = [column.to_pylist() for column in batch.slice(0, keep).columns]
        rows += [[_short(v) for v in values] for values in zip(*columns, strict=True)]
    numeric = [f.name for f in answer.schema if str(f.type).startswith(_NUMBERS)]
    print_table(answer.schema.names, rows, right=numeric)
    if len(rows) < total:
        say(f"{total - len(rows):,} more rows: --limit 0")


def _short(value: Any) -> Any:
    """A cell of the printed table: long text and nested values are cut; --json, --csv and --parquet give them whole."""
    text = value if isinstance(value, str) else str(value) if isinstance(value, dict | list) else None
    return value if text is None else text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 3] + "..."


def print_csv(answer: Answer) -> None:
    """CSV with a header line on stdout."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.schema.names)
    for batch in answer.batches:
        writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def print_json_rows(answer: Answer) -> None:
    """One JSON array on stdout, an object and a line per row."""
    before = "["
    for batch in answer.batches:
        for row in batch.to_pylist():
            line = json.dumps(finite(row), ensure_ascii=False, default=str, allow_nan=False)
            print(f"{before}\n{line}", end="")
            before = ","
    print("\n]" if before == "," else "[]")


def write_rows(table: pa.Table, path: Path) -> None:
    """A table as a Parquet file of the user's; folders on the way are made."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from sevenfold.storage import files

    into = pa.BufferOutputStream()  # a writer of Arrow's own removes what it could not write, be it a device
    pq.write_table(table, into)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.hand_out(path, into.getvalue().to_pybytes())


def write_parquet(answer: Answer, path: Path, lake: Path) -> int:
    """Write the answer to a file, whole or not at all; returns its rows.

    Raises SevenfoldError for a path inside the lake's folder.
    """
    import pyarrow.parquet as pq

    from sevenfold.storage import files

    if path.resolve().is_relative_to(lake.resolve()):
        raise SevenfoldError(
            "an answer cannot be written into the lake", where=str(path), do="choose a file outside of its folder"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = files.temporary_beside(path)
    rows = 0
    with files.writing(temporary) as f, pq.ParquetWriter(f, answer.schema, compression="zstd") as writer:
        for batch in answer.batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    temporary.replace(path)
    return rows
