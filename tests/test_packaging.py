"""The wheel, installed somewhere else, is whole: every file is in it and nobody's own `training/` shadows ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("assets", "pipelines", "quality", "storage", "training")
HEAVY = ("torch", "dagster", "great_expectations", "matplotlib", "duckdb", "pandas", "scipy", "sklearn", "pyarrow")
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
HELP_SECONDS = 2.0  # half a second on an idle machine; the margin is for a busy one


def run(*command: str | Path, cwd: Path) -> str:
    """stdout of a command that must succeed, run without what the surroundings say about Python."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "COVERAGE"))}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def expected_names(source: Path) -> set[str]:
    """Where each Python and data file of the rooms and the front door belongs in a wheel."""
    files = [path.relative_to(source) for top in ("sevenfold", *ROOMS) for path in (source / top).rglob("*.*")]
    return {
        path.as_posix() if path.parts[0] == "sevenfold" else f"sevenfold/{path.as_posix()}"
        for path in files
        if path.suffix != ".md"
    }


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the wheel is made from, so that nothing is left in the checkout."""
    source = tmp_path_factory.mktemp("source")
    for name in ("sevenfold", *ROOMS):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    return source


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without a network."""
    target = tmp_path_factory.mktemp("dist")
    run(
        *PIP, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", target, source, cwd=target
    )  # fmt: skip
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment that holds the wheel and sees this one's packages, but not the editable install.

    A folder named in a .pth file is searched, but the .pth files inside it (the editable install's hook) are not run.
    """
    home = tmp_path_factory.mktemp("elsewhere") / "env"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    run(*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=home)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
    here = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (site / "dependencies.pth").write_text("".join(f"{folder}\n" for folder in here))
    return home


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A user's folder with packages of its own under the names of our rooms, each of which fails when imported."""
    for name in (*ROOMS, "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise RuntimeError('the user\\'s own {name} was imported')\n")
    return tmp_path


def test_the_wheel_holds_every_file_and_one_top_level_name(source: Path, wheel: Path) -> None:
    expected = expected_names(source)
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = next(archive.read(n).decode() for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        licences = [n for n in archive.namelist() if n.endswith("/licenses/LICENSE")]
    assert names == expected, "list packages and package-data in pyproject.toml"
    assert {name.split("/")[0] for name in names} == {"sevenfold"}
    assert "License-Expression: Apache-2.0" in metadata
    assert len(licences) == 1


def test_each_room_comes_from_the_wheel_whatever_the_current_folder_holds(elsewhere: Path, hostile: Path) -> None:
    code = (
        "import importlib, json\n"
        f"names = ['sevenfold', *('sevenfold.' + room for room in {ROOMS!r})]\n"
        "print(json.dumps({name: importlib.import_module(name).__file__ for name in names}))"
    )
    origins = json.loads(run(elsewhere / "bin" / "python", "-c", code, cwd=hostile))
    assert len(origins) == 1 + len(ROOMS)
    for name, origin in origins.items():
        assert Path(origin).resolve().is_relative_to(elsewhere.resolve()), (name, origin)


def test_the_installed_command_runs_from_a_hostile_folder(elsewhere: Path, hostile: Path) -> None:
    assert "Usage" in run(elsewhere / "bin" / "sevenfold", "--help", cwd=hostile)


def test_help_loads_no_heavy_module_and_is_quick(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "began = time.perf_counter()\n"
        "from sevenfold.pipelines.cli import main\n"
        "sys.argv = ['sevenfold', '--help']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as stop:\n"
        "    assert not stop.code, stop.code\n"
        f"heavy = sorted(set({HEAVY!r}) & set(sys.modules))\n"
        "import json; print(json.dumps([heavy, time.perf_counter() - began]))"
    )
    heavy, seconds = json.loads(run(sys.executable, "-c", code, cwd=tmp_path).splitlines()[-1])
    assert not heavy
    assert seconds < HELP_SECONDS
