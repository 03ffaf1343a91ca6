"""The files of a new project: sevenfold.toml, policy.yaml and suite.json, each written only where none is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from sevenfold.storage import files
from sevenfold.storage.names import check_name
from sevenfold.storage.project import FILE
from sevenfold.storage.store import absolute


def write_project(
    folder: Path, *, dataset: str | None = None, lake: str | None = None, classes: Sequence[str] = ()
) -> dict[str, bool]:
    """Write what is absent; returns file name -> whether it was written."""
    from sevenfold.quality.policy import default_policy_yaml
    from sevenfold.quality.suite import default_suite_text

    name = check_name(dataset or "main", "dataset name")
    where = "lake" if lake is None else absolute(lake, Path.cwd())
    texts = {
        FILE: toml(name, where, classes),
        "policy.yaml": default_policy_yaml(),
        "suite.json": default_suite_text(),
    }
    return {file: files.create(folder / file, text.encode()) for file, text in texts.items()}


def toml(dataset: str, lake: str, classes: Sequence[str]) -> str:
    """A commented sevenfold.toml; what is commented out shows the default."""
    listed = ", ".join(_text(c) for c in classes)
    return f"""\
# Sevenfold's settings for this folder. Paths are relative to it; what is commented out shows the default.

lake = {_text(lake)}            # where everything lives
dataset = {_text(dataset)}         # used when --dataset is not given
# inbox = "inbox"        # each new folder, zip or CSV in it becomes a batch (`sevenfold ui`)
# policy = "policy.yaml" # every threshold of the seven Vs
# suite = "suite.json"   # schema, null and range rules (Great Expectations)
# model = "classifier"   # the name under which trained models are registered
# workers = 2            # processes of ingest; the default is the number of cores

# The labels that may occur; others go to quarantine. An empty list takes any.
classes = [{listed}]

[decode]                 # which unusual images `sevenfold ingest` takes; the others go to quarantine
# cmyk = false           # as RGB, without their colour profile
# sixteen_bit = false    # the upper 8 bits of each channel
# animated = false       # the first frame, or page
# alpha = true           # transparency is dropped
# max_pixels = 178956970 # of one image

[train]                  # defaults of `sevenfold train`; every key is also --set key=value (docs/settings.md)
# epochs = 4
# lr = 0.3
# batch_size = 128       # over all ranks
# ranks = 1              # training processes
# seeds = [0]
# window = 8             # whole shards shuffled together; see `sevenfold plan`
# workers = 0            # loader processes per rank; this and the next: see `sevenfold tune-loader`
# loader_threads = 1

[gate]                   # what `sevenfold gate` demands
# max_regression = 0.01  # largest accuracy loss accepted on an old slice
# min_gain = 0.0

[retrain]                # when the retrain sensor of `sevenfold ui` starts a round
# drift_windows = 2      # drifted batches in a row
# new_batches = 5
# cool_down_hours = 24
"""


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
