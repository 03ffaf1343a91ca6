"""The command profile-suite: a starter expectation suite with the numbers of a reference version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sevenfold.pipelines.cli.console import example, print_json, progress, say
from sevenfold.pipelines.cli.data import Json
from sevenfold.pipelines.cli.session import session
from sevenfold.storage.errors import SevenfoldError


def profile_suite(
    context: typer.Context,
    ref: Annotated[str, typer.Argument(help="The version (v3), branch or tag to take the numbers from.")] = "main",
    out: Annotated[Path | None, typer.Option(help="The suite file; else the one that sevenfold.toml names.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: Json = False,
) -> None:
    """Write an expectation suite that describes a version: types, nulls, classes, modes, sizes and ranges.

    The tolerances come from the version's own statistics: it passes itself, and so does more of the same. Edit it. The
    suite that `init` wrote is replaced as long as nobody edited it.
    """
    from sevenfold.assets.judging import version_context
    from sevenfold.quality.profile import profile, suite_text
    from sevenfold.quality.suite import default_suite_text
    from sevenfold.storage import files

    at = session(context)
    path = (out or at.project.path("suite")).absolute()
    if path.exists() and not force and path.read_bytes() != default_suite_text().encode():
        raise SevenfoldError(
            "there is a suite already, which is not the one that init wrote",
            where=str(path),
            do="give another --out, or --force to replace it",
        )
    with progress(f"measuring {ref}"):
        seen = version_context(at.lake, at.project, ref, now=0.0)
        suite = profile(seen.rows, seen.properties, seen.metadata, classes=seen.classes, name=seen.subject)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.hand_out(path, suite_text(suite).encode())
    if json:
        print_json({"path": str(path), "expectations": len(suite["expectations"]), "version": seen.subject})
        return
    say(f"{path}: {len(suite['expectations'])} expectations from {seen.subject}")
    if path != at.project.path("suite"):
        say(f'to use it: suite = "{path}" in sevenfold.toml')


PROFILE = (
    "profile-suite",
    profile_suite,
    example("sevenfold profile-suite v3", "sevenfold profile-suite v3 --out strict.json"),
)
