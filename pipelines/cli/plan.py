"""The command that shows what a shuffle costs and gives: plan."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sevenfold.pipelines.cli.console import example, print_json, print_table, say
from sevenfold.pipelines.cli.data import Json
from sevenfold.pipelines.cli.learn import Set, settings_of
from sevenfold.pipelines.cli.session import session
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.sizes import said

_COLUMNS = ["window", "cached", "cached with the next", "neighbours", "same shard", "classes"]


def plan(
    context: typer.Context,
    ref: Annotated[str, typer.Argument(help="A version (v3), branch or tag.")] = "main",
    window: Annotated[str, typer.Option(help="Whole shards shuffled together, to compare.")] = "1,2,4,8,16",
    batch_size: Annotated[int | None, typer.Option(min=1, help="Over all ranks.")] = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Compare windows of the shuffle on a version's own shards: how good it is, and the bytes it keeps at hand."""
    from sevenfold.assets import fitting
    from sevenfold.training.shuffle import survey

    at = session(context)
    windows = _windows(window)
    config = fitting.settings(at.lake, at.project, ref, settings_of({"batch_size": batch_size}, set_))
    found = survey(at.lake, config, windows)
    if json:
        print_json(found)
        return
    name, shards = at.lake.version(at.dataset, ref).name, found["shards"]
    say(
        f"{name}: an epoch of {found['samples']:,} samples from {shards:,} shard{'s' * (shards != 1)}, "
        f"batches of {found['batch_size']:,}",
        "bold",
    )
    print_table(_COLUMNS, [_row(q, found["recommended"]) for q in found["windows"]], right=_COLUMNS)
    say("cached      the largest window; with the next: the one in use and the one fetched ahead")
    say("neighbours  how far apart in storage samples lie that follow each other: 1 is a full shuffle, 0 stored order")
    say("same shard  how often two samples of a batch come from one shard: 1 is as often as by chance")
    say("classes     how uneven the classes of a batch are: 1 is as uneven as random batches")
    for note in found["notes"]:
        say(f"note: {note}", "yellow")
    say(f"recommended: window {found['recommended']} ({found['why']})", "bold")
    if min(found["recommended"], found["shards"]) != min(config.window, found["shards"]):
        say(f"in use is {config.window}: set window = {found['recommended']} under [train] in sevenfold.toml")


def _windows(text: str) -> list[int]:
    try:
        windows = [int(part) for part in text.split(",")]
    except ValueError:
        windows = []
    if not windows or min(windows) < 1:
        raise SevenfoldError(f"--window {text!r}", expected="whole numbers from 1 by commas, such as 1,2,4,8,16")
    return windows


def _row(q: dict[str, Any], recommended: int) -> list[Any]:
    cells = [
        f"{q['window']:,}", said(q["bytes"]), said(q["bytes_two"]), _two(q["neighbours"]), _two(q["same_shard"]),
        _two(q["classes"]),
    ]  # fmt: skip
    return [(cell, "bold") for cell in cells] if q["window"] == recommended else cells


def _two(value: float | None) -> str:
    return "not measurable" if value is None else f"{value:.2f}"


COMMANDS = (
    ("plan", plan, example("sevenfold plan v3 --window 1,4,16", "sevenfold plan --batch-size 512 --json")),
)  # fmt: skip
