"""verify and gc as a person and a script see them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from pathlib import Path

import pytest
from cli_project import Project, pictures

from sevenfold.pipelines.cli.keep import duration
from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.verified import PROBLEMS


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with one version of twelve pictures."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEVENFOLD_LAKE", raising=False)
    run = Project(tmp_path / "pets")
    run.ok("init", "pets")
    monkeypatch.chdir(run.folder)
    run.ok("ingest", pictures(tmp_path / "source", {"train": 4}), "--batch", "one", "--workers", "1")
    Lake.open(run.folder / "lake").set_status("main", "one", "admitted")
    run.ok("commit", "-m", "one")
    return run


def shard(run: Project) -> Path:
    return next((run.folder / "lake/shards").rglob("*.tar"))


def damage(path: Path, at: int = 600) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.unlink()
    path.write_bytes(data)


def test_verify_of_a_sound_lake_exits_0_with_the_rate(kept: Project) -> None:
    told = kept.ok("verify").out
    assert "nothing is wrong" in told and "MB/s" in told and "of 1 versions" in told
    assert "every image decoded" in kept.ok("verify", "v1", "--deep").out
    found = kept.ok("verify", "--json").json
    assert (found["clean"], found["samples"], found["findings"]) == (True, 12, [])
    assert kept("verify", "v9").code == 3


def test_verify_names_the_damage_exits_1_and_repairs(kept: Project) -> None:
    good = shard(kept).read_bytes()
    damage(shard(kept))
    told = kept("verify")
    assert told.code == 1
    assert shard(kept).stem in told.out and "main/v1" in told.out
    assert ".png" in told.out and "512-" in told.out
    assert told.out.endswith("next: sevenfold verify --repair\n")
    found = kept("verify", "--json").json["findings"]
    assert [(f["problem"], f["byte"], f["versions"]) for f in found] == [("content", 512, ["main/v1"])]
    mended = kept.ok("verify", "--repair").out
    assert "rebuilt" in mended and "nothing is wrong" in mended
    assert shard(kept).read_bytes() == good


def test_a_file_with_many_flaws_takes_few_lines_and_the_last_says_what_to_do(kept: Project, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "source")
    path = shard(kept)
    data = path.read_bytes()[:1024]
    path.unlink()
    path.write_bytes(data)
    lines = kept("verify", "--repair").out.splitlines()
    assert "11 samples are lost" in lines[-2] and lines[-1].endswith("sevenfold verify --repair --exclude")
    assert sum("they are all zero" in line for line in lines) <= 5
    assert len(kept("verify", "--json").json["findings"]) >= 11
    assert any("more findings: --json" in line for line in lines)


def test_what_is_lost_is_excluded_only_when_told_to(kept: Project, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "source")
    damage(shard(kept))
    told = kept("verify", "--repair")
    assert told.code == 1
    assert "1 samples are lost" in told.out and "sevenfold verify --repair --exclude" in told.out
    assert [v["version"] for v in kept.ok("log", "--json").json] == ["v1"], "nothing was committed"
    found = kept("verify", "--repair", "--exclude", "--json").json
    assert found["excluded_in"] == {"main/main": "v2"}
    assert kept.ok("show", "--json").json["samples"] == 11
    assert kept.ok("query", "select count(*) n from quarantine where reason = 'lost'", "--json").json == [{"n": 1}]
    assert kept("verify", "--exclude").code == 3


def test_gc_lists_first_deletes_when_told_and_guards_the_young(kept: Project) -> None:
    lake = kept.folder / "lake"
    assert "there is nothing to delete" in kept.ok("gc").out
    stray = lake / "shards/ff" / f"{'f' * 64}.tar"
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(b"nobody's")
    assert "there is nothing to delete" in kept.ok("gc").out, "it is young"
    old = time.time() - 8 * 86400
    os.utime(stray, (old, old))
    told = kept.ok("gc").out
    assert "f" * 64 in told and "8 d" in told and "nothing was deleted" in told and stray.exists()
    assert kept.ok("gc", "--json").json["files"][0]["reason"].startswith("no version")
    assert kept("gc", "--delete", "--grace", "0").code == 3
    assert "deleted 1 files" in kept.ok("gc", "--delete", "--grace", "1d").out and not stray.exists()
    stray.write_bytes(b"nobody's")
    assert "deleted 1 files" in kept.ok("gc", "--delete", "--grace", "0", "--alone").out
    assert kept.ok("verify", "--json").json["clean"]
    assert "has no cache" in kept("gc", "--cache", "1GB").err


def test_the_page_names_every_problem_and_its_commands_run(kept: Project) -> None:
    text = (Path(__file__).parents[2] / "docs/keeping.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```\n(.*?)```", text, re.DOTALL)
    for line in "\n".join(blocks).splitlines():
        words = shlex.split(line.partition("#")[0])
        assert words[0] == "sevenfold"
        kept.ok(*words[1:])
    assert [p for p in PROBLEMS if f"`{p}`" not in text] == []


def test_lengths_of_time() -> None:
    assert [duration(t) for t in ("7d", "12h", "30m", "90s", "0", "1.5h")] == [604800, 43200, 1800, 90, 0, 5400]
    for text in ("7", "d", "-1d", "1y"):
        with pytest.raises(SevenfoldError, match="no length of time"):
            duration(text)
