"""The whole path a person takes in the UI: webserver and daemon up, a folder lands, checks are read over GraphQL."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sevenfold.storage.project import Project, load

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(170)]

TOML = 'lake = "lake"\ndataset = "tiny"\nworkers = 1\n'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "sevenfold.toml").write_text(TOML)
    (tmp_path / "inbox").mkdir()
    made = load(tmp_path / "sevenfold.toml")
    made.create_lake()
    return made


@pytest.fixture
def server(project: Project) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """`sevenfold ui` in a session of its own, with SIGINT ignored as behind `nohup ... &`."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with open(project.folder / "ui.log", "wb") as log:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("sevenfold"), "ui", "--port", str(port)],
            cwd=project.folder,
            env={k: v for k, v in os.environ.items() if k != "SEVENFOLD_LAKE"},
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
    try:
        yield f"http://127.0.0.1:{port}/graphql", process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)


def ask(url: str, query: str, variables: dict[str, Any] | None = None) -> dict[str, Any]:
    body = json.dumps({"query": query, "variables": variables or {}}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        result = json.load(answer)
    assert "errors" not in result, result
    return result["data"]


def until(what: str, seconds: float, look: Any) -> Any:
    """Poll `look` until it gives something; fail naming `what`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            found = look()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            found = None
        if found:
            return found
        time.sleep(0.5)
    pytest.fail(f"no {what} within {seconds:.0f} s")


def land(folder: Path) -> None:
    """40 noise images in two classes and one file that is no image."""
    hidden = folder.parent / f".{folder.name}"
    for i in range(40):
        path = hidden / "train" / ("cat" if i % 2 else "dog") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.Generator(np.random.PCG64(i)).integers(0, 256, (16, 16), np.uint8)
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "PNG")
        path.write_bytes(out.getvalue())
    (hidden / "train" / "cat" / "broken.png").write_bytes(b"<html>404</html>")
    hidden.rename(folder)


LOCATIONS = """
{ workspaceOrError { ... on Workspace { locationEntries {
    name
    locationOrLoadError { __typename ... on PythonError { message } }
} } } }"""
LAUNCH = """
mutation($selector: JobOrPipelineSelector!, $tags: [ExecutionTag!]) {
  launchRun(executionParams: {selector: $selector, mode: "default", executionMetadata: {tags: $tags}}) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } }
  }
}"""
EVALUATIONS = """
{ assetNodes { assetKey { path } assetChecksOrError { ... on AssetChecks { checks {
    name
    executionForLatestMaterialization { status evaluation { success severity description } }
} } } } }"""


def test_a_folder_lands_and_its_checks_can_be_read(
    project: Project, server: tuple[str, subprocess.Popen[bytes]]
) -> None:
    url, process = server

    def location() -> dict[str, Any] | None:
        entries = ask(url, LOCATIONS)["workspaceOrError"]["locationEntries"]
        return entries[0] if entries and entries[0]["locationOrLoadError"] else None

    entry = until("code location", 90, location)
    assert entry["locationOrLoadError"]["__typename"] == "RepositoryLocation", entry

    land(project.path("inbox") / "first")
    name = entry["name"]
    added = ask(
        url,
        "mutation($r: RepositorySelector!) { addDynamicPartition(partitionsDefName: \"batches\", partitionKey: "
        "\"first\", repositorySelector: $r) { __typename } }",
        {"r": {"repositoryName": "__repository__", "repositoryLocationName": name}},
    )  # fmt: skip
    assert added["addDynamicPartition"]["__typename"] in (
        "AddDynamicPartitionSuccess",
        "DuplicateDynamicPartitionError",
    )
    selector = {"repositoryName": "__repository__", "repositoryLocationName": name, "jobName": "land"}
    tags = [{"key": "dagster/partition", "value": "first"}]
    launched = ask(url, LAUNCH, {"selector": selector, "tags": tags})["launchRun"]
    assert launched["__typename"] == "LaunchRunSuccess", launched
    run = launched["run"]["runId"]

    def ended() -> str | None:
        status = ask(url, "query($i: ID!) { runOrError(runId: $i) { ... on Run { status } } }", {"i": run})
        return status["runOrError"]["status"] if status["runOrError"]["status"] in ("SUCCESS", "FAILURE") else None

    # 1 of 41 inputs is no image: 2.4 % rejects, over the default limit of 1 %, so validity blocks and shards is skipped
    assert until("end of the run", 90, ended) == "FAILURE"
    nodes = ask(url, EVALUATIONS)["assetNodes"]
    landing = next(n for n in nodes if n["assetKey"]["path"] == ["landing"])
    checks = {c["name"]: c["executionForLatestMaterialization"] for c in landing["assetChecksOrError"]["checks"]}
    assert checks["validity"]["evaluation"]["success"] is False
    assert checks["validity"]["evaluation"]["severity"] == "ERROR"
    assert "quarantine" in checks["validity"]["evaluation"]["description"]
    assert checks["volatility"]["evaluation"]["success"] is True  # nothing to compare with is no failure

    batch = project.open_lake().batch("tiny", "first")
    assert (batch.status, batch.counts["quarantined"], batch.packed) == ("rejected", 1, None)

    assert alive(project)
    process.terminate()  # what a service manager sends; the launcher ends the others
    process.wait(60)
    until("end of every process", 30, lambda: not alive(project))


def alive(project: Project) -> list[int]:
    """Processes, of any group, that were started for this project: their environment names its Dagster home."""
    mark = f"DAGSTER_HOME={project.home / 'dagster'}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment, state = (entry / "environ").read_bytes(), (entry / "stat").read_text().rsplit(")", 1)[1]
        except OSError:  # it ended meanwhile, or is another user's
            continue
        if mark in environment.split(b"\0") and state.split()[0] != "Z":
            found.append(int(entry.name))
    return found
