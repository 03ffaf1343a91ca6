"""A process for tests of the cache: `cache_process.py hold|stress|full|tiny ...` (see the bottom)."""

from __future__ import annotations

import errno
import hashlib
import json
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from sevenfold.storage.cache import Answer, FileCache, Wanted
from sevenfold.storage.room import Room
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


def tiny(folder: str) -> None:
    """Fetch files onto a disk of 1 MiB: one that is too large, and one whose place is taken while it comes."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    cache = FileCache(Path(folder, "0123456789abcdef"), Room(Path(folder), 1 << 40))
    filler = Path(folder, "filler")

    def fetch(size: int) -> None:
        def pieces() -> Iterator[memoryview]:
            try:
                filler.write_bytes(bytes(2 << 20))
            except OSError as e:
                assert e.errno == errno.ENOSPC
            yield memoryview(bytes(size))

        digest = hashlib.sha256(bytes(size)).hexdigest()
        try:
            cache.hold(f"shards/{size}.tar", Wanted("s3://b/x", digest, lambda offset, tag: Answer(size, "", pieces())))
        except Exception as e:
            print(json.dumps([type(e).__name__, str(e)]), flush=True)

    for size in (2 << 20, 1 << 19):
        fetch(size)
    filler.unlink()
    print(json.dumps([p.name for p in Path(folder).rglob("*") if p.is_file()]), flush=True)


if __name__ == "__main__":
    {"hold": hold, "stress": stress, "full": full, "tiny": tiny}[sys.argv[1]](*sys.argv[2:])
