"""A tiny folder of pictures and a way to run the command line on it, shared by the command-line tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from typer.testing import CliRunner

from sevenfold.pipelines.cli.app import app

COLOURS = {"blue": (40, 60, 200), "green": (40, 190, 60), "red": (210, 50, 40)}
COUNTS = {"train": 30, "val": 10, "test": 40, "pool": 20}


def pictures(folder: Path, counts: dict[str, int] = COUNTS, seed: int = 0) -> Path:
    """<split>/<class>/<n>.png of one colour with noise; the pool's class folders are left out."""
    random = np.random.default_rng(seed)
    for split, count in counts.items():
        for name, colour in COLOURS.items():
            place = folder / split if split == "pool" else folder / split / name
            place.mkdir(parents=True, exist_ok=True)
            for i in range(count):
                noise = random.integers(-40, 40, (12, 12, 3))
                pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(place / f"{name}-{seed}-{i:03d}.png")
    return folder


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as one JSON document."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Project:
    """A project folder, and `project("log", "--json")` to run a command on it."""

    folder: Path

    def __call__(self, *words: str | Path) -> Done:
        result = CliRunner().invoke(app, [str(w) for w in words], prog_name="sevenfold")
        assert not result.exception or isinstance(result.exception, SystemExit), result.exception
        return Done(result.exit_code, result.stdout, result.stderr)

    def ok(self, *words: str | Path) -> Done:
        """Run a command that must end well."""
        done = self(*words)
        assert done.code == 0, f"{words}: {done.code}\n{done.out}\n{done.err}"
        return done
