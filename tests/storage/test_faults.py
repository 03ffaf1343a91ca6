"""What may go wrong with a machine: crowds of writers, kill -9, full disks, stores that fail or are slow."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sevenfold.storage import Lake, SevenfoldError, files
from sevenfold.storage.canonical import digest_bytes
from sevenfold.storage.store import Draft, Entry, LocalStore, Store

SCRIPT = Path(__file__).with_name("one_round.py")
CLI = [sys.executable, "-c", "from sevenfold.pipelines.cli import main; main()"]


# Crowds


def crowd(url: str, shares: list[list[str]]) -> tuple[list[dict[str, Any]], float]:
    """What a process per share says that commits an overlay for each of its ids, and the seconds from the start."""
    started = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), "commits", url, f"w{k}", json.dumps(share)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for k, share in enumerate(shares)
    ]  # fmt: skip
    for p in started:
        assert p.stdout is not None and p.stdout.readline() == "ready\n"
    began = time.monotonic()
    for p in started:
        assert p.stdin is not None
        p.stdin.write("go\n")
        p.stdin.flush()
    outputs = [p.communicate(timeout=150)[0] for p in started]
    assert [p.returncode for p in started] == [0] * len(started)
    return [json.loads(o) for o in outputs], time.monotonic() - began


def none_lost(lake: Lake, said: list[dict[str, Any]], shares: list[list[str]]) -> None:
    """Assert that the head holds every acknowledged commit once, on a log without gaps or strays."""
    n = sum(map(len, shares))
    versions = {v.number: v for v in lake.versions("d")}
    assert list(versions) == list(range(1, n + 2)), "numbers without a gap, and no version that nobody asked for"
    head = lake.version("d")
    chain = [head.number]
    while versions[chain[-1]].parents:
        chain.append(versions[chain[-1]].parents[0])
    assert chain == list(range(n + 1, 0, -1)), "one line of ancestors"
    made = sorted(number for s in said for number in s["made"])
    assert made == list(range(2, n + 2)), "every number was acknowledged to one writer"
    overlays = lake.manifest(head.content_id).overlays
    reasons = [r for digest in overlays for r in lake.overlay(digest)["reason"].to_pylist()]
    assert sorted(reasons) == sorted(f"w{k} {i}" for k, share in enumerate(shares) for i in range(len(share)))
    assert lake.samples("d")["label"].to_pylist().count("owl") == n


def test_eight_processes_make_200_commits_and_none_is_lost(filled: Callable[..., Lake]) -> None:
    lake = filled(200)
    ids = lake.samples("d")["id"].to_pylist()
    shares = [ids[k::8] for k in range(8)]
    said, seconds = crowd(str(lake.root), shares)
    none_lost(lake, said, shares)
    print(f"{200 / seconds:.0f} commits/s by 8 processes on one branch of a lake on disk")


def test_four_processes_commit_to_a_bucket_and_none_is_lost(
    bucket: str, tmp_path: Path, make: SimpleNamespace
) -> None:
    lake = Lake.create(bucket)
    make.land(lake, make.folder(tmp_path / "s", make.two_classes(20)), "first")
    make.commit(lake)
    ids = lake.samples("d")["id"].to_pylist()
    shares = [ids[k::4] for k in range(4)]
    said, seconds = crowd(bucket, shares)
    none_lost(lake, said, shares)
    assert all("/." not in e.key for e in lake.store.entries("", hidden=True)), "no lock is left"
    print(f"{20 / seconds:.1f} commits/s by 4 processes on one branch of a lake in a bucket")
