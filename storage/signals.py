"""Signals and predictions: columns computed about samples later, keyed by id and stamped with what produced them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import PROPERTIES, conform, read_parquet, write_parquet
from sevenfold.storage.names import check_name
from sevenfold.storage.store import Store

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
MEASURE = "measure-2"
"""The producer of the properties; the number rises when their definition changes."""

PART_SEPARATOR = "@"
"""Joins two names into one part name; no name holds it, so two pairs never join alike."""

SCOPES = ("content", "label", "version")


def write_signal(
    store: Store, name: str, producer: str, table: pa.Table, *, scope: str, in_sample: bool, part: str = "0"
) -> str:
    """Store one signal: `table` has id, value and, by scope, label and content_id. Returns its key."""
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
    key = f"signals/{name}/{producer}/{part}.parquet"
    write_parquet(store, key, [stamped], SIGNAL, overwrite=True)
    return key


def read_signal(store: Store, name: str, producer: str | None = None) -> pa.Table:
    """All rows of a signal (of one producer, or of all)."""
    folder = f"signals/{check_name(name, 'signal name')}"
    if producer:
        folder += f"/{check_name(producer, 'producer')}"
    keys = [e.key for e in store.entries(folder) if e.key.endswith(".parquet")]
    if not keys:
        raise SevenfoldError(
            f"there is no signal {name!r}" + (f" by {producer}" if producer else ""), where=f"{store.url}/{folder}"
        )
    return pa.concat_tables([read_parquet(store, k, SIGNAL) for k in keys])


def read_properties(store: Store, parts: Sequence[str]) -> pa.Table:
    """id and the float properties (index.PROPERTIES) of some landings, named as the parts of their signals."""
    tables = {}
    for name in PROPERTIES:
        keys = [f"signals/{name}/{MEASURE}/{part}.parquet" for part in parts]
        tables[name] = pa.concat_tables([read_parquet(store, k, columns=["id", "value"]) for k in keys])
    ids = tables[PROPERTIES[0]]["id"]
    for table in tables.values():  # a takedown that is under way has left some of them already
        if not table["id"].equals(ids):
            ids = ids.filter(pc.is_in(ids, value_set=table["id"].combine_chunks()))
    columns = {"id": ids}
    for name, table in tables.items():
        place = pc.index_in(ids, value_set=table["id"].combine_chunks())
        columns[name] = table["value"] if table["id"].equals(ids) else table["value"].take(place)
    return pa.table(columns)


def predictions_key(producer: str) -> str:
    """Where a producer's predictions lie."""
    return f"predictions/{check_name(producer, 'producer')}.parquet"


def write_predictions(store: Store, producer: str, table: pa.Table) -> str:
    """Store a run's predictions (columns of PREDICTION; `producer` is added). Returns their key."""
    stamped = conform(table, PREDICTION)
    i = PREDICTION.get_field_index("producer")
    stamped = stamped.set_column(i, PREDICTION.field("producer"), pa.array([producer] * table.num_rows, pa.string()))
    key = predictions_key(producer)
    write_parquet(store, key, [stamped], PREDICTION, overwrite=True)
    return key


def read_predictions(store: Store, producer: str) -> pa.Table:
    """The predictions of one run."""
    key = predictions_key(producer)
    if not store.exists(key):
        raise SevenfoldError(
            f"there are no predictions by {producer}", where=f"{store.url}/{key}", do="run `sevenfold score` first"
        )
    return read_parquet(store, key, PREDICTION)
