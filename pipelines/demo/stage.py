"""How the demo runs: each stage drives Dagster jobs on one folder; what it found is kept, so a second run reuses it."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import dagster as dg

from sevenfold.assets.inbox import batches
from sevenfold.pipelines import home
from sevenfold.pipelines.definitions import build
from sevenfold.pipelines.demo import inputs
from sevenfold.pipelines.demo.project import prepare
from sevenfold.quality.verdict import from_table
from sevenfold.storage import files
from sevenfold.storage.canonical import canonical_json, digest_json
from sevenfold.storage.progress import Progress
from sevenfold.storage.project import Project
from sevenfold.training.run import code_digest

Found = dict[str, Any]
ShowProgress = Callable[[str], AbstractContextManager[Progress]]


class Stage:
    """The demo's folder and machinery. `show(title)` gives a progress display, `say(text)` prints a line."""

    def __init__(
        self, folder: Path, images: Path | None, limit: int, seeds: int, show: ShowProgress, say: Callable[[str], None]
    ) -> None:
        self.folder, self.seeds, self.show, self.say = folder, list(range(seeds)), show, say
        origin = inputs.find_images(images)
        with show("staging the landing folders") as progress:
            self.staged, new = inputs.stage(folder, origin, limit, progress)
        self.project: Project = prepare(folder, sum(self.staged.counts.values()))
        self.lake = self.project.open_lake()
        if new:
            say(f"staged {sum(self.staged.counts.values()):,} images of {origin} as four landing folders")
        self.instance = dg.DagsterInstance.from_config(str(home.prepare(self.project)))
        self.mark = digest_json([code_digest("residual_cnn"), seeds, self.staged.counts, self.project.train])
        self.runs = 0

    def act(self, number: int, title: str, work: Callable[[], Found], tell: Callable[[Found], None]) -> Found:
        """Do a stage, or take up what it found before; `tell` prints it either way."""
        path = self.project.home / "demo" / f"stage-{number}.json"
        known = json.loads(path.read_bytes()) if path.exists() else {}
        if known.get("mark") == self.mark:
            self.say(f"\n{number}. {title}  (unchanged: reused)")
            tell(known["found"])
            return known["found"]
        self.say(f"\n{number}. {title}")
        began = time.monotonic()
        found = work()
        files.replace(path, canonical_json({"mark": self.mark, "found": found}))
        tell(found)
        self.say(f"   {time.monotonic() - began:.0f} s")
        return found

    def job(
        self, name: str, title: str, config: Found | None = None, partition: str | None = None, key: str | None = None
    ) -> dg.ExecuteInProcessResult:
        """Run one of the project's jobs in this process; its history is in Dagster's home afterwards."""
        with self.show(title) as progress:
            definitions = build(self.project, progress)
            if partition:
                self.instance.add_dynamic_partitions(batches.name or "", [partition])
            self.runs += 1
            result = definitions.resolve_job_def(name).execute_in_process(
                instance=self.instance,
                partition_key=partition,
                run_config={**(config or {}), "loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
                tags={"sevenfold/by": "demo", **({"dagster/run_key": key} if key else {})},
                raise_on_error=True,
            )
        return result

    def land(self, names: tuple[str, ...]) -> Found:
        """Deliver staged folders to the inbox and land each."""
        for batch in names:
            inputs.deliver(self.folder, batch)
            self.job("land", f"landing {batch}", partition=batch)
        records = [self.lake.batch(self.project.dataset, b) for b in names]
        return {"batches": [{"batch": r.batch, "status": r.status, **r.counts, "reasons": r.reasons} for r in records]}

    def exclude_twins(self, ref: str, branches: list[str]) -> Found:
        """Leave out copies of val and test pictures in train and pool, if the version's verdict found any."""
        verdicts = from_table(self.lake.verdicts(self.project.dataset, ref))
        failed = [v for v in verdicts if v.check == "cross_split_duplicates" and v.findings]
        if not failed:
            return {"excluded": 0}
        config = {"twins": True, "name": f"twins-{ref}", "ref": ref, "branches": branches}
        return metadata(self.job("review", "excluding twins", {"ops": {"decisions": {"config": config}}}), "decisions")

    def review(self, name: str, queues: dict[str, list[str]], ref: str) -> Found:
        """Replayed annotators: the true label of each queued sample goes into a CSV, as a person would fill it in.

        `queues` maps a queue to the branches that its decisions are for. Returns the counts by queue.
        """
        counts: Found = {}
        for queue, branches in queues.items():
            ids = self.lake.queue(self.project.dataset, queue)["id"].to_pylist()
            file = self.folder / "reviews" / f"{name}-{queue}.csv"
            file.parent.mkdir(exist_ok=True)
            with open(file, "w", newline="") as f:
                rows = csv.writer(f)
                rows.writerow(["id", "label"])
                rows.writerows([i, self.staged.answers[i]] for i in ids)
            config = {
                "file": str(file), "name": f"{name}-{queue}", "ref": ref, "branches": branches, "queues": [queue],
                "reviewer": "replayed annotators",
            }  # fmt: skip
            result = self.job("review", f"reviewing {queue}", {"ops": {"decisions": {"config": config}}})
            counts[queue] = {**metadata(result, "decisions"), "asked": len(ids)}
        return counts


def metadata(result: dg.ExecuteInProcessResult, asset: str) -> Found:
    """The plain values of an asset's materialization metadata."""
    event = next(
        e.step_materialization_data.materialization
        for e in result.get_asset_materialization_events()
        if e.asset_key == dg.AssetKey(asset)
    )
    return {k: v.value for k, v in event.metadata.items() if isinstance(v.value, str | int | float | bool)}
