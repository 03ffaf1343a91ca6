"""The code location loads, sensors ask for the right runs, and a landing job stops where the checks say so."""

from __future__ import annotations

import io
import os
from pathlib import Path

import dagster as dg
import numpy as np
import pytest
from PIL import Image

from sevenfold.pipelines import home, sensors
from sevenfold.pipelines.definitions import build
from sevenfold.storage.project import Project, load

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "sevenfold.toml").write_text('lake = "lake"\ndataset = "tiny"\nworkers = 1\n')
    (tmp_path / "inbox").mkdir()
    made = load(tmp_path / "sevenfold.toml")
    made.create_lake()
    return made


@pytest.fixture
def instance(project: Project) -> dg.DagsterInstance:
    return dg.DagsterInstance.from_config(str(home.prepare(project)))


def landing(project: Project, batch: str, *, broken: int = 0, start: int = 0) -> None:
    """60 noise images in two classes; `broken` more files are no images. Old enough to count as settled."""
    for i in range(start, start + 60):
        path = project.path("inbox") / batch / "train" / ("cat" if i % 2 else "dog") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        out = io.BytesIO()
        Image.fromarray(np.random.Generator(np.random.PCG64(i)).integers(0, 256, (16, 16), np.uint8)).save(out, "PNG")
        path.write_bytes(out.getvalue())
    for i in range(broken):
        (project.path("inbox") / batch / "train" / "cat" / f"broken-{i}.png").write_bytes(b"<html>")
    for path in (project.path("inbox") / batch, *(project.path("inbox") / batch).rglob("*")):
        os.utime(path, (1_000_000_000, 1_000_000_000))


def land(project: Project, instance: dg.DagsterInstance, batch: str) -> dg.ExecuteInProcessResult:
    instance.add_dynamic_partitions("batches", [batch])
    job = build(project).resolve_job_def("land")
    return job.execute_in_process(instance=instance, partition_key=batch, run_config=QUIET, raise_on_error=False)


def test_definitions_are_loadable(project: Project) -> None:
    dg.Definitions.validate_loadable(build(project))


def test_every_asset_belongs_to_a_job_and_none_to_an_automation(project: Project) -> None:
    definitions = build(project)
    graph = definitions.resolve_asset_graph()
    owned = {
        key
        for job in definitions.resolve_all_job_defs()
        if job.name != "__ASSET_JOB"
        for key in job.asset_layer.selected_asset_keys
    }
    assert owned == set(graph.get_all_asset_keys())
    assert all(graph.get(key).automation_condition is None for key in owned)


def test_a_new_settled_entry_is_landed_once(project: Project, instance: dg.DagsterInstance) -> None:
    landing(project, "first")
    (project.path("inbox") / ".copying").mkdir()
    fresh = project.path("inbox") / "fresh"
    fresh.mkdir()
    (fresh / "a.png").write_bytes(b"still being written")

    def tick() -> dg.SensorResult | dg.SkipReason:
        context = dg.build_sensor_context(instance=instance, resources={"project": project})
        return sensors.landing_sensor(context)  # type: ignore[return-value]

    result = tick()
    assert isinstance(result, dg.SensorResult)
    assert [(r.run_key, r.partition_key) for r in result.run_requests or ()] == [("land-first", "first")]
    instance.add_dynamic_partitions("batches", ["first"])
    assert isinstance(tick(), dg.SkipReason)


def test_an_admitted_batch_is_sharded(project: Project, instance: dg.DagsterInstance) -> None:
    landing(project, "good")
    result = land(project, instance, "good")
    assert result.success
    batch = project.open_lake().batch("tiny", "good")
    assert batch.status == "admitted"
    assert batch.packed is not None and batch.packed["samples"] == 60
    assert {e.check_name for e in result.get_asset_check_evaluations()} == {
        "validity", "variety", "veracity", "volume", "volatility", "velocity",
    }  # fmt: skip


def test_a_failed_blocking_check_stops_the_shards(project: Project, instance: dg.DagsterInstance) -> None:
    landing(project, "bad", broken=5)
    result = land(project, instance, "bad")
    assert not result.success
    batch = project.open_lake().batch("tiny", "bad")
    assert (batch.status, batch.packed) == ("rejected", None)
    validity = next(e for e in result.get_asset_check_evaluations() if e.check_name == "validity")
    assert (validity.passed, validity.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert not list((project.path("lake") / "shards").rglob("*.tar"))


def test_landing_the_same_entry_again_adopts_the_batch(project: Project, instance: dg.DagsterInstance) -> None:
    landing(project, "good")
    assert land(project, instance, "good").success
    before = project.open_lake().batch("tiny", "good")
    again = land(project, instance, "good")
    assert again.success
    after = project.open_lake().batch("tiny", "good")
    assert (after.digest, after.packed) == (before.digest, before.packed)


def test_retrain_waits_for_a_champion(project: Project, instance: dg.DagsterInstance) -> None:
    context = dg.build_sensor_context(instance=instance, resources={"project": project})
    result = sensors.retrain_sensor(context)
    assert isinstance(result, dg.SkipReason)
    assert "nothing to retrain yet" in (result.skip_message or "")


def test_versions_of_the_command_line_are_observed_once(project: Project, instance: dg.DagsterInstance) -> None:
    landing(project, "good")
    lake = project.open_lake()
    lake.ingest(project.path("inbox") / "good", "tiny", "good")
    lake.set_status("tiny", "good", "admitted")
    lake.commit("tiny", message="by hand", provenance={"by": "sevenfold commit"})

    first = sensors.versions_sensor(dg.build_sensor_context(instance=instance, resources={"project": project}))
    assert isinstance(first, dg.SensorResult)
    assert [e.metadata["version"].value for e in first.asset_events] == ["v1"]
    second = sensors.versions_sensor(
        dg.build_sensor_context(instance=instance, resources={"project": project}, cursor=first.cursor)
    )
    assert isinstance(second, dg.SensorResult)
    assert not second.asset_events
