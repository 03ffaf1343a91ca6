"""Training put together with the lake: settings from the project, replay for a retrain, registration of the result."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage.canonical import canonical_json, digest_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project
from sevenfold.storage.store import absolute

if TYPE_CHECKING:
    from sevenfold.training.config import TrainConfig
    from sevenfold.training.registry import Model


def settings(lake: Lake, project: Project, ref: str, overrides: Mapping[str, Any] | None = None) -> TrainConfig:
    """The training configuration for a version: sevenfold.toml's [train] table, then `overrides`."""
    from sevenfold.training.config import parse

    version = lake.version(project.dataset, ref)
    where = {"dataset": project.dataset, "ref": version.name, "content_id": version.content_id}
    return parse({**_from_file(project), **(overrides or {}), **where}, "[train] and the options given")


def _from_file(project: Project) -> dict[str, Any]:
    """The table [train]; the lists of ids that it names lie beside sevenfold.toml, whatever the current folder."""

    def beside(table: Any, key: str) -> Any:
        here = isinstance(table, Mapping) and isinstance(table.get(key), str)
        return {**table, key: absolute(table[key], project.folder)} if here else table

    train = beside(project.train, "select_ids")
    if isinstance(train.get("mix"), list):
        train = {**train, "mix": [beside(source, "ids") for source in train["mix"]]}
    found: dict[str, Any] = train
    return found


def champion(lake: Lake, project: Project) -> Model | None:
    """The model that the alias champion points at; None while there is none."""
    from sevenfold.training import aliases, registry

    alias = aliases.read_alias(lake, project.model, "champion")
    return registry.resolve(lake, f"{project.model}/{alias.number}") if alias else None


def from_champion(
    lake: Lake, project: Project, config: TrainConfig, *, replay: float = 6.0, seed: int = 0
) -> tuple[TrainConfig, dict[str, int]]:
    """Continue from the champion on what it has not learned yet, mixed with a replay of what it has.

    New are the training samples that the champion's version lacked, or held unlabelled or under another label;
    `replay` old samples are added for each new one (on the demo's shift one lost 3.5 points on the old test samples,
    six lost none). Returns the configuration and the counts (new, replayed).

    Raises SevenfoldError without a champion, or when nothing is new.
    """
    from sevenfold.training.replay import replay_selection
    from sevenfold.training.run import run_key

    model = champion(lake, project)
    if model is None:
        raise SevenfoldError(f"{project.model} has no champion to continue from", do="promote a model first")
    samples = lake.samples_of(config.content_id or "")
    new = new_to(lake, model, samples)
    if not new:
        raise SevenfoldError(
            f"{config.ref} holds no training sample that {model.ref} has not learned", do="review a queue and commit"
        )
    replayed = replay_selection(new, samples, ratio=replay, seed=seed)
    changed = config.changed(
        init_from=f"{lake.store.url}/{run_key(model.run_id)}",
        select_ids=write_ids(lake, new),
        mix=[{"ids": write_ids(lake, replayed), "ratio": len(replayed) / len(new)}] if replayed else [],
    )
    return changed, {"new": len(new), "replayed": len(replayed)}


def write_ids(lake: Lake, ids: Iterable[str], kind: str = "") -> str:
    """Keep a list of ids in the lake, named by its content (and before it by its kind); returns its place."""
    listed = sorted(ids)
    key = f"runs/.selections/{kind}{'-' * bool(kind)}{digest_json(listed)[:16]}.json"
    if not lake.store.create(key, canonical_json(listed)):
        lake.store.renew(key)  # garbage collection leaves it to this run
    return f"{lake.store.url}/{key}"


def new_to(lake: Lake, model: Model, samples: pa.Table) -> list[str]:
    """The ids among labelled training samples that the model's version lacked, or held under another label or none."""
    train = _trained_on(samples)
    old = _trained_on(lake.samples_of(model.content_id))
    place = pc.index_in(train["id"], value_set=old["id"].combine_chunks())
    same = pc.equal(pc.take(old["label"], place), train["label"])
    return train["id"].filter(pc.invert(pc.fill_null(same, False))).to_pylist()


def register(
    lake: Lake,
    project: Project,
    result: Mapping[str, Any],
    *,
    parent: str | None = None,
    clock: Callable[[], float] = time.time,
) -> Model:
    """Register one finished run (its result.json) under the project's model name; doing it again changes nothing."""
    from sevenfold.training import registry
    from sevenfold.training.run import run_key

    run = result["run_id"]
    config = json.loads(lake.store.read(run_key(run, "config.json")))
    version = _version_of(lake, project, result["content_id"])
    return registry.register(
        lake,
        project.model,
        run_id=run,
        weights=lake.store.local(run_key(run, "model.safetensors")),
        dataset=project.dataset,
        version=version,
        content_id=result["content_id"],
        classes=lake.manifest(result["content_id"]).classes,
        config=config,
        metrics=_metrics(result),
        parent=parent,
        clock=clock,
    )


def model_of(lake: Lake, project: Project, content_id: str) -> Model:
    """The newest model registered for a content id. Raises SevenfoldError when there is none."""
    from sevenfold.training import registry

    found = [m for m in registry.models(lake, project.model) if m.content_id == content_id]
    if not found:
        raise SevenfoldError(f"no model was trained on {content_id[:12]}", do="run `sevenfold train`")
    return found[-1]


def _trained_on(samples: pa.Table) -> pa.Table:
    return samples.filter(pc.and_(pc.equal(samples["split"], "train"), pc.is_valid(samples["label"])))


def _version_of(lake: Lake, project: Project, content_id: str) -> str:
    return next(v.name for v in reversed(lake.versions(project.dataset)) if v.content_id == content_id)


def _metrics(result: Mapping[str, Any]) -> pa.Table:
    from sevenfold.training.registry import METRICS_SCHEMA

    rows = [
        {"metric": metric, "slice": split, "value": values[metric]}
        for split, values in result["splits"].items()
        for metric in ("accuracy", "loss")
        if values.get(metric) is not None
    ]
    return pa.Table.from_pylist(rows, schema=METRICS_SCHEMA)
