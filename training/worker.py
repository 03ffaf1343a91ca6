"""One rank of a launch: joins the group, trains or scores, tells rank 0's progress and result, and leaves."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from sevenfold.storage import files
from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.progress import Progress, silent
from sevenfold.training.config import parse
from sevenfold.training.launch import ERROR, PROGRESS, RESULT
from sevenfold.training.place import Place
from sevenfold.training.score import score
from sevenfold.training.trainer import train

_INTERVAL = 0.1
_LAST_LINES = 25

UPLOAD = 900.0
"""Seconds that ranks wait for each other at least where rank 0 sends checkpoints and weights to a bucket meanwhile."""


def work(spec: Path) -> NoReturn:
    """Carry out a launch's spec in this rank; ends the process."""
    values = json.loads(spec.read_bytes())
    config = parse(values["config"], str(spec))
    place = None
    try:
        remote = "://" in values["root"]
        place = Place.join(max(config.timeout, UPLOAD) if remote else config.timeout)
        with _reporter(place, spec.parent / PROGRESS) as (progress, report):
            if values["mode"] == "score":
                result: dict[str, Any] = {"mode": "score", "score": score(values["root"], config, place, progress)}
            else:
                result = {"mode": "train", "runs": train(values["root"], config, place, progress)}
            if place.rank == 0:
                files.replace(spec.parent / RESULT, canonical_json(result))
                report(result)
    except Exception as error:
        _tell(spec, _said(error))
        print(traceback.format_exc() if _is_unforeseen(error) else error, file=sys.stderr)
        (place or Place()).abort()
    place.leave()


def _is_unforeseen(error: Exception) -> bool:
    """Whether only the place where it was raised explains an error; a store's own names the object."""
    if isinstance(error, OSError):
        return "://" not in str(error.filename)
    return not isinstance(error, SevenfoldError)


def _said(error: Exception) -> dict[str, str]:
    if isinstance(error, SevenfoldError):
        return {"found": error.found, "where": error.where, "expected": error.expected, "do": error.do}
    if isinstance(error, OSError) and not _is_unforeseen(error):
        again = "start again when the store answers: a run goes on from its last checkpoint"
        return {"found": error.strerror or str(error), "where": str(error.filename), "do": again}
    lines = traceback.format_exc().splitlines()[-_LAST_LINES:]
    found = f"a rank failed with {type(error).__name__}: {error}\n    " + "\n    ".join(lines)
    rank = os.environ.get("RANK", "0")
    return {"found": found, "where": f"rank {rank}", "do": "finished steps are kept: mend it and start again"}


def _tell(spec: Path, error: dict[str, str]) -> None:
    """Leave word for the launcher; the first rank that fails is the one that knows why."""
    files.create(spec.parent / ERROR, canonical_json(error))


@contextmanager
def _reporter(place: Place, path: Path) -> Iterator[tuple[Progress, Any]]:
    """(progress, report) for rank 0: lines in the progress file, and Dagster Pipes when this process is in one."""
    if place.rank != 0:
        yield silent, _nothing
        return
    with open(path, "a", buffering=1) as out, _pipes() as context:
        last = [0.0]

        def progress(done: int, total: int, what: str) -> None:
            now = time.monotonic()
            if now - last[0] >= _INTERVAL or done == total:
                last[0] = now
                out.write(json.dumps([done, total, what]) + "\n")

        def report(result: dict[str, Any]) -> None:
            if context is not None and context.is_asset_step:
                context.report_asset_materialization(metadata=metadata(result))

        yield progress, report


def metadata(result: dict[str, Any]) -> dict[str, Any]:
    """What Dagster shows about a launch: run ids, accuracy on the test split, samples per second."""
    if result["mode"] == "score":
        found = result["score"]
        return {"run_id": found["run_id"], "out_of_fold_accuracy": found["out_of_fold"]["accuracy"] or 0.0,
                "predicted": found["predicted"]}  # fmt: skip
    runs = result["runs"]
    accuracies = [a for r in runs if (a := r["splits"].get("test", {}).get("accuracy")) is not None]
    rates = [r["samples_per_second"] for r in runs if r["samples_per_second"]]
    return {
        "run_ids": ", ".join(r["run_id"] for r in runs),
        "adopted": sum(r["adopted"] for r in runs),
        **({"test_accuracy": sum(accuracies) / len(accuracies)} if accuracies else {}),
        **({"samples_per_second": sum(rates) / len(rates)} if rates else {}),
    }


@contextmanager
def _pipes() -> Iterator[Any]:
    if "DAGSTER_PIPES_CONTEXT" not in os.environ:
        yield None
        return
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as context:
        yield context


def _nothing(result: dict[str, Any]) -> None:
    """Ranks other than 0 report nothing."""
