"""The view `scored`: the samples of a version beside what is known about each, one column per signal."""

from __future__ import annotations

from collections.abc import Iterable

from sevenfold.storage.index import PROPERTIES, SAMPLES
from sevenfold.storage.lens import Lens, empty, quoted, samples_sql, text
from sevenfold.storage.signals import PREDICTION
from sevenfold.storage.store import Entry

PREDICTED = ("predicted", "confidence", "margin", "loss", "producer")
"""Columns that come from the newest out-of-sample prediction of each sample."""

_OF_LABEL = ("margin", "loss")
"""Of those, what was computed from the label: null when the sample has another label by now."""


def scored_sql(lens: Lens) -> str:
    """SELECT of index.SAMPLES, PREDICTED and a DOUBLE column per signal (PROPERTIES always), a row per sample.

    Each signal comes from its newest producer and is null where it does not apply: a signal of scope `label` that was
    computed under another label, one of scope `version` about another version. Only the columns that the query names
    are joined. A signal named like another column gets the name `signal_<name>`.
    """
    taken = {*SAMPLES.names, *PREDICTED}
    signals: dict[str, list[str]] = {name: [] for name in PROPERTIES}
    for name, keys in _newest(lens.found("signals/*/*/*.parquet")):
        signals[f"signal_{name}" if name in taken else name] = keys
    wanted = lens.asked.columns
    predicted = [c for c in PREDICTED if wanted is None or c in wanted]
    signals = {c: keys for c, keys in signals.items() if wanted is None or c.lower() in wanted}
    content_id = text(lens.version.content_id if lens.version else "")
    columns, joins = ["s.*"], []
    if predicted:
        columns += [
            f"CASE WHEN p.label IS NOT DISTINCT FROM s.label THEN p.{c} END AS {c}" if c in _OF_LABEL else f"p.{c}"
            for c in predicted
        ]
        joins.append(f"LEFT JOIN ({_predictions(lens, predicted, content_id)}) p ON p.id = s.id")
    for i, (column, keys) in enumerate(signals.items()):
        if not keys:
            columns.append(f"NULL::DOUBLE AS {quoted(column)}")
            continue
        columns.append(f"g{i}.value AS {quoted(column)}")
        # an id may be in several parts: of two datasets, or of two batches that both held the image
        rows = (
            f"SELECT id, CASE WHEN scope = 'label' THEN label END AS label, scope = 'label' AS by_label, "
            f"any_value(value) AS value FROM read_parquet({lens.files(keys)}) "
            f"WHERE scope <> 'version' OR content_id = {content_id} GROUP BY ALL"
        )
        same_label = f"NOT g{i}.by_label OR g{i}.label IS NOT DISTINCT FROM s.label"
        joins.append(f"LEFT JOIN ({rows}) g{i} ON g{i}.id = s.id AND ({same_label})")
    return f"SELECT {', '.join(columns)} FROM ({samples_sql(lens)}) s {' '.join(joins)}"


def _newest(entries: Iterable[Entry]) -> list[tuple[str, list[str]]]:
    """Each signal's name with the files of its newest producer: the one that wrote last."""
    producers: dict[tuple[str, str], list[Entry]] = {}
    for e in entries:
        _, name, producer, _ = e.key.split("/")
        producers.setdefault((name, producer), []).append(e)
    newest: dict[str, list[Entry]] = {}
    for (name, _), files in sorted(producers.items(), key=lambda item: max(e.modified for e in item[1])):
        newest[name] = files
    return sorted((name, [e.key for e in files]) for name, files in newest.items())


def _predictions(lens: Lens, columns: list[str], content_id: str) -> str:
    """One row per id: its newest out-of-sample prediction, those of runs on this very version first."""
    keys = [e.key for e in sorted(lens.found("predictions/*.parquet"), key=lambda e: (e.modified, e.key))]
    if not keys:
        return empty(PREDICTION)
    picked = ", ".join(
        f"arg_max_null({quoted(c)}, struct_pack(own := content_id = {content_id}, at := file_index)) AS {quoted(c)}"
        for c in ("label", *columns)
    )
    return f"SELECT id, {picked} FROM read_parquet({lens.files(keys)}) WHERE NOT in_sample GROUP BY id"
