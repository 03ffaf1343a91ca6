"""From the lake's tables to the report's dataclasses: pure functions over Arrow tables and bytes already read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sevenfold.quality.report.format import percent
from sevenfold.quality.report.model import BatchCounts, ClassBalance, Curve, Gate, GateSlice, Grid, StepTimes, Tile

if TYPE_CHECKING:
    import pyarrow as pa

UNLABELLED = "(unlabelled)"
PHASES = ("data", "forward", "backward", "optimizer")


def batch_counts(batch: Any) -> BatchCounts:
    """A `storage.Batch` as a row of the reconciliation."""
    return BatchCounts(batch=batch.batch, status=batch.status, reasons=dict(batch.reasons), **dict(batch.counts))


def class_balance(version: str, samples: pa.Table, classes: Sequence[str] = ()) -> ClassBalance:
    """Count the labels of a version's samples, in the order of `classes`, then by name; unlabelled ones last."""
    found = {row["values"]: row["counts"] for row in samples.column("label").value_counts().to_pylist()}
    unlabelled = found.pop(None, 0)
    names = [*classes, *sorted(set(found) - set(classes))]
    counts = {name: found.get(name, 0) for name in names}
    return ClassBalance(version, counts | ({UNLABELLED: unlabelled} if unlabelled else {}))


def quarantine_grid(quarantine: pa.Table, images: Mapping[str, bytes], caption: str = "", limit: int = 60) -> Grid:
    """A tile per quarantined input, one of each reason first; `images` maps input paths to their bytes."""
    rows = quarantine.to_pylist()
    nth: dict[str, int] = {}
    turns = []
    for i, row in enumerate(rows):
        nth[row["reason"]] = nth.get(row["reason"], 0) + 1
        turns.append((nth[row["reason"]], i))
    chosen = (rows[i] for _, i in sorted(turns)[:limit])
    tiles = tuple(
        Tile(
            key=row["path"],
            image=images.get(row["path"]),
            title=row["reason"].replace("_", " "),
            lines=tuple(line for line in (row["detail"], row["label"] and f"label: {row['label']}") if line),
            missing="cannot be shown",
        )
        for row in chosen
    )
    return Grid(tiles, caption, total=len(rows))


def suspected_grid(
    queue: pa.Table, images: Mapping[str, bytes], caption: str = "", *, truth: Mapping[str, str] | None = None,
    limit: int = 60,
) -> Grid:  # fmt: skip
    """A tile per suspected label, most suspect first: given -> suggested and the confidence.

    Parameters
    ----------
    queue : columns of a review queue (id, rank, score, label, suggestion).
    images : sample id -> image bytes.
    truth : sample id -> label that review settled on, as far as reviewed.
    """
    rows = sorted(queue.to_pylist(), key=lambda row: row["rank"])
    return Grid(tuple(_suspect(row, images, truth or {}) for row in rows[:limit]), caption, total=len(rows))


def _suspect(row: Mapping[str, Any], images: Mapping[str, bytes], truth: Mapping[str, str]) -> Tile:
    settled, agreed, review = truth.get(row["id"]), None, None
    if settled is not None:
        agreed = settled == row["suggestion"]
        review = "label was wrong" if agreed else ("label was right" if settled == row["label"] else f"is {settled}")
    return Tile(
        key=row["id"],
        image=images.get(row["id"]),
        change=(row["label"] or UNLABELLED, row["suggestion"] or "unclear"),
        lines=(f"confidence {percent(row['score'], 0)}",),
        review=review,
        agreed=agreed,
    )


def queue_grid(
    queue: pa.Table, images: Mapping[str, bytes], caption: str = "", *, truth: Mapping[str, str] | None = None,
    score: str = "score", limit: int = 30,
) -> Grid:  # fmt: skip
    """A tile per sample of a hard, novel or random queue, in rank order.

    The title is the model's suggestion; where `truth` (sample id -> label) knows, the tile says whether it was right.
    `score` names what the queue's score is.
    """
    rows = sorted(queue.to_pylist(), key=lambda row: row["rank"])
    tiles = []
    for row in rows[:limit]:
        settled = (truth or {}).get(row["id"])
        agreed = None if settled is None or row["suggestion"] is None else settled == row["suggestion"]
        tiles.append(
            Tile(
                key=row["id"],
                image=images.get(row["id"]),
                title=row["suggestion"] or row["label"] or UNLABELLED,
                lines=() if row["score"] is None else (f"{score} {row['score']:.2f}",),
                review=None if settled is None else ("right" if agreed else f"is {settled}"),
                agreed=agreed,
            )
        )
    return Grid(tuple(tiles), caption, total=len(rows))


def sample_grid(samples: pa.Table, images: Mapping[str, bytes], caption: str = "", *, limit: int = 30) -> Grid:
    """A tile per sample with its label: drifted samples, or the reference beside them."""
    rows = samples.slice(0, limit).select(["id", "label"]).to_pylist()
    tiles = (Tile(key=row["id"], image=images.get(row["id"]), title=row["label"] or UNLABELLED) for row in rows)
    return Grid(tuple(tiles), caption, total=samples.num_rows)


def curve(run: str, group: str, history: Iterable[Mapping[str, Any]]) -> Curve:
    """A run's learning curve from its result's history (rows with `epoch` and `val_accuracy`)."""
    points = ((float(row["epoch"]), row["val_accuracy"]) for row in history if row["val_accuracy"] is not None)
    return Curve(run, group, tuple(points))


def step_times(run: str, steps: pa.Table, *, skip: int = 1) -> StepTimes:
    """Mean milliseconds by phase over all ranks, from the trainer's steps (seconds per phase and `total`).

    The first `skip` steps are left out where there are more: they warm up. What no phase accounts for is `other`; the
    idle share is that of `data`, which is the wait for the loader.
    """
    import pyarrow.compute as pc

    late = steps.filter(pc.greater_equal(steps["step"], skip))
    used = late if late.num_rows else steps
    phases = {name: 1000 * (pc.mean(used[name]).as_py() or 0.0) for name in PHASES}
    total = 1000 * (pc.mean(used["total"]).as_py() or 0.0)
    other = total - sum(phases.values())
    if other > 0.005 * total:
        phases["other"] = other
    return StepTimes(run, phases, phases["data"] / total if total else None, len(pc.unique(used["step"])))


def gate(
    promoted: bool, reasons: Iterable[str], slices: pa.Table, *, alias: str, champion: str, challenger: str
) -> Gate:
    """The gate's decision from its parts: `slices` are the rows of its table, a `verdict` for each."""
    word = {"gained": True, "held": True, "regressed": False}

    def interval(row: Mapping[str, Any], name: str) -> tuple[float, float] | None:
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        return None if low is None or high is None else (low, high)

    rows = tuple(
        GateSlice(
            row["slice"], row["n"], row["champion"], row["challenger"], interval(row, "champion"),
            interval(row, "challenger"), interval(row, "difference"), word.get(row["verdict"]),
            row["verdict"].replace("_", " ") + (", new" if row["new"] else ""),
        )
        for row in slices.to_pylist()
    )  # fmt: skip
    return Gate(promoted, alias, champion, challenger, tuple(reasons), rows)
