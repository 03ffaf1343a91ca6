"""A process for tests to kill: `one_takedown.py ROOT ID` takes a sample down, or ends what was begun."""

from __future__ import annotations

import sys

from sevenfold.storage import Lake, takedown

if __name__ == "__main__":
    lake = Lake.open(sys.argv[1])
    print("ready", flush=True)
    takedown.finish(lake.store)
    request = takedown.Request(key=sys.argv[2])
    found = takedown.find(lake.store, request)
    if not isinstance(found, takedown.Takedown):
        takedown.carry_out(lake.store, request, found, "asked for", clock=lambda: 9.0)
    print("done", flush=True)
