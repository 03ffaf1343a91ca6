"""Commands that learn: train, score, models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from sevenfold.pipelines.cli.console import date, example, print_json, print_table, progress, say, stderr
from sevenfold.pipelines.cli.data import Json
from sevenfold.pipelines.cli.session import Session, session
from sevenfold.storage.errors import SevenfoldError

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any other training setting (docs/settings.md lists them); may be repeated."
    ),
]
Ranks = Annotated[int | None, typer.Option(min=1, help="Training processes (DistributedDataParallel).")]
Workers = Annotated[int | None, typer.Option(min=0, help="Loader processes per rank.")]


def train(
    context: typer.Context,
    ref: Annotated[str, typer.Argument(help="A version (v3), branch or tag.")] = "main",
    model: Annotated[str | None, typer.Option(help="residual_cnn, or your own as package.module:factory.")] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Side of the input; else the images' own if they share one, else 64.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the training samples.")] = None,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Over all ranks.")] = None,
    ranks: Ranks = None,
    seeds: Annotated[str | None, typer.Option(help="One run each, such as 0,1,2; the first is registered.")] = None,
    workers: Workers = None,
    set_: Set = None,
    from_champion: Annotated[
        bool, typer.Option("--from-champion", help="Continue from the champion on what is new, with replay of the old.")
    ] = False,
    json: Json = False,
) -> None:
    """Train on a version from its shards and register the model. A killed run continues; a finished one is adopted.

    Defaults are the table `train` of sevenfold.toml. Your own factory is called with num_classes, channels and size.
    """
    from sevenfold.assets import fitting
    from sevenfold.training.launch import launch

    at = session(context)
    given = {
        "model": model, "size": size, "epochs": epochs, "lr": lr, "batch_size": batch_size, "ranks": ranks,
        "seeds": _numbers(seeds), "workers": workers,
    }  # fmt: skip
    config = fitting.settings(at.lake, at.project, ref, settings_of(given, set_))
    _warn_of_takedowns(at, ref)
    parent = fitting.champion(at.lake, at.project)
    counts: Mapping[str, int] = {}
    if from_champion:
        config, counts = fitting.from_champion(at.lake, at.project, config)
    with progress("starting the training") as report:
        runs = launch(at.lake.store.url, config, progress=report)["runs"]
    origin = parent.ref if from_champion and parent else None
    registered = fitting.register(at.lake, at.project, runs[0], parent=origin)
    if json:
        print_json({"model": registered.ref, "version": registered.version, "runs": [_run(r) for r in runs], **counts})
        return
    for run in runs:
        _show_run(run)
    if len(runs) > 1:
        _show_spread(runs)
    say(f"model {registered.ref}, trained on {registered.version}, {registered.parameters:,} parameters", "bold")
    if parent is None:
        say(f"there is no champion yet: sevenfold promote {registered.ref}")
    elif parent.ref != registered.ref:
        say(f"next: sevenfold gate {registered.ref} (the champion is {parent.ref})")


def score(
    context: typer.Context,
    ref: Annotated[str, typer.Argument(help="A version (v3), branch or tag.")] = "main",
    folds: Annotated[
        int | None, typer.Option(min=2, help="Each sample is judged by the models that did not see it.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes of each fold's model.")] = None,
    ranks: Ranks = None,
    workers: Workers = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Judge every sample by models that never saw its label: what mining and the label checks need."""
    from sevenfold.assets import fitting
    from sevenfold.training.launch import launch

    at = session(context)
    given = {"folds": folds, "epochs": epochs, "ranks": ranks, "workers": workers}
    config = fitting.settings(at.lake, at.project, ref, settings_of(given, set_))
    _warn_of_takedowns(at, ref)
    with progress("starting the fold models") as report:
        found = launch(at.lake.store.url, config, "score", progress=report)["score"]
    if json:
        print_json(found)
        return
    out = found["out_of_fold"]
    say(f"{found['run_id']}{' (scored before, unchanged)' if found['adopted'] else ''}", "bold")
    say(f"  {found['predicted']:,} samples scored out of sample, {found['folds']} folds, {found['seconds']:.0f} s")
    say(f"  out-of-fold accuracy {_percent(out['accuracy'])} on {out['n']:,} labelled training samples")
    name = at.lake.version(at.dataset, ref).name
    say(f"next: sevenfold mine {name}{at.same}, sevenfold check {name}{at.same}")


def models(context: typer.Context, json: Json = False) -> None:
    """List the registered models, what they were trained on, and the aliases that point at them."""
    from sevenfold.training import aliases, registry

    at = session(context)
    rows = [_model(m) for name in registry.names(at.lake) for m in registry.models(at.lake, name)]
    for row in rows:
        name, _, number = row["model"].partition("/")
        row["aliases"] = [a.alias for a in aliases.aliases(at.lake, name) if a.number == int(number)]
    if json:
        print_json(rows)
        return
    print_table(
        ["model", "aliases", "dataset", "version", "test accuracy", "parameters", "made"],
        [
            [
                r["model"], ", ".join(r["aliases"]), r["dataset"], r["version"], _percent(r["test_accuracy"]),
                r["parameters"], date(r["created"]),
            ]
            for r in rows
        ],
        right=["test accuracy", "parameters"],
    )  # fmt: skip


def _warn_of_takedowns(at: Session, ref: str) -> None:
    version = at.lake.version(at.dataset, ref)
    gone = sum(len(t.ids) for t in at.lake.redacted(version.content_id))
    if gone:
        found = f"warning: up to {gone} samples of {version.name} were taken down"
        stderr().print(f"{found}; their places stay empty, all others come in the same order", style="yellow")


def settings_of(given: Mapping[str, Any], extra: Sequence[str] | None) -> dict[str, Any]:
    """The options that were given, then each KEY=VALUE (the value as YAML: 0.1, true, [flip, shift], text)."""
    found = {key: value for key, value in given.items() if value is not None}
    if extra:
        import yaml
    for text in extra or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise SevenfoldError(f"--set {text!r}", expected="KEY=VALUE, such as --set weight_decay=0.001")
        try:
            found[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise SevenfoldError(f"--set {text!r}: {error}", expected="a number, true, text or [a, b]") from None
    return found


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise SevenfoldError(f"--seeds {text!r}", expected="whole numbers by commas, such as 0,1,2") from None


def _show_run(run: Mapping[str, Any]) -> None:
    state = "finished before, unchanged" if run["adopted"] else f"{run['seconds']:.1f} s of training"
    rate = f", {run['samples_per_second']:,.0f} images/s" if run["samples_per_second"] else ""
    say(f"{run['run_id']}, seed {run['seed']}: {state}{rate}", "bold")
    unit = "draws" if any("draws" in h for h in run["history"]) else "epoch"
    rows = [
        [f"{h[unit]:,}", f"{h['train_loss']:.3f}", "" if h["val_loss"] is None else f"{h['val_loss']:.3f}",
         _percent(h["val_accuracy"]), f"{h['seconds']:.1f}"]
        for h in run["history"]
    ]  # fmt: skip
    names = [unit, "training loss", "val loss", "val accuracy", "seconds"]
    print_table(names, rows, right=names)
    told = [f"{split} {_percent(s['accuracy'])} of {s['n']:,}" for split, s in run["splits"].items() if s["n"]]
    say(f"  accuracy: {', '.join(told) or 'no held-out sample has a label'}")
    for source in run.get("mix", ()):
        say(f"  mixed: {source['name']}, {source['samples']:,} samples in {source['slots']:,} slots of an epoch")
        if source["left_out"]:
            say(f"  {source['left_out']:,} of them were left out, since the version evaluates models on them", "yellow")
    if run.get("resumed_from") and not run["adopted"]:
        say(f"  went on from step {run['resumed_from']:,} of {run['steps']:,}")
    for note in run.get("notes", ()):
        say(f"  {note}", "yellow")
    if run["failed"]:
        say(f"  {len(run['failed']):,} samples could not be read or decoded and were left out", "yellow")
        for why in run.get("failed_why", ()):
            say(f"    {why}", "yellow")


def _show_spread(runs: Sequence[Mapping[str, Any]]) -> None:
    """The accuracies of several seeds in one line for each split."""
    for split in runs[0]["splits"]:
        values = [a for r in runs if (a := r["splits"].get(split, {}).get("accuracy")) is not None]
        if values:
            spread = f"{min(values):.1%} to {max(values):.1%}"
            say(f"{split} over {len(values)} seeds: mean {sum(values) / len(values):.1%}, {spread}")


def _run(run: Mapping[str, Any]) -> dict[str, Any]:
    keys = (
        "run_id",
        "seed",
        "adopted",
        "content_id",
        "splits",
        "history",
        "seconds",
        "samples_per_second",
        "idle_share",
    )
    return {key: run[key] for key in (*keys, *(("mix",) if "mix" in run else ()))}


def _model(model: Any) -> dict[str, Any]:
    measured = {(r["metric"], r["slice"]): r["value"] for r in model.metrics().to_pylist()}
    return {
        "model": model.ref, "dataset": model.dataset, "version": model.version, "content_id": model.content_id,
        "run_id": model.run_id, "parent": model.parent, "parameters": model.parameters, "created": model.created,
        "test_accuracy": measured.get(("accuracy", "test")), "aliases": [],
    }  # fmt: skip


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


COMMANDS = (
    (
        "train",
        train,
        example(
            "sevenfold train v3 --epochs 8 --seeds 0,1 --set widths=[32,64,128]",
            "sevenfold train --model mymodels.tiny:build --size 64",
        ),
    ),
    ("score", score, example("sevenfold score v3 --folds 5")),
    ("models", models, example("sevenfold models")),
)
