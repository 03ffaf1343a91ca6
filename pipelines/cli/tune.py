"""The command that measures the loader: tune-loader."""

from __future__ import annotations

from typing import Annotated

import typer

from sevenfold.pipelines.cli.console import example, print_json, print_table, progress, say
from sevenfold.pipelines.cli.data import Json
from sevenfold.pipelines.cli.learn import Set, settings_of
from sevenfold.pipelines.cli.session import session

_RATES = ("decoded", "only read")


def tune_loader(
    context: typer.Context,
    ref: Annotated[str, typer.Argument(help="A version (v3), branch or tag.")] = "main",
    size: Annotated[int | None, typer.Option(min=1, help="Side of the input; else as for train.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Over all ranks; else as for train.")] = None,
    seconds: Annotated[
        float, typer.Option(min=0.5, help="Time to measure for; starting the processes comes on top.")
    ] = 10.0,
    step_ms: Annotated[
        float | None, typer.Option(min=0.001, help="What a training step takes: the loader need not be quicker.")
    ] = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Measure serial, threads and worker processes on a version's own images, and say which to use and why."""
    import numpy as np
    import pyarrow.compute as pc

    from sevenfold.assets import fitting
    from sevenfold.training import tune
    from sevenfold.training.loader import ByteDataset, SampleDataset
    from sevenfold.training.probe import probe
    from sevenfold.training.selection import image_shape
    from sevenfold.training.task import read_samples

    at = session(context)
    given = settings_of({"size": size, "batch_size": batch_size}, set_)
    config = fitting.settings(at.lake, at.project, ref, given)
    version = at.lake.version(at.dataset, ref)
    samples = read_samples(at.lake, config)
    samples = samples.filter(pc.is_valid(samples["offset"]))
    side, channels = image_shape(samples, config)
    classes = at.lake.manifest(version.content_id).classes
    share = -(-config.batch_size // config.ranks)
    images = SampleDataset(at.lake.shard_path, samples, classes, side, channels, config.decode)
    files = ByteDataset(at.lake.shard_path, samples, classes)
    with progress("measuring the loader") as tell:
        rates = probe(images, files, np.arange(samples.num_rows), share, seconds, progress=tell)
    choice = tune.choose(rates, share, step_ms)
    if json:
        print_json({"version": version.name, "size": side, "batch_size": share, **tune.report(rates, choice)})
        return
    print_table(
        ("setting", *_RATES),
        tune.settings_table(rates),
        title=f"{version.name}: {side} x {side}, batches of {share}",
        right=_RATES,
    )
    for reason in choice.reasons:
        say(reason)
    say("decoded    samples/s, read and decoded\nonly read  samples/s of the same files, handed over as they are")
    say("\nfor sevenfold.toml:")
    say(choice.to_toml())


COMMANDS = (
    (
        "tune-loader",
        tune_loader,
        example("sevenfold tune-loader v1 --size 160 --step-ms 45", "sevenfold tune-loader --set variant=160-raw"),
    ),
)
