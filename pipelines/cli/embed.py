"""The command that embeds: embed."""

from __future__ import annotations

from typing import Annotated

import typer

from sevenfold.pipelines.cli.console import example, print_json, progress, say
from sevenfold.pipelines.cli.data import Json
from sevenfold.pipelines.cli.learn import Set, settings_of
from sevenfold.pipelines.cli.session import session


def embed(
    context: typer.Context,
    ref: Annotated[str, typer.Argument(help="A version (v3), branch or tag.")] = "main",
    encoder: Annotated[
        str,
        typer.Option(
            help="own (a network trained on this dataset), run-<id>, package.module:factory, model.onnx, timm:name "
            "or torchvision:name."
        ),
    ] = "own",
    size: Annotated[
        int | None, typer.Option(min=1, help="Side of the images, where the encoder does not say; else their own.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Loader processes.")] = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Keep a vector of every sample, for drift, near-duplicates and value; only what is new is computed.

    Without a network of your own one is trained on the version first. Nothing is downloaded unless you name a
    library's model.
    """
    from sevenfold.assets import embedding

    at = session(context)
    overrides = settings_of({"size": size, "workers": workers}, set_)
    with progress("starting the encoder") as report:
        found = embedding.embed(at.lake, at.project, ref, encoder, overrides, report)
    version = at.lake.version(at.dataset, ref).name
    if json:
        print_json({"version": version, **found})
        return
    if found["trained"]:
        say(f"no network was there: {found['trained']} was trained on {version}")
    say(f"{found['producer']}: {found['dimension']} numbers a sample", "bold")
    rate = f", {found['computed'] / found['seconds']:,.0f} images/s" if found["computed"] else ""
    say(f"  {found['computed']:,} of {found['samples']:,} samples embedded in {found['seconds']:.1f} s{rate}")
    if found["kept"]:
        say(f"  {found['kept']:,} had a vector before")
    if found["failed"]:
        say(f"  {found['failed']:,} could not be read or decoded and have none", "yellow")
    say(f"next: sevenfold check {version}{at.same}")


COMMANDS = (
    (
        "embed",
        embed,
        example(
            "sevenfold embed", "sevenfold embed v3 --encoder mymodels.clip:build", "sevenfold embed --encoder m.onnx"
        ),
    ),
)
