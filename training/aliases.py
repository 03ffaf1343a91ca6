"""Names that move over a model's numbers (champion ...), by compare-and-swap, each with its whole history.

    models/<name>/aliases/<alias>.json

The history lies in the same file as the pointer, so no crash can separate a move from its record; moves only append.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.names import check_name
from sevenfold.training.registry import HasStore, resolve


@dataclass(frozen=True)
class Move:
    """One move of an alias: from `previous` (None: it was set first) to `number`, with the gate's `reasons`."""

    sequence: int
    previous: int | None
    number: int
    reasons: tuple[str, ...]
    by: str
    time: float


@dataclass(frozen=True)
class Alias:
    """Where an alias points, and every move that led there, oldest first."""

    name: str
    alias: str
    number: int
    history: tuple[Move, ...]


def read_alias(lake: HasStore, name: str, alias: str) -> Alias | None:
    """The alias, or None when it was never set."""
    data = _read(lake, _key(name, alias))
    return _parse(data, name, alias) if data is not None else None


def aliases(lake: HasStore, name: str) -> list[Alias]:
    """Every alias of that name, sorted."""
    found = lake.store.read_folder(_folder(name), ".json")
    return [_parse(data, name, file.removesuffix(".json")) for file, data in sorted(found.items())]


def set_alias(
    lake: HasStore,
    name: str,
    alias: str,
    number: int,
    *,
    expected: int | None,
    reasons: Sequence[str] = (),
    by: str = "",
    clock: Callable[[], float] = time.time,
) -> Alias:
    """Point `alias` at `number` if it still points at `expected` (None: is not set yet).

    Repeating the newest move (same expected, same number) changes nothing and returns what is there: a retry after a
    crash is harmless. Pointing back at an older number is a rollback, a move like any other.

    Raises
    ------
    SevenfoldError : the number does not exist, or the alias points elsewhere by now.
    """
    resolve(lake, f"{name}/{number}")
    key = _key(name, alias)
    before = _read(lake, key)
    now = _parse(before, name, alias) if before is not None else None
    if now and now.number == number and expected in (now.history[-1].previous, number):
        return now
    if (now.number if now else None) != expected:
        raise SevenfoldError(
            f"it points at {f'number {now.number}' if now else 'nothing'}",
            where=f"{name}@{alias}",
            expected=f"number {expected}" if expected is not None else "not set yet",
            do="compare with the model that is there now and try again",
        )
    history = now.history if now else ()
    move = Move(len(history) + 1, expected, number, tuple(reasons), by, clock())
    after = Alias(name, alias, number, (*history, move))
    if not lake.store.swap(key, before, canonical_json({"format": 1, **asdict(after)})):
        raise SevenfoldError(
            "another writer moved it meanwhile",
            where=f"{name}@{alias}",
            expected=f"number {expected}" if expected is not None else "not set yet",
            do="compare with the model that is there now and try again",
        )
    return after


def _parse(data: bytes, name: str, alias: str) -> Alias:
    value = json.loads(data)
    if value["format"] != 1:
        raise SevenfoldError("an unknown format", where=f"{name}@{alias}", expected="format 1", do="update Sevenfold")
    history = tuple(Move(**{**move, "reasons": tuple(move["reasons"])}) for move in value["history"])
    return Alias(name, alias, value["number"], history)


def _read(lake: HasStore, key: str) -> bytes | None:
    try:
        return lake.store.read(key)
    except FileNotFoundError:
        return None


def _folder(name: str) -> str:
    return f"models/{check_name(name, 'model name')}/aliases"


def _key(name: str, alias: str) -> str:
    return f"{_folder(name)}/{check_name(alias, 'alias')}.json"
