"""Processes that use a lake while garbage is collected: `keeping.py commits|reads ...` (see the bottom)."""

from __future__ import annotations

import sys

from sevenfold.storage import Lake
from sevenfold.storage.leases import lease


def commits(root: str, *sources: str) -> None:
    """Land, admit and commit one source after another."""
    lake = Lake.open(root)
    print("ready", flush=True)
    sys.stdin.readline()
    for i, source in enumerate(sources):
        lake.ingest(source, "d", f"b{i}")
        lake.set_status("d", f"b{i}", "admitted")
        print(lake.commit("d", message=f"b{i}")[0].content_id, flush=True)


def reads(root: str, content_id: str) -> None:
    """Hold a lease on a content id until told to end."""
    with lease(Lake.open(root).store, "reading", content_ids=[content_id], renewed=0.1, lasts=1.0):
        print("ready", flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    {"commits": commits, "reads": reads}[sys.argv[1]](*sys.argv[2:])
