"""The model registry: numbered, immutable models in the lake. Names that move over them: training/aliases.py.

    models/<name>/<number>/{claim.json, model.safetensors, metrics.parquet, model.json}

A run takes a number by creating its claim, which only one can; weights and metrics follow, and `model.json`, written
last, makes the model. Whatever is there is never written again. Registering a run again goes on with the number that
it claimed, so a crash loses no number and leaves no half model.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import read_parquet, write_parquet
from sevenfold.storage.names import check_name
from sevenfold.storage.store import Store
from sevenfold.training.safetensors_header import check_safetensors

CLAIM, WEIGHTS, METRICS, CARD = "claim.json", "model.safetensors", "metrics.parquet", "model.json"
METRICS_SCHEMA = pa.schema([("metric", pa.string()), ("slice", pa.string()), ("value", pa.float64())])


class HasStore(Protocol):
    """A lake, as far as the registry needs one."""

    @property
    def store(self) -> Store:
        """Where its files lie."""
        ...


@dataclass(frozen=True)
class Model:
    """A registered model, as its model.json says. `folder`: the key of its folder in the lake."""

    name: str
    number: int
    folder: str
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
    store: Store = field(repr=False, compare=False)

    @property
    def ref(self) -> str:
        """`name/number`, which resolves to this model for ever."""
        return f"{self.name}/{self.number}"

    def weights_path(self) -> Path:
        """A path on this machine to read the safetensors file from."""
        return self.store.local(f"{self.folder}/{WEIGHTS}")

    def metrics(self) -> pa.Table:
        """What was measured when it was registered."""
        return read_parquet(self.store, f"{self.folder}/{METRICS}")


def register(
    lake: HasStore,
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
    home, store = _home(name), lake.store
    if not run_id or not classes or len(set(classes)) != len(classes):
        raise SevenfoldError(
            f"run id {run_id!r}, classes {list(classes)}", where=f"model {name}", expected="a run id, distinct classes"
        )
    summary, digest = check_safetensors(weights), _digest(weights)
    origin = resolve(lake, parent) if parent else None
    card = {
        "format": 1,
        "name": name,
        "run_id": run_id,
        "dataset": dataset,
        "version": version,
        "content_id": content_id,
        "classes": list(classes),
        "config": dict(config),
        "parameters": summary.values,
        "saw": list(dict.fromkeys([*(origin.saw if origin else ()), *saw, content_id])),
        "parent": origin.ref if origin else None,
        "created": clock(),
    }
    canonical_json(card)  # what JSON cannot hold takes no number
    number = _claim(store, home, name, run_id, content_id)
    at = f"{home}/{number}"
    if not store.exists(f"{at}/{CARD}"):
        stored = _store_weights(store, f"{at}/{WEIGHTS}", weights, digest)
        table = metrics if metrics is not None else METRICS_SCHEMA.empty_table()
        write_parquet(store, f"{at}/{METRICS}", [table], table.schema, overwrite=False)
        store.create(f"{at}/{CARD}", canonical_json({**card, "number": number, "weights_digest": stored}))
    return _load(store, at)


def names(lake: HasStore) -> list[str]:
    """The names that have models, sorted."""
    return [name for name in lake.store.names("models") if _numbers(lake.store, f"models/{name}")]


def models(lake: HasStore, name: str) -> list[Model]:
    """The models of that name, oldest first; empty when there is none."""
    home = _home(name)
    return lake.store.together(lambda n: _load(lake.store, f"{home}/{n}"), _numbers(lake.store, home))


def resolve(lake: HasStore, ref: str) -> Model:
    """The model that `name@alias`, `name/3` or `name` (its newest) means.

    Raises
    ------
    SevenfoldError : it does not exist; the message says what does.
    """
    from sevenfold.training.aliases import read_alias

    name, mark, rest = ref.partition("@") if "@" in ref else ref.partition("/")
    numbers = _numbers(lake.store, _home(name))
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
    return _load(lake.store, f"{_home(name)}/{number}")


def verify(model: Model) -> None:
    """Raise SevenfoldError when the weights are no longer the bytes that were registered."""
    key = f"{model.folder}/{WEIGHTS}"
    model.store.forget(key)  # what is asked about is the lake's file, not this machine's copy of it
    found = _digest(model.weights_path())
    if found != model.weights_digest:
        raise SevenfoldError(
            f"the weights have digest {found}",
            where=f"{model.store.url}/{key}",
            expected=model.weights_digest,
            do="restore the file from a copy, or register the run again under a new run id",
        )


def _home(name: str) -> str:
    return f"models/{check_name(name, 'model name')}"


def _numbers(store: Store, home: str) -> list[int]:
    """The numbers of the models that are complete, in order."""
    parts = (e.key.removeprefix(f"{home}/").split("/") for e in store.entries(home))
    return sorted(int(p[0]) for p in parts if p[1:] == [CARD] and _is_number(p[0]))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _load(store: Store, folder: str) -> Model:
    card = json.loads(store.read(f"{folder}/{CARD}"))
    if card.pop("format", None) != 1:
        raise SevenfoldError(
            "an unknown format", where=f"{store.url}/{folder}/{CARD}", expected="format 1", do="update Sevenfold"
        )
    lists = {key: tuple(card[key]) for key in ("classes", "saw")}
    return Model(**{**card, **lists, "folder": folder, "store": store})


def _claim(store: Store, home: str, name: str, run_id: str, content_id: str) -> int:
    """The number of a run: the one it claimed before, else the first that nobody has claimed.

    Claims are never taken back, and who finds a number claimed tries the next one, so the claimed numbers have no
    gap. Two that register one run at once therefore meet: whoever is second comes to the first one's claim before it
    comes to a free number. (A folder without a claim is no claim: it may be about to get one.)
    """
    mine = canonical_json({"format": 1, "run_id": run_id, "content_id": content_id})
    taken = sorted(int(n) for n in store.names(home) if _is_number(n))
    claims = dict(zip(taken, store.together(lambda n: _claimed(store, home, n), taken), strict=True))
    number = next((n for n, claim in claims.items() if claim.get("run_id") == run_id), None)
    if number is None:
        number = max((n for n, claim in claims.items() if claim), default=0) + 1
        while not store.create(f"{home}/{number}/{CLAIM}", mine):
            if _claimed(store, home, number).get("run_id") == run_id:
                break
            number += 1
    claim = _claimed(store, home, number)
    if claim.get("content_id") != content_id:
        raise SevenfoldError(
            f"run {run_id} is registered as {name}/{number} on content id {claim.get('content_id')}",
            where=f"model {name}",
            expected=f"the same content id, not {content_id}",
        )
    store.renew(f"{home}/{number}/{CLAIM}")  # garbage collection leaves it to this run
    return number


def _claimed(store: Store, home: str, number: int) -> dict[str, Any]:
    """Who took a number (run_id, content_id): its claim says so, and without one the model itself; {} for nobody."""
    for name in (CLAIM, CARD):
        try:
            claim: dict[str, Any] = json.loads(store.read(f"{home}/{number}/{name}"))
        except FileNotFoundError:
            continue
        return claim
    return {}


def _store_weights(store: Store, key: str, source: Path, digest: str) -> str:
    """Copy the weights if there are none yet; the digest of those that are there, which others may have put."""
    if not store.renew(key):
        with store.writing(key) as draft, open(source, "rb") as read:
            copied = hashlib.sha256()
            while block := read.read(1 << 20):
                copied.update(block)
                draft.file.write(block)
            if copied.hexdigest() != digest:
                raise SevenfoldError("the weights changed while they were copied", where=str(source), do="try again")
        if draft.made:
            return digest
    return _digest(store.local(key))


def _digest(path: Path) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
