"""The round of Dagster's assets on a lake in a bucket: land, commit, train, score, mine, gate, report."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from cli_project import pictures

from sevenfold.pipelines import home
from sevenfold.pipelines.definitions import build
from sevenfold.storage.project import load
from sevenfold.training import aliases, registry

QUICK = "[train]\nepochs = 2\nbatch_size = 24\nwidths = [8]\nthreads = 1\nlr = 0.1\nprecision = 'fp32'\n"
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@pytest.mark.slow
@pytest.mark.e2e
def test_a_round_of_the_assets_on_a_bucket(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "sevenfold.toml").write_text(f'lake = "{bucket}"\ndataset = "colours"\nworkers = 1\n{QUICK}')
    pictures(tmp_path / "inbox" / "june", {"train": 24, "val": 6, "test": 40, "pool": 10})
    project = load(tmp_path / "sevenfold.toml")
    lake = project.create_lake()
    instance = dg.DagsterInstance.from_config(str(home.prepare(project)))
    instance.add_dynamic_partitions("batches", ["june"])
    definitions = build(project)
    landed = definitions.resolve_job_def("land").execute_in_process(
        instance=instance, partition_key="june", run_config=QUIET
    )
    assert landed.success
    turned = definitions.resolve_job_def("round").execute_in_process(instance=instance, run_config=QUIET)
    assert turned.success
    made = {e.asset_key.to_user_string() for e in turned.get_asset_materialization_events() if e.asset_key}
    assert {"model", "predictions", "champion", "queues", "report"} <= made
    assert [m.ref for m in registry.models(lake, project.model)] == ["classifier/1"]
    assert [(a.alias, a.number) for a in aliases.aliases(lake, project.model)] == [("champion", 1)]
    assert lake.queues("colours")
