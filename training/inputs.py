"""Files that a configuration names: paths on this machine, or places in the lake (`s3://bucket/lake/runs/run-1`)."""

from __future__ import annotations

from pathlib import Path

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.store import Store
from sevenfold.training.config import TrainConfig

_WEIGHTS, _TRAINED = "model.safetensors", "trained.parquet"


def local_file(store: Store, place: str) -> Path:
    """The path to read a named file from: a lake's file, by its URL, through `store.local`.

    Raises SevenfoldError when the lake has no such file; a path on this machine is returned as it is.
    """
    key = _key(store, place)
    if key is None:
        return Path(place)
    try:
        return store.local(key)
    except FileNotFoundError:
        raise SevenfoldError("there is no such file in this lake", where=place) from None


def on_this_machine(store: Store, config: TrainConfig) -> TrainConfig:
    """The configuration with the lists of ids it names as paths on this machine."""

    def here(place: str | None) -> str | None:
        return None if place is None else str(local_file(store, place))

    mix = [{**source.model_dump(mode="json"), "ids": here(source.ids)} for source in config.mix]
    return config.changed(select_ids=here(config.select_ids), mix=mix)


def weights_path(store: Store, init_from: str) -> Path:
    """The model.safetensors that `init_from` (a file, or the folder of a run or model) means.

    Raises SevenfoldError when there is none.
    """
    key = _key(store, init_from)
    if key is None:
        path = Path(init_from)
        path = path / _WEIGHTS if path.is_dir() else path
        if path.is_file():
            return path
    else:
        try:
            return store.local(_file(key))
        except FileNotFoundError:
            pass
    raise SevenfoldError("there are no weights", where=init_from, expected="a model.safetensors or its folder")


def trained_path(store: Store, init_from: str) -> Path | None:
    """The list of ids that those weights were trained on, which a run leaves beside them; None when there is none."""
    key = _key(store, init_from)
    if key is None:
        beside = weights_path(store, init_from).parent / _TRAINED
        return beside if beside.exists() else None
    try:
        return store.local(f"{_file(key).rpartition('/')[0]}/{_TRAINED}")
    except FileNotFoundError:
        return None


def _key(store: Store, place: str) -> str | None:
    """The key of a place in a lake that lies in a bucket; None for a path on this machine, a local lake's included."""
    inside = "://" in place and place.startswith(f"{store.url}/")
    return place.removeprefix(f"{store.url}/").rstrip("/") if inside else None


def _file(key: str) -> str:
    return key if key.endswith(".safetensors") else f"{key}/{_WEIGHTS}"
