"""What happens in the demo: seven stages, from two landing folders to a report, told as they end."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sevenfold.assets import fitting, reporting, runs
from sevenfold.pipelines import retrain
from sevenfold.pipelines.demo import inputs
from sevenfold.pipelines.demo.stage import Found, ShowProgress, Stage, metadata
from sevenfold.quality.report import Decision, Reason
from sevenfold.quality.verdict import from_table

QUEUE_SHARE = 0.06
"""Samples that reviewers are asked about in one round, as a share of all images."""

ONE_RANK = {"config": {"ranks": 1}}
"""For scoring and comparisons: on two cores one process is quicker than two ranks, with equal gradients."""

MOST_REASONS = 4
"""Of the gate's, on the terminal."""


def run(
    folder: Path,
    images: Path | None,
    *,
    limit: int = inputs.LIMIT,
    seeds: int = 3,
    show: ShowProgress,
    say: Callable[[str], None],
) -> Path:
    """Run the demo in `folder` and return the report's path.

    Parameters
    ----------
    images : a folder with Fashion-MNIST's idx files; None takes Debian's package, else the embedded 10,000.
    limit : images used at the most, of those that are there; 0 uses all.
    seeds : models per version: what a difference is compared with.
    show, say : how progress is displayed and how a line is printed.
    """
    began = time.monotonic()
    stage = Stage(folder, images, limit, seeds, show, say)
    story = _Story(stage)
    stage.act(
        1, "Two batches land, some inputs broken on purpose; each is judged, then sharded", story.land, story.tell_land
    )
    stage.act(
        2,
        "Version v1: trained, scored out of fold, mined; a first champion?",
        story.first,
        story.tell_first,
    )
    stage.act(3, "Review: people's answers (replayed) become overlays, never copies", story.review, story.tell_review)
    stage.act(4, "Mined or random? One version from each, the same number of labels", story.compare, story.tell_compare)
    shifted = stage.act(5, "Two batches arrive from a new camera", story.shift, story.tell_shift)
    stage.act(
        6, "The reviewed part is added, with replay; the challenger meets the champion", story.adapt, story.tell_adapt
    )
    path = stage.act(7, "The report", lambda: story.report(shifted["decision"]), lambda f: None)["path"]
    _next(stage, Path(path), time.monotonic() - began)
    return Path(path)


class _Story:
    def __init__(self, stage: Stage) -> None:
        self.s = stage
        self.dataset = stage.project.dataset
        self.queue = int(QUEUE_SHARE * sum(stage.staged.counts.values()))

    # 1

    def land(self) -> Found:
        return self.s.land(inputs.STUDIO)

    def tell_land(self, found: Found) -> None:
        for b in found["batches"]:
            reasons = ", ".join(f"{n} {r.replace('_', ' ')}" for r, n in b["reasons"].items())
            self.s.say(
                f"   {b['batch']}: {b['inputs']:,} inputs = {b['samples']:,} samples + {b['aliases']} aliases + "
                f"{b['quarantined']} quarantined ({reasons}); {b['status']}"
            )
        self.s.say(
            "   The limit on rejects is 5 % in the demo's policy.yaml (1 % by default): they are broken on purpose."
        )

    # 2

    def first(self) -> Found:
        model = {"branch": "main", "seeds": self.s.seeds}
        queues_config = {"config": {"size": self.queue}}
        config = {"ops": {"model": {"config": model}, "predictions": ONE_RANK, "queues": queues_config}}
        result = self.s.job("round", "round 1: commit, train, score, mine, gate", config)
        version, queues = metadata(result, "dataset_version"), metadata(result, "queues")
        queue = self.s.lake.queue(self.dataset, "suspected-v1").to_pylist()
        suspected = {row["id"] for row in queue if row["kind"] == "suspected_label"}
        wrong = self.s.staged.wrong_labels
        return {
            **version,
            "accuracy": [
                a for r in runs.results_of(self.s.lake, version["content id"]) if (a := runs.accuracy(r)) is not None
            ],
            "queues": queues,
            "suspected": len(suspected),
            "right": len(suspected & wrong),
            "wrong": len(wrong),
            "champion": metadata(result, "champion"),
        }

    def tell_first(self, found: Found) -> None:
        self.s.say(f"   {found['version']}: {found['samples']:,} samples, content id {found['content id'][:12]}")
        self.s.say(f"   test accuracy {_spread(found['accuracy'])}")
        self.s.say(
            f"   {found['suspected']} labels suspected, {found['right']} of them rightly ({found['wrong']} wrong "
            f"labels were planted); queues of {found['queues'].get('hard-v1', 0)} hard and as many random samples"
        )
        self._tell_gate(found["champion"])

    # 3

    def review(self) -> Found:
        both = ["main", "control"]
        counts = self.s.review(
            "round-1", {"suspected-v1": both, "hard-v1": ["main"], "random-v1": ["control"]}, ref="v1"
        )
        return {"counts": counts, "twins": self.s.exclude_twins("v1", both)["excluded"]}

    def tell_review(self, found: Found) -> None:
        if found["twins"]:
            self.s.say(f"   {found['twins']} pictures of val or test stand in train or the pool too: excluded")
        for queue, c in found["counts"].items():
            self.s.say(
                f"   {queue}: {c['asked']} asked (random controls included), {c['labelled']} labelled, "
                f"{c['relabelled']} corrected, {c['confirmed']} confirmed (for {c['branches']})"
            )

    # 4

    def compare(self) -> Found:
        versions = {}
        for branch, start in (("main", None), ("control", "v1")):
            commit = {"branch": branch, "start": start, "message": f"round 1 reviewed, {branch}"}
            config = {
                "ops": {
                    "dataset_version": {"config": {k: v for k, v in commit.items() if v}},
                    "model": {"config": {"branch": branch, "seeds": self.s.seeds, "settings": {"ranks": 1}}},
                }
            }
            made = self.s.job("train", f"training on the branch {branch}", config)
            versions[branch] = metadata(made, "dataset_version")
        arms = runs.arms_of(self.s.lake, self.s.project, self.s.lake.version(self.dataset, versions["main"]["version"]))
        mined_model = fitting.model_of(self.s.lake, self.s.project, versions["main"]["content id"])
        gate = self.s.job("gate", "the gate", {"ops": {"champion": {"config": {"challenger": mined_model.ref}}}})
        self.s.job("check", "judging the version")
        return {
            "mined": versions["main"]["version"], "control": versions["control"]["version"],
            "accuracies": {name: list(by_seed.values()) for name, by_seed in arms.items()},
            "sentence": runs.compare_arms(arms), "champion": metadata(gate, "champion"),
        }  # fmt: skip

    def tell_compare(self, found: Found) -> None:
        for name, values in found["accuracies"].items():
            self.s.say(f"   {name:9s} test accuracy {_spread(values)}")
        self.s.say(f"   {found['sentence']}")
        self._tell_gate(found["champion"])

    # 5

    def shift(self) -> Found:
        found = self.s.land(inputs.NEW_CAMERA)
        for b in found["batches"]:
            table = self.s.lake.verdicts(self.dataset, b["batch"])
            drift = [v for v in from_table(table) if v.v == "volatility"] if table is not None else []
            b["volatility"] = [{"check": v.check, "result": v.result, "message": v.message} for v in drift]
        decision = retrain.propose(self.s.lake, self.s.project, self.s.instance)
        return {**found, "decision": decision.model_dump(mode="json")}

    def tell_shift(self, found: Found) -> None:
        for b in found["batches"]:
            self.s.say(f"   {b['batch']}: {b['samples']:,} samples, {b['status']}")
            for v in b["volatility"]:
                self.s.say(f"     volatility {v['result']}: {v['message']}")
        verb = "retrain" if found["decision"]["retrain"] else "do not retrain"
        self.s.say(f"   The policy says {verb}: {' '.join(found['decision']['reasons'])}")

    # 6

    def adapt(self) -> Found:
        size = self.queue // 2
        queue = {"config": {"size": size, "batches": list(inputs.NEW_CAMERA)}}
        survey = {"predictions": ONE_RANK, "queues": queue}
        self.s.job("survey", "scoring and mining the new camera's pool", {"ops": survey})
        seen = self.s.lake.version(self.dataset)
        counts = self.s.review(
            "round-2", {f"hard-{seen.name}": ["main"], f"random-{seen.name}": ["main"]}, ref=seen.name
        )
        decision = retrain.propose(self.s.lake, self.s.project, self.s.instance)
        config = retrain.round_config(seeds=[self.s.seeds[0]], settings={"lr": 0.1})
        config["ops"]["predictions"]["config"] |= ONE_RANK["config"]
        result = self.s.job("round", "round 2: commit, retrain, score, mine, gate", config, key=decision.run_key)
        return {
            "counts": counts, "decision": decision.model_dump(mode="json"),
            "version": metadata(result, "dataset_version"), "model": metadata(result, "model"),
            "champion": metadata(result, "champion"),
        }  # fmt: skip

    def tell_adapt(self, found: Found) -> None:
        labelled = sum(c["labelled"] for c in found["counts"].values())
        model = found["model"]
        self.s.say(
            f"   {found['version']['version']}: {labelled} new labels from the new camera; {model['model']} continues "
            f"from the champion on {model.get('new', 0)} new and {model.get('replayed', 0)} replayed samples"
        )
        self._tell_gate(found["champion"])

    def _tell_gate(self, champion: Found) -> None:
        verb = "promoted" if champion["promoted"] else "refused"
        self.s.say(f"   gate: {champion['challenger']} {verb} (champion before: {champion['champion before']})")
        lines = str(champion["reasons"]).splitlines()
        for line in lines[:MOST_REASONS]:
            self.s.say(f"     {line.removeprefix('- ')}")
        if len(lines) > MOST_REASONS:
            self.s.say(f"     and {len(lines) - MOST_REASONS} more: the slices are in the report")

    # 7

    def report(self, decided: Found) -> Found:
        verb = "Retrain" if decided["retrain"] else "Do not retrain"
        decision = Decision(
            decided["retrain"], f"{verb}: the policy's word", tuple(Reason(r) for r in decided["reasons"])
        )
        with self.s.show("writing the report") as progress:
            path = reporting.write_report(self.s.lake, self.s.project, "main", progress=progress, decision=decision)
        return {"path": str(path)}


def _spread(values: list[float]) -> str:
    if not values:
        return "not measured"
    mean = sum(values) / len(values)
    return f"{mean:.1%} (mean of {len(values)} seeds, {min(values):.1%} to {max(values):.1%})"


def _next(stage: Stage, report: Path, seconds: float) -> None:
    here = os.path.relpath(stage.folder)
    installed = Path(sys.executable).with_name("sevenfold")
    program = "sevenfold" if shutil.which("sevenfold") else os.path.relpath(installed)
    stage.say(f"\nDone in {seconds:.0f} s ({stage.runs} Dagster runs). Next:")
    stage.say(f"   {report}      the report, in any browser")
    stage.say("   make ui      the same jobs, runs and checks in Dagster's web UI")
    for sql in (
        "select version, label, count(*) from samples_all group by all order by all",
        "select reason, count(*) from quarantine group by reason",
        "select distinct subject, v, message from verdicts where result = 'fail'",
    ):
        stage.say(f'   {program} --lake {here}/lake query "{sql}"')
