"""The bare loops: files in memory, decoded in as many threads as asked for, and nothing else."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from peers.decoding import DECODERS
from peers.protocol import Peer, Spec, run


class BarePeer(Peer):
    packages = ("pillow", "simplejpeg", "numpy")


def bare(_: Peer, spec: Spec) -> Spec:
    """Images per second of decoding alone, or of decoding and resizing with spec["side"]."""
    files = [p.read_bytes() for p in sorted(Path(spec["store"]).rglob("*.jpg"))[: spec["samples"]]]
    decode, side, threads = DECODERS[spec["decoder"]], spec["side"], spec["threads"]

    def loop(part: list[bytes], until: float) -> int:
        done = 0
        while True:
            for data in part:
                decode(data, side)
                done += 1
                if not done % 64 and time.monotonic() > until:
                    return done

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(decode, files[:64], [side] * 64))
        begun = time.monotonic()
        parts = [files[i::threads] for i in range(threads)]
        done = list(pool.map(loop, parts, [begun + spec["seconds"]] * threads))
        took = time.monotonic() - begun
    return {"warm": int(np.sum(done)) / took}


if __name__ == "__main__":
    run(BarePeer(), bare=bare)
