"""The gate put together with the lake: both models on the same samples, the answer recorded, the alias moved."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.assets.judging import judge_version
from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.lake import Lake
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.project import Project, section
from sevenfold.storage.records import Version
from sevenfold.storage.signals import predictions_key

if TYPE_CHECKING:
    from sevenfold.training.gate import GatePolicy
    from sevenfold.training.registry import Model

CHAMPION = "champion"
SLICED_BY = ("batch", "label")
"""The test set is also compared by landing batch (a batch that the champion never saw is new) and by class."""


@dataclass(frozen=True)
class Outcome:
    """What the gate said. `promoted`: its word; `moved`: whether the alias points at the challenger now.

    Models are `name/number`. `slices`: a mapping per slice, keys as training.gate.SLICES_SCHEMA.
    """

    challenger: str
    champion: str | None
    alias: str
    version: str
    promoted: bool
    reasons: tuple[str, ...]
    slices: tuple[Mapping[str, Any], ...]
    moved: bool = False
    forced: str = ""
    time: float = 0.0


def compare(
    lake: Lake,
    project: Project,
    challenger: str,
    *,
    against: str = CHAMPION,
    ref: str | None = None,
    policy: GatePolicy | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> Outcome:
    """Ask the gate and record its answer; nothing moves.

    Parameters
    ----------
    challenger : `name/3`, `name@alias`, `name` (its newest) or a number of the project's model.
    against : an alias, or a model in one of these forms. An alias that is not set means that there is no champion.
    ref : the version whose test split decides; the newer of the two models' versions when None. A model that has not
        predicted it is evaluated on it first.

    A blocking failure among the version's newest verdicts blocks promotion; a version never judged is judged first.
    """
    from sevenfold.training.gate import decide, held_out

    report = progress or silent
    model = find_model(lake, project, challenger)
    champion = _opponent(lake, project, model, against)
    version = _test_version(lake, project, ref, [m for m in (model, champion) if m is not None])
    if champion is not None and champion.number == model.number and champion.name == model.name:
        recorded = [o for o in outcomes(lake, model.name) if o.challenger == model.ref and o.moved]
        said = recorded[-1].reasons if recorded else (f"{model.ref} is the {against} already.",)
        return Outcome(model.ref, champion.ref, against, version.name, True, said, (), True, time=clock())
    samples = lake.samples_of(version.content_id)
    if not pc.any(pc.and_(pc.equal(samples["split"], "test"), pc.is_valid(samples["label"]))).as_py():
        raise SevenfoldError(
            f"{version.name} has no labelled sample in its test split",
            where=project.dataset,
            expected="held-out samples to judge the model on",
            do="land some: a top folder named test, or more pictures (a tenth of them is held out)",
        )
    tested = {
        m.ref: held_out(predictions_of(lake, m, version, report), samples) for m in (model, champion) if m is not None
    }
    decision = decide(
        tested[champion.ref] if champion else None,
        tested[model.ref],
        _slices(lake, samples, champion),
        _blocks(lake, project, version, clock, report),
        policy or policy_of(project),
    )
    outcome = Outcome(
        challenger=model.ref,
        champion=champion.ref if champion else None,
        alias=against,
        version=version.name,
        promoted=decision.promoted,
        reasons=decision.reasons,
        slices=tuple(decision.slices.to_pylist()),
        time=clock(),
    )
    _record(lake, model.name, outcome)
    return outcome


def run_gate(
    lake: Lake,
    project: Project,
    challenger: str,
    *,
    alias: str = CHAMPION,
    ref: str | None = None,
    force: str = "",
    by: str = "sevenfold",
    policy: GatePolicy | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> Outcome:
    """Ask the gate and, if it lets the challenger pass, point the alias at it; the decision is recorded either way.

    `force`: a reason for which the alias moves even when the gate refuses; it is recorded as the first of the reasons.
    """
    from sevenfold.training.aliases import read_alias, set_alias

    outcome = compare(lake, project, challenger, against=alias, ref=ref, policy=policy, progress=progress, clock=clock)
    if outcome.moved or not (outcome.promoted or force):
        return outcome
    model = find_model(lake, project, outcome.challenger)
    forced = force if not outcome.promoted else ""
    reasons = (f"Forced by {by}: {forced}", *outcome.reasons) if forced else outcome.reasons
    now = read_alias(lake, model.name, alias)
    set_alias(
        lake, model.name, alias, model.number, expected=now.number if now else None, reasons=reasons, by=by, clock=clock
    )
    outcome = replace(outcome, moved=True, forced=forced, reasons=reasons)
    _record(lake, model.name, outcome)
    return outcome


def policy_of(project: Project) -> GatePolicy:
    """The [gate] table of sevenfold.toml."""
    from sevenfold.training.gate import GatePolicy

    return section(project, "gate", GatePolicy)


def outcomes(lake: Lake, name: str) -> list[Outcome]:
    """Every recorded answer of the gate about a model's numbers, oldest first."""
    found = []
    for file, data in sorted(lake.store.read_folder(_folder(name), ".json").items()):
        if not file[0].isdigit():
            continue
        value = json.loads(data)
        value.pop("format")
        found.append(Outcome(**{**value, "reasons": tuple(value["reasons"]), "slices": tuple(value["slices"])}))
    return found


def find_model(lake: Lake, project: Project, text: str) -> Model:
    """The model that `name/3`, `name@alias`, `name`, or a number of the project's model, means."""
    from sevenfold.training.registry import resolve

    return resolve(lake, f"{project.model}/{text}" if text.isdigit() else text)


def predictions_of(lake: Lake, model: Model, version: Version, progress: Progress = silent) -> pa.Table:
    """A model's predictions of a version: those its run made when it trained on it, else made now, without training."""
    own = predictions_key(model.run_id)
    if model.content_id == version.content_id and lake.store.exists(own):
        return lake.predictions(model.run_id)
    from sevenfold.training.config import parse
    from sevenfold.training.launch import launch
    from sevenfold.training.run import run_key

    trained = dict(model.config.get("config", model.config))
    kept = (
        "size", "channels", "decode", "model", "widths", "norm", "precision", "train_splits", "eval_splits", "threads",
    )  # fmt: skip
    # beside a run's weights lie the ids that it was trained on
    run_kept = lake.store.exists(run_key(model.run_id, "model.safetensors"))
    folder = run_key(model.run_id) if run_kept else model.folder
    config = parse(
        {
            **{k: trained[k] for k in kept if k in trained},
            "dataset": version.dataset,
            "ref": version.name,
            "content_id": version.content_id,
            "init_from": f"{lake.store.url}/{folder}",
            "epochs": 0,
            "predict": "out_of_sample",
        },
        f"evaluation of {model.ref}",
    )
    result = launch(lake.store.url, config, progress=progress)
    return lake.predictions(result["runs"][0]["run_id"])


def _opponent(lake: Lake, project: Project, model: Model, against: str) -> Model | None:
    from sevenfold.training.aliases import read_alias

    if against.isdigit() or "/" in against or "@" in against:
        return find_model(lake, project, against)
    alias = read_alias(lake, model.name, against)
    return find_model(lake, project, f"{model.name}/{alias.number}") if alias else None


def _test_version(lake: Lake, project: Project, ref: str | None, models: list[Model]) -> Version:
    wrong = [m for m in models if m.dataset != project.dataset]
    if wrong:
        raise SevenfoldError(
            f"{wrong[0].ref} was trained on the dataset {wrong[0].dataset}",
            where=f"{lake.store.url}/{wrong[0].folder}",
            expected=f"models of {project.dataset}",
            do=f"add --dataset {wrong[0].dataset}, or choose another model",
        )
    if ref is not None:
        return lake.version(project.dataset, ref)
    return max((lake.version(m.dataset, m.version) for m in models), key=lambda v: v.number)


def _slices(lake: Lake, samples: pa.Table, champion: Model | None) -> list[Any]:
    from sevenfold.training.gate import slices_by

    seen = {b for c in (champion.saw if champion else ()) for b in lake.manifest(c).batch_ids}
    new = [b for b in pc.unique(samples["batch"]).to_pylist() if champion is not None and b not in seen]
    return [s for column in SLICED_BY for s in slices_by(samples, column, new=new if column == "batch" else ())]


def _blocks(
    lake: Lake, project: Project, version: Version, clock: Callable[[], float], progress: Progress
) -> list[str]:
    """What the version's newest verdicts forbid promotion for."""
    from sevenfold.quality.scorecard import Scorecard

    stored = lake.verdicts(project.dataset, version.name)
    if stored is None:
        judge_version(lake, project, version.name, clock=clock, progress=progress)
        stored = lake.verdicts(project.dataset, version.name)
    card = Scorecard.of(stored, subject=version.name)
    return [f"{v.v}.{v.check}: {v.message}" for v in card.verdicts if v.blocking and v.result == "fail"]


def _folder(name: str) -> str:
    return f"models/{name}/gate"


def _record(lake: Lake, name: str, outcome: Outcome) -> None:
    """Append the outcome; one that repeats the newest but for its time is not recorded twice."""
    known = outcomes(lake, name)
    if known and replace(known[-1], time=0.0) == replace(outcome, time=0.0):
        return
    number = len(known) + 1
    data = canonical_json({"format": 1, **outcome.__dict__})
    while not lake.store.create(f"{_folder(name)}/{number:06d}.json", data):
        number += 1
