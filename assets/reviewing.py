"""Review: what people decided about queued samples, read from a CSV and turned into one overlay, never copied bytes."""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import OVERLAY
from sevenfold.storage.lake import Lake

COLUMNS = ("id", "queue", "rank", "kind", "path", "given", "suggestion", "score", "label", "exclude", "reason")
"""An exported queue. People fill `label` (or `exclude`); a row with neither is not decided yet."""

_YES = {"1", "true", "yes", "y", "x"}
_NO = {"", "0", "false", "no", "n"}


@dataclass(frozen=True)
class Decision:
    """One sample's review: its true label, or that it is to be left out.

    `queue` is the queue that asked, if known; `where` names the line, for errors.
    """

    id: str
    label: str | None = None
    exclude: bool = False
    reason: str = ""
    where: str = ""
    queue: str = ""


@dataclass(frozen=True)
class Reviewed:
    """The overlay (index.OVERLAY) of a set of decisions, and how many of each kind there were.

    counts: labelled (pool -> train), relabelled, excluded, confirmed (its row changes nothing and says who looked).
    """

    overlay: pa.Table
    counts: Mapping[str, int] = field(default_factory=dict)


def decisions_to_overlay(
    samples: pa.Table,
    decisions: Sequence[Decision],
    classes: Sequence[str],
    *,
    reviewer: str,
    reason: str = "",
    new_classes: bool = False,
) -> Reviewed:
    """Check decisions against a version's samples and make the overlay that carries them out.

    Parameters
    ----------
    samples : the version's effective rows (id, label, split are read).
    classes : the version's classes; another label is an error unless `new_classes`.
    reviewer, reason : recorded in each row; a decision's own reason wins.

    Raises
    ------
    SevenfoldError
        For an unknown id, an unknown label (naming the nearest), or one id decided in two ways; all of them name
        the decision's line.
    """
    split_of = dict(zip(samples["id"].to_pylist(), samples["split"].to_pylist(), strict=True))
    label_of = dict(zip(samples["id"].to_pylist(), samples["label"].to_pylist(), strict=True))
    known = set(classes)
    seen: dict[str, Decision] = {}
    rows: list[dict[str, Any]] = []
    counts = {"labelled": 0, "relabelled": 0, "excluded": 0, "confirmed": 0}
    for d in decisions:
        earlier = seen.setdefault(d.id, d)
        if earlier is not d:
            if (earlier.label, earlier.exclude) != (d.label, d.exclude):
                raise SevenfoldError(
                    f"{d.id[:12]} is decided as {_said(d)}, and before as {_said(earlier)}",
                    where=d.where,
                    expected=f"one decision per sample ({earlier.where or 'the first'} has the other)",
                    do="keep one of the two lines",
                )
            continue
        if d.id not in split_of:
            raise SevenfoldError(
                f"the version has no sample {d.id!r}",
                where=d.where,
                expected=f"an id among its {samples.num_rows} samples",
                do="export the queue again, or review against the version it was mined from",
            )
        row = {"id": d.id, "reviewer": reviewer, "reason": d.reason or reason}
        if d.exclude:
            counts["excluded"] += 1
            rows.append({**row, "exclude": True})
            continue
        if d.label is None:
            raise SevenfoldError(f"{d.id[:12]} has neither a label nor exclude", where=d.where)
        if d.label not in known and not new_classes:
            near = difflib.get_close_matches(d.label, classes, n=1, cutoff=0.5)
            raise SevenfoldError(
                f"the label {d.label!r} is not one of the classes",
                where=d.where,
                expected=", ".join(classes) or "a class (the version has none yet)",
                do=f"did you mean {near[0]!r}?" if near else "correct it, or allow new classes (--new-classes)",
            )
        if split_of[d.id] == "pool":
            counts["labelled"] += 1
            rows.append({**row, "label": d.label, "split": "train"})
        elif label_of[d.id] != d.label:
            counts["relabelled"] += 1
            rows.append({**row, "label": d.label})
        else:
            counts["confirmed"] += 1
            rows.append({**row, "label": d.label})
    return Reviewed(pa.Table.from_pylist(rows, schema=OVERLAY), counts)


def read_decisions(path: Path) -> list[Decision]:
    """The decided rows of a CSV with the columns id and label, exclude or both; the other columns are ignored.

    A row without a label and without exclude is not decided and is skipped.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise SevenfoldError("there is no such file", where=str(path), expected="a CSV of decisions") from None
    except UnicodeDecodeError:
        raise SevenfoldError("this is no UTF-8 text", where=str(path), do="save the sheet as CSV (UTF-8)") from None
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    names = {(name or "").strip().lower(): name for name in reader.fieldnames or []}
    if "id" not in names or not {"label", "exclude"} & names.keys():
        raise SevenfoldError(
            f"the columns are {', '.join(reader.fieldnames or []) or 'none'}",
            where=f"{path}, line 1",
            expected="id and label (or exclude, or both), separated by commas",
            do="start from `sevenfold review QUEUE --export FILE`",
        )
    try:
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as e:  # an open quote would swallow the decisions below it
        raise SevenfoldError(
            f"this is no CSV ({e})", where=f"{path}, line {reader.line_num}", do="close or double the quotes"
        ) from None
    decisions = []
    for number, row in rows:
        where = f"{path}, line {number}"
        cell = {key: (row.get(name) or "").strip() for key, name in names.items()}
        excluded = cell.get("exclude", "").lower()
        if excluded not in _YES | _NO:
            raise SevenfoldError(f"exclude is {excluded!r}", where=where, expected="yes, no or nothing")
        label = cell.get("label") or None
        if excluded in _YES and label:
            raise SevenfoldError(
                f"this row has the label {label!r} and is excluded", where=where, expected="one of the two"
            )
        if excluded in _YES or label:
            decisions.append(
                Decision(cell["id"], label, excluded in _YES, cell.get("reason", ""), where, cell.get("queue", ""))
            )
    return decisions


def exclude_twins(pairs: pa.Table) -> list[Decision]:
    """Leave out the train-side (else val-side) sample of each pair of twins (quality.twins_pairs.PAIRS)."""
    kept = dict(zip(pairs["exclude"].to_pylist(), pairs["keep"].to_pylist(), strict=True))
    return [Decision(i, exclude=True, reason=f"shows the picture of {kept[i][:12]}") for i in sorted(kept)]


def export_queue(lake: Lake, dataset: str, name: str, queue: pa.Table, path: Path) -> int:
    """Write a queue as a CSV for people (COLUMNS), in the order of rank; returns the number of rows."""
    rows = _in_rank_order(lake, dataset, queue)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as f:
        writer = csv.DictWriter(f, COLUMNS)
        writer.writeheader()
        for row in rows:
            score = "" if row["score"] is None else f"{row['score']:.4f}"
            writer.writerow(
                {
                    "id": row["id"], "queue": name, "rank": row["rank"], "kind": row["kind"], "path": row["path"],
                    "given": row["label"] or "", "suggestion": row["suggestion"] or "", "score": score,
                }
            )  # fmt: skip
    return len(rows)


def export_images(lake: Lake, dataset: str, queue: pa.Table, folder: Path) -> int:
    """Write a queue's pictures as `<rank>-<start of id>.<ext>`, so that they sort as the CSV does; returns how many."""
    rows = [row for row in _in_rank_order(lake, dataset, queue) if row["shard"]]
    if rows:
        folder.mkdir(parents=True, exist_ok=True)
        places = pa.Table.from_pylist([{k: row[k] for k in ("shard", "offset", "size")} for row in rows])
        for row, data in zip(rows, lake.read_images(places), strict=True):
            (folder / f"{row['rank']:04d}-{row['id'][:12]}.{row['ext']}").write_bytes(data)
    return len(rows)


def queue_samples(lake: Lake, dataset: str, queue: pa.Table) -> pa.Table:
    """The samples (index.SAMPLES) that a queue's rows are among: of the version it was mined from.

    Proposed relabels come from a landing, before there is a version with them: theirs are main's.
    """
    content = queue["content_id"][0].as_py() if queue.num_rows else None
    return lake.samples(dataset) if content is None else lake.samples_of(content)


def _in_rank_order(lake: Lake, dataset: str, queue: pa.Table) -> list[dict[str, Any]]:
    """The queue's rows with what the version it was mined from says of them."""
    if not queue.num_rows:
        return []
    names = ["id", "path", "ext", "shard", "offset", "size"]
    samples = queue_samples(lake, dataset, queue).select(names)
    return sorted(queue.join(samples, "id").to_pylist(), key=lambda row: row["rank"] or 0)


def _said(decision: Decision) -> str:
    return "exclude" if decision.exclude else repr(decision.label)
