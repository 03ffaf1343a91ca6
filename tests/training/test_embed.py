"""Embedding: every encoder by name, one vector a sample, computed once whichever version asks, marked where learned."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from torch import nn

from sevenfold.storage import Lake, SevenfoldError, embeddings
from sevenfold.storage.store import LocalStore, open_store
from sevenfold.training.config import TrainConfig, parse
from sevenfold.training.embed import embed
from sevenfold.training.encoders import load_encoder, penultimate
from sevenfold.training.models import residual_cnn, to_input
from sevenfold.training.place import Place
from sevenfold.training.score import score
from sevenfold.training.trainer import train

MEANS = "encoders_of_a_user:means"


def config(**values: Any) -> TrainConfig:
    base = {"dataset": "toy", "epochs": 2, "batch_size": 16, "lr": 0.1, "widths": [4, 8], "threads": 1}
    return parse({**base, **values})


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's module lies beside this file."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def test_a_run_gives_its_penultimate_layer_and_says_what_it_learned(toy_root: Path) -> None:
    lake = Lake.open(toy_root)
    (run,) = train(str(toy_root), config(), Place())
    done = embed(lake, config(), run["run_id"])
    assert (done["samples"], done["computed"], done["failed"], done["dimension"]) == (150, 150, 0, 8)
    found = lake.embeddings("toy")
    assert found is not None and found.producer == done["producer"] and found.producer.startswith("own-")
    samples = lake.samples("toy")
    assert found.ids.equals(samples["id"].combine_chunks())
    np.testing.assert_array_equal(found.in_sample, np.array(samples["split"].to_pylist()) == "train")
    # the run's own predictions follow from these vectors by its last layer
    model = residual_cnn(3, 3, (4, 8))
    from safetensors.torch import load_file

    model.load_state_dict(load_file(lake.store.local(f"runs/{run['run_id']}/model.safetensors")))
    head = model.get_submodule("head")
    with torch.no_grad():
        probs = torch.softmax(head(torch.from_numpy(found.vectors)), 1).numpy()
    predictions = lake.predictions(run["run_id"])
    place = pc.index_in(found.ids, value_set=predictions["id"].combine_chunks())
    kept = np.stack(predictions["probs"].take(place).to_pylist())
    assert np.abs(probs - kept).max() < 0.03, "up to the run's own precision"


def test_a_fold_model_leaves_most_out_of_sample(toy_root: Path) -> None:
    lake = Lake.open(toy_root)
    fold = score(str(toy_root), config(folds=3), Place())["fold_runs"][1]
    embed(lake, config(), fold)
    found = lake.embeddings("toy")
    held = lake.predictions(fold)
    held = held.filter(pc.and_(pc.greater_equal(held["fold"], 0), pc.invert(held["in_sample"])))["id"].to_pylist()
    unseen = {i for i, seen in zip(found.ids.to_pylist(), found.in_sample.tolist(), strict=True) if not seen}  # type: ignore[union-attr]
    assert set(held) <= unseen and len(unseen) == 60 + len(held)


def test_only_new_samples_of_a_later_version_are_computed(toy_root: Path, tmp_path: Path) -> None:
    lake = Lake.open(toy_root)
    first = embed(lake, config(), MEANS)
    before = lake.embeddings("toy")
    from PIL import Image

    for i in range(3):
        pixels = np.random.default_rng(90 + i).integers(0, 255, (16, 16, 3), dtype=np.uint8)
        (tmp_path / "new/pool").mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / f"new/pool/{i}.png")
    lake.ingest(tmp_path / "new", "toy", "b2")
    lake.set_status("toy", "b2", "admitted")
    lake.commit("toy", message="second")
    second = embed(lake, config(), MEANS)
    assert (first["computed"], second["computed"], second["kept"]) == (150, 3, 150)
    assert second["dimension"] == first["dimension"] == 12
    after = lake.embeddings("toy")
    assert after is not None and before is not None and len(after.ids) == 153
    np.testing.assert_array_equal(after.take(before.ids).vectors, before.vectors)
    third = embed(lake, config(), MEANS)
    assert (third["computed"], third["dimension"]) == (0, 12)


def test_an_encoder_sees_what_it_asks_for(toy_root: Path) -> None:
    """Means of the image's quarters at the module's own size, in pixels 0 ... 1."""
    lake = Lake.open(toy_root)
    embed(lake, config(), MEANS)
    found = lake.embeddings("toy")
    samples = lake.samples("toy")
    png = np.flatnonzero(np.array(samples["format"].to_pylist()) == "PNG")[:5]
    import io

    from PIL import Image

    for row, data in zip(png, lake.read_images(samples.take(pa.array(png))), strict=True):
        image = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), np.float64) / 255
        quarters = image.reshape(2, 8, 2, 8, 3).mean((1, 3)).transpose(2, 0, 1).ravel()
        np.testing.assert_allclose(found.vectors[row], quarters, atol=0.02)  # type: ignore[union-attr]
    assert not found.in_sample.any()  # type: ignore[union-attr]


def test_other_weights_are_another_producer(toy_root: Path) -> None:
    lake = Lake.open(toy_root)
    cpu = torch.device("cpu")
    names = {load_encoder(lake, f"encoders_of_a_user:{f}", cpu).producer for f in ("means", "means", "doubled")}
    assert len(names) == 2
    for name in ("means", "doubled"):
        embed(lake, config(), f"encoders_of_a_user:{name}")
    one, two = (embeddings.read(lake.store, p).vectors for p in sorted(names))
    ratio = np.median(one / two)
    assert ratio == pytest.approx(2, rel=0.01) or ratio == pytest.approx(0.5, rel=0.01)


def test_taken_down_samples_are_not_embedded_again(toy_root: Path) -> None:
    from sevenfold.storage import takedown

    lake = Lake.open(toy_root)
    embed(lake, config(), MEANS)
    gone = lake.samples("toy")["id"][7].as_py()
    request = takedown.Request(key=gone)
    takedown.carry_out(lake.store, request, takedown.find(lake.store, request), "asked")  # type: ignore[arg-type]
    again = embed(lake, config(), MEANS)
    assert (again["computed"], again["samples"]) == (0, 149)
    (producer,) = embeddings.producers(lake.store)
    assert gone not in embeddings.embedded_ids(lake.store, producer).to_pylist()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("clip", "no encoder is called 'clip'"),
        ("run-0000000000000000", "there is no finished run"),
        ("no_such_module:make", "cannot be imported"),
        ("encoders_of_a_user:no_module", "the factory returned str"),
        ("encoders_of_a_user:none", r"256|150 images make|the encoder failed"),
        ("nowhere.onnx", "onnxruntime cannot be imported|the file cannot be read"),
        ("timm:resnet18", "timm cannot be imported|cannot be had"),
        ("torchvision:resnet18", "torchvision cannot be imported|cannot be had"),
    ],
)
def test_an_encoder_that_cannot_be_had_says_why(toy_root: Path, name: str, said: str) -> None:
    if name.startswith(("timm", "torchvision")):
        import importlib.util

        if importlib.util.find_spec(name.partition(":")[0]):
            pytest.skip("installed here: it would look for weights in the network")
    with pytest.raises(SevenfoldError, match=said):
        embed(Lake.open(toy_root), config(), name)
    assert embeddings.producers(LocalStore(toy_root)) == []


def test_a_network_without_a_last_linear_layer_is_taken_at_its_logits() -> None:
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    encode, layer = penultimate(model, 8, 3)
    images = to_input(np.random.default_rng(0).integers(0, 255, (4, 8, 8, 3), np.uint8), torch.device("cpu"))
    assert layer == "logits" and torch.equal(encode(images), model(images))


def test_a_version_without_labels_is_embedded_from_a_bucket(toy_root: Path, bucket: str) -> None:
    """The loader fetches its shards; the vectors are those of the disk."""
    store, quiet = open_store(bucket), LocalStore(toy_root)
    for entry in quiet.entries(""):
        store.create(entry.key, quiet.read(entry.key))
    ahead = config(cache_decoded=0, loader_threads=2)
    assert embed(Lake.open(bucket), ahead, MEANS)["computed"] == 150
    embed(Lake.open(toy_root), config(), MEANS)
    ours, theirs = Lake.open(bucket).embeddings("toy"), Lake.open(toy_root).embeddings("toy")
    np.testing.assert_array_equal(ours.vectors, theirs.vectors)  # type: ignore[union-attr]


RANK = """
import sys
from sevenfold.storage import Lake
from sevenfold.training.config import parse
from sevenfold.training.embed import embed
from sevenfold.training.place import Place
place = Place.join(60)
done = embed(Lake.open(sys.argv[1]), parse({"dataset": "toy", "threads": 1}), "encoders_of_a_user:means", place)
assert (done["computed"], done["kept"]) == (150, 0), done
place.leave()
"""


@pytest.mark.slow
def test_ranks_share_the_work(toy_root: Path, tmp_path: Path) -> None:
    import os

    beside = str(Path(__file__).parent)
    env = {**os.environ, "SEVENFOLD_STORE": str(tmp_path / "store"), "GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": "2",
           "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{beside}"}  # fmt: skip
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(toy_root)], env={**env, "RANK": str(rank)}) for rank in (0, 1)
    ]
    assert [r.wait(120) for r in ranks] == [0, 0]
    lake = Lake.open(toy_root)
    both = lake.embeddings("toy")
    assert both is not None and len(both.ids) == 150
    parts = [e for e in lake.store.entries("embeddings") if e.key.endswith(".parquet")]
    assert len(parts) == 2


@pytest.mark.parametrize("order", ["bchw", "bhwc"])
def test_an_onnx_file_is_run_with_the_preprocessing_it_names(toy_root: Path, tmp_path: Path, order: str) -> None:
    """A mean over each channel, by a graph made here; skipped where onnx and onnxruntime are not installed."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    given = ["b", 3, 16, 16] if order == "bchw" else ["b", 16, 16, 3]
    axes = [2, 3] if order == "bchw" else [1, 2]
    h = onnx.helper
    graph = h.make_graph(
        [h.make_node("ReduceMean", ["images", "axes"], ["out"], keepdims=0)],
        "means",
        [h.make_tensor_value_info("images", onnx.TensorProto.FLOAT, given)],
        [h.make_tensor_value_info("out", onnx.TensorProto.FLOAT, ["b", 3])],
        [h.make_tensor("axes", onnx.TensorProto.INT64, [2], axes)],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=10)
    h.set_model_props(model, {"mean": "[0, 0, 0]", "std": "[1, 1, 1]"})
    file = tmp_path / "means.onnx"
    onnx.save(model, str(file))
    lake = Lake.open(toy_root)
    done = embed(lake, config(), str(file))
    assert done["producer"].startswith("onnx-means-") and (done["computed"], done["dimension"]) == (150, 3)
    embed(lake, config(), MEANS)
    ours = embeddings.read(lake.store, done["producer"])
    (other,) = (p for p in embeddings.producers(lake.store) if p.startswith("module-"))
    quarters = embeddings.read(lake.store, other, ours.ids).vectors.reshape(-1, 3, 4).mean(2)
    np.testing.assert_allclose(ours.vectors, quarters, atol=0.02)
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    with pytest.raises(SevenfoldError, match="cannot be loaded"):
        embed(lake, config(), str(tmp_path / "broken.onnx"))
