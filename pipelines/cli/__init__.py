"""The command line: `sevenfold`. One short file per group of commands; whatever is heavy is imported inside them."""

from __future__ import annotations


def main() -> None:
    """Run the command line and exit with its code."""
    from sevenfold.pipelines.cli.app import app

    app(prog_name="sevenfold")
