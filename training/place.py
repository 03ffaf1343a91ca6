"""The place of this process among the ranks: joining and leaving the group, and the few sums the trainer needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Place:
    """This process's rank, how many ranks there are, and where its tensors live."""

    rank: int = 0
    world: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009  immutable

    @staticmethod
    def join(timeout: float) -> Place:
        """Join the group that torchrun's environment describes: nccl on GPUs, gloo otherwise; alone without one.

        The ranks find each other through the file SEVENFOLD_STORE names, or through MASTER_ADDR and MASTER_PORT.
        """
        world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
        local = int(os.environ.get("LOCAL_RANK", "0"))
        cuda = torch.cuda.is_available() and torch.cuda.device_count() > local
        device = torch.device("cuda", local) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(device)
        if world > 1:
            store = os.environ.get("SEVENFOLD_STORE")
            dist.init_process_group(
                "nccl" if cuda else "gloo",
                init_method=f"file://{store}" if store else "env://",
                rank=rank,
                world_size=world,
                timeout=timedelta(seconds=timeout),
            )
        return Place(rank, world, device)

    def sum(self, values: Sequence[float]) -> list[float]:
        """The values summed over all ranks, in float64; the same on each."""
        if self.world == 1:
            return [float(v) for v in values]
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        """Parts of equal shape [n, ...] from every rank, stacked in rank order: [world * n, ...] on the CPU."""
        if self.world == 1:
            return part.cpu()
        parts = [torch.empty_like(part) for _ in range(self.world)]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts).cpu()

    def union(self, numbers: Sequence[int]) -> list[int]:
        """The whole numbers that any rank gives, each once, in order; the same on each."""
        if self.world == 1:
            return sorted(set(numbers))
        mine = torch.tensor(numbers, dtype=torch.int64, device=self.device)
        counts = self.gather(torch.tensor([len(mine)], device=self.device)).tolist()
        filled = torch.zeros(max(counts), dtype=torch.int64, device=self.device)
        filled[: len(mine)] = mine
        parts = self.gather(filled).split(max(counts)) if max(counts) else ()
        return sorted({x for part, n in zip(parts, counts, strict=False) for x in part[:n].tolist()})

    def wait(self) -> None:
        """Until every rank is here."""
        if self.world > 1:
            dist.barrier()

    def leave(self) -> NoReturn:
        """End the process, once all ranks are here, without destructors: gloo's threads abort some ordinary exits."""
        if self.world > 1:
            dist.barrier()
            dist.destroy_process_group()
        _exit(0)

    def abort(self) -> NoReturn:
        """End the process with code 1 at once; torchrun then ends the others."""
        _exit(1)


def _exit(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
