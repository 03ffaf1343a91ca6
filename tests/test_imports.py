"""Import directions, read from the source: pipelines -> assets -> {training, quality} -> storage -> shared files."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# room -> the other rooms it may import
MAY_IMPORT: dict[str, set[str]] = {
    "pipelines": {"assets", "training", "quality", "storage"},
    "assets": {"training", "quality", "storage"},
    "training": {"storage"},
    "quality": {"storage"},
    "storage": set(),
}
# room -> top-level packages (or families: `dagster` stands for dagster_graphql and so on too) it may not import
FORBIDDEN: dict[str, set[str]] = {
    "training": {"dagster"},
    "quality": {"dagster", "torch"},
    "storage": {"dagster", "torch"},
}
ALLOWED = {"training": {"dagster_pipes"}}
# files beside the front door that every room may import, and that import no room
SHARED = ("intervals",)


def imported(source: str, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of every import in `source`, wherever it stands: in functions, under TYPE_CHECKING,
    relative, or as a constant given to `import_module` or `__import__`.

    `from a import b` yields `a.b`, since `b` may be a module.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".") if is_package else module.split(".")[:-1]
                base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


def violations(room: str, module: str, source: str, is_package: bool = False) -> list[str]:
    """What a file of `room` imports although the design forbids it, as `module:line imports name: reason`."""
    found = []
    for line, name in imported(source, module, is_package):
        top, _, rest = name.partition(".")
        target = rest.split(".")[0]
        if top == "sevenfold" and target in MAY_IMPORT:
            if target != room and target not in MAY_IMPORT[room]:
                found.append(f"{module}:{line} imports {name}: {room} may not import {target}")
        elif top == "sevenfold" and target in {"Lake", "open", "SevenfoldError", ""}:
            found.append(f"{module}:{line} imports {name}: the front door is for users, rooms name the room")
        elif top in MAY_IMPORT:
            found.append(f"{module}:{line} imports {name}: rooms are imported as sevenfold.{top}")
        elif top not in ALLOWED.get(room, set()) and any(
            top == family or top.startswith((f"{family}_", f"{family}vision", f"{family}data"))
            for family in FORBIDDEN.get(room, set())
        ):
            found.append(f"{module}:{line} imports {name}: {room} may not import {top}")
    return found


def sources(room: str) -> list[tuple[str, bool, Path]]:
    """(dotted module name, is it a package, path) of every Python file of a room."""
    found = []
    for path in sorted((ROOT / room).rglob("*.py")):
        parts = ["sevenfold", *path.relative_to(ROOT).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        found.append((".".join(parts[:-1] if is_package else parts), is_package, path))
    return found


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_point_down_only(room: str) -> None:
    found = [
        problem
        for module, is_package, path in sources(room)
        for problem in violations(room, module, path.read_text(encoding="utf-8"), is_package)
    ]
    assert not found, "\n" + "\n".join(found)


def test_every_room_is_looked_at() -> None:
    rooms = {p.parent.name for p in ROOT.glob("*/__init__.py")} - {"sevenfold", "tests"}
    assert rooms == set(MAY_IMPORT)
    assert all(sources(room) for room in MAY_IMPORT)


def test_what_all_rooms_share_imports_none_of_them() -> None:
    assert {p.stem for p in (ROOT / "sevenfold").glob("*.py")} == {"__init__", *SHARED}
    for name in SHARED:
        source = (ROOT / "sevenfold" / f"{name}.py").read_text(encoding="utf-8")
        found = [what for _, what in imported(source, f"sevenfold.{name}", False)]
        assert found and not [what for what in found if what.split(".")[0] in {"sevenfold", *MAY_IMPORT}]


def test_the_front_door_imports_rooms_lazily() -> None:
    tree = ast.parse((ROOT / "sevenfold" / "__init__.py").read_text(encoding="utf-8"))
    top_level = "\n".join(ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    assert not [name for _, name in imported(top_level, "sevenfold", True) if name.startswith("sevenfold")]


@pytest.mark.parametrize(
    ("room", "line", "bad"),
    [
        ("storage", "from sevenfold.quality.verdict import Verdict", True),
        ("storage", "from sevenfold.storage.errors import SevenfoldError", False),
        ("storage", "import torch", True),
        ("storage", "import torchvision.transforms", True),
        ("storage", "from torch.utils.data import DataLoader", True),
        ("storage", "def f():\n    import dagster", True),
        ("storage", "if TYPE_CHECKING:\n    from dagster_pipes import open_dagster_pipes", True),
        ("storage", "import pyarrow.dataset", False),
        ("storage", "importlib.import_module('torch')", True),
        ("storage", "__import__('sevenfold.training')", True),
        ("storage", "from ..quality import verdict", True),
        ("storage", "from .. import quality", True),
        ("storage", "from . import errors", False),
        ("storage", "from quality import verdict", True),
        ("storage", "from sevenfold import pipelines", True),
        ("storage", "from sevenfold import Lake", True),
        ("storage", "from sevenfold import __version__", False),
        ("storage", "from sevenfold.intervals import wilson", False),
        ("quality", "from sevenfold.training import plan", True),
        ("quality", "from sevenfold.storage import Lake", False),
        ("quality", "import great_expectations", False),
        ("quality", "import dagster_graphql", True),
        ("training", "from sevenfold.quality.verdict import Verdict", True),
        ("training", "import torch.distributed", False),
        ("training", "import dagster_pipes", False),
        ("training", "import dagster", True),
        ("training", "from dagster import asset", True),
        ("training", "import sevenfold.assets.checks", True),
        ("assets", "from sevenfold.pipelines.policy import decide", True),
        ("assets", "from sevenfold.training import gate", False),
        ("pipelines", "from sevenfold.assets import data", False),
    ],
)
def test_the_rule_itself(room: str, line: str, bad: bool) -> None:
    assert bool(violations(room, f"sevenfold.{room}.example", line)) is bad


def test_relative_imports_inside_a_package_resolve_to_the_room() -> None:
    assert violations("quality", "sevenfold.quality.report", "from ..verdict import x", is_package=True) == []
    assert violations("quality", "sevenfold.quality.report", "from ...training import x", is_package=True)


def test_what_storage_and_quality_load_brings_neither_torch_nor_dagster() -> None:
    """The rule above reads our source; this one sees what comes in through other packages."""
    modules = [module for room in ("storage", "quality") for module, _, _ in sources(room)]
    script = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'dagster', 'dagster_pipes'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
