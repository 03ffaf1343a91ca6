"""Decisions become overlays: pool samples are labelled into train, wrong labels corrected, right ones confirmed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sevenfold.assets.committing import commit
from sevenfold.assets.reviewing import Decision, decisions_to_overlay, read_decisions
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.png import encode_png
from sevenfold.storage.project import Project

A, B, C, D = ("a" * 64, "b" * 64, "c" * 64, "d" * 64)
SAMPLES = pa.table(
    {"id": [A, B, C, D], "split": ["train", "train", "pool", "test"], "label": ["cat", "dog", None, "cat"]}
)


def overlay(*decisions: Decision, **options: object) -> tuple[list[dict[str, object]], dict[str, int]]:
    made = decisions_to_overlay(SAMPLES, decisions, ("cat", "dog"), reviewer="ada", **options)  # type: ignore[arg-type]
    return made.overlay.to_pylist(), dict(made.counts)


def test_each_kind_of_decision_has_its_row() -> None:
    rows, counts = overlay(
        Decision(A, "dog"), Decision(B, "dog"), Decision(C, "cat", reason="whiskers"), Decision(D, exclude=True),
        reason="round 1",
    )  # fmt: skip
    told = {r["id"]: (r["label"], r["split"], r["exclude"], r["reason"]) for r in rows}
    assert told == {
        A: ("dog", None, None, "round 1"),
        B: ("dog", None, None, "round 1"),
        C: ("cat", "train", None, "whiskers"),
        D: (None, None, True, "round 1"),
    }
    assert {r["reviewer"] for r in rows} == {"ada"}
    assert counts == {"labelled": 1, "relabelled": 1, "excluded": 1, "confirmed": 1}


def test_a_decision_repeated_is_taken_once_and_a_contradiction_is_refused() -> None:
    rows, counts = overlay(Decision(A, "dog"), Decision(A, "dog"))
    assert len(rows) == counts["relabelled"] == 1
    with pytest.raises(SevenfoldError, match="line 9"):
        overlay(Decision(A, "dog", where="line 3"), Decision(A, exclude=True, where="line 9"))


def test_a_new_class_has_to_be_allowed() -> None:
    with pytest.raises(SevenfoldError, match="'bird' is not one of the classes"):
        overlay(Decision(A, "bird"))
    rows, _ = overlay(Decision(A, "bird"), new_classes=True)
    assert rows[0]["label"] == "bird"


def test_a_csv_from_a_spreadsheet_reads_alike(tmp_path: Path) -> None:
    file = tmp_path / "d.csv"
    file.write_bytes(
        "\ufeffID,Label,Exclude,reason,queue\r\n".encode()
        + f'{A},dog,,"two\r\nlines",hard-v1\r\n{B},,,,\r\n{C},,YES,,hard-v1\r\n'.encode()
    )
    first, second = read_decisions(file)
    assert (first.id, first.label, first.exclude, first.reason, first.queue) == (
        A,
        "dog",
        False,
        "two\nlines",
        "hard-v1",
    )
    assert (second.id, second.label, second.exclude) == (C, None, True)
    assert second.where.endswith("line 5")


def test_an_open_quote_swallows_no_decision(tmp_path: Path) -> None:
    file = tmp_path / "open.csv"
    file.write_text(f'id,label,reason\n{A},dog,"blurred\n{B},cat,\n')
    with pytest.raises(SevenfoldError, match="no CSV"):
        read_decisions(file)


def test_a_rollback_takes_a_committed_review_back_for_good(tmp_path: Path) -> None:
    for i in range(4):
        path = tmp_path / "source" / "train" / "dog" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_png(np.full((8, 8), 40 * i, np.uint8)))
    project = Project(folder=tmp_path, dataset="pets")
    lake = project.create_lake()
    lake.ingest(tmp_path / "source", "pets", "first")
    lake.set_status("pets", "first", "admitted")
    commit(lake, project, message="first")
    worst = lake.samples("pets")["id"].to_pylist()[:1]
    lake.add_review("pets", "people", pa.table({"id": worst, "exclude": [True]}), reviewer="ada")
    second, new = commit(lake, project, message="second")
    assert new and lake.samples("pets").num_rows == 3
    lake.rollback("pets", "v1")
    again, new = commit(lake, project, message="third")
    assert (again.name, new, lake.samples("pets").num_rows) == ("v1", False, 4)
    assert second.name == "v2"
