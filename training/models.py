"""Models: a small residual network by name, anybody's by `package.module:factory`, and their weights as safetensors."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from sevenfold.storage.errors import SevenfoldError
from sevenfold.training.norm import GlobalBatchNorm2d, globalise
from sevenfold.training.whitened import WhitenedCNN, smallest_side

Norm = Literal["group", "batch"]
_GROUPS = 4


def residual_cnn(
    num_classes: int, channels: int, widths: Sequence[int] = (16, 32, 64), norm: Norm = "batch"
) -> nn.Module:
    """A residual network of one block per width, halving the side at each block but the first.

    float [b, channels, h, w] -> logits float [b, num_classes]. About 78,000 parameters with the default widths.
    "batch" normalises over the whole global block, whichever ranks hold it; "group" normalises each sample by itself.
    With either, gradients do not depend on how a block is cut into ranks.
    """
    return _ResidualCNN(num_classes, channels, tuple(widths), norm)


def build_model(
    name: str, *, num_classes: int, channels: int, size: int, widths: Sequence[int] = (16, 32, 64), norm: Norm = "batch"
) -> nn.Module:
    """The model a configuration names: `residual_cnn`, `whitened_cnn`, or `package.module:factory`.

    A factory is called with num_classes, channels and size, and returns a module that takes float
    [b, channels, size, size] (pixels 0 ... 1, minus 0.5, times 4) and returns logits [b, num_classes]. Its BatchNorm2d
    layers become GlobalBatchNorm2d, with the same parameters and names. A model with a method `prepare` is called with
    some training images, as it would see them, before the first step.
    """
    if name == "residual_cnn":
        return residual_cnn(num_classes, channels, widths, norm)
    if name == "whitened_cnn":
        if size < smallest_side(widths):
            raise SevenfoldError(
                f"images of {size} pixels are too small for {len(widths)} widths",
                where="model whitened_cnn",
                expected=f"a side of {smallest_side(widths)} or more",
                do="give fewer widths, or raise size",
            )
        return WhitenedCNN(num_classes, channels, widths, lambda width: _norm(norm, width))
    module, colon, factory = name.partition(":")
    if not colon:
        raise SevenfoldError(
            f"no model is called {name!r}",
            where="model",
            expected="residual_cnn, whitened_cnn or package.module:factory",
        )
    try:
        make = getattr(import_from_here(module), factory)
    except (ImportError, AttributeError, SyntaxError, ValueError) as error:
        raise SevenfoldError(
            f"{name!r} cannot be imported: {error}",
            where="model",
            expected="package.module:factory, importable from the current folder",
            do="check the spelling, or set PYTHONPATH",
        ) from error
    try:
        model = make(num_classes=num_classes, channels=channels, size=size)
        if not isinstance(model, nn.Module):
            raise SevenfoldError(
                f"the factory returned {type(model).__name__}", where=name, expected="a torch.nn.Module"
            )
        _try(name, model, num_classes, channels, size)
    except SevenfoldError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if f.filename == getattr(sys.modules.get(module), "__file__", None)]
        last = (own or frames)[-1]  # the line of the model, rather than torch's, that fails
        raise SevenfoldError(
            f"the model failed with {type(error).__name__}: {error}",
            where=f"{name}, at {last.filename}, line {last.lineno}",
            expected=f"logits [b, {num_classes}] from images [b, {channels}, {size}, {size}]",
            do="mend the model; nothing was trained",
        ) from error
    return globalise(model)


def _try(name: str, model: nn.Module, num_classes: int, channels: int, size: int) -> None:
    """One pass over two blank images: a model of the wrong shape says so before anything is trained."""
    training = model.training
    with torch.no_grad():
        logits = model.eval()(torch.zeros(2, channels, size, size))
    model.train(training)
    if not any(p.requires_grad for p in model.parameters()):
        raise SevenfoldError("the model has no parameter to train", where=name, expected="a torch.nn.Module with some")
    found = list(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
    if found != [2, num_classes]:
        raise SevenfoldError(
            f"two images make {found}", where=name, expected=f"logits [2, {num_classes}]: one number per class",
            do="let the last layer return num_classes numbers per image",
        )  # fmt: skip


def to_input(
    images: torch.Tensor | np.ndarray, device: torch.device, layout: torch.memory_format = torch.channels_last
) -> torch.Tensor:
    """uint8 [b, h, w, c] -> float [b, c, h, w] in the layout given, each pixel (x / 255 - 0.5) * 4."""
    tensor = torch.as_tensor(images).to(device, non_blocking=True)
    return tensor.permute(0, 3, 1, 2).to(torch.float32, memory_format=layout).mul_(4 / 255).sub_(2)


def memory_layout(model: nn.Module) -> torch.memory_format:
    """channels_last, the quicker one, unless the model has a layer that it crashes.

    A strided 1 x 1 convolution of fewer than 16 channels writes out of bounds in oneDNN's channels_last backward on
    AVX-512 (github.com/uxlfoundation/oneDNN/issues/6035; seen with torch 2.13).
    """
    for layer in model.modules():
        if not isinstance(layer, nn.Conv2d) or layer.kernel_size != (1, 1):
            continue
        if layer.stride != (1, 1) and layer.in_channels < 16:
            return torch.contiguous_format
    return torch.channels_last


def weights_bytes(model: nn.Module) -> bytes:
    """The state dict as the bytes of a safetensors file."""
    from safetensors.torch import save

    return save({k: v.detach().contiguous().cpu() for k, v in model.state_dict().items()})


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a safetensors state dict; where only the class count differs, the rows of known classes are kept.

    The list of classes only ever grows at its end, so that a model of fewer classes is a prefix of one with more.
    Raises SevenfoldError when anything else differs, naming it.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        given = load_file(path)
    except (OSError, SafetensorError) as error:
        raise SevenfoldError(f"the weights cannot be read: {error}", where=str(path), expected="safetensors") from error
    own = model.state_dict()
    if given.keys() != own.keys():
        odd = sorted(given.keys() ^ own.keys())
        raise SevenfoldError(
            f"{len(odd)} tensors differ by name, the first is {odd[0]}",
            where=str(path),
            expected=f"the {len(own)} tensors of this model",
            do="use the model, widths and norm the weights were trained with",
        )
    for key, value in given.items():
        mine = own[key]
        if mine.shape == value.shape:
            own[key] = value
        elif mine.shape[1:] == value.shape[1:] and 0 < value.shape[0] < mine.shape[0]:
            own[key] = torch.cat([value, mine[value.shape[0] :]])
        else:
            raise SevenfoldError(f"{key} is {list(value.shape)}", where=str(path), expected=str(list(mine.shape)))
    model.load_state_dict(own)


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = _norm(norm, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = _norm(norm, outputs)
        # pool, then a 1 x 1 convolution: a strided one with few channels crashes in oneDNN's channels_last backward
        # (github.com/uxlfoundation/oneDNN/issues/6035), and throws three quarters of its input away besides
        pool = nn.Identity() if stride == 1 else nn.AvgPool2d(stride, ceil_mode=True, count_include_pad=False)
        same = inputs == outputs and stride == 1
        self.skip = nn.Identity() if same else nn.Sequential(pool, nn.Conv2d(inputs, outputs, 1, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(inner)) + self.skip(x))


class _ResidualCNN(nn.Module):
    def __init__(self, num_classes: int, channels: int, widths: tuple[int, ...], norm: Norm) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, widths[0], 3, 1, 1, bias=False)
        self.norm = _norm(norm, widths[0])
        before = (widths[0], *widths[:-1])
        self.blocks = nn.Sequential(
            *(_Block(i, o, 1 if n == 0 else 2, norm) for n, (i, o) in enumerate(zip(before, widths, strict=True)))
        )
        self.head = nn.Linear(widths[-1], num_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):  # He et al. 2015
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(F.relu(self.norm(self.stem(x))))
        return self.head(x.mean((2, 3)))


def _norm(norm: Norm, channels: int) -> nn.Module:
    if norm == "batch":
        return GlobalBatchNorm2d(channels)
    groups = next(g for g in range(min(_GROUPS, channels), 0, -1) if channels % g == 0)
    return nn.GroupNorm(groups, channels)


def import_from_here(module: str) -> object:
    """Import a module, the current folder included (as `python -m` does), whatever the entry point was."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    return importlib.import_module(module)
