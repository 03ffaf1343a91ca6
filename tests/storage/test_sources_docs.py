"""docs/sources.md: its commands run as they stand, and it names every kind and every reason that the code has."""

from __future__ import annotations

import csv
import json
import re
import shlex
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from sevenfold.pipelines.cli.app import app
from sevenfold.storage.sources import SOURCES
from sevenfold.storage.tar import END, header, padding

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
COMMANDS = [line.partition("#")[0].strip() for block in re.findall(r"```\n(.*?)```", TEXT, re.DOTALL)
            for line in block.splitlines()]  # fmt: skip


def test_the_commands_run(tmp_path: Path, make: SimpleNamespace, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    members = make.two_classes(6)
    make.folder(tmp_path / "photos", members)
    with zipfile.ZipFile("photos.zip", "w") as z:
        for name, data in members.items():
            z.writestr(name, data)
    rows = [{"path": f"photos/{n}", "label": n[:3]} for n in members]
    with open("labels.csv", "w", newline="") as f:
        writer = csv.DictWriter(f, ["path", "label"])
        writer.writeheader()
        writer.writerows(rows)
    Path("labels.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    Path("snapshot/data").mkdir(parents=True)
    table = pa.table({"image": [{"bytes": d, "path": None} for d in members.values()], "label": [0] * 6})
    pq.write_table(table, "snapshot/data/train-00000-of-00001.parquet")
    Path("shards").mkdir()
    data = b"".join(header(b"%d.png" % i, len(d)) + d + padding(len(d)) for i, d in enumerate(members.values()))
    Path("shards/train-000.tar").write_bytes(data + END)
    make.upload(bucket, members)
    runner = CliRunner()
    assert runner.invoke(app, ["init", "."]).exit_code == 0
    assert len(COMMANDS) >= 9
    for command in COMMANDS:
        words = shlex.split(command.replace("s3://bucket/photos", bucket))
        done = runner.invoke(app, words[1:], prog_name=words[0])
        assert done.exit_code == 0, (command, done.output, done.exception)
        if words[1] == "ingest":
            assert "6 inputs = 6 samples" in done.stdout, (command, done.stdout)


def test_every_kind_and_reason_is_there() -> None:
    assert all(f"| `{kind}` |" in TEXT for kind in SOURCES)
    reasons = set()
    for path in (ROOT / "storage").rglob("*.py"):
        code = path.read_text(encoding="utf-8")
        reasons |= set(re.findall(r'InputError\(\s*"(\w+)"', code))
        reasons |= set(re.findall(r'(?:refusal = |problem = |problem or |Stop|problems\[i\] = )\("(\w+)"', code))
    assert len(reasons) > 10
    assert not {r for r in reasons if f"`{r}`" not in TEXT}
