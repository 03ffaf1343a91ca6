"""Runs: their identity (the digest of what decides the result), their keys, and the adoption of finished ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sevenfold.storage.canonical import canonical_json, digest_bytes, digest_json
from sevenfold.storage.store import Store
from sevenfold.training.config import TrainConfig

_CODE = (
    "augment", "buffers", "config", "decode", "draw", "draws", "dynamics", "feed", "held", "learner", "loader", "mix",
    "models", "norm", "order", "plan", "reader", "ring", "sampler", "selection", "sources", "task", "trainer",
    "whitened",
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


def run_key(run: str, name: str = "") -> str:
    """The key of a run's folder in the lake, or of a file in it."""
    return f"runs/{run}/{name}".rstrip("/")


def finished(store: Store, run: str) -> dict[str, Any] | None:
    """The result of a run that is complete, with `adopted` true; None when there is none."""
    try:
        return {**json.loads(store.read(run_key(run, "result.json"))), "adopted": True}
    except FileNotFoundError:
        return None


def write_json(store: Store, key: str, value: Any) -> None:
    """Write canonical JSON whole, replacing what is there."""
    store.replace(key, canonical_json(value))
