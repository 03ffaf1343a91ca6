"""What the report tells of training: class balance, learning curves, arms by seed, step times, the gate's answer."""

from __future__ import annotations

from typing import Any

from sevenfold.assets.gating import Outcome, outcomes
from sevenfold.assets.runs import arms_of, compare_arms, results_of, steps_of
from sevenfold.quality.report import Arm, ClassBalance, Curve, Gate, GateSlice, Reason, StepTimes, class_balance
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project
from sevenfold.storage.records import Version


def as_gate(outcome: Outcome) -> Gate:
    """The gate's recorded answer, as the report draws it."""
    slices = tuple(
        GateSlice(
            name=s["slice"] + (" (new)" if s["new"] else ""),
            n=s["n"],
            champion=s["champion"],
            challenger=s["challenger"],
            champion_interval=_pair(s, "champion"),
            challenger_interval=_pair(s, "challenger"),
            ok={"gained": True, "held": True, "first": True, "regressed": False}.get(s["verdict"]),
            note=s["verdict"].replace("_", " "),
        )
        for s in outcome.slices
    )
    against = ("Blocked", "Regressed", "No gain")
    reasons = tuple(
        Reason(r, False if r.startswith(against) else True if r.startswith(("Gained", "No old slice")) else None)
        for r in outcome.reasons
    )
    return Gate(outcome.moved, outcome.alias, outcome.champion or "none yet", outcome.challenger, reasons, slices)


def _pair(row: Any, who: str) -> tuple[float, float] | None:
    low, high = row[f"{who}_low"], row[f"{who}_high"]
    return None if low is None or high is None else (low, high)


def gate(lake: Lake, project: Project) -> Gate | None:
    """The gate's newest answer."""
    found = outcomes(lake, project.model)
    return as_gate(found[-1]) if found else None


def balance(lake: Lake, version: Version) -> ClassBalance:
    """How many samples of each class a version holds."""
    return class_balance(version.name, lake.samples_of(version.content_id), lake.manifest(version.content_id).classes)


def curves(lake: Lake, version: Version) -> list[Curve]:
    """The learning curve of each run of a version."""
    found = []
    for result in results_of(lake, version.content_id):
        history = [h for h in result["history"] if "epoch" in h]  # the axis is epochs, and draws make none
        points = [(float(h["epoch"]), h["val_accuracy"]) for h in history if h["val_accuracy"] is not None]
        if points:
            found.append(Curve(result["run_id"], version.name, tuple(points)))
    return found


def arms(lake: Lake, project: Project, line: list[Version]) -> tuple[tuple[Arm, ...], str]:
    """The newest mined version of the line beside its random control and their parent, by seed; and what it says."""
    for version in reversed(line):
        if found := arms_of(lake, project, version):
            return tuple(Arm(name, by_seed) for name, by_seed in found.items() if by_seed), compare_arms(found)
    return (), ""


def steps(lake: Lake, version: Version) -> list[StepTimes]:
    """Where the time of a step went, for each run of a version."""
    found = []
    for result in results_of(lake, version.content_id):
        table = steps_of(lake, result["run_id"])
        if not table.num_rows:
            continue
        means = {p: 1000 * float(table[p].to_numpy().mean()) for p in ("data", "forward", "backward", "optimizer")}
        name = f"{version.name} seed {result['seed']}"
        found.append(StepTimes(name, means, result["idle_share"], result["steps"]))
    return found
