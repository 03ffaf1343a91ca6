"""All checks together: what a batch and a version are told, with everything there and with almost nothing."""

import subprocess
import sys

import numpy as np
import pyarrow as pa

from sevenfold.quality import Curve, Gain, Policy, admit, blocks, judge
from sevenfold.quality.verdict import VS

NOW = 1_700_000_000.0


def results(verdicts: list) -> dict[str, str]:
    return {f"{v.v}.{v.check}": v.result for v in verdicts}


def test_a_good_first_batch_is_admitted_and_drift_is_not_measurable(
    rows, properties, quarantine, record, classes
) -> None:
    table, bad = rows(), quarantine()
    verdicts = admit(table, properties(table), bad, record(table, bad), now=NOW, classes=classes)
    found = results(verdicts)
    assert not blocks(verdicts)
    assert {k for k, r in found.items() if r != "pass"} == {"volatility.property_drift", "volatility.label_shift"}
    assert {v.v for v in verdicts} == {"validity", "variety", "veracity", "volatility", "velocity"}
    assert all(v.subject == "b1" for v in verdicts)


def test_a_drifted_batch_is_admitted_and_a_broken_one_is_not(rows, properties, quarantine, record, classes) -> None:
    old = rows(500)
    table, bad = rows(200, prefix="new"), quarantine()
    common = {
        "now": NOW,
        "classes": classes,
        "reference_rows": old,
        "reference_properties": properties(old),
        "reference": "v1",
    }
    verdicts = admit(table, properties(table, seed=1, shift=3), bad, record(table, bad), **common)
    assert results(verdicts)["volatility.property_drift"] == "fail" and not blocks(verdicts)

    worse = quarantine(truncated=30)
    verdicts = admit(table, properties(table, seed=1), worse, record(table, worse), **common)
    assert blocks(verdicts)
    raised = Policy.model_validate({"validity": {"max_rejected_share": 0.2}})
    assert not blocks(admit(table, properties(table), worse, record(table, worse), policy=raised, **common))


def test_progress_is_told_and_ends(rows, properties, quarantine, record) -> None:
    table, bad, told = rows(60), quarantine(), []
    admit(table, properties(table), bad, record(table, bad), now=NOW, progress=lambda d, t, w: told.append((d, t, w)))
    assert told[0][0] == 0 and told[-1][0] == told[-1][1]


def test_a_version_without_a_model_says_what_it_lacks(rows, properties, classes) -> None:
    table = rows()
    verdicts = judge(table, properties(table), subject="v1", now=NOW, classes=classes)
    found = results(verdicts)
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
    verdicts = judge(
        table,
        properties(table),
        subject="v2",
        now=NOW,
        classes=classes,
        policy=Policy.model_validate({"volume": {"max_half_width": 0.2}, "variety": {"min_slice": 10}}),
        predictions=predictions,
        reference_predictions=predictions.slice(0, 900),
        steps=steps,
        records=[{"batch": "b1", "status": "committed", "times": {"landed": NOW, "newest_input": NOW - 60}}],
        reference_samples=old,
        reference_properties=properties(old),
        reference="v1",
        read_pixels=lambda ids: np.stack([np.full((4, 4), int(i[:2], 16), np.uint8) for i in ids]),
        gain=Gain([0.82, 0.83], [0.80, 0.81], "random control"),
        curve=Curve(sizes, [s**-0.4 + 0.05 for s in sizes]),
    )
    found = results(verdicts)
    assert set(found.values()) == {"pass"}, found
    drifted = next(v for v in verdicts if v.check == "property_drift")
    assert drifted.n == 300  # only what is new since the reference is compared with it


def test_the_room_imports_quickly_and_neither_torch_nor_dagster() -> None:
    code = (
        "import sys, sevenfold.quality as q, sevenfold.quality.admission, sevenfold.quality.version\n"
        "assert set(q.__all__) == set(q._HOMES) and all(getattr(q, n) is not None for n in q.__all__)\n"
        "heavy = {'torch', 'dagster', 'great_expectations', 'matplotlib', 'scipy', 'sklearn', 'duckdb', 'pandas'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert not [m for m in sys.modules if m.startswith('sevenfold.training')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
