"""One optimisation step whose gradient is that of the global block, however many ranks share it.

Each rank's loss is the weighted sum over its slots, divided by the weight of the *whole* block and multiplied by the
number of ranks, which the averaging of DistributedDataParallel divides out again. Uneven tails, masked slots and
samples that failed to decode therefore change nothing but the sum they are missing from.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from sevenfold.training.augment import augment
from sevenfold.training.config import TrainConfig
from sevenfold.training.draw import key
from sevenfold.training.loader import Batch
from sevenfold.training.models import memory_layout, to_input
from sevenfold.training.place import Place

_DROPOUT = 4
"""Keeps torch's generator independent of what other hashes of the seed decide."""


Watch = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], None]
"""Is told of each step: its number; rows and labels (int64 [b]) of the samples that count; logits [b, classes]."""


class Learner:
    """A model with its optimizer, at one place. What `watch` is, if it is set, sees every step's logits.

    Parameters
    ----------
    model : on the CPU, the same on every rank.
    config : of the run.
    seed : keys the augmentation and, per step, torch's generator (for dropout in a user's model).
    place : this rank.
    precision : "fp32" or "bf16" (autocast; the parameters stay float32).
    """

    def __init__(self, model: nn.Module, config: TrainConfig, seed: int, place: Place, precision: str) -> None:
        self.config, self.seed, self.place, self.precision = config, seed, place, precision
        self.layout = memory_layout(model)
        self.model = model.to(place.device).to(memory_format=self.layout)  # type: ignore[call-overload]
        self.parallel = self.model
        if place.world > 1:
            self.parallel = nn.parallel.DistributedDataParallel(self.model)
        parameters = list(self.model.parameters())
        groups: list[dict[str, Any]] = [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": config.weight_decay},
            {"params": [p for p in parameters if p.ndim <= 1]},  # biases and norms do not decay
        ]
        self.optimizer = torch.optim.SGD(
            [g for g in groups if g["params"]],
            lr=config.lr,
            momentum=config.momentum,
            nesterov=config.momentum > 0,
        )
        self.watch: Watch | None = None
        self._batch_norm = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in self.model.modules())

    def step(self, batch: Batch, keys: np.ndarray, step: int, lr: float) -> dict[str, float]:
        """Forward, backward and update on this rank's slots of one global block.

        Parameters
        ----------
        batch : from the loader; with draws by weight every sample that was drawn counts alike.
        keys : uint64 [b], of each use of a sample (augment.sample_keys).
        step : how far the training is; with the seed and the rank it keys dropout.
        lr : learning rate.

        Returns forward, backward and optimizer seconds, `augment` seconds, `loss_sum` and `weight` of the global block
        and `samples`, the slots of this rank that counted.
        """
        begun = perf_counter()
        torch.manual_seed(int(key(self.seed, step, self.place.rank, _DROPOUT) >> np.uint64(1)))
        images = augment(batch["images"].numpy(), keys, self.seed, self.config.augment)
        inputs = to_input(images, self.place.device, self.layout)
        prepared = perf_counter()
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        loss_sum = self.loss_sum(inputs, batch, step)
        weight = float(self.weights(batch).sum())
        total_loss, total_weight = self.place.sum([loss_sum.item(), weight])
        forward = perf_counter()
        (loss_sum * (self.place.world / max(total_weight, 1e-12))).backward()
        backward = perf_counter()
        self.optimizer.step()
        return {
            "augment": prepared - begun,
            "forward": forward - prepared,
            "backward": backward - forward,
            "optimizer": perf_counter() - backward,
            "loss_sum": total_loss,
            "weight": total_weight,
            "samples": int(batch["mask"].sum()),
        }

    def weights(self, batch: Batch) -> torch.Tensor:
        """float32 [b]: the weight of each slot's loss. Drawing by weight has spent the samples' own weights already."""
        return batch["mask"].float() if self.config.sampling == "with_replacement" else batch["weight"]

    def loss_sum(self, inputs: torch.Tensor, batch: Batch, step: int) -> torch.Tensor:
        """The weighted sum of the losses of this rank's slots; masked slots weigh nothing."""
        mask = batch["mask"]
        label, weight, row = batch["label"], self.weights(batch), batch["row"]
        if self._batch_norm and not mask.all():  # empty slots must not enter the statistics
            inputs, label, weight, row = inputs[mask.to(inputs.device)], label[mask], weight[mask], row[mask]
        with self.autocast():
            logits = self.parallel(inputs)
        if self.watch is not None:
            counts = label >= 0
            self.watch(step, row[counts], label[counts], logits.detach()[counts.to(logits.device)])
        label, weight = label.clamp(min=0).to(logits.device), weight.to(logits.device)
        losses = F.cross_entropy(logits.float(), label, reduction="none", label_smoothing=self.config.label_smoothing)
        return (losses * weight).sum()

    def autocast(self) -> AbstractContextManager[Any]:
        """bf16 autocast, or nothing."""
        if self.precision == "bf16":
            return torch.autocast(self.place.device.type, dtype=torch.bfloat16)
        return nullcontext()

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything a checkpoint needs: `model.<name>` and `momentum.<name>`."""
        found = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            momentum = self.optimizer.state.get(parameter, {}).get("momentum_buffer")
            if momentum is not None:
                found[f"momentum.{name}"] = momentum
        return found

    def load_tensors(self, tensors: dict[str, torch.Tensor]) -> None:
        """Continue from a checkpoint's tensors."""
        self.model.load_state_dict({k[6:]: v for k, v in tensors.items() if k.startswith("model.")})
        for name, parameter in self.model.named_parameters():
            momentum = tensors.get(f"momentum.{name}")
            if momentum is not None:
                buffer = torch.empty_like(parameter)  # with the parameter's own memory layout, as SGD would make it
                self.optimizer.state[parameter]["momentum_buffer"] = buffer.copy_(momentum)


def learning_rate(step: int, total: int, peak: float, warmup: float) -> float:
    """Linear from near 0 to `peak` over the first `warmup` share of the steps, then linear to 0 after the last."""
    rise = warmup * total
    return peak * min((step + 1) / rise if rise else 1.0, (total - step) / max(total - rise, 1.0), 1.0)


def choose_precision(wanted: str, device: torch.device) -> str:
    """`auto`: bf16 where the processor computes it natively (AVX512-BF16, AMX; a GPU of that kind), else fp32.

    Decided by capability and not by a race, so that a resumed run never changes its arithmetic on the same machine.
    """
    if wanted != "auto":
        return wanted
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    able = torch.cpu.get_capabilities()
    return "bf16" if able.get("avx512_bf16") or able.get("amx_bf16") else "fp32"
