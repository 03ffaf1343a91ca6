"""Runs: their identity (the digest of what decides the result), their folder, and the adoption of finished ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sevenfold.storage import files
from sevenfold.storage.canonical import canonical_json, digest_bytes, digest_json
from sevenfold.training.config import TrainConfig

_CODE = (
    "augment", "config", "decode", "draw", "learner", "loader", "models", "norm", "plan", "sampler", "selection",
    "task", "trainer",
)  # fmt: skip
"""The modules of this room that decide what a run computes."""


def code_digest(model: str) -> str:
    """sha256 over the sources that decide a run's result, the user's own model module included."""
    here = Path(__file__).parent
    sources = {name: digest_bytes((here / f"{name}.py").read_bytes()) for name in _CODE}
    if ":" in model:
        import importlib.util

        try:
            spec = importlib.util.find_spec(model.partition(":")[0])
        except (ImportError, ValueError):  # build_model says what is wrong with it
            spec = None
        if spec is not None and spec.origin and Path(spec.origin).exists():
            sources["model"] = digest_bytes(Path(spec.origin).read_bytes())
    return digest_json(sources)


def run_id(config: TrainConfig, seed: int, code: str) -> str:
    """`run-` and 16 hex digits of sha256 over (content id, config, code, seed, attempt); `config` is resolved."""
    identity = {
        "content_id": config.content_id,
        "config": config.identity(),
        "code": code,
        "seed": seed,
        "attempt": config.attempt,
    }
    return f"run-{digest_json(identity)[:16]}"


def run_folder(root: Path, run: str) -> Path:
    """Where a run lies."""
    return root / "runs" / run


def finished(root: Path, run: str) -> dict[str, Any] | None:
    """The result of a run that is complete, with `adopted` true; None when there is none."""
    path = run_folder(root, run) / "result.json"
    if not path.exists():
        return None
    return {**json.loads(path.read_bytes()), "adopted": True}


def write_json(path: Path, value: Any) -> None:
    """Write canonical JSON atomically, replacing what is there."""
    files.replace(path, canonical_json(value))
