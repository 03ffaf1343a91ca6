"""A process for tests to kill or to race: `one_round.py commits|lands|store|walk ...` (see the bottom)."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import pyarrow as pa

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.store import open_store


def commits(root: str, who: str, ids: str) -> None:
    """Commit one overlay after another, taking the newest head again whenever another process was first."""
    lake = Lake.open(root)
    print("ready", flush=True)
    sys.stdin.readline()
    made, retries = [], 0
    for n, key in enumerate(json.loads(ids)):
        table = pa.table({"id": [key], "label": ["owl"], "reviewer": [who], "reason": [f"{who} {n}"]})
        while True:
            try:
                version, new = lake.commit("d", message=f"{who} {n}", overlays=[table], provenance={"who": who})
            except SevenfoldError as e:
                if "meanwhile" not in str(e):
                    raise
                retries += 1
                continue
            assert new
            made.append(version.number)
            break
    print(json.dumps({"who": who, "made": made, "retries": retries}), flush=True)


def lands(root: str, who: str, source: str) -> None:
    """Land, admit and commit an own batch on the shared dataset."""
    lake = Lake.open(root)
    print("ready", flush=True)
    sys.stdin.readline()
    lake.ingest(source, "d", who)
    lake.set_status("d", who, "admitted")
    while True:
        try:
            lake.commit("d", message=who)
            break
        except SevenfoldError as e:
            if "meanwhile" not in str(e):
                raise
    print(json.dumps({"who": who}), flush=True)


def steps(source: str) -> list[tuple[str, Callable[[Lake], str]]]:
    """What a lake goes through, command by command: each returns an id and may be tried again after a crash."""

    def landing(name: str) -> list[tuple[str, Callable[[Lake], str]]]:
        return [
            (f"ingest {name}", lambda lake: lake.ingest(f"{source}/{name}", "d", name)[0].digest),
            (f"admit {name}", lambda lake: lake.set_status("d", name, "admitted").batch),
        ]

    def ids(lake: Lake) -> list[str]:
        return sorted(lake.samples("d", "v1")["id"].to_pylist())

    def edit(lake: Lake) -> str:
        chosen = ids(lake)[:5]
        table = pa.table({"id": chosen, "label": ["owl"] * 5, "reviewer": ["me"] * 5, "reason": ["seen"] * 5})
        return lake.commit("d", message="second", overlays=[table])[0].content_id

    found = [
        *landing("one"),
        ("commit", lambda lake: lake.commit("d", message="first")[0].content_id),
        *landing("two"),
        ("pack two", lambda lake: lake.pack("d", "two").batch),
        ("commit with an overlay", edit),
        ("tag", lambda lake: lake.tag("d", "release").content_id),
    ]
    if hasattr(Lake, "compact"):
        found.append(("compact", lambda lake: lake.compact("d")[0].content_id))
    return found


def walk(root: str, source: str, done: str) -> None:
    """Take the steps from number `done` on; each is acknowledged by a line once it is done."""
    lake, todo = Lake.open(root), steps(source)[int(done) :]
    print("ready", flush=True)
    for name, act in todo:
        print(json.dumps([name, act(lake)]), flush=True)


def store_(url: str, what: str, who: str = "") -> None:
    """Do one thing to a store."""
    store = open_store(url)
    print("ready", flush=True)
    sys.stdin.readline()
    if what == "create":
        print(store.create("race", who.encode()), flush=True)
    elif what == "swap":
        print(store.swap("there", b"0", who.encode()), flush=True)
    elif what == "local":
        print(len(store.local(who).read_bytes()), flush=True)
    elif what == "count":
        for _ in range(5):
            with store.locked("count"):
                store.replace("count", b"%d" % (int(store.read("count")) + 1))
    else:
        with store.locked("held"):
            print("held", flush=True)
            time.sleep(60)


if __name__ == "__main__":
    {"commits": commits, "lands": lands, "store": store_, "walk": walk}[sys.argv[1]](*sys.argv[2:])
