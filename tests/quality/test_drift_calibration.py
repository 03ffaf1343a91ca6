"""Two hundred draws of real images from one distribution: no drift check raises more false alarms than alpha."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from sevenfold.quality import embedding_drift, volatility
from sevenfold.quality.context import Embeddings
from sevenfold.quality.policy import Policy
from sevenfold.storage.idx import read_idx
from sevenfold.storage.index import PROPERTIES
from sevenfold.storage.measure import measure_many
from sevenfold.storage.png import encode_png

DRAWS = 200
REFERENCE = 1000
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fashion-mnist"
COMMON = {"subject": "batch", "reference": "v1", "policy": Policy().volatility}


@pytest.fixture(scope="module")
def pool() -> dict:
    """Properties, labels, embeddings (a random projection of the pixels) and outputs (of a nearest-mean model)."""
    images = read_idx(EXAMPLE / "t10k-images-idx3-ubyte.gz")
    labels = read_idx(EXAMPLE / "t10k-labels-idx1-ubyte.gz")
    table, _ = measure_many((encode_png(image), f"{i}.png") for i, image in enumerate(images))
    flat = images.reshape(len(images), -1).astype(np.float32) / 255
    vectors = flat @ np.random.default_rng(0).standard_normal((flat.shape[1], 32)).astype(np.float32)
    means = np.stack([vectors[:2000][labels[:2000] == c].mean(0) for c in range(10)])
    near = -((vectors[:, None] - means) ** 2).sum(2) / 50
    outputs = np.exp(near - near.max(1, keepdims=True))
    properties = pa.table({name: table[name] for name in PROPERTIES})
    return {
        "properties": properties,
        "labels": np.array([f"c{c}" for c in labels]),
        "vectors": vectors,
        "outputs": outputs / outputs.sum(1, keepdims=True),
    }


def judged(check: str, pool: dict, now: np.ndarray, old: np.ndarray):
    def side(rows: np.ndarray):
        ids = pa.array([f"s{i}" for i in rows])
        if check == "properties":
            return (pool["properties"].take(pa.array(rows)).add_column(0, "id", ids),)
        if check == "labels":
            return (pa.table({"id": ids, "label": pool["labels"][rows]}),)
        if check == "outputs":
            return pool["outputs"][rows], ids
        return (Embeddings(ids, pool["vectors"][rows], "projection"),)

    run = {
        "properties": volatility.property_drift,
        "labels": volatility.label_shift,
        "outputs": volatility.output_drift,
        "mmd": embedding_drift.embedding_mmd,
        "classifier": embedding_drift.embedding_classifier,
    }[check]
    more = {"classes": tuple("abcdefghij")} if check == "outputs" else {}
    return run(*side(now), *side(old), **COMMON, **more)


@pytest.mark.slow
@pytest.mark.parametrize("n", [100, 500, 2000])
@pytest.mark.parametrize("check", ["properties", "labels", "outputs", "mmd", "classifier"])
def test_two_hundred_draws_raise_no_more_alarms_than_alpha(check: str, n: int, pool: dict) -> None:
    rng = np.random.default_rng([n, len(check)])
    found = []
    for _ in range(DRAWS):
        rows = 2000 + rng.permutation(8000)[: n + REFERENCE]  # the first 2,000 made the model
        found.append(judged(check, pool, rows[:n], rows[n:]))
    alpha = COMMON["policy"].alpha
    most = stats.binom.ppf(0.99, DRAWS, alpha)
    assert sum(v.p <= alpha for v in found) <= most
    assert sum(v.result in ("warn", "fail") for v in found) <= most
    assert np.mean([v.effect for v in found]) < 0.1
