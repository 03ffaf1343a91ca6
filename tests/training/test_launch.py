"""Where a launch keeps its working files: in a lake on a disk, and on this machine for one in a bucket."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from pathlib import Path

import pytest

from sevenfold.training.config import parse
from sevenfold.training.launch import KEPT, PROGRESS, folder_of_launches, prepare
from sevenfold.training.worker import _said

CONFIG = parse({"dataset": "toy"})
URL = "s3://some-bucket/a/lake"


@pytest.fixture
def launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEVENFOLD_CACHE", str(tmp_path / "cache"))
    return folder_of_launches(URL)


def old(spec: Path) -> None:
    """Make a launch's files older than KEPT."""
    (spec.parent / PROGRESS).write_text("")
    for path in spec.parent.iterdir():
        os.utime(path, (time.time() - KEPT - 60,) * 2)


def test_a_bucket_sees_nothing_of_a_launch(launches: Path, tmp_path: Path) -> None:
    spec = prepare(URL, CONFIG)
    assert spec.parent.parent == launches == tmp_path / "cache" / "launches"
    assert json.loads(spec.read_bytes())["root"] == URL
    local = prepare(tmp_path / "lake", CONFIG)
    assert local.parent.parent == tmp_path / "lake" / "runs" / ".launches"
    assert json.loads(local.read_bytes())["root"] == str(tmp_path / "lake")


def test_failed_launches_on_a_bucket_are_removed_after_a_week_but_none_that_runs(launches: Path) -> None:
    failed = prepare(URL, CONFIG)
    other = prepare(URL, CONFIG.changed(attempt=1))
    running = prepare(URL, CONFIG.changed(attempt=2))
    grown = prepare(URL, CONFIG.changed(attempt=3))
    for spec in (failed, running, grown):
        old(spec)
    (grown.parent / PROGRESS).write_text('[1, 2, "training"]\n')
    with open(launches / f"{running.parent.name.partition('-')[0]}.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        new = prepare(URL, CONFIG.changed(attempt=4))
    assert not failed.parent.exists()
    assert all(spec.exists() for spec in (other, running, grown, new))


def test_what_a_store_refuses_a_rank_is_said_without_a_traceback() -> None:
    where = "s3://some-bucket/a/lake/runs/run-1/checkpoints/step-00000003/tensors.safetensors"
    said = []
    for error in (OSError(errno.EIO, "the store does not answer", where), OSError(errno.EIO, "bad disk", "/tmp/x")):
        try:
            raise error
        except OSError as raised:
            said.append(_said(raised))
    assert said[0]["found"] == "the store does not answer" and said[0]["where"] == where
    assert "goes on from its last checkpoint" in said[0]["do"]
    assert "OSError" in said[1]["found"] and "test_launch.py" in said[1]["found"], "where it was raised"
