"""Drift checks on real CIFAR-10 pixels: false alarms, power against CIFAR-10-C's corruptions, seconds at 10^7 rows.

    python benchmarks/quality_drift.py cifar10_jpeg.zip [--trials 200] [--parts alarms,power,scale] [--quick] ...

The zip's top folders are train and test, their sub-folders the classes. Prints Markdown. Every trial draws its batch
and its reference afresh; the checks are those that judge a batch or a version, with the default policy.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from quality_drift_data import CLASSES, CORRUPTIONS, RandomConvolution, measured, read_cifar

from sevenfold.quality import embedding_drift, volatility
from sevenfold.quality.context import Embeddings
from sevenfold.quality.policy import Policy
from sevenfold.quality.verdict import Verdict

ALPHA = 0.05
REFERENCE = 2000
LIMITS = Policy().volatility
KIND = {"subject": "batch", "reference": "v1", "policy": LIMITS}


class Pool:
    """Images as the checks see them: one table of ids, labels and properties, embeddings and softmax outputs."""

    def __init__(self, name: str, pixels: np.ndarray, labels: np.ndarray, encode: Callable, model: Callable) -> None:
        rng = np.random.default_rng(len(name))
        words = rng.integers(0, 2**63, (len(labels), 4))
        ids = ["".join(f"{w:016x}" for w in row) for row in words.tolist()]
        self.table = pa.table({"id": ids, "label": np.array(CLASSES)[labels], **measured(pixels)})
        self.labels = labels
        self.vectors = encode(pixels)
        self.outputs = model(self.vectors)

    def draw(self, rows: np.ndarray) -> dict[str, object]:
        table = self.table.take(pa.array(rows))
        ids = table["id"].combine_chunks()
        return {
            "rows": table.select(["id", "label"]),
            "properties": table.drop_columns(["label"]),
            "outputs": (self.outputs[rows], ids),
            "embeddings": Embeddings(ids, self.vectors[rows], "random-convolution"),
        }


def _checks(only: str) -> dict[str, Callable[[Mapping, Mapping], Verdict]]:
    found = {
        "properties": lambda a, b: volatility.property_drift(a["properties"], b["properties"], **KIND),
        "labels": lambda a, b: volatility.label_shift(a["rows"], b["rows"], **KIND),
        "outputs": lambda a, b: volatility.output_drift(*a["outputs"], *b["outputs"], classes=CLASSES, **KIND),
        "MMD": lambda a, b: embedding_drift.embedding_mmd(a["embeddings"], b["embeddings"], **KIND),
        "classifier": lambda a, b: embedding_drift.embedding_classifier(a["embeddings"], b["embeddings"], **KIND),
    }
    return {name: check for name, check in found.items() if not only or name in only.split(",")}


def pools(path: Path, quick: bool, corruptions: Mapping[str, Callable]) -> tuple[Pool, Pool, dict[str, Pool]]:
    """(reference images, fresh images, the fresh ones under each corruption): none is in two of the first two."""
    from sklearn.linear_model import LogisticRegression

    many, fresh, fit = (6000, 3000, 3000) if quick else (16000, 6000, 8000)
    pixels, labels = read_cifar(path, "train", many + fit)
    new, new_labels = read_cifar(path, "test", fresh)
    encode = RandomConvolution(pixels)
    train = encode(pixels[:fit])
    mean, spread = train.mean(0), train.std(0)
    fitted = LogisticRegression(C=0.05, max_iter=300).fit((train - mean) / spread, labels[:fit])

    def model(vectors: np.ndarray) -> np.ndarray:
        return np.asarray(fitted.predict_proba((vectors - mean) / spread))

    reference = Pool("reference", pixels[fit:], labels[fit:], encode, model)
    clean = Pool("clean", new, new_labels, encode, model)
    accuracy = (clean.outputs.argmax(1) == new_labels).mean()
    print(f"{many} reference and {fresh} fresh images; the outputs' model is right on {accuracy:.1%} of the latter.\n")
    rng = np.random.default_rng(3)
    corrupt = {
        name: Pool(name, f(new, 3, rng), new_labels, encode, model) for name, f in CORRUPTIONS.items() if corruptions
    }
    return reference, clean, corrupt


def false_alarms(reference: Pool, checks: Mapping[str, Callable], trials: int, sizes: tuple[int, ...]) -> None:
    """Batch and reference from one pool: how often each check speaks."""
    from scipy.stats import beta, binom

    most = int(binom.ppf(0.99, trials, ALPHA))
    print(f"## False alarms: {trials} same-distribution draws against {REFERENCE}\n")
    print(
        f"At a true rate of 5 % more than {most} alarms in {trials} come up once in 100. `p`: draws with p <= {ALPHA}; "
    )
    print("`alarms`: draws with a verdict of warn or fail (p and effect), with the 95 % upper bound of their rate.\n")
    print("| check | n | p | alarms | rate at most | within the bound | mean effect | CPU seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for n in sizes:
        rng = np.random.default_rng(n)
        draws = [rng.permutation(len(reference.labels))[: n + REFERENCE] for _ in range(trials)]
        for name, check in checks.items():
            begun = time.process_time()
            found = [check(reference.draw(d[:n]), reference.draw(d[n:])) for d in draws]
            seconds = (time.process_time() - begun) / trials
            small = sum((v.p or 0) <= ALPHA for v in found)
            alarms = sum(v.result in ("warn", "fail") for v in found)
            upper = float(beta.ppf(0.95, alarms + 1, trials - alarms)) if alarms < trials else 1.0
            effect = np.mean([v.effect for v in found])
            held = "yes" if max(small, alarms) <= most else "NO"
            print(
                f"| {name} | {n} | {small} | {alarms} | {upper:.1%} | {held} | {effect:.3f} | {seconds:.2f} |",
                flush=True,
            )
    print()


def power(
    pools: tuple[Pool, Pool, dict[str, Pool]],
    checks: Mapping[str, Callable],
    trials: int,
    only: str,
    n: int = 500,
) -> None:
    """A batch of n fresh images, corrupted or with one class doubled, against a fresh reference."""
    names = list(checks)
    reference, clean, corrupt = pools
    print(f"## Power at n = {n} against {REFERENCE}, {trials} draws each (severity 3 of CIFAR-10-C)\n")
    print("| batch | " + " | ".join(names) + " | lowest effect of 95 % |")
    print("|---|" + "---|" * (len(names) + 1))
    cases = {"not changed": clean, **corrupt, "one class doubled": clean}
    for case, pool in cases.items():
        if only and case not in only.split(","):
            continue
        rng = np.random.default_rng(len(case))
        fired = {name: np.zeros(trials, bool) for name in names}
        effects: dict[str, list[float]] = {name: [] for name in names}
        for t in range(trials):
            doubled = t % len(CLASSES)
            weight = (
                np.where(pool.labels == doubled, 2.0, 8 / 9)
                if case == "one class doubled"
                else np.ones(len(pool.labels))
            )
            batch = pool.draw(rng.choice(len(weight), n, replace=False, p=weight / weight.sum()))
            before = reference.draw(rng.choice(len(reference.labels), REFERENCE, replace=False))
            for name, check in checks.items():
                verdict = check(batch, before)
                fired[name][t] = verdict.result in ("warn", "fail")
                effects[name].append(verdict.effect or 0.0)
        lowest = ", ".join(f"{name} {np.quantile(effects[name], 0.05):.2f}" for name in names)
        rates = " | ".join(f"{fired[name].mean():.2f}" for name in names)
        print(f"| {case} | {rates} | {lowest} |", flush=True)
    few = {
        name: check(clean.draw(np.arange(20)), reference.draw(np.arange(REFERENCE))) for name, check in checks.items()
    }
    print("\nAt n = 20: " + ", ".join(f"{name} {v.result}" for name, v in few.items()) + ".\n")


def _of_shares(labels: np.ndarray, shares: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """n different rows whose classes are drawn with these probabilities."""
    counts = rng.multinomial(n, shares)
    return np.concatenate([rng.choice(np.flatnonzero(labels == c), k, replace=False) for c, k in enumerate(counts)])


def scale(rows: int) -> None:
    """Properties and labels of many rows against as many, one moved."""
    rng = np.random.default_rng(0)

    def table(shift: float) -> pa.Table:
        digits = np.frombuffer(rng.bytes(rows * 32), np.uint8)
        hexa = np.frombuffer(b"0123456789abcdef", np.uint8)
        text = np.stack([hexa[digits >> 4], hexa[digits & 15]], axis=1).tobytes()
        offsets = np.arange(rows + 1, dtype=np.int64) * 64
        ids = pa.LargeStringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text)).cast(pa.large_string())
        columns = {name: rng.standard_normal(rows) for name in ("brightness", "contrast", "entropy", "sharpness")}
        columns["sharpness"] += shift
        label = pa.DictionaryArray.from_arrays(rng.integers(0, 10, rows, dtype=np.int8), list(CLASSES))
        return pa.table({"id": ids, **columns, "label": label.cast(pa.string())})

    now, before = table(1.0), table(0.0)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"## CPU seconds at {rows:,} rows against {rows:,}\n")
    print("| check | CPU seconds | findings | result |\n|---|---|---|---|")
    for name, check in (("properties", volatility.property_drift), ("labels", volatility.label_shift)):
        begun = time.process_time()
        verdict = check(now, before, **KIND) if name == "labels" else check(now.drop_columns(["label"]), before, **KIND)
        print(
            f"| {name} | {time.process_time() - begun:.1f} | {len(verdict.findings):,} | {verdict.result} |", flush=True
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\nPeak memory {peak:.1f} GiB, of which {held:.1f} GiB before the checks (both tables).\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zip", type=Path)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--parts", default="alarms,power,scale")
    parser.add_argument("--cases", default="", help="rows of the power table, by name and comma (all)")
    parser.add_argument("--checks", default="", help="columns: properties,labels,outputs,MMD,classifier (all)")
    parser.add_argument("--sizes", default="100,500,2000", help="batch sizes of the false-alarm table")
    parser.add_argument("--quick", action="store_true", help="fewer images, 20 trials, a tenth of the rows")
    given = parser.parse_args()
    parts = given.parts.split(",")
    checks = _checks(given.checks)
    sizes = tuple(int(n) for n in given.sizes.split(","))
    trials = 20 if given.quick else given.trials
    print("# Drift checks on CIFAR-10\n")
    wanted = {k: f for k, f in CORRUPTIONS.items() if "power" in parts and (not given.cases or k in given.cases)}
    if "alarms" in parts or "power" in parts:
        made = pools(given.zip, given.quick, wanted)
    if "alarms" in parts:
        false_alarms(made[0], checks, trials, (100, 500) if given.quick else sizes)
    if "power" in parts:
        power(made, checks, max(trials // 2, 10), given.cases)
    if "scale" in parts:
        scale(10**6 if given.quick else 10**7)


if __name__ == "__main__":
    main()
