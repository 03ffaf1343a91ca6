"""What the checks are given: vectors by one encoder for all that is compared, dynamics under the label of today."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from PIL import Image

from sevenfold.assets import embedding
from sevenfold.quality.context import Context
from sevenfold.quality.policy import Policy
from sevenfold.quality.value import CHECKS
from sevenfold.storage import Lake, embeddings
from sevenfold.storage.project import Project
from sevenfold.training.config import parse
from sevenfold.training.place import Place
from sevenfold.training.trainer import train

SETTINGS = {"epochs": 2, "batch_size": 16, "lr": 0.1, "widths": [4, 8], "threads": 1}


def images(folder: Path, counts: dict[str, int], seed: int) -> Path:
    rng = np.random.default_rng(seed)
    for split, count in counts.items():
        for c in range(3):
            place = folder / split / f"class{c}"
            place.mkdir(parents=True, exist_ok=True)
            for i in range(count):
                pixels = rng.integers(0, 120, (12, 12, 3), dtype=np.uint8)
                pixels[..., c] += 60
                Image.fromarray(pixels).save(place / f"{seed}-{i}.png")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with v1 of the dataset pets: 120 train, 60 val."""
    lake = Lake.create(tmp_path / "lake")
    add(lake, images(tmp_path / "first", {"train": 40, "val": 20}, 0), "b1")
    return Project(folder=tmp_path, lake="lake", dataset="pets", train=dict(SETTINGS))


def add(lake: Lake, source: Path, batch: str) -> None:
    lake.ingest(source, "pets", batch)
    lake.set_status("pets", batch, "admitted")
    lake.commit("pets", message=batch)


def test_own_is_one_network_for_all_versions(project: Project, tmp_path: Path) -> None:
    """Trained where none is there; the next version is embedded by the same one, though a newer run exists."""
    lake = project.open_lake()
    first = embedding.embed(lake, project)
    assert first["trained"] == first["encoder"] and first["computed"] == 180
    add(lake, images(tmp_path / "second", {"train": 10}, 1), "b2")
    train(lake.store.url, parse({**SETTINGS, "dataset": "pets"}), Place())
    second = embedding.embed(lake, project)
    assert (second["trained"], second["encoder"], second["computed"]) == (None, first["encoder"], 30)
    assert second["producer"] == first["producer"]
    old, new = lake.samples("pets", "v1"), lake.samples("pets", "v2")
    before, now, none = embedding.vectors_of(lake, old["id"], new["id"], pa.chunked_array([["0" * 64]]))
    assert before.producer == now.producer and (len(before.ids), len(now.ids), none) == (180, 210, None)
    assert embedding.vectors_of(Lake.create(tmp_path / "other"), old["id"]) == (None,)


def test_the_newest_run_on_the_version_is_own_and_no_fold_model(project: Project) -> None:
    lake = project.open_lake()
    content = lake.version("pets").content_id
    assert embedding.own_run(lake, "pets", content) is None
    config = parse({**SETTINGS, "dataset": "pets", "epochs": 1})
    (fold,) = train(lake.store.url, config.changed(hold_out={"fold": 0, "of": 2}), Place())
    assert embedding.own_run(lake, "pets", content) is None
    (whole,) = train(lake.store.url, config, Place())
    assert embedding.own_run(lake, "pets", content) == whole["run_id"] != fold["run_id"]


def test_dynamics_are_of_the_label_of_today(project: Project) -> None:
    lake = project.open_lake()
    assert embedding.dynamics_of(lake, lake.samples("pets")) is None
    train(lake.store.url, parse({**SETTINGS, "dataset": "pets", "seeds": [0, 1]}), Place())
    samples = lake.samples("pets")
    trained = samples.filter(pc.equal(samples["split"], "train"))
    found = embedding.dynamics_of(lake, samples)
    assert found is not None and found.column_names == ["id", *embedding.DYNAMICS]
    assert sorted(found["id"].to_pylist()) == sorted(trained["id"].to_pylist())
    aum = lake.signal("aum")
    place = pc.index_in(found["id"], value_set=aum["id"].combine_chunks())
    assert found["aum"].equals(aum["value"].take(place))
    gone = trained["id"][0].as_py()
    other = "class1" if trained["label"][0].as_py() != "class1" else "class2"
    lake.commit("pets", message="relabelled", overlays=[pa.table({"id": [gone], "label": [other]})])
    assert gone not in embedding.dynamics_of(lake, lake.samples("pets"))["id"].to_pylist()  # type: ignore[index]


def test_the_checks_of_value_answer_from_the_lake(project: Project) -> None:
    """Train, embed, judge: nothing else is needed."""
    lake = project.open_lake()
    train(lake.store.url, parse({**SETTINGS, "dataset": "pets"}), Place())
    assert embedding.embed(lake, project)["trained"] is None
    samples = lake.samples("pets")
    (vectors,) = embedding.vectors_of(lake, samples["id"])
    assert isinstance(vectors, embeddings.Embeddings)
    policy = {"min_train": 100, "min_points": 50}
    context = Context(
        "v1", "version", samples, lake.properties("pets"), now=0.0, dynamics=embedding.dynamics_of(lake, samples),
        embeddings=vectors, policy=Policy.model_validate({"value": policy}),
    )  # fmt: skip
    found = {c.name: c.run(context) for c in CHECKS}
    assert found["sample_value"].n == found["dynamics"].n == 120
    assert found["sample_value"].result == found["dynamics"].result == "pass"
