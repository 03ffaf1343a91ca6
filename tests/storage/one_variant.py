"""A process for tests to kill: `one_variant.py ROOT FORMAT` makes a variant and notes every shard that it wrote."""

from __future__ import annotations

import sys
import time

from sevenfold.storage import Lake, making

if __name__ == "__main__":
    making.NOTE_SECONDS = -1.0
    print("ready", flush=True)

    def said(done: int, total: int, what: str) -> None:
        print(done, what, flush=True)
        time.sleep(0.02)

    Lake.open(sys.argv[1]).materialize("d", size=24, format=sys.argv[2], channels=3, progress=said)
    print("done", flush=True)
