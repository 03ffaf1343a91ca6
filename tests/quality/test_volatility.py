"""Drift of properties, labels and outputs: real pixels, calibrated, told in words, silent where there is too little."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from scipy import stats
from scipy.ndimage import gaussian_filter

from sevenfold.quality import volatility
from sevenfold.quality.context import Context, Embeddings
from sevenfold.quality.policy import Policy, Volatility
from sevenfold.storage.idx import read_idx
from sevenfold.storage.index import PROPERTIES
from sevenfold.storage.measure import measure_many
from sevenfold.storage.png import encode_png

LIMITS = Policy().volatility
COMMON = {"subject": "b2", "reference": "v1", "policy": LIMITS}
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fashion-mnist"


def measured(images: np.ndarray, prefix: str) -> pa.Table:
    """What ingest measures of the images, written as PNG files."""
    table, failures = measure_many((encode_png(image), f"{i}.png") for i, image in enumerate(images))
    assert not failures
    ids = [f"{prefix}{i}" for i in range(len(images))]
    return pa.table({"id": ids, **{name: table[name] for name in PROPERTIES}})


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return read_idx(EXAMPLE / "t10k-images-idx3-ubyte.gz")[:1600]


@pytest.fixture(scope="module")
def real(images: np.ndarray) -> pa.Table:
    return measured(images, "s")


def jpeg(image: np.ndarray) -> np.ndarray:
    out = io.BytesIO()
    Image.fromarray(image).save(out, "JPEG", quality=58)
    return np.asarray(Image.open(out))


CORRUPTIONS = {
    "sharpness fell": lambda x, rng: gaussian_filter(x / 255, (0, 0.7, 0.7)) * 255,
    "sharpness rose": lambda x, rng: np.clip(x + rng.normal(0, 0.08 * 255, x.shape), 0, 255),
    "brightness rose": lambda x, rng: np.clip(x + 0.15 * 255, 0, 255),
    "entropy rose": lambda x, rng: np.stack([jpeg(image) for image in x]),
}


@pytest.mark.parametrize("words", CORRUPTIONS)
def test_a_moderate_corruption_of_real_images_is_found_and_told_in_words(words, images, real) -> None:
    rng = np.random.default_rng(5)
    moved = measured(CORRUPTIONS[words](images[1100:1400], rng).astype(np.uint8), "t")
    v = volatility.property_drift(moved, real.slice(0, 1000), **COMMON)
    assert v.result in ("warn", "fail") and not v.blocking and v.p <= 0.05
    assert f"{words}: median" in v.message
    assert v.interval[0] <= v.statistic <= v.interval[1] and v.effect <= v.statistic


def test_draws_of_the_same_images_raise_no_more_alarms_than_alpha(real: pa.Table) -> None:
    rng = np.random.default_rng(6)
    found = []
    for _ in range(30):
        order = rng.permutation(real.num_rows)
        a, b = (real.take(pa.array(rows)) for rows in (order[:100], order[100:400]))
        found.append(volatility.property_drift(a, b, **COMMON))
    assert sum(v.p <= LIMITS.alpha for v in found) <= stats.binom.ppf(0.999, 30, 0.05)
    assert sum(v.result != "pass" for v in found) <= 3
    assert np.mean([v.effect for v in found]) < 0.06


def test_the_verdict_explains_itself(rows, properties) -> None:
    old, new = rows(1000), rows(300, prefix="t")
    moved = properties(new, seed=1, shift=-2.0)
    v = volatility.property_drift(moved, properties(old), **COMMON)
    assert v.result == "fail" and v.effect > 0.5 and "1 of 7 moved against v1: brightness fell: median 0." in v.message
    dark = dict(zip(moved["id"].to_pylist(), moved["brightness"].to_pylist(), strict=True))
    assert v.findings[0] == min(dark, key=dark.get)
    assert 100 < len(v.findings) < 200
    assert v.notes[0].startswith(f"brightness {dark[v.findings[0]]:.3g} (reference 0.")
    shown = v.data["histograms"][0]
    assert shown["name"] == "brightness" and len(shown["edges"]) == len(shown["now"]) + 1
    assert (sum(shown["now"]), sum(shown["reference"])) == (300, 1000)
    assert v.data["examples"]["now"] == list(v.findings[:12])
    there = dict(zip(old["id"].to_pylist(), properties(old)["brightness"].to_pylist(), strict=True))
    typical = [there[i] for i in v.data["examples"]["reference"]]
    assert len(typical) == 12 and np.ptp(typical) < 0.01


def test_findings_are_all_of_them_not_only_the_compared(rows, properties) -> None:
    limits = Volatility(sample_budget=100)
    moved = properties(rows(1000, prefix="t"), seed=1, shift=6)
    v = volatility.property_drift(moved, properties(rows(500)), **COMMON | {"policy": limits})
    assert v.n == 100 and len(v.findings) > 950


def test_the_answer_does_not_depend_on_the_order_of_rows(rows, properties) -> None:
    limits = Volatility(sample_budget=100)
    new, old = properties(rows(300, prefix="t"), seed=1, shift=1), properties(rows(300))
    turned = new.take(pa.array(np.random.default_rng(0).permutation(300)))
    a, b = (volatility.property_drift(x, old, **COMMON | {"policy": limits}) for x in (new, turned))
    assert (a.statistic, a.p, a.effect, set(a.findings)) == (b.statistic, b.p, b.effect, set(b.findings))


def test_twenty_samples_are_not_measurable_whatever_they_are(rows, properties, classes) -> None:
    few, old = rows(20, prefix="t"), rows(200)
    assert volatility.label_shift(few, old, **COMMON).result == "not_measurable"
    v = volatility.property_drift(properties(few, shift=5), properties(old), **COMMON)
    assert (v.result, v.statistic, v.findings) == ("not_measurable", None, ())
    probs = np.full((20, 3), 1 / 3)
    names = [f"i{i}" for i in range(200)]
    told = volatility.output_drift(probs, names[:20], np.full((200, 3), 0.2), names, classes=classes, **COMMON)
    assert told.result == "not_measurable"


def test_a_tiny_shift_at_large_n_is_significant_and_not_an_alarm(rows, properties) -> None:
    limits = Volatility(sample_budget=6000)
    now, old = properties(rows(6000, prefix="t"), seed=1, shift=0.15), properties(rows(6000))
    v = volatility.property_drift(now, old, **COMMON | {"policy": limits})
    assert v.p < 0.05 and v.result == "pass"


def test_one_class_doubled_is_found_and_named() -> None:
    rng = np.random.default_rng(0)
    names = np.array([f"c{i}" for i in range(10)])

    def labels(n: int, p: np.ndarray, prefix: str) -> pa.Table:
        return pa.table({"id": [f"{prefix}{i}" for i in range(n)], "label": names[rng.choice(10, n, p=p)]})

    even = np.full(10, 0.1)
    doubled = np.full(10, 0.8 / 9)
    doubled[3] = 0.2
    found = [volatility.label_shift(labels(500, doubled, "t"), labels(2000, even, "s"), **COMMON) for _ in range(12)]
    assert sum(v.result in ("warn", "fail") for v in found) >= 11
    assert sum("Moved most: c3 " in v.message for v in found) >= 11
    calm = [volatility.label_shift(labels(500, even, "t"), labels(2000, even, "s"), **COMMON) for _ in range(12)]
    assert sum(v.result != "pass" for v in calm) <= 3


def test_label_shift_lists_the_risen_classes_samples_and_the_fallen_classes(rows) -> None:
    new = rows(300, prefix="t", label=["boot"] * 200 + ["coat"] * 50 + ["shirt"] * 50)
    v = volatility.label_shift(new, rows(600), **COMMON)
    assert v.result == "fail" and not v.blocking and "boot 33.3% -> 66.7%" in v.message
    assert v.findings[:200] == tuple(new["id"].to_pylist()[:200])
    assert set(v.findings[200:]) == {"class:coat", "class:shirt"} and v.notes[0] == "label boot 33.3% -> 66.7%"
    assert v.data["bars"]["series"]["now"][v.data["bars"]["names"].index("boot")] == pytest.approx(2 / 3)
    unlabelled = rows(300, prefix="t", label=[None] * 300)
    assert volatility.label_shift(unlabelled, rows(600), **COMMON).result == "not_measurable"


def test_output_drift_reads_softmax_outputs(classes) -> None:
    rng = np.random.default_rng(0)
    old, same = rng.dirichlet([1, 1, 1], 500), rng.dirichlet([1, 1, 1], 400)
    new = rng.dirichlet([4, 1, 1], 400)
    names = [f"i{i}" for i in range(500)]
    assert volatility.output_drift(same, names[:400], old, names, classes=classes, **COMMON).result == "pass"
    v = volatility.output_drift(new, names[:400], old, names, classes=classes, **COMMON)
    assert v.result == "fail" and "p(boot) rose: median" in v.message


def test_a_property_with_gaps_is_judged_on_what_there_is(rows, properties) -> None:
    old, new = properties(rows(200)), properties(rows(200, prefix="t"), seed=1)
    gaps = new.set_column(1, "brightness", pa.array([None] * 180 + [0.4] * 20, pa.float64()))
    v = volatility.property_drift(gaps, old, **COMMON)
    assert v.result == "pass" and " 6 moved" in v.message


def test_every_check_runs_on_a_context_with_everything_and_with_nothing(rows, properties, classes) -> None:
    def context(n: int, prefix: str, shift: float = 0.0, **more) -> Context:
        table = rows(n, prefix=prefix)
        table = table.append_column("batch", pa.array([prefix] * n))
        rng = np.random.default_rng(n)
        ids = table["id"].combine_chunks()
        outputs = pa.table(
            {
                "id": ids,
                "label": table["label"],
                "predicted": table["label"],
                "probs": pa.array(rng.dirichlet([1, 1, 1], n).tolist(), pa.list_(pa.float32())),
                "in_sample": [False] * n,
            }
        )
        vectors = (rng.standard_normal((n, 8)) + shift).astype(np.float32)
        fields = {
            "classes": classes,
            "metadata": pa.table({"id": ids, "age": rng.normal(shift, 1, n)}),
            "predictions": outputs,
            "embeddings": Embeddings(ids, vectors, "small"),
        }
        return Context(prefix, "version", table, properties(table, seed=n, shift=shift), 0.0, **fields | more)

    old = context(200, "v1")
    new = context(150, "v2", shift=1.0, reference=old, records=[{"batch": "v2", "times": {"landed": 1.0}}])
    found = {c.name: c.run(new) for c in volatility.CHECKS}
    assert all(v.v == "volatility" and v.check == name and not v.blocking for name, v in found.items())
    moved = {name for name, v in found.items() if v.result in ("warn", "fail")}
    assert moved == {"property_drift", "metadata_drift", "embedding_mmd", "embedding_classifier"}
    bare = Context("v1", "version", old.rows, old.properties, 0.0)
    assert {c.run(bare).result for c in volatility.CHECKS} == {"not_measurable"}
