"""A process for tests of the cache: `cache_process.py hold|stress|full ...` (see the bottom)."""

from __future__ import annotations

import hashlib
import json
import random
import resource
import signal
import sys
import time

from sevenfold.storage.store import open_store


def hold(url: str, key: str) -> None:
    """Hold one copy until standard input ends."""
    with open_store(url).hold(key) as path:
        print(path, flush=True)
        sys.stdin.read()


def stress(url: str, seed: str, seconds: str, keys: str) -> None:
    """Read files in a random order for some seconds, half of them held; every byte must be right."""
    store, rng, until = open_store(url), random.Random(int(seed)), time.monotonic() + float(seconds)
    store.copies.room._recent = 0.3  # type: ignore[attr-defined]
    reads = 0
    while time.monotonic() < until:
        key = rng.choice(json.loads(keys))
        if rng.random() < 0.5:
            with store.hold(key) as path:
                time.sleep(rng.uniform(0, 0.01))
                data = path.read_bytes()
        else:
            data = store.local(key).read_bytes()
        assert hashlib.sha256(data).hexdigest() in key, key
        reads += 1
    print(json.dumps({"reads": reads}), flush=True)


def full(url: str, key: str) -> None:
    """Fetch a file where the kernel lets none be longer than 64 KiB, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))
    try:
        open_store(url).local(key)
    except Exception as e:
        print(json.dumps([type(e).__name__, str(e)]), flush=True)


if __name__ == "__main__":
    {"hold": hold, "stress": stress, "full": full}[sys.argv[1]](*sys.argv[2:])
