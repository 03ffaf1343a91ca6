"""The model registry: numbered, immutable models in the lake. Names that move over them: training/aliases.py.

    models/<name>/<number>/{model.safetensors, model.json, metrics.parquet}

A model's folder is written under a hidden name and renamed, so it is there whole or not at all; numbering happens under
a lock that the kernel frees if its holder dies. A crash leaves at most a `.tmp-*` folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.files import fsync_folder, locked, temporary_beside
from sevenfold.storage.names import check_name
from sevenfold.training.safetensors_header import check_safetensors

WEIGHTS, CARD, METRICS = "model.safetensors", "model.json", "metrics.parquet"
METRICS_SCHEMA = pa.schema([("metric", pa.string()), ("slice", pa.string()), ("value", pa.float64())])


class HasRoot(Protocol):
    """A lake, as far as the registry needs one."""

    @property
    def root(self) -> Path:
        """The lake's folder."""
        ...


@dataclass(frozen=True)
class Model:
    """A registered model, as its model.json says."""

    name: str
    number: int
    folder: Path
    run_id: str
    dataset: str
    version: str
    content_id: str
    classes: tuple[str, ...]
    config: Mapping[str, Any]
    weights_digest: str
    parameters: int
    saw: tuple[str, ...]
    parent: str | None
    created: float

    @property
    def ref(self) -> str:
        """`name/number`, which resolves to this model for ever."""
        return f"{self.name}/{self.number}"

    @property
    def weights(self) -> Path:
        """The safetensors file."""
        return self.folder / WEIGHTS

    def metrics(self) -> pa.Table:
        """What was measured when it was registered."""
        return pq.read_table(self.folder / METRICS)


def register(
    lake: HasRoot,
    name: str,
    *,
    run_id: str,
    weights: Path,
    dataset: str,
    version: str,
    content_id: str,
    classes: Sequence[str],
    config: Mapping[str, Any],
    metrics: pa.Table | None = None,
    saw: Sequence[str] = (),
    parent: str | None = None,
    clock: Callable[[], float] = time.time,
) -> Model:
    """Copy a run's result into the lake under the next free number.

    Registering the same run id again returns the model that is there, unchanged (a retry is harmless; the weights of
    a repeat on other hardware may differ in the last bits, and the first stands).

    Parameters
    ----------
    weights : a safetensors file; it is checked, then copied, so that the run's own file may go.
    config : what JSON can hold; the run's whole configuration.
    metrics : any table; by habit (metric, slice, value).
    saw : content ids of versions it was also trained on (replay); its own and its parent's are added.
    parent : `name/number` (or any ref) of the model it started from.

    Raises
    ------
    SevenfoldError : a bad name, not a safetensors file, no classes, an unknown parent, or a known run id that names
        another content id.
    """
    home = _home(lake, name)
    if not run_id or not classes or len(set(classes)) != len(classes):
        raise SevenfoldError(
            f"run id {run_id!r}, classes {list(classes)}", where=f"model {name}", expected="a run id, distinct classes"
        )
    summary = check_safetensors(weights)
    origin = resolve(lake, parent) if parent else None
    seen = tuple(dict.fromkeys([*(origin.saw if origin else ()), *saw, content_id]))
    with locked(home / "registry"):
        known = models(lake, name)
        for model in known:
            if model.run_id == run_id:
                if model.content_id != content_id:
                    raise SevenfoldError(
                        f"run {run_id} is registered as {model.ref} on content id {model.content_id}",
                        where=f"model {name}",
                        expected=f"the same content id, not {content_id}",
                    )
                return model
        number = known[-1].number + 1 if known else 1
        building = temporary_beside(home / str(number))
        building.mkdir()
        card = {
            "format": 1,
            "name": name,
            "number": number,
            "run_id": run_id,
            "dataset": dataset,
            "version": version,
            "content_id": content_id,
            "classes": list(classes),
            "config": dict(config),
            "weights_digest": _copy_synced(weights, building / WEIGHTS),
            "parameters": summary.values,
            "saw": list(seen),
            "parent": origin.ref if origin else None,
            "created": clock(),
        }
        try:
            pq.write_table(metrics if metrics is not None else METRICS_SCHEMA.empty_table(), building / METRICS)
            (building / CARD).write_bytes(canonical_json(card))
            check_safetensors(building / WEIGHTS)
            for path in building.iterdir():
                with open(path, "rb") as f:
                    os.fsync(f.fileno())
                path.chmod(0o444)
            fsync_folder(building)
            building.rename(home / str(number))  # never onto another model: a folder with files in it is not replaced
        except BaseException:
            shutil.rmtree(building)
            raise
        fsync_folder(home)
    return _load(home / str(number))


def names(lake: HasRoot) -> list[str]:
    """The names that have models, sorted."""
    root = lake.root / "models"
    return sorted(p.name for p in root.iterdir() if p.is_dir() and _numbers(p)) if root.is_dir() else []


def models(lake: HasRoot, name: str) -> list[Model]:
    """The models of that name, oldest first; empty when there is none."""
    home = _home(lake, name)
    return [_load(home / str(number)) for number in _numbers(home)]


def resolve(lake: HasRoot, ref: str) -> Model:
    """The model that `name@alias`, `name/3` or `name` (its newest) means.

    Raises
    ------
    SevenfoldError : it does not exist; the message says what does.
    """
    from sevenfold.training.aliases import read_alias

    name, mark, rest = ref.partition("@") if "@" in ref else ref.partition("/")
    numbers = _numbers(_home(lake, name))
    if not numbers:
        known = ", ".join(names(lake)) or "none yet"
        raise SevenfoldError("there is no such model", where=ref, expected=f"one of the models: {known}")
    if not mark:
        number: int | None = numbers[-1]
    elif mark == "/":
        number = int(rest) if rest.isascii() and rest.isdigit() else None
    else:
        alias = read_alias(lake, name, rest)
        number = alias.number if alias else None
    if number not in numbers:
        raise SevenfoldError(
            f"{name} has no {'alias' if mark == '@' else 'number'} {rest!r}",
            where=ref,
            expected=f"a number from {numbers[0]} to {numbers[-1]}, or an alias that is set",
        )
    return _load(_home(lake, name) / str(number))


def verify(model: Model) -> None:
    """Raise SevenfoldError when the weights are no longer the bytes that were registered."""
    with open(model.weights, "rb") as f:
        found = hashlib.file_digest(f, "sha256").hexdigest()
    if found != model.weights_digest:
        raise SevenfoldError(
            f"the weights have digest {found}",
            where=str(model.weights),
            expected=model.weights_digest,
            do="restore the file from a copy, or register the run again under a new run id",
        )


def _home(lake: HasRoot, name: str) -> Path:
    return lake.root / "models" / check_name(name, "model name")


def _numbers(home: Path) -> list[int]:
    if not home.is_dir():
        return []
    return sorted(int(p.name) for p in home.iterdir() if p.name.isascii() and p.name.isdigit())


def _load(folder: Path) -> Model:
    path = folder / CARD
    card = json.loads(path.read_bytes())
    if card.pop("format", None) != 1:
        raise SevenfoldError("an unknown format", where=str(path), expected="format 1", do="update Sevenfold")
    return Model(**{**card, "classes": tuple(card["classes"]), "saw": tuple(card["saw"]), "folder": folder})


def _copy_synced(source: Path, target: Path) -> str:
    """Copy and return the sha256 of what was copied (the caller syncs)."""
    digest = hashlib.sha256()
    with open(source, "rb") as read, open(target, "xb") as write:
        while block := read.read(1 << 20):
            digest.update(block)
            write.write(block)
    return digest.hexdigest()
