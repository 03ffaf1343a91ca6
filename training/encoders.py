"""Encoders: what turns images into vectors, by name. Each says what it is, so that two of them never mix.

    own                       the network of the newest run that learned this dataset (its penultimate layer)
    run-<id>                  the network of that run, a fold model of `score` included
    package.module:factory    your module: the factory is called without arguments, images in, [n, d] out
    model.onnx                a file, run by onnxruntime
    timm:name, torchvision:name    a pretrained model of these libraries, without its classifier

Preprocessing: of a run, that of training, at its size. Your module may have the attributes `size`, `channels`, `mean`
and `std`: it gets float [b, channels, size, size], (x / 255 - mean) / std; without `mean` and `std` what our own
networks get, (x / 255 - 0.5) * 4. An ONNX file's metadata may say the same (`size`, `mean`, `std`), else its input's
shape is taken and ImageNet's mean and deviation. The libraries' models say it themselves.
"""

from __future__ import annotations

import importlib
import json
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.canonical import digest_bytes, digest_json
from sevenfold.storage.index import read_parquet
from sevenfold.training.models import (
    build_model,
    import_from_here,
    load_weights,
    memory_layout,
    to_input,
    weights_bytes,
)
from sevenfold.training.run import finished, run_key

OWN = "own"
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_PLAIN = (0.5,), (0.25,)
"""(x / 255 - 0.5) * 4: what our own networks are trained on."""

Encode = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Encoder:
    """What makes vectors.

    Parameters
    ----------
    producer : its name with its digest.
    encode : uint8 [b, size, size, channels] on the CPU -> float32 [b, d] on the CPU.
    size, channels : of the images it takes; size None: the images' own.
    about : what is kept beside the vectors.
    trained : ids it was trained on under their labels; None: none of them.
    """

    producer: str
    encode: Encode
    size: int | None
    channels: int | None
    about: Mapping[str, Any] = field(default_factory=dict)
    trained: pa.Array | None = None


def load_encoder(lake: Lake, name: str, device: torch.device) -> Encoder:
    """The encoder of a name (see the top of this file; `own` is resolved by the caller to a run's id).

    Raises SevenfoldError when it cannot be had, saying what is missing.
    """
    if name.startswith("run-"):
        return of_run(lake, name, device)
    if name.endswith(".onnx"):
        return of_onnx(Path(name))
    library, colon, model = name.partition(":")
    if colon and library == "timm":
        return of_timm(model, device)
    if colon and library == "torchvision":
        return of_torchvision(model, device)
    if colon:
        return of_factory(name, device)
    raise SevenfoldError(
        f"no encoder is called {name!r}",
        where="encoder",
        expected="own, run-<id>, package.module:factory, a file model.onnx, timm:name or torchvision:name",
    )


def of_run(lake: Lake, run: str, device: torch.device) -> Encoder:
    """The penultimate layer of a finished run's network: what its last linear layer, which makes the logits, is given.

    A network that ends otherwise is taken at its logits.
    """
    result = finished(lake.store, run)
    if result is None:
        raise SevenfoldError(f"there is no finished run {run}", where=lake.store.url, do="run `sevenfold train` first")
    config = result["config"]
    path = lake.store.local(run_key(run, "model.safetensors"))
    model = build_model(
        config["model"], num_classes=len(result["classes"]), channels=config["channels"], size=config["size"],
        widths=config["widths"], norm=config["norm"],
    )  # fmt: skip
    load_weights(model, path)
    digest = digest_bytes(path.read_bytes())
    encode, layer = penultimate(model.eval().to(device), config["size"], config["channels"])
    about = {
        "kind": "run", "run": run, "content_id": result["content_id"], "model": config["model"], "layer": layer,
        "hold_out": config.get("hold_out"),
    }  # fmt: skip
    trained = read_parquet(lake.store, run_key(run, "trained.parquet"))["id"].combine_chunks()
    prepared = Prepared(encode, *_PLAIN, device, memory_layout(model))
    return _encoder("own", digest, prepared, config["size"], config["channels"], about, trained)


def of_factory(name: str, device: torch.device) -> Encoder:
    """A user's module; its digest is over its weights, its source file and its preprocessing."""
    module, _, factory = name.partition(":")
    try:
        source = import_from_here(module)
        model = getattr(source, factory)()
    except (ImportError, AttributeError, SyntaxError, ValueError) as error:
        raise SevenfoldError(
            f"{name!r} cannot be imported: {error}", where="encoder",
            expected="package.module:factory, importable from the current folder",
            do="check the spelling, or set PYTHONPATH",
        ) from error  # fmt: skip
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise SevenfoldError(
            f"the factory failed with {type(error).__name__}: {error}",
            where=f"{name}, at {last.filename}, line {last.lineno}",
        ) from error
    if not isinstance(model, nn.Module):
        raise SevenfoldError(f"the factory returned {type(model).__name__}", where=name, expected="a torch.nn.Module")
    size, channels = getattr(model, "size", None), int(getattr(model, "channels", 3))
    mean, std = _numbers(getattr(model, "mean", _PLAIN[0])), _numbers(getattr(model, "std", _PLAIN[1]))
    file = getattr(source, "__file__", None)
    code = digest_bytes(Path(file).read_bytes()) if file else ""
    digest = digest_json([digest_bytes(weights_bytes(model)), code])
    prepared = Prepared(model.eval().to(device), mean, std, device, memory_layout(model))
    return _encoder("module", digest, prepared, size, channels, {"kind": "module", "module": name}, None, name)


def of_onnx(path: Path) -> Encoder:
    """An ONNX file with one image input, [b, c, h, w] or [b, h, w, c]; its first output, flattened, is the vector."""
    onnxruntime = _imported("onnxruntime", "an ONNX file")
    try:
        data = path.read_bytes()
        session = onnxruntime.InferenceSession(data, providers=onnxruntime.get_available_providers())
    except OSError as error:
        raise SevenfoldError(f"the file cannot be read: {error}", where=str(path), expected="an ONNX model") from error
    except Exception as error:  # onnxruntime's own errors share no base class
        raise SevenfoldError(
            f"the model cannot be loaded: {error}", where=str(path), expected="an ONNX model"
        ) from error
    given, told = session.get_inputs()[0], dict(session.get_modelmeta().custom_metadata_map)
    shape = [x if isinstance(x, int) else None for x in given.shape]
    if len(shape) != 4:
        raise SevenfoldError(
            f"its input {given.name} has {len(shape)} dimensions", where=str(path), expected="images [b, c, h, w]"
        )
    last = shape[3] in (1, 3) and shape[1] not in (1, 3)
    channels, side = (shape[3], shape[1]) if last else (shape[1] or 3, shape[2])
    size = int(told["size"]) if "size" in told else side
    mean = _numbers(json.loads(told["mean"])) if "mean" in told else IMAGENET[0][: channels or 3]
    std = _numbers(json.loads(told["std"])) if "std" in told else IMAGENET[1][: channels or 3]

    def run(images: torch.Tensor) -> torch.Tensor:
        array = images.permute(0, 2, 3, 1) if last else images
        out = session.run(None, {given.name: np.ascontiguousarray(array.numpy(), np.float32)})[0]
        return torch.from_numpy(np.asarray(out, np.float32).reshape(len(array), -1))

    prepared = Prepared(run, mean, std, torch.device("cpu"), torch.contiguous_format)
    about = {"kind": "onnx", "file": path.name}
    return _encoder("onnx", digest_bytes(data), prepared, size, channels or 3, about, None, path.stem)


def of_timm(name: str, device: torch.device) -> Encoder:
    """A pretrained model of timm without its classifier; timm says how images are prepared."""
    timm = _imported("timm", f"timm:{name}")
    model = _pretrained(f"timm:{name}", lambda: timm.create_model(name, pretrained=True, num_classes=0))
    wanted = timm.data.resolve_model_data_config(model)
    return _library("timm", name, model, wanted["input_size"][1], wanted["mean"], wanted["std"], device)


def of_torchvision(name: str, device: torch.device) -> Encoder:
    """A pretrained classifier of torchvision, taken before its last linear layer; 224 pixels, ImageNet's mean."""
    models = _imported("torchvision.models", f"torchvision:{name}")
    model = _pretrained(f"torchvision:{name}", lambda: models.get_model(name, weights="DEFAULT"))
    return _library("torchvision", name, model, 224, *IMAGENET, device)


def _library(
    library: str, name: str, model: nn.Module, size: int, mean: Sequence[float], std: Sequence[float],
    device: torch.device,
) -> Encoder:  # fmt: skip
    digest, network = digest_bytes(weights_bytes(model)), model.eval().to(device)
    encode, layer = (network, "output") if library == "timm" else penultimate(network, size, 3)
    prepared = Prepared(encode, _numbers(mean), _numbers(std), device, memory_layout(model))
    about = {"kind": library, "model": name, "layer": layer}
    return _encoder(library, digest, prepared, size, 3, about, None, name)


def _pretrained(name: str, make: Callable[[], nn.Module]) -> nn.Module:
    try:
        return make()
    except Exception as error:  # an unknown name, or weights that cannot be fetched: the libraries raise many kinds
        raise SevenfoldError(
            f"the model cannot be had: {type(error).__name__}: {error}", where=name,
            expected="a model of that library with pretrained weights",
            do="check the name; without a network put the weights into the library's cache, or name your own module",
        ) from error  # fmt: skip


def _imported(module: str, what: str) -> Any:
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SevenfoldError(
            f"{package} cannot be imported: {error}", where=what, do=f"pip install {package}, or choose another encoder"
        ) from error


@dataclass(frozen=True)
class Prepared:
    """A network behind its preprocessing: uint8 [b, h, w, c] -> float32 [b, d] on the CPU."""

    network: Callable[[torch.Tensor], torch.Tensor]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    device: torch.device
    layout: torch.memory_format

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """The vectors of some images."""
        if (self.mean, self.std) == _PLAIN:
            inputs = to_input(images, self.device, self.layout)  # to the bit what training gives the network
        else:
            shape = (1, -1, 1, 1)
            mean, std = (torch.tensor(x, device=self.device).view(shape) for x in (self.mean, self.std))
            inputs = images.to(self.device).permute(0, 3, 1, 2).float().div(255).sub(mean).div(std)
            inputs = inputs.contiguous(memory_format=self.layout)
        with torch.inference_mode():
            vectors = self.network(inputs)
        return torch.as_tensor(vectors).float().flatten(1).cpu()


def penultimate(model: nn.Module, size: int, channels: int) -> tuple[Encode, str]:
    """(a function that gives what the last linear layer is given, that layer's name); at worst the logits."""
    calls: list[tuple[str, torch.Tensor, torch.Tensor]] = []
    hooks = [
        layer.register_forward_hook(lambda _, given, out, name=name: calls.append((name, given[0], out)))
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear)
    ]
    device = next(model.parameters()).device
    with torch.inference_mode():
        logits = model(torch.zeros(2, channels, size, size, device=device))
    for hook in hooks:
        hook.remove()
    found = [name for name, given, out in calls if given.ndim == 2 and torch.equal(out, logits)]
    if not found:
        return model, "logits"
    layer = model.get_submodule(found[-1])

    def encode(images: torch.Tensor) -> torch.Tensor:
        kept: list[torch.Tensor] = []
        hook = layer.register_forward_pre_hook(lambda _, given: kept.append(given[0]))
        try:
            model(images)
        finally:
            hook.remove()
        return kept[-1]

    return encode, found[-1]


def _encoder(
    kind: str, digest: str, prepared: Prepared, size: int | None, channels: int | None, about: Mapping[str, Any],
    trained: pa.Array | None, name: str = "",
) -> Encoder:  # fmt: skip
    """The producer is the kind, the name where there is one, and 16 digits over everything that decides a vector."""
    shape = {"size": size, "channels": channels, "mean": prepared.mean, "std": prepared.std}
    whole = digest_json([digest, shape, about.get("layer")])
    called = re.sub(r"[^A-Za-z0-9.]+", ".", name).strip(".")[-40:]
    producer = "-".join(x for x in (kind, called, whole[:16]) if x)
    return Encoder(producer, prepared, size, channels, {**about, **shape, "digest": digest}, trained)


def _numbers(values: float | Sequence[float]) -> tuple[float, ...]:
    return tuple(float(v) for v in values) if isinstance(values, Sequence | torch.Tensor) else (float(values),)
