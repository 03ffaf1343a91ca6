"""All checks on data that nobody expects: none crashes, positions do not count, and ordinary data raise no alarm."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sevenfold.quality import Context, Curve, Gain, Policy, built_in, judge, odd_images, value
from sevenfold.quality import metadata as columns
from sevenfold.quality.context import Embeddings
from tests.quality.conftest import CLASSES, make_properties, make_quarantine, make_record, make_rows

NOW = 1_700_000_000.0
POLICY = Policy.model_validate(
    {
        "variety": {"min_embedded": 20},
        "value": {"min_train": 20, "min_points": 2},
        "volatility": {"min_n": 20},
        "veracity": {"min_n": 50, "min_answered": 2},
    }
)
CHECKS = [c for c in built_in() if c.key != "validity.suite"]  # it has its own tests, and starts slowly
N = 60


def predicted(rows: pa.Table, classes, probs: np.ndarray) -> pa.Table:
    best = [classes[i] for i in np.nan_to_num(probs).argmax(1)] if len(probs) else []
    return pa.table(
        {
            "id": rows["id"],
            "label": rows["label"],
            "predicted": pa.array(best, pa.string()),
            "probs": pa.array(list(probs), pa.list_(pa.float64())),
            "in_sample": pa.array([False] * len(probs), pa.bool_()),
        }
    )


def answers(rows: pa.Table, seed: int = 0) -> pa.Table:
    ids = [i for i in rows["id"].to_pylist() for _ in range(3)]
    said = [CLASSES[k] for k in np.random.default_rng(seed).integers(0, 3, len(ids))]
    names = ["ann", "bob", "cleo"] * rows.num_rows
    kinds = {"id": ids, "annotator": names, "label": said}
    return pa.table({k: pa.array(v, pa.string()) for k, v in kinds.items()})


def own_columns(rows: pa.Table, seed: int = 0) -> pa.Table:
    n, rng = rows.num_rows, np.random.default_rng(seed)
    return pa.table(
        {
            "id": rows["id"],
            "age": rng.normal(40, 10, n),
            "site": pa.array([f"s{i}" for i in rng.integers(0, 4, n)], pa.string()),
            "ok": pa.array(rng.random(n) < 0.5),
            "caption": pa.array([f"a picture of thing {i} and thing {i * i}" for i in range(n)], pa.string()),
            "when": pa.array(rng.integers(10**9, 2 * 10**9, n), pa.timestamp("s")),
            "tags": pa.array([["a", "b"]] * n, pa.list_(pa.string())),
        }
    )


def pictures(ids) -> np.ndarray:
    return np.array([[int(i[k : k + 2], 16) for k in range(0, 48, 2)] for i in ids], np.uint8).reshape(-1, 4, 2, 3)


def known(rows: pa.Table, *, seed: int = 0, classes=CLASSES, **fields) -> Context:
    """A context with everything there is to know about some samples."""
    n, rng = rows.num_rows, np.random.default_rng(seed)
    if "batch" not in rows.column_names:
        rows = rows.append_column("batch", pa.array([f"b{i % 3}" for i in range(n)], pa.string()))
    sizes = [s for s in (100, 200, 400, 800, 1600) for _ in range(2)]
    seconds = {"ingest": 1.0, "check": 1.0, "shard": 1.0}
    records = [
        {"batch": f"b{i}", "status": "committed", "counts": {"samples": n, "inputs": n}, "seconds": seconds,
         "times": {"landed": NOW - 86400.0 * (3 - i), "newest_input": NOW - 86400.0 * (3 - i) - 9}}
        for i in range(3)
    ]  # fmt: skip
    names = ("el2n", "forgetting", "aum", "learned")
    everything = {
        "policy": POLICY,
        "classes": classes,
        "metadata": own_columns(rows, seed),
        "annotations": answers(rows, seed),
        "embeddings": Embeddings(rows["id"].combine_chunks(), rng.random((n, 4), np.float32), "own-1"),
        "predictions": predicted(rows, classes, rng.dirichlet(np.ones(len(classes)), n)) if classes else None,
        "dynamics": pa.table({"id": rows["id"], **{k: rng.random(n) for k in names}}),
        "records": records,
        "steps": pa.table({"data": rng.random(50) / 99, "total": 1 + rng.random(50)}),
        "gain": Gain([0.82, 0.84], [0.8, 0.81], "random"),
        "curve": Curve(sizes, [s**-0.4 + 0.05 for s in sizes]),
        "read_pixels": pictures,
        "quarantine": make_quarantine(),
        "record": make_record(rows, make_quarantine()),
    }
    return Context("v2", "version", rows, make_properties(rows, seed=seed), NOW, **(everything | fields))


def rows_of(n: int = N, prefix: str = "new", **columns_) -> pa.Table:
    return make_rows(n, prefix=prefix, **columns_)


def alike(column: pa.ChunkedArray, value_) -> pa.Array:
    return pa.array([value_] * len(column), column.type)


def measured(rows: pa.Table, value_: float | None) -> pa.Table:
    names = make_properties(rows).column_names[1:]
    return pa.table({"id": rows["id"], **{k: pa.array([value_] * rows.num_rows, pa.float64()) for k in names}})


def vectors(rows: pa.Table, values: np.ndarray) -> Embeddings:
    return Embeddings(rows["id"].combine_chunks(), values.astype(np.float32), "own-1")


def _cases() -> dict[str, Context]:
    old, new = make_rows(N), rows_of()
    before = known(old)
    full = known(new, seed=1, reference=before, read_pixels=None)
    plain = replace(full, predictions=None, annotations=None, embeddings=None)  # what takes its time
    wide = tuple(f"c{i}" for i in range(1000))
    spread = rows_of(2000, label=[wide[i % 1000] for i in range(2000)])
    right = np.eye(3)[np.arange(N) % 3]
    cases = {f"{n} samples": known(rows_of(n), reference=before) for n in (0, 1, 2, 49, 50)}
    cases |= {f"{n} samples alone": known(rows_of(n)) for n in (0, 1, 50)}
    cases |= {f"a reference of {n}": replace(full, reference=known(make_rows(n))) for n in (0, 1, 2)}
    cases |= {f"all in {s}": known(rows_of(split=[s] * N), reference=before) for s in ("train", "test", "pool")}
    cases |= {
        "bare": Context("v1", "version", new, make_properties(new), NOW),
        "one class": known(rows_of(label=["boot"] * N), reference=before),
        "one class there is": known(rows_of(label=["boot"] * N), classes=("boot",)),
        "no labels": known(rows_of(label=[None] * N), reference=before),
        "no labels in the reference": replace(full, reference=known(make_rows(N, label=[None] * N))),
        "no classes": known(rows_of(label=[None] * N), classes=()),
        "1000 classes": known(spread, classes=wide, annotations=None, predictions=None, embeddings=None),
        "grey and colour": known(rows_of(channels=[1, 3] * (N // 2), mode=["L", "RGB"] * (N // 2)), reference=before),
        "nothing new": known(old, reference=before),
        "some predictions": replace(full, predictions=full.predictions.slice(0, 7)),
        "embeddings of some": replace(full, embeddings=full.embeddings.take(full.embeddings.ids[:5])),
        "equal pixels": known(rows_of(pixel_digest=["0" * 64] * N), reference=before),
        "blank pictures": replace(full, read_pixels=lambda ids: np.full((len(ids), 1, 1, 3), 255, np.uint8)),
        "answers about others": replace(full, annotations=answers(rows_of(N, "others"))),
        "no answers": replace(full, annotations=full.annotations.slice(0, 0)),
        "steps without times": replace(plain, steps=pa.table({"data": [np.nan] * 50, "total": [np.nan] * 50})),
        "equal gains": replace(plain, gain=Gain([0.5, 0.5], [0.5, 0.5], "random")),
        "runs that diverged": replace(plain, curve=Curve([100.0, 200.0] * 5, [np.nan] * 10)),
        "a batch that never landed": replace(plain, records=[{"batch": "b", "status": "landing", "times": {}}]),
        "dynamics that diverged": replace(plain, dynamics=pa.table(
            {"id": new["id"], **dict.fromkeys(("el2n", "forgetting", "aum", "learned"), np.full(N, np.nan))})),
    }  # fmt: skip
    for name, number in (("null", None), ("0", 0.0), ("1e300", 1e300), ("NaN", np.nan), ("inf", np.inf)):
        cases[f"properties {name}"] = replace(plain, properties=measured(new, number))
        cases[f"the reference's properties {name}"] = replace(
            plain, reference=replace(before, properties=measured(old, number))
        )
    for name, probs in {
        "right": right, "wrong": np.roll(right, 1, 1), "zero": 0 * right, "not summing to 1": 2 + right,
    }.items():  # fmt: skip
        cases[f"probabilities {name}"] = replace(full, predictions=predicted(new, CLASSES, probs))
    for name, x in {
        "of dimension 1": np.arange(1.0, N + 1)[:, None], "constant": np.ones((N, 4)), "zero": np.zeros((N, 4)),
        "repeated": np.repeat(np.eye(4), N // 4, 0),
    }.items():  # fmt: skip
        both = replace(before, embeddings=vectors(old, x))
        cases[f"embeddings {name}"] = replace(full, embeddings=vectors(new, x), reference=both)
    for name, x in {
        "null": pa.nulls(N), "time": pa.array([1] * N, pa.timestamp("s")), "list": pa.array([[1]] * N),
        "date": pa.array([1] * N, pa.date32()), "true": pa.array([True] * N), "NaN": pa.array([np.nan] * N),
        "inf": pa.array([np.inf, -np.inf] * (N // 2)), "huge": pa.array([2**63 - 1, -(2**63)] * (N // 2)),
        "half": pa.array(np.ones(N, np.float16)), "bytes": pa.array([b"x"] * N), "empty": pa.array([""] * N),
        "dictionary": pa.array(["a", "b"] * (N // 2)).dictionary_encode(), "struct": pa.array([{"a": 1}] * N),
    }.items():  # fmt: skip
        own, theirs = pa.table({"id": new["id"], "x": x}), pa.table({"id": old["id"], "x": x})
        as_before = replace(before, metadata=theirs)
        cases[f"metadata {name}"] = replace(plain, metadata=own, reference=as_before)
        other = pa.table({"id": new["id"], "x": full.metadata["site"]})
        cases[f"metadata no longer {name}"] = replace(plain, metadata=other, reference=as_before)
    return cases


CASES = _cases()
SLOW = ("1000 classes", "49 samples", "50 samples", "50 samples alone", "all in train", "all in test", "one class")


@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.slow] * (c in SLOW)) for c in CASES])
def test_no_check_crashes_and_an_interval_holds_its_statistic(case: str) -> None:
    context = CASES[case]
    for kind in ("version", "batch") if context.record is not None else ("version",):
        chosen = [c for c in CHECKS if kind == "version" or "version" not in c.kinds]
        for v in judge(replace(context, kind=kind), checks=chosen):
            assert v.result != "crashed", v.message
            if v.statistic is not None and v.interval is not None:
                assert v.interval[0] - 1e-9 <= v.statistic <= v.interval[1] + 1e-9, v
            assert len(set(v.findings)) == len(v.findings), v


def rich() -> Context:
    """A drifted version with something to find for most checks."""
    old, rng = make_rows(240), np.random.default_rng(0)
    new = pa.concat_tables([old, make_rows(120, prefix="new", seed=3)])
    n = new.num_rows
    labels, digests = new["label"].to_pylist(), new["pixel_digest"].to_pylist()
    labels[:240:7] = [CLASSES[(CLASSES.index(x) + 1) % 3] for x in labels[:240:7]]
    digests[5], digests[243], digests[247] = digests[6], digests[10], digests[249]
    wide = [28] * n
    wide[::50] = [280] * len(wide[::50])
    for name, values in (("label", labels), ("pixel_digest", digests), ("width", pa.array(wide, pa.int32()))):
        new = new.set_column(new.column_names.index(name), name, pa.array(values))
    properties = make_properties(new, seed=1)
    moved = np.array(properties["brightness"].to_pylist()) + 0.1 * (np.arange(n) >= 240)
    properties = properties.set_column(1, "brightness", pa.array(moved))
    z = rng.normal(0, 1, (n, 3))
    z[np.arange(n), np.arange(n) % 3] += 4
    probs = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    x = rng.standard_normal((n, 4)) + (np.arange(n) >= 240)[:, None]
    before = known(old, predictions=predicted(old, CLASSES, probs[:240]), embeddings=vectors(old, x[:240]))
    return replace(
        known(new, seed=1, reference=before, predictions=predicted(new, CLASSES, probs), embeddings=vectors(new, x)),
        properties=properties,
    )


def shuffled(context: Context, seed: int) -> Context:
    """The same context with each table's rows in an order of its own."""
    rng = np.random.default_rng(seed)
    names = ("rows", "properties", "metadata", "predictions", "dynamics", "annotations", "quarantine")
    tables = {k: getattr(context, k) for k in names}
    mixed = {k: t if t is None else t.take(pa.array(rng.permutation(t.num_rows))) for k, t in tables.items()}
    vectors_ = context.embeddings
    if vectors_ is not None:
        mixed["embeddings"] = vectors_.take(vectors_.ids.take(pa.array(rng.permutation(len(vectors_.ids)))))
    reference = context.reference and shuffled(context.reference, seed + 1)
    return replace(context, **mixed, records=list(context.records)[::-1], reference=reference)


def told(context: Context) -> dict[str, tuple]:
    """What must not depend on the order of rows, by check."""
    found = judge(context, checks=CHECKS)
    return {
        f"{v.v}.{v.check}": (
            v.result, v.n, *(None if x is None else round(x, 6) for x in (v.statistic, v.effect, v.p)),
            v.interval and tuple(round(x, 6) for x in v.interval),
            sorted(zip(v.findings, v.notes or v.findings, strict=True)),
        )
        for v in found
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["version", "batch"])
def test_tables_are_joined_by_id_and_never_by_position(kind: str) -> None:
    context = replace(rich(), kind=kind)
    first, second = told(context), told(shuffled(context, 1))
    assert sum(r[0] in ("warn", "fail") for r in first.values()) >= 5
    for name, answer in first.items():
        assert second[name] == answer, name


@pytest.mark.slow
def test_the_same_context_is_told_the_same_in_any_process() -> None:
    code = "from tests.quality.test_any_data import rich, told; print(told(rich()))"
    paths = os.pathsep.join([*sys.path, str(Path(__file__).parents[2])])
    here = [
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": paths},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert here[0] == here[1] and len(here[0]) > 1000


def test_drift_says_why_it_is_not_measurable_where_nothing_is_new() -> None:
    """As after a compaction, whose version holds what its parent does."""
    checks = [c for c in CHECKS if c.key in ("volatility.property_drift", "volatility.label_shift")]
    for v in judge(CASES["nothing new"], checks=checks):
        assert v.result == "not_measurable" and "no new" in v.message and "since v2" in v.message


def test_equal_gains_of_all_seeds_prove_nothing() -> None:
    v = value.selection_gain([0.82, 0.83], [0.80, 0.81], subject="v2", reference="random", policy=POLICY.value)
    assert v.result == "not_measurable" and "gained the same" in v.message


@pytest.mark.parametrize(("n", "m"), [(50, None), (500, None), (3000, 100), (3000, 500), (3000, 3000)])
def test_ordinary_images_are_rarely_called_odd(n: int, m: int | None) -> None:
    """Beside one another, or beside a reference of m; the limits of a small reference are uncertain themselves."""
    rng = np.random.default_rng(0)

    def some(k: int) -> tuple[pa.Table, pa.Table]:
        ids = [str(i) for i in range(k)]
        x = np.abs(rng.normal([0.45, 0.2, 0.1], [0.1, 0.04, 0.02], (k, 3)))
        names = dict(zip(("brightness", "contrast", "sharpness"), x.T, strict=True))
        return pa.table({"id": ids, "width": [32] * k, "height": [32] * k}), pa.table(
            {"id": ids, **names, "aspect": np.ones(k)}
        )

    alarms = 0
    for _ in range(30):
        rows, properties = some(n)
        there = some(m) if m else (None, None)
        v = odd_images.odd_images(
            rows, properties, subject="b", policy=POLICY.variety, reference_rows=there[0],
            reference_properties=there[1], reference="v1",
        )  # fmt: skip
        alarms += v.result == "warn"
    assert alarms <= 4


@pytest.mark.parametrize(("n", "m"), [(100, 1000), (1000, 1000), (1000, 100)])
def test_columns_of_the_same_distribution_are_as_they_were(n: int, m: int) -> None:
    """Rare categories that the reference happens to lack, and long tails, are ordinary."""
    rng = np.random.default_rng(0)

    def some(k: int) -> pa.Table:
        return pa.table(
            {
                "id": [str(i) for i in range(k)],
                "normal": rng.normal(0, 1, k),
                "income": rng.lognormal(0, 1, k),
                "species": np.minimum(rng.zipf(2, k), 150).astype(str),
                "site": rng.integers(0, 20, k).astype(str),
            }
        )

    alarms = sum(
        columns.columns(some(n), some(m), subject="b", name="v1", policy=POLICY.validity).result != "pass"
        for _ in range(20)
    )
    assert alarms <= 4
