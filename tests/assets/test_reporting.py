"""The scorecard of a batch and of a version: pictures from the source or the shards, reasons, the diff, the lineage."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from sevenfold.assets import picturing
from sevenfold.assets.committing import commit
from sevenfold.assets.judging import judge_version
from sevenfold.assets.reporting import build_report, build_scorecard, write_report, write_scorecard
from sevenfold.quality.verdict import Verdict, to_table
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import OVERLAY
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project


def pictures(folder: Path, seed: int) -> Path:
    random = np.random.default_rng(seed)
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            (folder / split / name).mkdir(parents=True, exist_ok=True)
            for i in range(12):
                pixels = random.integers(0, 256, (8, 8, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{i}.png")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """v1 holds the batch `one`; `two`, with a torn file and one that is no picture, is landed."""
    project = Project(folder=tmp_path, dataset="pets")
    lake = project.create_lake()
    lake.ingest(pictures(tmp_path / "one", 1), "pets", "one")
    lake.set_status("pets", "one", "admitted")
    commit(lake, project, message="one")
    two = pictures(tmp_path / "two", 2)
    (two / "train" / "cat" / "torn.png").write_bytes((two / "train" / "cat" / "0.png").read_bytes()[:60])
    (two / "train" / "dog" / "page.png").write_bytes(b"<html>not found</html>")
    lake.ingest(two, "pets", "two")
    lake.set_status("pets", "two", "admitted")
    return project


@pytest.fixture
def lake(project: Project) -> Lake:
    return project.open_lake()


def about(lake: Lake, subject: str, *, findings: tuple[str, ...], reference: str | None = None) -> Verdict:
    return Verdict("veracity", "made_up", subject, "fail", findings=findings, reference=reference)


def test_a_landed_batch_shows_pictures_from_its_source_and_the_reason_of_each_rejected_input(
    lake: Lake, project: Project
) -> None:
    ids = tuple(lake.batch_rows("pets", "two")["id"].to_pylist()[:3])
    aside = tuple(lake.quarantine("pets", "two")["path"].to_pylist())
    page = build_scorecard(lake, project, "two", [about(lake, "two", findings=(*ids, *aside))])
    assert page.kind == "batch" and set(ids) <= set(page.pictures)
    notes = dict(zip(page.facts.keys, page.facts.notes, strict=True))
    assert notes["train/dog/page.png"] is not None and "not an image" in notes["train/dog/page.png"]
    assert dict(zip(page.facts.keys, page.facts.paths, strict=True))[ids[0]].endswith(".png")
    html = write_scorecard(lake, project, "two", page.verdicts, out=project.folder / "two.html").read_text()
    assert "truncated" in html and html.count("data:image/png") >= 3


def test_a_source_that_changed_or_went_away_shows_no_wrong_picture(lake: Lake, project: Project) -> None:
    rows = lake.batch_rows("pets", "two")
    changed, kept = rows["id"][0].as_py(), rows["id"][1].as_py()
    (project.folder / "two" / rows["path"][0].as_py()).write_bytes(b"something else")
    verdicts = [about(lake, "two", findings=(changed, kept))]
    assert set(build_scorecard(lake, project, "two", verdicts).pictures) == {kept}
    shutil.rmtree(project.folder / "two")
    assert not build_scorecard(lake, project, "two", verdicts).pictures


def test_a_committed_batch_shows_pictures_from_its_shards(lake: Lake, project: Project) -> None:
    shutil.rmtree(project.folder / "one")
    ids = tuple(lake.batch_rows("pets", "one")["id"].to_pylist()[:3])
    page = build_scorecard(lake, project, "one", [about(lake, "one", findings=ids)])
    assert set(page.pictures) == set(ids)
    assert page.lineage is not None and [n.title for n in page.lineage.nodes] == ["one", "one", "v1"]


def test_a_batch_is_compared_with_what_its_verdicts_were_read_against(lake: Lake, project: Project) -> None:
    page = build_scorecard(lake, project, "two", [about(lake, "two", findings=(), reference="v1")])
    assert page.changes is not None and page.changes.reference == "v1"
    assert page.changes.counts == {"new samples": 48, "known already": 0, "other label proposed": 0, "new classes": 0}
    assert build_scorecard(lake, project, "two", [about(lake, "two", findings=())]).changes is None


def test_a_version_tells_what_was_added_removed_relabelled_and_moved(lake: Lake, project: Project) -> None:
    first = lake.samples("pets").filter(pa.compute.equal(lake.samples("pets")["label"], "cat"))["id"].to_pylist()
    edits = {"id": first[:6], "exclude": [True] + [None] * 5, "label": [None, "dog", "dog", None, None, None],
             "split": [None] * 3 + ["val"] * 3, "weight": [None] * 6, "reviewer": ["ann"] * 6,
             "reason": ["seen"] * 6}  # fmt: skip
    lake.commit("pets", message="two", overlays=[pa.Table.from_pydict(edits, schema=OVERLAY)])
    page = build_scorecard(lake, project, "v2", [])
    assert page.changes is not None
    counts = dict(page.changes.counts)
    assert counts == {"added": 48, "removed": 1, "relabelled": 2, "moved": 3, "reweighted": 0}
    assert ("relabelled", "cat", "dog", 2) in [(f.change, f.before, f.after, f.n) for f in page.changes.flows]
    tiles = page.changes.examples.tiles if page.changes.examples else ()
    assert all(tile.image for tile in tiles) and ("cat", "dog") in [tile.change for tile in tiles]


def test_pictures_that_only_the_reference_has_are_found_there(lake: Lake, project: Project) -> None:
    before = lake.samples("pets", "v1")["id"][0].as_py()
    examples = {"title": "What moved", "now": [], "reference": [before]}
    verdict = replace(about(lake, "two", findings=(), reference="v1"), data={"examples": examples})
    page = build_scorecard(lake, project, "two", [verdict])
    assert set(page.pictures) == {before} == set(page.facts.keys) and page.facts.labels[0] in ("cat", "dog")


def test_without_verdicts_the_newest_in_the_lake_are_shown_and_the_loops_report_shares_them(
    lake: Lake, project: Project
) -> None:
    judged = judge_version(lake, project, "v1", clock=lambda: 1e9)
    page, loop = build_scorecard(lake, project, "main"), build_report(lake, project, "main")
    assert {v.check for v in page.verdicts} == {v.check for v in judged} == {v.check for v in loop.verdicts}
    assert page.facts == loop.facts and page.pictures == loop.pictures
    assert loop.balance and not page.balance


def test_the_grid_of_drift_shows_the_examples_of_the_verdict_in_its_order(lake: Lake, project: Project) -> None:
    ids = lake.samples("pets", "v1")["id"].to_pylist()
    examples = {"title": "Most shifted", "now": [ids[40], ids[3]], "reference": [ids[7]]}
    drift = Verdict("volatility", "property_drift", "one", "warn", reference="v1", data={"examples": examples})
    later = Verdict("volatility", "label_shift", "one", "warn", reference="v1")
    lake.append_verdicts("pets", "one", to_table([drift, later], at=1.0))
    now, before = picturing.drifted(lake, project, lake.version("pets", "v1"))
    assert now is not None and before is not None
    assert [[t.key for t in grid.tiles] for grid in (now, before)] == [[ids[40], ids[3]], [ids[7]]]


def test_a_page_lands_beside_the_settings_unless_told_otherwise(lake: Lake, project: Project) -> None:
    two = project.folder / "reports" / "pets-two.html"
    assert write_scorecard(lake, project, "two", clock=lambda: 0.0) == two
    scorecard = two.read_text()
    assert write_report(lake, project, "two", clock=lambda: 0.0) == two and two.read_text() == scorecard
    deep = project.folder / "a" / "b" / "page.html"
    assert write_scorecard(lake, project, "v1", out=deep, clock=lambda: 0.0) == deep
    assert "1 January 1970" in deep.read_text()


def test_a_subject_that_is_not_there_is_told(lake: Lake, project: Project) -> None:
    with pytest.raises(SevenfoldError):
        write_scorecard(lake, project, "v9")
