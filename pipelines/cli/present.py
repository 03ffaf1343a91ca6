"""Commands that show: report, demo, ui."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sevenfold.pipelines.cli.console import example, print_json, progress, say
from sevenfold.pipelines.cli.data import Json
from sevenfold.pipelines.cli.session import session


def report(
    context: typer.Context,
    ref: Annotated[str, typer.Argument(help="A version (v3), branch or tag, or a batch.")] = "main",
    out: Annotated[Path | None, typer.Option(help="The HTML file; else reports/<dataset>-<version>.html.")] = None,
    json: Json = False,
) -> None:
    """Write one self-contained HTML page: verdicts with plots and pictures, changes, the gate's reasons, lineage."""
    from sevenfold.assets.reporting import write_report

    at = session(context)
    with progress(f"drawing the report of {ref}") as shown:
        path = write_report(at.lake, at.project, ref, out=out, progress=shown)
    if json:
        print_json({"path": str(path), "bytes": path.stat().st_size})
        return
    say(f"{path} ({path.stat().st_size / 1e6:.1f} MB; it loads nothing from the network)")


def demo(
    folder: Annotated[
        Path, typer.Argument(help="Where the demo's project lives; run again, it reuses what is there.")
    ] = Path("demo"),
    images: Annotated[
        Path | None,
        typer.Option(help="A folder of Fashion-MNIST idx files; else Debian's package, else the embedded 10,000."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Images to use at the most; 0: all that are there.")] = 20_000,
    seeds: Annotated[int, typer.Option(min=1, help="Models per version, to tell a difference from noise.")] = 3,
) -> None:
    """Turn the whole loop once on Fashion-MNIST, through Dagster: ingest to gate and report, in about five minutes."""
    from sevenfold.pipelines.demo import run

    run(folder.absolute(), images, limit=limit, seeds=seeds, show=progress, say=say)


def ui(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=1, max=65535, help="On 127.0.0.1.")] = 3000,
) -> None:
    """Open Dagster's web UI for this project, with its daemon: sensors, schedules and every run's history."""
    from sevenfold.pipelines.ui import run

    say(f"http://127.0.0.1:{port} (Ctrl-C ends it)")
    run(session(context).project, port)


COMMANDS = (
    ("report", report, example("sevenfold report v3 --out v3.html")),
    ("demo", demo, example("sevenfold demo")),
    ("ui", ui, example("sevenfold ui --port 3001")),
)
