"""A process that races others to register models: `register_rank.py URL WEIGHTS WHO OWN SHARED`; says run -> number."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.store import Store, open_store
from sevenfold.training.aliases import set_alias
from sevenfold.training.registry import register


@dataclass(frozen=True)
class FakeLake:
    """As much of a lake as the registry needs."""

    store: Store


def main(url: str, weights: str, who: str, own: str, shared: str) -> None:
    lake = FakeLake(open_store(url))
    print("ready", flush=True)
    sys.stdin.readline()
    numbers = {}
    for k in range(max(int(own), int(shared))):
        runs = [f"run-{who}-{k}"] * (k < int(own)) + [f"shared-{k}"] * (k < int(shared))
        for run in runs:
            model = register(
                lake, "clothes", run_id=run, weights=Path(weights), dataset="fashion", version="v1", content_id="c1",
                classes=("shirt", "bag"), config={}, clock=lambda: 12.5,
            )  # fmt: skip
            numbers[run] = model.number
        if int(shared):
            try:
                set_alias(lake, "clothes", f"first-{k}", 1, expected=None, by=who, clock=lambda: 0.0)
            except SevenfoldError:  # another was first
                continue
    print(json.dumps(numbers), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
