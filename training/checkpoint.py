"""Checkpoints: one directory per step, published by rename, so that it is complete or absent. No pickle."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import torch

from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.files import fsync_folder

TENSORS, META = "tensors.safetensors", "meta.json"


def save(folder: Path, step: int, tensors: dict[str, torch.Tensor], meta: dict[str, Any], keep: int) -> Path:
    """Publish `folder/step-<n>` with the tensors (safetensors) and everything else (JSON); keep the newest `keep`.

    A directory of that name is complete already (its content is decided by the step) and is left as it is.
    """
    from safetensors.torch import save_file

    final = folder / f"step-{step:08d}"
    if not final.exists():
        temporary = folder / f".tmp-{uuid.uuid4().hex}"
        temporary.mkdir(parents=True)
        save_file({k: v.detach().contiguous().cpu() for k, v in tensors.items()}, temporary / TENSORS)
        (temporary / META).write_bytes(canonical_json(meta))
        for name in (TENSORS, META):
            _fsync(temporary / name)
        fsync_folder(temporary)
        temporary.rename(final)
        fsync_folder(folder)
    for old in steps(folder)[:-keep]:
        _remove(folder / f"step-{old:08d}")
    return final


def steps(folder: Path) -> list[int]:
    """The steps that have a checkpoint, in order."""
    return sorted(int(p.name[5:]) for p in folder.glob("step-*"))


def load_newest(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
    """(tensors, meta) of the newest checkpoint, or None."""
    from safetensors.torch import load_file

    found = steps(folder)
    if not found:
        return None
    at = folder / f"step-{found[-1]:08d}"
    return load_file(at / TENSORS), json.loads((at / META).read_bytes())


def clean(folder: Path) -> None:
    """Remove what killed writers left behind."""
    for left in folder.glob(".tmp-*"):
        shutil.rmtree(left)


def _remove(path: Path) -> None:
    hidden = path.parent / f".tmp-{uuid.uuid4().hex}"
    path.rename(hidden)  # a directory half deleted must not look like a checkpoint
    shutil.rmtree(hidden)


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
