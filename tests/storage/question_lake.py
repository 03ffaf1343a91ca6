"""A small lake with something to say to every named question, and docs/queries.md made from it.

    python tests/storage/question_lake.py FOLDER [docs/queries.md]

builds the lake in FOLDER and prints the questions with their answers, or puts them into the page, after its last line
of prose.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sevenfold.storage import Lake
from sevenfold.storage.index import OVERLAY, QUEUE
from sevenfold.storage.png import encode_png
from sevenfold.storage.questions import QUESTIONS
from sevenfold.training.steps import StepLog

HOUR = 3600.0
START = 1_777_600_800.0
"""2026-05-01 02:00 UTC."""


def at(hours: float) -> Callable[[], float]:
    return lambda: START + hours * HOUR


def picture(seed: int, light: int) -> bytes:
    """8x8 noise around a grey level: the same bytes everywhere."""
    noise = np.random.default_rng(seed).integers(-30, 31, (8, 8))
    return encode_png(np.clip(noise + light, 0, 255).astype(np.uint8))


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def land(lake: Lake, source: Path, batch: str, hours: float) -> None:
    lake.ingest(source, "pets", batch, clock=at(hours))
    lake.set_status("pets", batch, "admitted", clock=at(hours + 0.5))


def decisions(rows: list[tuple[str, str]], reviewer: str) -> pa.Table:
    found = [{"id": i, "label": label, "reviewer": reviewer, "reason": "looked at"} for i, label in rows]
    return pa.Table.from_pylist(found, schema=OVERLAY)


def build(folder: Path) -> Lake:
    """Batches may, june (darker) and july (waits); v1, v2 and v3 (reviews by ann and ben); scores, runs, verdicts."""
    lake = Lake.create(folder / "lake", shard_bytes=4096)
    may = {f"train/{'cat' if i % 3 else 'dog'}/{i:02d}.png": picture(i, 140) for i in range(18)}
    may |= {f"test/{'cat' if i % 2 else 'dog'}/{i:02d}.png": picture(100 + i, 140) for i in range(6)}
    # the same pixels in a file of other bytes: a text chunk before the end
    twin = picture(4, 140)
    may["test/cat/twin.png"] = twin[:-12] + bytes.fromhex("0000000474455874610062004BB2F06A") + twin[-12:]
    may["train/cat/broken.png"] = b""
    land(lake, write(folder / "may", may), "may", 0)
    lake.commit("pets", message="may", clock=at(2))
    june = {f"train/{'cat' if i % 2 else 'eel'}/{i:02d}.png": picture(200 + i, 80) for i in range(12)}
    land(lake, write(folder / "june", june), "june", 24 * 30)
    lake.commit("pets", message="june is darker", clock=at(24 * 30 + 4))

    rows = lake.samples("pets").sort_by("id").to_pylist()
    train = [r["id"] for r in rows if r["split"] == "train"]
    lake.write_queue("pets", "suspects", queue(train[:6]))
    review(lake, "first", [(i, "dog") for i in train[:3]], "ann", 24 * 31)
    review(lake, "second", [(train[2], "cat"), (train[3], "eel")], "ben", 24 * 31 + 1)
    taken = lake.pending_reviews("pets")
    edits = [lake.overlay(r.overlay) for r in taken]
    version, _ = lake.commit("pets", message="reviewed", overlays=edits, clock=at(24 * 31 + 2))
    lake.settle_reviews(taken, version)
    land(lake, write(folder / "july", {"train/cat/0.png": picture(300, 140)}), "july", 24 * 60)

    predict(lake, version.content_id)
    for number, run in enumerate(("run-a", "run-b")):
        config = {"run_id": run, "dataset": "pets", "content_id": version.content_id, "seed": number}
        (lake.root / "runs" / run).mkdir(parents=True)
        (lake.root / "runs" / run / "config.json").write_text(json.dumps(config))
        steps = StepLog(lake.store, f"runs/{run}/steps", run, 0)
        for step in range(10):
            wait = 0.02 + 0.06 * number
            steps.add(
                epoch=0, step=step, data=wait, forward=0.05, backward=0.1, optimizer=0.01, total=wait + 0.16,
                samples=16, loss=1.0, lr=0.1,
            )  # fmt: skip
        steps.flush()
    verdicts(lake, 24 * 31 + 3, "fail")
    verdicts(lake, 24 * 31 + 4, "warn")
    return lake


def queue(ids: list[str]) -> pa.Table:
    rows = [{"id": i, "kind": "suspect", "rank": n, "score": 1.0 - n / 10} for n, i in enumerate(ids)]
    return pa.Table.from_pylist(rows, schema=QUEUE)


def review(lake: Lake, name: str, rows: list[tuple[str, str]], reviewer: str, hours: float) -> None:
    table = decisions(rows, reviewer)
    lake.add_review("pets", name, table, queues=["suspects"], reviewer=reviewer, clock=at(hours))


def predict(lake: Lake, content_id: str) -> None:
    """Predictions that no model made: wrong for every fifth sample, a loss that grows with the row's place."""
    rows: list[dict[str, Any]] = []
    for n, r in enumerate(lake.samples("pets").sort_by("id").to_pylist()):
        wrong = "dog" if r["label"] == "cat" else "cat"
        rows.append(
            {
                "id": r["id"], "content_id": content_id, "label": r["label"],
                "predicted": wrong if n % 5 == 0 else r["label"], "confidence": 0.5 + (n % 7) / 20,
                "margin": 0.1, "loss": n / 8, "entropy": 0.3, "in_sample": False, "fold": n % 2,
            }
        )  # fmt: skip
    lake.write_predictions("score-a", pa.Table.from_pylist(rows))


def verdicts(lake: Lake, hours: float, result: str) -> None:
    rows = [
        {"v": "variety", "check": "near_duplicates", "subject": "v3", "result": result, "statistic": 2.0,
         "findings": [lake.samples("pets")["id"][0].as_py()], "remedy": "exclude the twin", "at": START + hours * HOUR},
        {"v": "volume", "check": "samples", "subject": "v3", "result": "pass", "statistic": 36.0, "findings": [],
         "remedy": "", "at": START + hours * HOUR},
    ]  # fmt: skip
    lake.append_verdicts("pets", "v3", pa.Table.from_pylist(rows))


def cell(value: Any) -> str:
    """A value in a Markdown table; ids are cut to 12 characters."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(cell, value))
    text = str(value)
    return text[:12] if len(text) == 64 and set(text) <= set("0123456789abcdef") else text.replace("|", "\\|")


def markdown(lake: Lake) -> str:
    """Every question with its SQL and what the lake answers."""
    parts = []
    for q in QUESTIONS:
        table = lake.sql(q.sql, "pets")
        lines = [f"### {q.name}", "", q.question, "", "```sql", q.sql.strip(), "```", ""]
        lines += ["| " + " | ".join(table.column_names) + " |", "|" + "---|" * table.num_columns]
        lines += ["| " + " | ".join(map(cell, row.values())) + " |" for row in table.to_pylist()]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


MARK = "<!-- From here on made by tests/storage/question_lake.py -->\n"

if __name__ == "__main__":
    made = markdown(build(Path(sys.argv[1])))
    if len(sys.argv) == 2:
        print(made, end="")
    else:
        page = Path(sys.argv[2])
        page.write_text(page.read_text().partition(MARK)[0] + MARK + "\n" + made)
