import hashlib

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from sevenfold.quality import slices
from sevenfold.quality.policy import Policy, Variety, load_policy
from sevenfold.quality.repeats import hex_prefix, repeated
from sevenfold.storage.errors import SevenfoldError


def test_a_small_slice_warns_and_fails_where_it_is_required(rows, classes) -> None:
    table = rows(60, split=["train"] * 30 + ["test"] * 30)
    v = slices.smallest_slice(table, subject="v1", policy=Variety(min_slice=12), classes=classes)
    assert (v.result, v.statistic, len(v.findings)) == ("warn", 10.0, 6)
    v = slices.smallest_slice(table, subject="v1", policy=Variety(min_slice=12, required_splits=("test",)))
    assert v.result == "fail" and v.findings[0] == "slice:test/boot" and "required" in v.notes[0]
    assert slices.smallest_slice(table, subject="v1", policy=Variety(min_slice=10)).result == "pass"
    assert slices.smallest_slice(rows(9, label=[None] * 9), subject="v1", policy=Variety()).result == "not_measurable"


def test_a_required_split_without_samples_fails_with_and_without_classes(rows) -> None:
    policy = Variety(min_slice=1, required_splits=("val",))
    table = rows(60, split=["train"] * 30 + ["test"] * 30)
    missing = slices.smallest_slice(table, subject="v1", policy=policy)
    assert (missing.result, missing.statistic) == ("fail", 0.0) and "slice:val/boot" in missing.findings
    unlabelled = slices.smallest_slice(rows(9, label=[None] * 9), subject="v1", policy=policy)
    assert (unlabelled.result, unlabelled.findings) == ("fail", ("slice:val/",))


def test_a_single_required_slice_fails_alone(rows, classes) -> None:
    table = rows(60, split=["train"] * 30 + ["test"] * 30)
    policy = Variety(min_slice=12, required_slices=("test/coat", "test/hat"))
    v = slices.smallest_slice(table, subject="v1", policy=policy, classes=classes)
    assert v.result == "fail" and v.findings[:2] == ("slice:test/hat", "slice:test/coat")


def test_a_split_that_does_not_exist_is_refused_when_the_policy_is_read(tmp_path) -> None:
    for wrong in ({"required_splits": ("tset",)}, {"required_slices": ("tset/coat",)}, {"required_slices": ("test",)}):
        with pytest.raises(ValidationError):
            Variety(**wrong)
    path = tmp_path / "policy.yaml"
    path.write_text("variety: {required_splits: [tset]}\n")
    with pytest.raises(SevenfoldError, match="did you mean 'test'"):
        load_policy(path)


def metadata(rows, **columns) -> pa.Table:
    return pa.table({"id": rows["id"], **columns})


def test_columns_of_few_values_form_slices(rows) -> None:
    table = rows(120, split=["train"] * 60 + ["test"] * 60)
    weather = ["sun"] * 110 + ["snow"] * 10
    own = metadata(table, weather=weather, camera=[f"c{i}" for i in range(120)], night=[i % 2 == 0 for i in range(120)])
    v = slices.metadata_slices(table, own, subject="v1", policy=Variety(min_slice=20))
    assert v.result == "warn" and v.findings == ("slice:train/weather=snow", "slice:test/weather=snow")
    required = Variety(min_slice=20, required_slices=("test/weather=snow", "test/weather=fog"))
    v = slices.metadata_slices(table, own, subject="v1", policy=required)
    assert v.result == "fail" and v.findings[:2] == ("slice:test/weather=fog", "slice:test/weather=snow")
    named = slices.metadata_slices(table, own, subject="v1", policy=Variety(min_slice=1, slice_columns=("camera",)))
    assert named.result == "warn" and len(named.findings) == 120, "each camera is in one split only"
    assert slices.metadata_slices(table, None, subject="v1", policy=Policy().variety).result == "not_measurable"
    lost = slices.metadata_slices(table, None, subject="v1", policy=Variety(required_slices=("test/weather=fog",)))
    assert lost.result == "fail"


def test_metadata_in_another_order_is_joined_by_id(rows) -> None:
    table = rows(120, split=["train"] * 60 + ["test"] * 60)
    own = metadata(table, weather=["sun"] * 110 + ["snow"] * 10)
    mixed = own.take(pa.array(np.random.default_rng(0).permutation(120)))
    policy = Variety(min_slice=20)
    assert slices.metadata_slices(table, mixed, subject="v1", policy=policy) == slices.metadata_slices(
        table, own, subject="v1", policy=policy
    )


def test_repeats_are_the_same_by_prefix_and_by_whole_text() -> None:
    rng = np.random.default_rng(0)
    digests = [hashlib.sha256(str(i).encode()).hexdigest() for i in rng.integers(0, 300, 1000)]
    expected = [d in digests[:i] for i, d in enumerate(digests)]
    chunks = pa.chunked_array([digests[:400], digests[400:]])
    assert repeated(chunks).tolist() == expected == repeated(pa.chunked_array([[f"x{d}" for d in digests]])).tolist()
    twins = ["0" * 63 + "1", "0" * 63 + "2", "0" * 63 + "1"]  # equal in their first 64 bits
    assert repeated(pa.chunked_array([twins])).tolist() == [False, False, True]
    assert hex_prefix(pa.chunked_array([["0" * 15 + "af" + "0" * 47]])).tolist() == [10]
    assert (
        hex_prefix(pa.chunked_array([["zz" * 32]])) is None and repeated(pa.chunked_array([[]], pa.string())).size == 0
    )
