"""The code location loads, sensors ask for the right runs, and a landing job stops where the checks say so."""

from __future__ import annotations

import io
import os
from pathlib import Path

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from PIL import Image
from safetensors.numpy import save

from sevenfold.assets.inbox import entries, unusable
from sevenfold.pipelines import home, schedules, sensors
from sevenfold.pipelines.definitions import build
from sevenfold.storage.project import Project, load
from sevenfold.training import aliases, registry

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


def landing(
    project: Project, batch: str, *, broken: int = 0, start: int = 0, scale: float = 1.0, split: str = "train"
) -> None:
    """60 noise images in two classes; `broken` more files are no images. Old enough to count as settled."""
    for i in range(start, start + 60):
        path = project.path("inbox") / batch / split / ("cat" if i % 2 else "dog") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        out = io.BytesIO()
        noise = np.random.Generator(np.random.PCG64(i)).integers(0, 256, (16, 16), np.uint8)
        Image.fromarray((noise * scale).astype(np.uint8)).save(out, "PNG")
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


def test_inbox_names_that_cannot_be_batches_are_left_alone_and_clashes_keep_their_suffix(project: Project) -> None:
    inbox = project.path("inbox")
    for name in ("my photos", "photos", "plain"):
        (inbox / name).mkdir()
    for name in ("photos.csv", "other.zip"):
        (inbox / name).touch()
    assert set(entries(project)) == {"photos", "photos.csv", "plain", "other"}
    assert unusable(project) == ["my photos"]


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


def test_drift_asks_for_a_survey_first_and_for_a_retrain_once_people_have_labelled(
    project: Project, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    landing(project, "first")
    assert land(project, instance, "first").success
    lake = project.open_lake()
    version, _ = lake.commit("tiny", message="first")
    (tmp_path / "weights").write_bytes(save({"w": np.zeros(2, np.float32)}))
    model = registry.register(
        lake, project.model, run_id="run-1", weights=tmp_path / "weights", dataset="tiny", version=version.name,
        content_id=version.content_id, classes=("cat", "dog"), config={},
    )  # fmt: skip
    aliases.set_alias(lake, project.model, "champion", model.number, expected=None)

    def tick() -> dg.RunRequest | dg.SkipReason:
        context = dg.build_sensor_context(instance=instance, resources={"project": project})
        return sensors.retrain_sensor(context)  # type: ignore[return-value]

    landing(project, "dark-1", start=100, scale=0.2, split="pool")
    assert land(project, instance, "dark-1").success
    assert isinstance(tick(), dg.SkipReason)  # one drifted window is not two
    landing(project, "dark-2", start=200, scale=0.2, split="pool")
    assert land(project, instance, "dark-2").success
    asked = tick()
    assert isinstance(asked, dg.RunRequest)
    assert (asked.job_name, asked.run_key) == ("survey", "survey-retrain-v2-1")

    second, _ = lake.commit("tiny", message="second")
    pooled = lake.samples("tiny").filter(pc.field("split") == "pool")["id"].to_pylist()[:5]
    decided = pa.table({"id": pooled, "label": ["cat"] * 5, "split": ["train"] * 5})
    lake.add_review("tiny", "people", decided, reviewer="ada")
    asked = tick()
    assert isinstance(asked, dg.RunRequest)
    assert (asked.job_name, asked.run_key, second.name) == ("round", "retrain-v2-1", "v2")
    run_config = build(project).resolve_job_def("round")
    assert dg.validate_run_config(run_config, asked.run_config)


def test_the_nightly_check_waits_for_a_version(project: Project, instance: dg.DagsterInstance) -> None:
    def tick() -> object:
        context = dg.build_schedule_context(instance=instance, resources={"project": project})
        return schedules.nightly_check(context)

    assert isinstance(tick(), dg.SkipReason)
    landing(project, "first")
    assert land(project, instance, "first").success
    project.open_lake().commit("tiny", message="first")
    assert isinstance(tick(), dg.RunRequest)


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


def test_a_link_to_nothing_in_the_inbox_stops_no_landing(project: Project, instance: dg.DagsterInstance) -> None:
    landing(project, "good")
    landing(project, "linked")
    (project.path("inbox") / "linked" / "gone.png").symlink_to(project.folder / "nowhere")
    context = dg.build_sensor_context(instance=instance, resources={"project": project})
    result = sensors.landing_sensor(context)
    assert [r.partition_key for r in result.run_requests] == ["good"]  # the link is new: not settled yet
