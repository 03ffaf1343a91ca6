"""The assets that learn: model, out-of-fold predictions, champion. Training runs in processes of its own."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from sevenfold.assets import fitting, gating, judging
from sevenfold.assets.checks import as_results, specs
from sevenfold.storage.progress import Progress
from sevenfold.storage.project import Project
from sevenfold.training import launch
from sevenfold.training.config import TrainConfig

MODEL_VS = ("veracity", "volatility", "value", "velocity")
"""The Vs that a model adds something to."""


class ModelConfig(dg.Config):
    """Which branch to train on. `from_champion`: go on from it, on what is new, with replay. `seeds`: a run each."""

    branch: str = "main"
    from_champion: bool = False
    replay: float = 6.0
    seeds: list[int] = [0]  # noqa: RUF012  Dagster copies config defaults
    settings: dict[str, Any] = {}  # noqa: RUF012


class ScoreConfig(dg.Config):
    """Which branch's newest version to score, with how many folds; `ranks` 0 takes the project's number."""

    branch: str = "main"
    folds: int = 2
    ranks: int = 0


class GateConfig(dg.Config):
    """The challenger: `name/number`, or empty for the newest model."""

    challenger: str = ""


@dg.asset(group_name="learning", kinds={"pytorch"}, deps=["dataset_version"])
def model(
    context: dg.AssetExecutionContext,
    config: ModelConfig,
    project: dg.ResourceParam[Project],
    progress: dg.ResourceParam[Progress],
) -> dg.MaterializeResult:
    """A model trained on the newest version from its tars; the first seed's is registered."""
    lake = project.open_lake()
    settings = fitting.settings(lake, project, config.branch, {**config.settings, "seeds": config.seeds})
    counts: dict[str, int] = {}
    parent = fitting.champion(lake, project) if config.from_champion else None
    if parent is not None:
        settings, counts = fitting.from_champion(lake, project, settings, replay=config.replay)
    result, told = _through_pipes(context, lake.store.url, settings, "train", progress)
    first = fitting.register(lake, project, result["runs"][0], parent=parent.ref if parent else None)
    return dg.MaterializeResult(metadata={**told, **counts, "model": first.ref, "version": first.version})


@dg.asset(
    group_name="learning",
    kinds={"pytorch"},
    deps=["dataset_version"],
    check_specs=specs("predictions", MODEL_VS),
)
def predictions(
    context: dg.AssetExecutionContext,
    config: ScoreConfig,
    project: dg.ResourceParam[Project],
    progress: dg.ResourceParam[Progress],
) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
    """Every sample judged by models that never saw its label, and the verdicts that need them."""
    lake = project.open_lake()
    ranks = {"ranks": config.ranks} if config.ranks else {}
    settings = fitting.settings(lake, project, config.branch, {"folds": config.folds, **ranks})
    result, told = _through_pipes(context, lake.store.url, settings, "score", progress)
    yield dg.MaterializeResult(metadata=told)
    verdicts = judging.judge_version(lake, project, config.branch, result["score"]["run_id"])
    yield from as_results("predictions", MODEL_VS, verdicts)


@dg.asset(group_name="learning", kinds={"json"}, deps=["model"])
def champion(
    context: dg.AssetExecutionContext,
    config: GateConfig,
    project: dg.ResourceParam[Project],
    progress: dg.ResourceParam[Progress],
) -> dg.MaterializeResult:
    """The gate: the challenger takes the champion's place, or is refused with reasons; a refusal is no failure."""
    outcome = gating.run_gate(project.open_lake(), project, config.challenger or project.model, progress=progress)
    return dg.MaterializeResult(
        metadata={
            "promoted": outcome.promoted,
            "challenger": outcome.challenger,
            "champion before": outcome.champion or "none",
            "reasons": dg.MetadataValue.md("\n".join(f"- {r}" for r in outcome.reasons)),
        }
    )


def _through_pipes(
    context: dg.AssetExecutionContext, url: str, settings: TrainConfig, mode: launch.Mode, progress: Progress
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Launch and wait; returns the result and the metadata that rank 0 reported through Dagster Pipes."""
    with dg.open_pipes_session(
        context=context,
        context_injector=dg.PipesTempFileContextInjector(),
        message_reader=dg.PipesTempFileMessageReader(),
    ) as session:
        result = launch.run(
            launch.prepare(url, settings, mode), progress=progress, extra_env=session.get_bootstrap_env_vars()
        )
    reported = session.get_results(implicit_materializations=False)
    told = {k: v for r in reported if isinstance(r, dg.MaterializeResult) for k, v in (r.metadata or {}).items()}
    return result, told
