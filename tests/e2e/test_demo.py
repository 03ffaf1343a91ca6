"""The demo from its command line, on 2,000 images, one model per version: whole, and reused the second time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from sevenfold.pipelines import home
from sevenfold.storage.project import load

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]
IMAGES = Path(__file__).resolve().parents[2] / "examples" / "fashion-mnist"


def demo(folder: Path) -> str:
    words = ["demo", str(folder), "--images", str(IMAGES), "--limit", "2000", "--seeds", "1"]
    done = subprocess.run(
        [Path(sys.executable).with_name("sevenfold"), *words],
        cwd=folder.parent,
        env={k: v for k, v in os.environ.items() if k != "SEVENFOLD_LAKE"},
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_one_full_round_and_a_second_run_that_reuses_it(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    said = demo(folder)
    project = load(folder / "sevenfold.toml")
    lake = project.open_lake()

    batches = {b.batch: b for b in lake.batches(project.dataset)}
    assert len(batches) == 4
    for b in batches.values():
        c = b.counts
        assert c["inputs"] == c["samples"] + c["aliases"] + c["relabels"] + c["quarantined"]
    studio = batches["2026-01-studio"]
    assert set(studio.reasons) == {"label_outside_ontology", "not_an_image", "truncated", "wrong_suffix"}
    assert studio.counts["aliases"] == studio.reasons["truncated"]  # as many planted copies as of each other fault

    drift = lake.sql("""select subject, max(result = 'fail') as fired from verdicts
                        where v = 'volatility' and subject like '%camera' group by 1 order by 1""")
    assert drift.to_pylist() == [
        {"subject": "2026-03-new-camera", "fired": True},
        {"subject": "2026-04-new-camera", "fired": True},
    ]
    assert all(batches[b].status == "committed" for b in batches)  # drift does not block
    assert {v["v"] for v in lake.sql("select distinct v from verdicts").to_pylist()} == {
        "validity", "variety", "veracity", "value", "volume", "volatility", "velocity",
    }  # fmt: skip

    assert [v.name for v in lake.versions(project.dataset)] == ["v1", "v2", "v3", "v4", "v5"]
    pooled = lake.sql("select count(label) as n from samples where split = 'pool'").to_pylist()
    assert pooled == [{"n": 0}]  # the pool's answers stay outside the lake
    assert "The policy says retrain" in said and "gate: classifier/" in said

    html = (folder / "reports" / "fashion-v5.html").read_text(encoding="utf-8")
    assert "http://" not in html.replace("http://www.w3.org/", "") and "https://" not in html
    docs = list((folder / ".sevenfold" / "data-docs").rglob("index.html"))
    assert docs, "Great Expectations' Data Docs are built"

    instance = dg.DagsterInstance.from_config(str(home.prepare(project)))
    runs = instance.get_runs()
    assert {r.job_name for r in runs} == {"land", "round", "train", "survey", "review", "gate", "check"}
    assert all(r.is_success for r in runs)

    again = demo(folder)
    assert again.count("(unchanged: reused)") == 7
    assert len(instance.get_runs()) == len(runs)
    assert [v.name for v in lake.versions(project.dataset)] == ["v1", "v2", "v3", "v4", "v5"]
