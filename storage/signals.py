"""Signals and predictions: columns computed about samples later, keyed by id and stamped with what produced them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import conform, write_parquet
from sevenfold.storage.names import check_name
from sevenfold.storage.store import LocalStore

SIGNAL = pa.schema(
    [
        ("id", pa.string()),
        ("value", pa.float64()),
        ("label", pa.string()),
        ("content_id", pa.string()),
        ("name", pa.string()),
        ("producer", pa.string()),
        ("scope", pa.string()),
        ("in_sample", pa.bool_()),
    ]
)
"""`scope` content: value is of the image; label: of the image under `label`; version: also of `content_id`."""

PREDICTION = pa.schema(
    [
        ("id", pa.string()),
        ("content_id", pa.string()),
        ("label", pa.string()),
        ("predicted", pa.string()),
        ("confidence", pa.float64()),
        ("margin", pa.float64()),
        ("loss", pa.float64()),
        ("entropy", pa.float64()),
        ("probs", pa.list_(pa.float32())),
        ("in_sample", pa.bool_()),
        ("fold", pa.int32()),
        ("producer", pa.string()),
    ]
)
PART_SEPARATOR = "@"
"""Joins two names into one part name; no name holds it, so two pairs never join alike."""

SCOPES = ("content", "label", "version")


def write_signal(
    root: Path, name: str, producer: str, table: pa.Table, *, scope: str, in_sample: bool, part: str = "0"
) -> Path:
    """Store one signal: `table` has id, value and, by scope, label and content_id."""
    check_name(name, "signal name")
    check_name(producer, "producer")
    for piece in part.split(PART_SEPARATOR):
        check_name(piece, "part name")
    need = {"content": set(), "label": {"label"}, "version": {"content_id"}}
    if scope not in SCOPES:
        raise SevenfoldError(f"the signal scope is {scope!r}", expected=", ".join(SCOPES))
    missing = ({"id", "value"} | need[scope]) - set(table.column_names)
    if missing:
        raise SevenfoldError(f"the signal {name} lacks the columns {', '.join(sorted(missing))}")
    stamped = conform(table, SIGNAL)
    for column, value in (("name", name), ("producer", producer), ("scope", scope), ("in_sample", in_sample)):
        field = SIGNAL.field(column)
        i = SIGNAL.get_field_index(column)
        stamped = stamped.set_column(i, field, pa.array([value] * table.num_rows, field.type))
    path = root / "signals" / name / producer / f"{part}.parquet"
    write_parquet(LocalStore(path.parent), path.name, [stamped], SIGNAL, overwrite=True)
    return path


def read_signal(root: Path, name: str, producer: str | None = None) -> pa.Table:
    """All rows of a signal (of one producer, or of all)."""
    folder = root / "signals" / check_name(name, "signal name")
    paths = sorted(folder.glob(f"{check_name(producer, 'producer') if producer else '[!.]*'}/[!.]*.parquet"))
    if not paths:
        raise SevenfoldError(
            f"there is no signal {name!r}" + (f" by {producer}" if producer else ""), where=str(folder)
        )
    return pa.concat_tables([pq.read_table(p, schema=SIGNAL) for p in paths])


def predictions_path(root: Path, producer: str) -> Path:
    """Where a producer's predictions lie."""
    return root / "predictions" / f"{check_name(producer, 'producer')}.parquet"


def write_predictions(root: Path, producer: str, table: pa.Table) -> Path:
    """Store a run's predictions (columns of PREDICTION; `producer` is added)."""
    stamped = conform(table, PREDICTION)
    i = PREDICTION.get_field_index("producer")
    stamped = stamped.set_column(i, PREDICTION.field("producer"), pa.array([producer] * table.num_rows, pa.string()))
    path = predictions_path(root, producer)
    write_parquet(LocalStore(path.parent), path.name, [stamped], PREDICTION, overwrite=True)
    return path


def read_predictions(root: Path, producer: str) -> pa.Table:
    """The predictions of one run."""
    path = predictions_path(root, producer)
    if not path.exists():
        raise SevenfoldError(
            f"there are no predictions by {producer}", where=str(path), do="run `sevenfold score` first"
        )
    return pq.read_table(path, schema=PREDICTION)
