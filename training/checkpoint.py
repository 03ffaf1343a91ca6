"""Checkpoints of a run in its lake, on a disk or in a bucket. No pickle.

    <folder>/step-<n>/{tensors.safetensors, meta.json}

`meta.json` is written last and names the size and digest of the tensors. Without it, or when they differ, there is no
checkpoint at that step, and the one before it counts. One that is removed loses its meta first.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.store import LocalStore, Store

TENSORS, META = "tensors.safetensors", "meta.json"
_STEP = re.compile(r"step-([0-9]+)")


@dataclass(frozen=True)
class Loaded:
    """The newest checkpoint that is whole: its step, its tensors and everything else."""

    step: int
    tensors: dict[str, torch.Tensor]
    meta: dict[str, Any]


def save(
    store: Store, folder: str, step: int, tensors: dict[str, torch.Tensor], meta: dict[str, Any], keep: int
) -> None:
    """Write `<folder>/step-<n>`: the tensors (safetensors), then everything else (JSON).

    The newest `keep` stay. One that is complete is left as it is: its content is decided by the step.
    """
    from safetensors.torch import save as to_bytes

    at = _at(folder, step)
    if not store.exists(f"{at}/{META}"):
        data = to_bytes({k: v.detach().contiguous().cpu() for k, v in tensors.items()})
        store.replace(f"{at}/{TENSORS}", data)
        named = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        store.replace(f"{at}/{META}", canonical_json({"tensors": named, "meta": meta}))
    for old in steps(store, folder)[:-keep]:
        _remove(store, folder, old)


def steps(store: Store, folder: str) -> list[int]:
    """The steps that have a checkpoint with a meta.json, in order."""
    keys = (e.key.removeprefix(f"{folder}/").split("/") for e in store.entries(folder))
    return sorted(int(m[1]) for k in keys if k[1:] == [META] and (m := _STEP.fullmatch(k[0])))


def load_newest(store: Store, folder: str) -> tuple[Loaded | None, list[str]]:
    """(the newest whole checkpoint or None, what was passed over on the way to it, a sentence each)."""
    passed: list[str] = []
    for step in reversed(steps(store, folder)):
        try:
            return Loaded(step, *_load(store, _at(folder, step))), passed
        except (_Torn, FileNotFoundError) as reason:
            passed.append(f"the checkpoint of step {step} is not whole ({reason}), so the one before it is taken")
    return None, passed


def clean(store: Store, folder: str, step: int) -> None:
    """Remove what lies past `step`, where the run goes on from, and what killed writers left behind."""
    whole = {s for s in steps(store, folder) if s <= step}
    left = set()
    for entry in store.entries(folder, hidden=True):
        name, _, file = entry.key.removeprefix(f"{folder}/").partition("/")
        found = _STEP.fullmatch(name)
        if found and int(found[1]) in whole and not file.startswith("."):
            continue
        if found:
            left.add(int(found[1]))
        if found is None or int(found[1]) in whole:
            store.delete(entry.key)
    for one in left - whole:
        _remove(store, folder, one)


class _Torn(Exception):
    """What is wrong with a checkpoint's files."""


def _load(store: Store, at: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        about = json.loads(store.read(f"{at}/{META}"))
        named, meta = about["tensors"], about["meta"]
        expected = named["bytes"], named["sha256"]
        if not isinstance(meta, dict):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise _Torn(f"{META} is damaged") from None
    data = b""
    for _ in range(2):  # a bad copy on this machine is no bad checkpoint: it is fetched once more
        data = store.local(f"{at}/{TENSORS}").read_bytes()
        if (len(data), hashlib.sha256(data).hexdigest()) == expected:
            try:
                return load(data), meta
            except SafetensorError as e:
                raise _Torn(f"{TENSORS} has the bytes it names, but they are no tensors: {e}") from None
        store.forget(f"{at}/{TENSORS}")
    size = f"{len(data)} bytes instead of {expected[0]}" if len(data) != expected[0] else "other bytes than it names"
    raise _Torn(f"{TENSORS} has {size}")


def _remove(store: Store, folder: str, step: int) -> None:
    """Remove one checkpoint, its meta first, so that no instant shows half of it as whole."""
    at = _at(folder, step)
    store.delete(f"{at}/{META}")
    for entry in store.entries(at, hidden=True):
        store.delete(entry.key)
    store.forget(f"{at}/{TENSORS}")
    if isinstance(store, LocalStore):
        with suppress(OSError):  # somebody writes it again
            store.path(at).rmdir()


def _at(folder: str, step: int) -> str:
    return f"{folder}/step-{step:08d}"
