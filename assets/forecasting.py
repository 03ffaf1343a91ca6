"""Forecasting: train a version's nested subsets, fit the learning curve, keep what it foretells, and score it later."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sevenfold.assets.fitting import settings, write_ids
from sevenfold.assets.runs import SUBSET, accuracy, results_of
from sevenfold.quality.context import Curve
from sevenfold.quality.forecast import SATURATION, LearningCurve, as_stored, fit_learning_curve, foretold
from sevenfold.storage.canonical import digest_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.forecasts import append_forecast, read_forecasts
from sevenfold.storage.lake import Lake
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.project import Project
from sevenfold.storage.records import Version

if TYPE_CHECKING:
    from sevenfold.training.config import TrainConfig

LEAST = 50
"""Fewer training samples than this tell nothing about a curve."""


@dataclasses.dataclass(frozen=True)
class Forecast:
    """A forecast that was made: its curve, its runs (run_id, seed, n, error, adopted), its record and where it lies."""

    curve: LearningCurve
    runs: tuple[Mapping[str, Any], ...]
    record: Mapping[str, Any]
    key: str
    new: bool


def forecast(
    lake: Lake,
    project: Project,
    ref: str = "main",
    *,
    sizes: int = 5,
    seeds: int = 2,
    split: str = "test",
    saturation: float = SATURATION,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress = silent,
    clock: Callable[[], float] = time.time,
) -> Forecast:
    """Train on nested subsets of a version and on all of it, fit the learning curve, and keep the forecast.

    Each size halves the next (fewer where that would leave under 50 samples); subsets are chosen by id hash, so that a
    smaller one lies within every larger one. The training settings are the project's own, since what is foretold is
    what a larger version will do under them. Finished runs are adopted; the full size is a plain run of the version.

    Raises
    ------
    SevenfoldError
        For too few samples or sizes, a held-out split without labels, settings that mix in other samples.
    """
    from sevenfold.training import selection
    from sevenfold.training.draw import uniform
    from sevenfold.training.launch import launch

    config = settings(lake, project, ref, {**(overrides or {}), "seeds": list(range(seeds))})
    if config.mix or config.hold_out or config.init_from:
        raise SevenfoldError(
            "a forecast is made from one version's own samples, trained from the start",
            expected="settings without mix, hold_out and init_from",
            do="give --set mix=[] (or init_from=null)",
        )
    samples = lake.samples_of(config.content_id or "")
    rows, _, _ = selection.choose(samples, config.select_ids, config.train_splits)
    ids = samples["id"].take(np.unique(rows)).to_pylist()
    steps = sizes_of(len(ids), sizes)
    order = uniform(ids, len(ids), 0, "forecast")
    found: list[dict[str, Any]] = []
    done, total = 0, sum(steps)
    for n in steps:
        whole = n == len(ids)
        subset = [] if whole else [ids[i] for i in order[:n]]
        chosen = config if whole else config.changed(select_ids=write_ids(lake, subset, SUBSET), predict="none")

        def shown(part: int, of: int, what: str, n: int = n, before: int = done) -> None:
            progress(before + int(n * part / max(of, 1)), total, f"{n:,} samples: {what}")

        shown(0, 1, "starting")
        runs = launch(lake.store.url, chosen, progress=shown)["runs"]
        found += [{**_told(run, split, ref), "n": n} for run in runs]
        done += n
    progress(total, total, "fitting the curve")
    curve = fit_learning_curve([r["n"] for r in found], [r["error"] for r in found], saturation=saturation)
    version = lake.version(project.dataset, ref)
    record = {
        "dataset": project.dataset,
        "version": version.name,
        "content_id": version.content_id,
        "settings": settings_digest(config),
        "split": split,
        "saturation": saturation,
        "runs": [{k: r[k] for k in ("run_id", "seed", "n", "error")} for r in found],
        **as_stored(curve),
    }
    key, new = append_forecast(lake.store, record, at=clock())
    return Forecast(curve, tuple(found), record, key, new)


def sizes_of(n: int, count: int) -> list[int]:
    """`count` training sizes up to n, each about half of the next, none below :data:`LEAST`.

    Raises
    ------
    SevenfoldError
        For fewer than 4 sizes (a curve has three parameters), or too few samples for that many.
    """
    if count < 4:
        raise SevenfoldError(f"{count} training sizes", expected="4 or more: the curve has three parameters")
    least = min(max(LEAST, n / 2 ** (count - 1)), n)
    sizes = sorted({round(least * (n / least) ** (i / (count - 1))) for i in range(count)})
    if len(sizes) < count or n < 4 * LEAST:
        raise SevenfoldError(
            f"{n} labelled training samples are too few for a learning curve of {count} sizes",
            expected=f"{4 * LEAST} or more",
            do="label more samples first",
        )
    return sizes


def settings_digest(config: TrainConfig) -> str:
    """What two runs must share to be comparable: every setting that decides a result but the choice of samples."""
    apart = {"select_ids", "select_digest", "mix", "mix_size", "predict"}
    return digest_json({k: v for k, v in config.identity().items() if k not in apart})


def curve_of(lake: Lake, project: Project, version: Version) -> Curve | None:
    """The runs of the newest forecast made from a version, for the check of the learning curve."""
    made = [
        f for f in read_forecasts(lake.store, project.dataset, version.name) if f["content_id"] == version.content_id
    ]
    if not made:
        return None
    runs = made[-1]["runs"]
    return Curve([r["n"] for r in runs], [r["error"] for r in runs])


def outcomes(lake: Lake, project: Project, version: Version) -> list[dict[str, Any]]:
    """Every forecast held against every later version up to `version` that was trained alike.

    One mapping each: version, target, largest, n, error, low, high, actual, runs, at (see quality.volume). A version
    counts for a forecast when it descends from the forecast's, is larger, and has runs with the same settings.
    """
    made = read_forecasts(lake.store, project.dataset)
    if not made:
        return []
    versions = {v.number: v for v in lake.versions(project.dataset) if v.number <= version.number}
    line = _ancestors(version, versions)
    oldest = min(int(f["version"].lstrip("v")) for f in made)
    found = []
    for number in sorted(n for n in line if n > oldest):
        later = versions[number]
        before = _ancestors(later, versions) - {number}
        mine = [f for f in made if int(f["version"].lstrip("v")) in before]
        runs = _comparable(lake, later) if mine else []
        for f in mine:
            told = _held_against(f, later, [r for r in runs if r["settings"] == f["settings"]])
            found += [told] if told else []
    return found


def _held_against(
    forecast: Mapping[str, Any], later: Version, runs: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """A forecast beside what happened; None when the later version is not larger, not trained, or out of reach."""
    errors = [1 - a for r in runs if (a := accuracy(r["result"], forecast["split"])) is not None]
    n = max((r["result"]["trained"] for r in runs), default=0)
    said = foretold(forecast["points"], n) if n > forecast["largest"] and errors else None
    if said is None:
        return None
    return {
        "version": forecast["version"],
        "target": later.name,
        "largest": forecast["largest"],
        "n": n,
        "error": said[0],
        "low": said[1],
        "high": said[2],
        "actual": sum(errors) / len(errors),
        "runs": len(errors),
        "at": forecast["at"],
    }


def _comparable(lake: Lake, version: Version) -> list[dict[str, Any]]:
    """The finished runs of a whole version, each with the digest of its settings."""
    from sevenfold.training.config import parse

    return [
        {"result": result, "settings": settings_digest(parse(result["config"], result["run_id"]))}
        for result in results_of(lake, version.content_id)
        if not result["config"].get("mix")
    ]


def _ancestors(version: Version, versions: Mapping[int, Version]) -> set[int]:
    """The numbers of a version and of everything it descends from."""
    seen: set[int] = set()
    todo = [version.number]
    while todo:
        number = todo.pop()
        if number not in seen and number in versions:
            seen.add(number)
            todo += versions[number].parents
    return seen


def _told(run: Mapping[str, Any], split: str, ref: str) -> dict[str, Any]:
    value = accuracy(dict(run), split)
    if value is None:
        raise SevenfoldError(
            f"{ref} has no labelled sample in its {split} split",
            expected="held-out samples to measure the error on",
            do="give some samples the split test, and commit",
        )
    return {"run_id": run["run_id"], "seed": run["seed"], "error": 1 - value, "adopted": run["adopted"]}
