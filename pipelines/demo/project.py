"""The demo's own project folder: its settings, and a policy that says where it departs from the defaults."""

from __future__ import annotations

import re
from pathlib import Path

from sevenfold.pipelines.demo.inputs import CLASSES
from sevenfold.quality.policy import default_policy_yaml
from sevenfold.quality.suite import default_suite_text
from sevenfold.storage import files
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.project import FILE, Project, load

DATASET = "fashion"

_TOML = """\
# The demo's settings. A project of your own: `sevenfold init`.
lake = "lake"
dataset = "{dataset}"
classes = [{classes}]
shard_bytes = 1048576       # small shards, so that a small dataset has enough of them to shuffle

[train]
ranks = 2
epochs = {epochs}
batch_size = 64
lr = 0.3
augment = []

[retrain]
cool_down_hours = 0         # the demo is impatient; the default is a day
"""

_LIMIT = "max_rejected_share: 0.01"


def prepare(folder: Path, images: int) -> Project:
    """Write sevenfold.toml, policy.yaml and suite.json where they are missing and return the project."""
    policy = default_policy_yaml()
    if _LIMIT not in policy:
        raise SevenfoldError("the default policy has another limit on rejects", expected=_LIMIT)
    why = "max_rejected_share: 0.05  # raised from 0.01 for the demo (1.5 % broken on purpose):"
    raised = re.sub(re.escape(_LIMIT) + " *#", why, policy)
    if raised == policy:
        raise SevenfoldError("the default policy does not explain its limit on rejects", expected=f"{_LIMIT}  # ...")
    epochs = 8 if images <= 12_000 else 4
    classes = ", ".join(f'"{c}"' for c in CLASSES)
    files.create(folder / FILE, _TOML.format(dataset=DATASET, classes=classes, epochs=epochs).encode())
    files.create(folder / "policy.yaml", raised.encode())
    files.create(folder / "suite.json", default_suite_text().encode())
    project = load(folder / FILE)
    project.create_lake()
    return project
