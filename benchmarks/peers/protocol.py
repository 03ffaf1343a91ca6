"""The tiny protocol of the loader benchmark: a peer reads one JSON spec from its arguments and prints one JSON line.

A spec has `task` (versions, prepare, measure, verify, save, first, memory) and what it needs: `store` (the folder of
the loader's own files), `work` (bytes or decoded), `decoder`, `side`, `batch`, `workers`, `threads`, `seconds`.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

Spec = dict[str, Any]


class Peer:
    """One loader. Subclasses build it; batches are (payload, labels) unless they say otherwise.

    The payload is a uint8 tensor [b, h, w, 3] or a list of bytes.
    """

    packages: tuple[str, ...] = ()
    loader: Any

    def prepare(self, spec: Spec) -> None:
        """Write the loader's own files into spec["store"], from the class folders at spec["files"]."""

    def build(self, spec: Spec, ready: Any) -> None:
        """Make `self.loader`; `ready` is a worker_init_fn. With spec["seed"] the order can be repeated."""
        raise NotImplementedError

    def epoch(self) -> Iterator[Any]:
        """The batches of the next epoch, or of what is left of it after :meth:`resume`."""
        return iter(self.loader)

    def used(self) -> None:
        """One batch was used (loaders that count for themselves need no such word)."""

    def size(self, batch: Any) -> int:
        return len(batch[1])

    def samples(self, batch: Any) -> Iterator[tuple[Any, int]]:
        """(bytes or pixels, label) of each sample."""
        payload, labels = batch
        labels = [int(label) for label in labels]
        return zip(payload if isinstance(payload, list) else payload.numpy(), labels, strict=True)

    def state(self) -> Any:
        """Where it is, in the middle of an epoch."""
        return self.loader.state_dict()

    def resume(self, state: Any) -> None:
        self.loader.load_state_dict(state)

    def close(self) -> None:
        """End its workers."""
        del self.loader


def stamp(folder: str, worker: int) -> None:
    """A worker is up: say when (CLOCK_MONOTONIC is one clock for all processes)."""
    Path(folder, f"{worker}").write_text(str(time.monotonic()))


def measure(peer: Peer, spec: Spec) -> Spec:
    """Rates of the first epoch, from when the workers are up, and of the epochs after it, for some seconds."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        peer.build(spec, functools.partial(stamp, folder))
        start, first, n = time.monotonic(), 0.0, 0
        for batch in peer.epoch():
            first = first or time.monotonic()
            n += peer.size(batch)
            peer.used()
        ended = time.monotonic()
        start = max([start, *(float(p.read_text()) for p in Path(folder).iterdir())])
    done, again = 0, time.monotonic()
    while (took := time.monotonic() - again) < spec["seconds"]:
        for batch in peer.epoch():
            done += peer.size(batch)
            peer.used()
            if time.monotonic() - again >= spec["seconds"]:
                break
    peer.close()
    return {"samples": n, "first": first - begun, "cold": n / (ended - start), "warm": done / took}


def verify(peer: Peer, spec: Spec) -> Spec:
    """How many samples an epoch has, and a sum over (bytes or pixels, label) that does not depend on the order."""
    peer.build(spec, None)
    n = total = 0
    for batch in peer.epoch():
        for data, label in peer.samples(batch):
            n += 1
            total += zlib.crc32(data) * (label + 1)
        peer.used()
    peer.close()
    return {"samples": n, "digest": total % 2**64}


def fingerprint(peer: Peer, batch: Any) -> int:
    return sum(zlib.crc32(data) * (i + 1) + label for i, (data, label) in enumerate(peer.samples(batch))) % 2**64


def save(peer: Peer, spec: Spec) -> Spec:
    """Iterate to spec["at"] of an epoch and keep the state there; returns what the batch after it is."""
    import torch

    peer.build(spec, None)
    batches, state, upcoming = peer.epoch(), None, None
    for i, batch in enumerate(batches, 1):
        if state is not None:
            upcoming = fingerprint(peer, batch)
            break
        peer.used()
        if i == int(spec["at"] * spec["samples"] / spec["batch"]):
            state = peer.state()
            torch.save(state, spec["state"])
    del batches
    peer.close()
    return {"next": upcoming, "bytes": Path(spec["state"]).stat().st_size}


def first(peer: Peer, spec: Spec) -> Spec:
    """Seconds until the first batch is there, of a fresh start or of one that resumes at spec["state"]."""
    import torch

    state = torch.load(spec["state"], weights_only=True) if spec.get("state") else None
    begun = time.monotonic()
    peer.build(spec, None)
    if state is not None:
        peer.resume(state)
    batches = peer.epoch()
    batch = next(batches)
    took = time.monotonic() - begun
    found = fingerprint(peer, batch)
    del batches
    peer.close()
    return {"seconds": took, "next": found}


def memory(peer: Peer, spec: Spec) -> Spec:
    """KiB resident after each epoch: VmRSS and its anonymous part, of this process and its workers together."""
    peer.build(spec, None)
    rss: list[int] = []
    anonymous: list[int] = []
    for _ in range(spec["epochs"]):
        for _batch in peer.epoch():
            peer.used()
        _batch = None
        gc.collect()
        family = [Path("/proc/self/status").read_text(), *children()]
        rss.append(sum(int(s.partition("VmRSS:")[2].split()[0]) for s in family))
        anonymous.append(sum(int(s.partition("RssAnon:")[2].split()[0]) for s in family))
    peer.close()
    return {"rss": rss, "anonymous": anonymous}


def children() -> list[str]:
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [text for pid in pids if "VmRSS:" in (text := Path(f"/proc/{pid}/status").read_text())]


def run(peer: Peer, **more: Callable[[Peer, Spec], Spec]) -> None:
    """Do what the spec on the command line says; `more` are tasks that only this peer has."""
    spec = json.loads(sys.argv[1])
    task = spec["task"]
    tasks = {"measure": measure, "verify": verify, "save": save, "first": first, "memory": memory, **more}
    if task == "versions":
        found: Spec = {p: version(p) for p in peer.packages}
    elif task == "prepare":
        peer.prepare(spec)
        found = {}
    else:
        import torch

        torch.set_num_threads(1)  # one core for each thread and process that is counted; resizing would take all
        found = tasks[task](peer, spec)
    print(json.dumps(found), flush=True)
