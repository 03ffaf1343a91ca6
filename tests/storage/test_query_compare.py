"""Versions compared in DuckDB say what a comparison of their samples says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sevenfold.storage import Lake, overlays
from sevenfold.storage.compare import diff_versions, missing_ids
from sevenfold.storage.diff import diff
from sevenfold.storage.index import OVERLAY
from sevenfold.storage.records import Manifest
from sevenfold.storage.rows import samples

EDIT = st.fixed_dictionaries(
    {
        "exclude": st.sampled_from([None, True, False]),
        "label": st.sampled_from([None, "cat", "eel"]),
        "split": st.sampled_from([None, "train", "test"]),
        "weight": st.sampled_from([None, 0.0, 0.5, 1.0]),
    }
)
LAYER = st.dictionaries(st.integers(0, 11), EDIT, min_size=1, max_size=6)
COMPACTED = 3
"""The place of the entry that compaction made of all three batches and an overlay."""
BATCHES = st.one_of(st.lists(st.integers(0, 2), max_size=3, unique=True), st.just([COMPACTED]))
SIDE = st.tuples(BATCHES, st.lists(LAYER, max_size=2))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, make: SimpleNamespace) -> tuple[Lake, Manifest]:
    """A version of three batches of four samples, and a compaction of it with an overlay that changes three."""
    root = tmp_path_factory.mktemp("compare")
    lake = Lake.create(root / "lake", shard_bytes=4096)
    for n in range(3):
        make.land(lake, make.folder(root / f"s{n}", make.two_classes(4, start=4 * n)), f"b{n}")
    whole = lake.manifest(make.commit(lake).content_id)
    ids = lake.samples("d")["id"].to_pylist()
    make.commit(lake, overlays=[make.overlay(ids[:3], exclude=[True, None, None], label="eel", weight=[1.0, 0.5, 2.0])])
    compacted = lake.manifest(lake.compact("d", message="m", clock=lambda: 4.0)[0].content_id)
    return lake, Manifest(compacted.classes, (*whole.batches, *compacted.batches), (), whole.schema)


def part(whole: Manifest, places: list[int], layers: tuple[str, ...] = ()) -> Manifest:
    return Manifest(whole.classes, tuple(whole.batches[n] for n in places), layers, whole.schema)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(before=SIDE, after=SIDE, shared=st.lists(LAYER, max_size=2))
def test_the_diff_of_manifests_is_the_diff_of_their_samples(
    three: tuple[Lake, Manifest], before: Any, after: Any, shared: Any
) -> None:
    lake, whole = three
    ids = samples(lake.store, part(whole, [0, 1, 2]))["id"].to_pylist()

    def version(side: Any) -> Manifest:
        rows = [[{"id": ids[i], **edit} for i, edit in layer.items()] for layer in (*shared, *side[1])]
        digests = [overlays.write_overlay(lake.store, pa.Table.from_pylist(r, schema=OVERLAY)) for r in rows]
        return part(whole, side[0], tuple(digests))

    old, new = version(before), version(after)
    expected = diff(samples(lake.store, old), samples(lake.store, new))
    found = diff_versions(lake.store, old, new)
    assert found["counts"] == expected["counts"]
    assert found["rows"].schema == expected["rows"].schema
    assert sorted(map(str, found["rows"].to_pylist())) == sorted(map(str, expected["rows"].to_pylist()))


def test_the_same_samples_in_other_files_do_not_differ(
    filled: Callable[..., Lake], tmp_path: Path, make: SimpleNamespace
) -> None:
    lake = filled(6)
    other = Lake.create(lake.root, shard_bytes=4096)
    make.land(other, make.folder(tmp_path / "again", make.two_classes(6)), "again", dataset="e")
    make.commit(other, "e")
    pair = [lake.manifest(lake.version(d).content_id) for d in ("d", "e")]
    assert pair[0].batches[0]["index"] != pair[1].batches[0]["index"]
    assert set(diff_versions(lake.store, *pair)["counts"].values()) == {0}


def test_ids_that_a_version_lacks(filled: Callable[..., Lake], make: SimpleNamespace) -> None:
    lake = filled(5)
    ids = lake.samples("d")["id"].to_pylist()
    make.commit(lake, overlays=[make.overlay(ids[:1], exclude=True)])
    manifest = lake.manifest(lake.version("d").content_id)
    assert missing_ids(lake.store, manifest, pa.chunked_array([ids])).to_pylist() == []
    wanted = pa.chunked_array([[ids[0], "f" * 64], ["0" * 64, "f" * 64]])
    assert missing_ids(lake.store, manifest, wanted).to_pylist() == ["0" * 64, "f" * 64]
    nothing = Manifest((), (), (), {})
    assert missing_ids(lake.store, nothing, pa.chunked_array([ids])).to_pylist() == sorted(ids)
