"""The command line as a script sees it: help, exit codes, what goes to stderr, and nothing heavy loaded for it."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from cli_project import Project
from PIL import Image
from typer.main import get_command

from sevenfold.pipelines.cli.app import app, hoist
from sevenfold.pipelines.cli.codes import report
from sevenfold.pipelines.cli.console import print_json, print_table, progress, progress_line

COMMANDS = dict(get_command(app).commands)  # type: ignore[attr-defined]
WANTED = {
    "init", "ingest", "check", "commit", "log", "diff", "show", "tag", "branch", "rollback", "query", "train", "score",
    "mine", "review", "gate", "promote", "report", "demo", "ui", "merge", "compact", "urls", "lineage", "withdraw",
    "verify", "gc", "plan", "materialize",
    "takedown",
}  # fmt: skip
HEAVY = (
    "torch",
    "dagster",
    "great_expectations",
    "matplotlib",
    "duckdb",
    "pandas",
    "scipy",
    "sklearn",
    "pyarrow",
    "numpy",
)
MAIN = "from sevenfold.pipelines.cli import main; main()"


def sevenfold(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "SEVENFOLD_LAKE"}
    return subprocess.run(
        [sys.executable, "-c", MAIN, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=60
    )


def test_every_command_is_there() -> None:
    assert COMMANDS.keys() >= WANTED


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_ends_with_an_example_that_parses(name: str) -> None:
    command = COMMANDS[name]
    lines = [x.replace("\\[", "[") for x in command.epilog.split("\n\n")]
    assert lines[0] == "[bold]Example[/bold]"
    assert len(lines) > 1
    for line in lines[1:]:
        words = shlex.split(line)
        assert words[:2] == ["sevenfold", name]
        command.make_context(name, words[2:])
    shown = Project(Path()).ok(name, "--help").out
    assert "Example" in shown
    assert "sevenfold " + name in shown.partition("Example")[2]


def test_help_is_quick_and_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, json\n"
        "from sevenfold.pipelines.cli.app import app\n"
        f"for name in [None, *{sorted(COMMANDS)!r}]:\n"
        "    try: app([*([name] if name else []), '--help'], prog_name='sevenfold')\n"
        "    except SystemExit as stop: assert not stop.code, name\n"
        f"print(json.dumps(sorted(set({HEAVY!r}) & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []

    def used() -> float:
        found = resource.getrusage(resource.RUSAGE_CHILDREN)
        return found.ru_utime + found.ru_stime

    seconds = []
    for _ in range(3):
        before = used()
        assert sevenfold("--help", cwd=tmp_path).returncode == 0
        seconds.append(used() - before)
    assert min(seconds) < 0.5, seconds  # processor time: what is waited on an idle machine


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--version",), 0, ""),
        ((), 0, ""),
        (("--no-such-option",), 3, "No such option"),
        (("train", "--epochs", "many"), 3, "'--epochs'"),
        (("nonsense",), 3, "No such command"),
        (("log",), 3, "no sevenfold.toml here or above"),
        (("--lake", "absent", "log"), 3, "there is no lake"),
        (("ingest",), 3, "there is no source"),
        (("ingest", "absent.zip", "--lake", "made"), 3, "there is no lake"),
        (("promote", "m/1", "--force"), 3, "--force without --reason"),
    ],
)
def test_exit_codes_without_a_traceback(tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    done = sevenfold(*words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    if code:
        assert done.stderr.startswith("error: ")
        assert not done.stdout


def test_a_crash_is_one_line_and_exit_3_and_a_traceback_only_with_debug(tmp_path: Path) -> None:
    run = Project(tmp_path)
    run.ok("init", tmp_path)
    (tmp_path / "one").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "one" / "a.png")
    run.ok("--lake", tmp_path / "lake", "ingest", tmp_path / "one", "--batch", "b")
    (tmp_path / "lake/quarantine/main/b.parquet").write_bytes(b"junk")
    broken = sevenfold("quarantine", "b", cwd=tmp_path)
    assert broken.returncode == 3
    assert broken.stderr.count("\n") == 1
    assert "run again with --debug" in broken.stderr
    shown = sevenfold("quarantine", "b", "--debug", cwd=tmp_path)
    assert shown.returncode == 3
    assert "Traceback" in shown.stderr


def test_an_interrupt_is_no_crash(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(KeyboardInterrupt(), debug=False) == 130
    assert report(typer.Abort(), debug=False) == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("log --json --lake a", "--lake a log --json"),
        ("log --lake=a", "--lake=a log"),
        ("check v1 --debug --dataset d", "--debug --dataset d check v1"),
        ("query -- --lake", "query -- --lake"),
        ("log --lake", "--lake log"),
    ],
)
def test_global_options_may_stand_anywhere(given: str, expected: str) -> None:
    assert hoist(given.split()) == expected.split()


def test_progress_into_a_pipe_is_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    import time

    with progress("waiting", every=0.05) as shown:
        shown(3, 12, "measuring")
        time.sleep(0.25)
    captured = capsys.readouterr()
    assert "measuring: 3 of 12 (25%), 0 s\n" in captured.err
    assert not captured.out
    assert progress_line(0, 0, "thinking", 7.0) == "thinking, 7 s"
    assert progress_line(1500, 0, "reading", 7.0) == "reading: 1,500, 7 s"


def test_progress_tells_rate_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    import time

    with progress("listing", every=0.2) as shown:
        for done in range(0, 5000, 100):
            shown(done, 100_000, "measuring (12 set aside)")
            time.sleep(0.01)
    line = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(r"measuring \(12 set aside\): [\d,]+ of 100,000 \(\d+%\), [\d,]+/s, \d+ s left, \d s", line), (
        line
    )
    words = [
        progress_line(1, 100, "x", 1.0, rate, left) for rate, left in ((0.25, 400.0), (12.3, 7200.0), (9.96, 89.0))
    ]
    assert words == [
        "x: 1 of 100 (1%), 0.25/s, 7 min left, 1 s", "x: 1 of 100 (1%), 12/s, 2.0 h left, 1 s",
        "x: 1 of 100 (1%), 10/s, 89 s left, 1 s",
    ]  # fmt: skip


def test_json_holds_no_number_that_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    print_json({"a": [float("nan"), 1.5], "b": (float("inf"),)})
    assert json.loads(capsys.readouterr().out, parse_constant=refuse) == {"a": [None, 1.5], "b": [None]}


def test_an_interval_is_a_cell_like_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["i"], [[pa.scalar((0, 1, 0), pa.month_day_nano_interval()).as_py()]])
    assert "days=1" in capsys.readouterr().out


def test_a_large_number_is_printed_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["x"], [[1796054174.25], [12310.4], [0.0123456], [1.5e20]])
    assert [line.strip() for line in capsys.readouterr().out.splitlines()[3:7]] == [
        "1,796,054,174", "12,310", "0.01235", "1.5e+20",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device", "/lake/x"), "error: No space left on device\n  where:      /lake/x"),
        (ValueError("odd"), "unexpected ValueError: odd"),
    ],
)
def test_what_the_machine_refuses_is_no_crash(error: Exception, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(error, debug=False) == 3
    assert said in capsys.readouterr().err


def test_an_interruption_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sevenfold.pipelines.cli.session.Session.project", property(interrupt))
    with pytest.raises(SystemExit) as ended:
        app(["log"])
    assert ended.value.code == 130
    assert "interrupted" in capsys.readouterr().err
