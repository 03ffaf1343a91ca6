"""`sevenfold ui`: Dagster's webserver and daemon on 127.0.0.1, for the project of the current folder."""

from __future__ import annotations

import os
import signal
import sys

from sevenfold.pipelines.home import environment
from sevenfold.storage.project import Project

HOST = "127.0.0.1"


def command(port: int) -> list[str]:
    """The argument list that starts webserver, daemon and code server together."""
    module = "sevenfold.pipelines.definitions"
    return [sys.executable, "-m", "dagster", "dev", "--host", HOST, "--port", str(port), "-m", module]


def run(project: Project, port: int = 3000) -> None:
    """Become that process (Ctrl-C ends it and all that it started); returns only by raising OSError."""
    project.create_lake()
    os.chdir(project.folder)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored after `nohup ... &`, and the launcher ends its parts by it
    args = command(port)
    os.execve(args[0], args, environment(project))
