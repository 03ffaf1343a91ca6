"""Invariant 2 with several writers at once: nothing lost, numbers unique, the loser of a race is told and retries."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sevenfold.storage import Lake, SevenfoldError, files

SCRIPT = Path(__file__).with_name("one_round.py")


def race(*arguments: list[str]) -> list[dict[str, Any]]:
    """Start the processes, let them go at once, return what each says."""
    command = [sys.executable, str(SCRIPT)]
    processes = [
        subprocess.Popen([*command, *a], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for a in arguments
    ]
    for p in processes:
        assert p.stdout is not None and p.stdout.readline() == "ready\n"
    for p in processes:
        assert p.stdin is not None
        p.stdin.write("go\n")
        p.stdin.flush()
    outputs = [p.communicate(timeout=120)[0] for p in processes]
    assert [p.returncode for p in processes] == [0] * len(processes)
    return [json.loads(o) for o in outputs]


def test_four_processes_landing_and_committing_batches_lose_none(
    filled: Callable[..., Lake], tmp_path: Path, make: SimpleNamespace
) -> None:
    lake = filled(5)
    sources = [make.folder(tmp_path / f"s{k}", make.two_classes(20, start=100 * k + 100)) for k in range(4)]
    race(*(["lands", str(lake.root), f"b{k}", str(source)] for k, source in enumerate(sources)))
    head = lake.manifest(lake.version("d").content_id)
    assert sorted(b["batch"] for b in head.batches) == ["b0", "b1", "b2", "b3", "first"]
    assert {b.status for b in lake.batches("d")} == {"committed"}
    ids = lake.samples("d")["id"].to_pylist()
    assert len(set(ids)) == len(ids) == 85
    make.reconciles(lake)


def test_compare_and_swap_lets_one_of_many_through(tmp_path: Path) -> None:
    path, winners, gate = tmp_path / "ref", [], threading.Barrier(8)

    def writer(n: int) -> None:
        gate.wait()
        try:
            files.compare_and_swap(path, None, str(n).encode())
            winners.append(n)
        except SevenfoldError:
            pass

    threads = [threading.Thread(target=writer, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(winners) == 1 and path.read_bytes() == str(winners[0]).encode()


def intruding(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Have another writer act once, in the middle of the next commit."""
    from sevenfold.storage import commit as committing

    original, entered = committing.pack_pending, []

    def intrude(*arguments: Any, **options: Any) -> Any:
        if not entered:
            entered.append(1)
            act()
        return original(*arguments, **options)

    monkeypatch.setattr(committing, "pack_pending", intrude)


def test_the_loser_of_a_race_for_the_branch_commits_on_top_of_the_winner(
    filled: Callable[..., Lake], make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = filled(6)
    ids = lake.samples("d")["id"].to_pylist()
    intruding(monkeypatch, lambda: make.commit(lake, overlays=[make.overlay(ids[:1], exclude=True)]))
    mine = make.commit(lake, overlays=[make.overlay(ids[1:2], exclude=True)])
    assert [v.number for v in lake.versions("d")] == [1, 2, 3], "nobody left a version that no branch holds"
    assert (mine.number, mine.parents) == (3, (2,)) and lake.version("d") == mine
    assert lake.samples("d").num_rows == 4


def test_the_loser_of_a_race_that_edits_the_same_sample_otherwise_is_refused(
    filled: Callable[..., Lake], make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = filled(6)
    ids = lake.samples("d")["id"].to_pylist()
    intruding(monkeypatch, lambda: make.commit(lake, overlays=[make.overlay(ids[:3], label="cow")]))
    with pytest.raises(SevenfoldError, match=f"edited 2 of the same samples .* of {min(ids[1:3])} the label is cow"):
        make.commit(lake, overlays=[make.overlay(ids[1:5], label="owl", weight=2.0)])
    assert [v.number for v in lake.versions("d")] == [1, 2]
    same = make.commit(lake, overlays=[make.overlay(ids[1:2], label="cow", weight=2.0)])
    assert same.parents == (2,), "the same edit, or one of another field, is no conflict"


def test_verdicts_appended_at_once_are_all_kept(filled: Callable[..., Lake], make: SimpleNamespace) -> None:
    lake = filled(2)
    row = make.overlay(["x"]).select(["id"])
    threads = [
        threading.Thread(target=lambda: [lake.append_verdicts("d", "first", row) for _ in range(5)]) for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    verdicts = lake.verdicts("d", "first")
    assert verdicts is not None and verdicts.num_rows == 20
