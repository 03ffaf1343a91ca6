"""The named questions: each answers what it asks, and docs/queries.md shows what they answer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.questions import QUESTIONS, question

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs/queries.md"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, str]:
    """The lake of question_lake.py, and the Markdown that it printed."""
    folder = tmp_path_factory.mktemp("questions")
    words = [sys.executable, str(HERE / "question_lake.py"), str(folder)]
    done = subprocess.run(words, env=dict(os.environ), capture_output=True, text=True, check=True)
    return Lake.open(folder / "lake"), done.stdout


def ask(built: tuple[Lake, str], name: str, ref: str = "main") -> list[dict[str, Any]]:
    return built[0].sql(question(name).sql, "pets", ref).to_pylist()


def test_the_page_shows_every_question_and_the_answers_it_gets(built: tuple[Lake, str]) -> None:
    shown = DOCS.read_text().partition("made by tests/storage/question_lake.py -->\n")[2]
    assert shown.strip() == built[1].strip(), "python tests/storage/question_lake.py FOLDER docs/queries.md"


def test_names_are_unique_and_an_unknown_one_says_which_there_are() -> None:
    names = [q.name for q in QUESTIONS]
    assert len(set(names)) == len(names) >= 10
    with pytest.raises(SevenfoldError, match="class-balance, what-changed"):
        question("class-balanced")


def test_every_question_has_an_answer_on_an_empty_lake(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    for q in QUESTIONS:
        assert lake.sql(q.sql).num_rows == 0, q.name


def test_class_balance_counts_each_version(built: tuple[Lake, str]) -> None:
    rows = ask(built, "class-balance")
    for name in ("v1", "v2", "v3"):
        counted = Counter(built[0].samples("pets", name)["label"].to_pylist())
        assert {r["label"]: r["samples"] for r in rows if r["version"] == name} == counted
        assert sum(r["share"] for r in rows if r["version"] == name) == pytest.approx(1, abs=0.002)


def test_what_changed_says_what_diff_says(built: tuple[Lake, str]) -> None:
    for before, after in (("v1", "v2"), ("v2", "v3")):
        counts = built[0].diff("pets", before, after)["counts"]
        found = Counter[str]()
        for r in ask(built, "what-changed", after):
            found[r["change"]] += r["samples"]
        assert dict(found) == {k: n for k, n in counts.items() if n}


def test_top_hard_is_the_training_samples_of_highest_loss(built: tuple[Lake, str]) -> None:
    lake = built[0]
    split = {r["id"]: r["split"] for r in lake.samples("pets").to_pylist()}
    scored = sorted(lake.predictions("score-a").to_pylist(), key=lambda r: -r["loss"])
    hardest = [r["id"] for r in scored if split[r["id"]] == "train"][:10]
    assert [r["id"] for r in ask(built, "top-hard")] == hardest


def test_suspected_label_errors_are_confident_contradictions(built: tuple[Lake, str]) -> None:
    wrong = [r for r in built[0].predictions("score-a").to_pylist() if r["label"] != r["predicted"]]
    rows = ask(built, "suspected-label-errors")
    assert {(r["label"], r["predicted"]): r["samples"] for r in rows} == Counter(
        (r["label"], r["predicted"]) for r in wrong
    )
    for r in rows:
        same = [w for w in wrong if (w["label"], w["predicted"]) == (r["label"], r["predicted"])]
        assert next(w["confidence"] for w in same if w["id"] == r["surest"]) == max(w["confidence"] for w in same)


def test_duplicates_and_leaks_find_the_twin(built: tuple[Lake, str]) -> None:
    (row,) = ask(built, "duplicates")
    assert row["paths"] == ["test/cat/twin.png", "train/cat/04.png"]
    assert row["splits"] == ["test", "train"]
    assert {"trained_on": "train/cat/04.png", "tested_on": "test/cat/twin.png"}.items() <= ask(built, "leaks")[
        0
    ].items()
    assert ask(built, "duplicates", "2026-05-01") == [row], "as of a date"


def test_annotators_are_told_apart(built: tuple[Lake, str]) -> None:
    lake = built[0]
    landed = {r["id"]: r["label"] for b in ("may", "june") for r in lake.batch_rows("pets", b).to_pylist()}
    predicted = {r["id"]: r["predicted"] for r in lake.predictions("score-a").to_pylist()}
    rows = {r["reviewer"]: r for r in ask(built, "label-noise")}
    assert rows.keys() == {"ann", "ben"}
    decided = lake.sql("select reviewer, id, label from reviews").to_pylist()
    for name, row in rows.items():
        mine = [d for d in decided if d["reviewer"] == name]
        assert row["labels"] == len(mine)
        assert row["changed"] == sum(d["label"] != landed[d["id"]] for d in mine)
        agree = sum(d["label"] == predicted[d["id"]] for d in mine) / len(mine)
        assert row["model_agrees"] == pytest.approx(agree, abs=0.001)
    (clash,) = ask(built, "disagreements")
    assert (clash["one"], clash["says"], clash["other"], clash["says_other"]) == ("ann", "dog", "ben", "cat")


def test_drift_counts_every_sample_once_and_shows_the_dark_batch(built: tuple[Lake, str]) -> None:
    rows = ask(built, "drift")
    assert sum(r["samples"] for r in rows) == built[0].samples("pets").num_rows
    mean = {b: sum(r["brightness_from"] * r["samples"] for r in rows if r["batch"] == b) for b in ("may", "june")}
    number = {b: sum(r["samples"] for r in rows if r["batch"] == b) for b in ("may", "june")}
    assert mean["june"] / number["june"] < mean["may"] / number["may"] - 0.1


def test_freshness_gives_hours_and_leaves_what_waits_open(built: tuple[Lake, str]) -> None:
    rows = {r["batch"]: r for r in ask(built, "freshness")}
    assert {b: (r["hours_to_admit"], r["hours_to_commit"]) for b, r in rows.items()} == {
        "may": (0.5, 2.0), "june": (0.5, 4.0), "july": (0.5, None),
    }  # fmt: skip
    assert str(rows["may"]["landed_utc"]) == "2026-05-01 02:00:00"


def test_the_rest(built: tuple[Lake, str]) -> None:
    idle = {r["run_id"]: r["waiting"] for r in ask(built, "loader-idle")}
    assert idle == {"run-b": round(0.08 / 0.24, 3), "run-a": round(0.02 / 0.18, 3)}
    (failing,) = ask(built, "failing-checks")
    assert (failing["check"], failing["result"], failing["findings"]) == ("near_duplicates", "warn", 1), "the newest"
    (aside,) = ask(built, "quarantine")
    assert (aside["batch"], aside["reason"], aside["inputs"]) == ("may", "not_an_image", 1)
    (queue,) = ask(built, "queue-progress")
    assert (queue["asked"], queue["decided"], queue["remaining"]) == (6, 4, 2)
    runs = {r["version"]: r["run_ids"] for r in ask(built, "lineage")}
    assert runs == {"v1": None, "v2": None, "v3": ["run-a", "run-b"]}


def test_a_finding_is_a_row_and_the_version_that_is_meant_is_a_row(built: tuple[Lake, str]) -> None:
    lake = built[0]
    first = lake.samples("pets")["id"][0].as_py()
    found = lake.sql('select dataset, subject, "check", key from findings').to_pylist()
    assert found == [{"dataset": "pets", "subject": "v3", "check": "near_duplicates", "key": first}] * 2
    for ref, name in (("main", "v3"), ("v1", "v1"), ("2026-05-31", "v2")):
        assert lake.sql("select version from this_version", ref=ref).to_pylist() == [{"version": name}]
