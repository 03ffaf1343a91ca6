"""Dagster's home: `.sevenfold/dagster` beside sevenfold.toml, telemetry and first-run notices off."""

from __future__ import annotations

import os
from pathlib import Path

from sevenfold.storage import files
from sevenfold.storage.project import FILE, Project, find, load

_CONFIG = """\
# Written by Sevenfold. Runs start in processes of their own; a run whose process died is marked failed.
telemetry:
  enabled: false
nux:
  enabled: false
run_monitoring:
  enabled: true
  free_slots_after_run_end_seconds: 60
run_retries:
  enabled: true
  max_retries: 0
  retry_on_asset_or_op_failure: false
concurrency:
  runs:
    max_concurrent_runs: 1
"""

VARIABLE = "SEVENFOLD_PROJECT"
"""Names the project folder to processes that Dagster starts."""


def prepare(project: Project) -> Path:
    """Make the home if it is missing and return it; an edited dagster.yaml is left as it is."""
    home = project.home / "dagster"
    files.create(home / "dagster.yaml", _CONFIG.encode())
    return home


def environment(project: Project) -> dict[str, str]:
    """The variables with which Dagster's own processes find the home and the project."""
    return {
        **os.environ,
        "DAGSTER_HOME": str(prepare(project)),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        VARIABLE: str(project.folder),
        **({"SEVENFOLD_LAKE": project.lake_url} if project.lake == project.lake_url else {}),
    }


def current() -> Project:
    """The project of this process: SEVENFOLD_PROJECT, else the current folder's; without one, an empty project."""
    named = os.environ.get(VARIABLE)
    if named:
        folder = Path(named)
        return find(folder) if os.environ.get("SEVENFOLD_LAKE") else load(folder / FILE)
    from sevenfold.storage.errors import SevenfoldError

    try:
        return find()
    except SevenfoldError:
        return Project(folder=Path.cwd())
