"""All checks together: what a batch and a version are told, with everything there, almost nothing, or a crash."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from sevenfold.quality import Check, Context, Curve, Gain, Policy, blocks, built_in, judge
from sevenfold.quality.context import Embeddings
from sevenfold.quality.verdict import VS, Verdict
from sevenfold.storage.errors import SevenfoldError

NOW = 1_700_000_000.0


def assert_well_formed(verdicts: list[Verdict], kept: int = 200_000) -> None:
    """What a reader may count on, whatever the check: a remedy, a named statistic, known limits, small data."""
    unhelpful = [f"{v.v}.{v.check}: {v.message}" for v in verdicts if v.result in ("warn", "fail") and not v.remedy]
    assert not unhelpful
    known = {key for v in VS for key in type(getattr(Policy(), v)).model_fields} | {"min_gain"}  # a gain is above 0
    for v in verdicts:
        name = f"{v.v}.{v.check} ({v.result})"
        assert v.message, name
        assert v.statistic is None or v.statistic_name, name
        assert not set(v.thresholds) - known, f"{name}: {set(v.thresholds) - known} are no keys of the policy"
        assert len(json.dumps(v.data)) < kept, name


def results(verdicts: list) -> dict[str, str]:
    return {f"{v.v}.{v.check}": v.result for v in verdicts}


@pytest.fixture
def batch(rows, properties, quarantine, record, classes):
    """A batch as a context; `bad` is its quarantine, `shift` brightens it."""

    def make(n: int = 300, *, bad=None, shift: float = 0.0, prefix: str = "s", **fields) -> Context:
        table, bad = rows(n, prefix=prefix), quarantine() if bad is None else bad
        known = {"classes": classes, "quarantine": bad, "record": record(table, bad)} | fields
        return Context("b1", "batch", table, properties(table, seed=1, shift=shift), NOW, **known)

    return make


def version(rows, properties, classes, **fields) -> Context:
    return Context("v1", "version", rows, properties(rows), NOW, **({"classes": classes} | fields))


def test_a_good_first_batch_is_admitted_and_drift_is_not_measurable(batch) -> None:
    verdicts = judge(batch())
    found = results(verdicts)
    assert not blocks(verdicts)
    assert {"volatility.property_drift", "volatility.label_shift"} <= {k for k, r in found.items() if r != "pass"}
    assert not [k for k, r in found.items() if r not in ("pass", "not_measurable")]
    assert {v.v for v in verdicts} >= {"validity", "variety", "veracity", "volatility", "velocity"}
    assert all(v.subject == "b1" for v in verdicts)


def test_a_drifted_batch_is_admitted_and_a_broken_one_is_not(batch, rows, properties, quarantine, classes) -> None:
    reference = version(rows(500), properties, classes)
    verdicts = judge(batch(200, shift=3, prefix="new", reference=reference))
    assert results(verdicts)["volatility.property_drift"] == "fail" and not blocks(verdicts)

    worse = batch(200, bad=quarantine(truncated=30), prefix="new", reference=reference)
    assert blocks(judge(worse))
    raised = Policy.model_validate({"validity": {"max_rejected_share": 0.2}})
    assert not blocks(judge(replace(worse, policy=raised)))


def test_progress_is_told_and_ends(batch) -> None:
    told: list = []
    judge(batch(60), progress=lambda d, t, w: told.append((d, t, w)))
    assert told[0][2].startswith("check 1 of ") and told[-1] == (0, 0, "checks done")
    assert not any(total for _, total, _ in told), "checks take so differently long that a time left would be a lie"


def test_a_check_that_raises_is_told_as_crashed_and_the_others_go_on(batch) -> None:
    def broken(context: Context):
        raise KeyError("no such column")

    checks = [Check("variety", "mine", broken), *built_in()]
    found = {f"{v.v}.{v.check}": v for v in judge(batch(), checks=checks)}
    assert found["variety.mine"].result == "crashed"
    assert "KeyError" in found["variety.mine"].message and "test_checks.py" in found["variety.mine"].message
    assert found["validity.invalid_share"].result == "pass"


def test_what_the_user_has_to_mend_is_raised(batch, tmp_path) -> None:
    with pytest.raises(SevenfoldError, match="there is no such file"):
        judge(batch(suite_path=tmp_path / "nowhere.json"))


def test_a_version_without_a_model_says_what_it_lacks(rows, properties, classes) -> None:
    verdicts = judge(version(rows(), properties, classes))
    found = results(verdicts)
    assert_well_formed(verdicts)
    assert {v.v for v in verdicts} == set(VS)
    lacking = {"value.selection_gain", "volume.learning_curve", "volatility.output_drift", "veracity.label_errors"}
    assert all(found[k] == "not_measurable" for k in lacking | {"velocity.loader_idle", "volatility.property_drift"})
    assert "fail" not in [r for k, r in found.items() if k != "volume.testable_slices"]


def test_a_version_with_everything_is_judged_by_every_v(rows, properties, classes) -> None:
    rng = np.random.default_rng(0)
    old, table = rows(900), pa.concat_tables([rows(900), rows(300, prefix="new")])
    n = table.num_rows
    probs = np.full((n, 3), 0.02)
    probs[np.arange(n), np.arange(n) % 3] = 0.96  # 900 and 300 are multiples of 3, so the labels repeat too
    probs += rng.random((n, 3)) * 0.01
    predictions = pa.table(
        {
            "id": table["id"],
            "label": table["label"],
            "probs": pa.array(list(probs), pa.list_(pa.float64())),
            "in_sample": [False] * n,
        }
    )
    steps = pa.table({"data": rng.random(100) * 0.01, "total": 0.1 + rng.random(100) * 0.01})
    sizes = [s for s in (100, 200, 400, 800, 1600) for _ in range(2)]
    context = version(
        table,
        properties,
        classes,
        policy=Policy.model_validate({"volume": {"max_half_width": 0.2}, "variety": {"min_slice": 10}}),
        predictions=predictions,
        annotations=pa.table(
            {
                "id": [i for i in table["id"].to_pylist() for _ in range(3)],
                "annotator": ["ann", "bob", "cleo"] * table.num_rows,
                "label": [v for v in table["label"].to_pylist() for _ in range(3)],
            }
        ),
        steps=steps,
        records=[{"batch": "b1", "status": "committed", "times": {"landed": NOW, "newest_input": NOW - 60}}],
        reference=version(old, properties, classes, predictions=predictions.slice(0, 900)),
        read_pixels=lambda ids: np.stack([np.full((4, 4), int(i[:2], 16), np.uint8) for i in ids]),
        gain=Gain([0.82, 0.83], [0.80, 0.81], "random control"),
        curve=Curve(sizes, [s**-0.4 + 0.05 for s in sizes]),
        embeddings=Embeddings(table["id"].combine_chunks(), np.eye(3, dtype=np.float32)[np.arange(n) % 3], "own-1"),
        dynamics=pa.table({"id": table["id"], **dict.fromkeys(("el2n", "forgetting"), np.zeros(n)),
                           **dict.fromkeys(("aum", "learned"), np.ones(n))}),
    )  # fmt: skip
    verdicts = judge(context)
    found = results(verdicts)
    assert set(found.values()) <= {"pass", "not_measurable"}, found
    assert_well_formed(verdicts)
    drifted = next(v for v in verdicts if v.check == "property_drift")
    assert drifted.n == 300  # only what is new since the reference is compared with it


def test_verdicts_stay_small_with_many_classes_and_columns() -> None:
    """Many rare classes and a hundred columns that drifted."""
    rng = np.random.default_rng(0)

    def side(prefix: str, n: int, shift: float) -> Context:
        labels = [f"a-class-with-a-rather-long-name-{i:04d}" for i in rng.integers(0, 1000, n)]
        ids = [f"{prefix}{i:060d}" for i in range(n)]
        columns = {f"column {i}": rng.normal(shift, 1, n) for i in range(100)}
        texts = {f"text {i}": [f"word{j}" for j in rng.integers(0, 500, n)] for i in range(3)}
        rows = pa.table({"id": ids, "path": ids, "label": labels, "split": ["train", "test"] * (n // 2),
                         "pixel_digest": ids, "phash": rng.integers(0, 2**62, n), "mode": ["L"] * n,
                         "width": [8] * n, "height": [8] * n})  # fmt: skip
        names = ("brightness", "contrast", "sharpness", "entropy", "saturation", "aspect")
        light = pa.table({"id": ids, **{k: rng.normal(shift, 1, n) for k in names}})
        return Context("v2", "version", rows, light, NOW, metadata=pa.table({"id": ids, **columns, **texts}))

    context = replace(side("now", 2000, 1.0), reference=replace(side("old", 2000, 0.0), subject="v1"))
    verdicts = judge(context)
    assert not [v.message for v in verdicts if v.result == "crashed"]
    assert {"fail", "warn"} & {v.result for v in verdicts}
    assert_well_formed(verdicts)


def test_the_room_imports_quickly_and_neither_torch_nor_dagster() -> None:
    code = (
        "import sys, sevenfold.quality as q\n"
        "assert set(q.__all__) == set(q._HOMES) and all(getattr(q, n) is not None for n in q.__all__)\n"
        "q.built_in()\n"
        "heavy = {'torch', 'dagster', 'great_expectations', 'matplotlib', 'scipy', 'sklearn', 'duckdb', 'pandas'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert not [m for m in sys.modules if m.startswith('sevenfold.training')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
