"""The registry: whole or absent, numbered once each under a race, idempotent by run, aliases by compare-and-swap."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import save

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.store import LocalStore, Store, open_store
from sevenfold.training.aliases import aliases, read_alias, set_alias
from sevenfold.training.registry import Model, models, names, register, resolve, verify
from sevenfold.training.safetensors_header import check_safetensors


@dataclass(frozen=True)
class FakeLake:
    """Any store, and the weights of a run outside it."""

    store: Store
    weights: Path


WEIGHTS = save({"head.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "head.bias": np.zeros(2, np.float16)})


@pytest.fixture(params=["disk", "bucket"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> FakeLake:
    return fake(tmp_path / "lake" if request.param == "disk" else request.getfixturevalue("bucket"), tmp_path)


def fake(url: Path | str, tmp_path: Path) -> FakeLake:
    (tmp_path / "run.safetensors").write_bytes(WEIGHTS)
    return FakeLake(open_store(url), tmp_path / "run.safetensors")


def put(lake: FakeLake, run: str, name: str = "clothes", **other: Any) -> Model:
    facts: dict[str, Any] = {
        "weights": lake.weights,
        "dataset": "fashion",
        "version": "v1",
        "content_id": "c1",
        "classes": ("shirt", "bag"),
        "config": {"lr": 0.3, "seeds": [0]},
        "clock": lambda: 12.5,
    }
    return register(lake, name, run_id=run, **{**facts, **other})


def test_a_model_is_stored_whole_and_says_where_it_comes_from(lake: FakeLake) -> None:
    metrics = pa.table({"metric": ["accuracy"], "slice": ["overall"], "value": [0.9]})
    got = put(lake, "r1", metrics=metrics)
    assert (got.ref, got.parameters, got.created, got.saw, got.parent) == ("clothes/1", 8, 12.5, ("c1",), None)
    assert lake.store.names("models/clothes/1") == ["claim.json", "metrics.parquet", "model.json", "model.safetensors"]
    assert got.weights_path().read_bytes() == WEIGHTS and got.metrics().equals(metrics)
    card = json.loads(lake.store.read("models/clothes/1/model.json"))
    assert card["content_id"] == "c1" and card["config"] == {"lr": 0.3, "seeds": [0]} and card["run_id"] == "r1"
    verify(got)
    (lake.weights).unlink()
    assert models(lake, "clothes") == [got] and resolve(lake, "clothes") == got


def test_the_same_run_is_registered_once(lake: FakeLake) -> None:
    first, second = put(lake, "r1"), put(lake, "r2")
    assert put(lake, "r1") == first and (first.number, second.number) == (1, 2)
    assert put(lake, "r1", name="other").number == 1
    assert names(lake) == ["clothes", "other"]
    with pytest.raises(SevenfoldError, match="registered as clothes/1"):
        put(lake, "r1", content_id="c9")


def test_a_run_is_known_by_its_model_when_its_claim_is_gone(lake: FakeLake) -> None:
    first = put(lake, "r1")
    lake.store.delete("models/clothes/1/claim.json")
    assert put(lake, "r1") == first and put(lake, "r2").number == 2


def test_what_a_model_saw_follows_its_parents(lake: FakeLake) -> None:
    put(lake, "r1")
    child = put(lake, "r2", content_id="c3", saw=["c2"], parent="clothes/1")
    assert child.saw == ("c1", "c2", "c3") and child.parent == "clothes/1"


def test_damage_is_noticed(lake: FakeLake) -> None:
    got = put(lake, "r1")
    lake.store.replace(f"{got.folder}/model.safetensors", WEIGHTS[:-1] + b"x")
    with pytest.raises(SevenfoldError, match="digest"):
        verify(got)


def raced(lake: FakeLake, workers: int, each: int, shared: int) -> list[Model]:
    """Register `each` runs of its own and `shared` common ones in every one of `workers` processes, all at once."""
    script = Path(__file__).with_name("register_rank.py")
    command = [sys.executable, str(script), lake.store.url, str(lake.weights)]
    racers = [
        subprocess.Popen([*command, str(w), str(each), str(shared)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for w in range(workers)
    ]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == b"ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(b"go\n")
        racer.stdin.flush()
    said = [json.loads(racer.communicate(timeout=120)[0]) for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * workers
    found = models(lake, "clothes")
    told = {run: number for one in said for run, number in one.items()}
    assert {m.run_id: m.number for m in found} == told and all(told[r] == n for one in said for r, n in one.items())
    for model in found:
        verify(model)
    assert not [e.key for e in lake.store.entries("models", hidden=True) if ".tmp-" in e.key]
    assert len({m.number for m in found}) == len(found)
    return found


def test_eight_processes_that_register_at_once_get_a_number_for_each_run_without_a_gap(lake: FakeLake) -> None:
    found = raced(lake, workers=8, each=1, shared=2)
    assert {m.run_id for m in found} == {"shared-0", "shared-1", *(f"run-{w}-0" for w in range(8))}
    assert [m.number for m in found] == list(range(1, 8 + 2 + 1))
    first = [read_alias(lake, "clothes", f"first-{k}") for k in range(2)]
    assert all(a is not None and len(a.history) == 1 for a in first), "of racing first moves one wins"


class Dying(LocalStore):
    """A disk whose process ends, killed, instead of its n-th write."""

    left = 0

    def _one(self) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1

    def create(self, key: str, data: bytes) -> bool:
        self._one()
        return super().create(key, data)

    def writing(self, key: str, *, overwrite: bool = False) -> Any:
        self._one()
        return super().writing(key, overwrite=overwrite)


def _put_dying(lake: FakeLake, after: int) -> None:
    store = Dying(Path(lake.store.url))
    store.left = after
    put(FakeLake(store, lake.weights), "r2")


def test_killed_at_any_write_leaves_no_half_model_and_its_number_to_the_same_run(tmp_path: Path) -> None:
    lake = fake(tmp_path / "lake", tmp_path)
    put(lake, "r1")
    for after in (
        0,
        1,
        1,
        1,
    ):  # at the claim, the weights, the metrics, the card; each goes on from the last
        worker = multiprocessing.get_context("fork").Process(target=_put_dying, args=(lake, after))
        worker.start()
        worker.join(30)
        assert worker.exitcode == -signal.SIGKILL
        assert [m.number for m in models(lake, "clothes")] == [1] and names(lake) == ["clothes"]
        assert resolve(lake, "clothes").number == 1
    other = put(lake, "r3")
    assert put(lake, "r2").number == 2 and other.number == 3, "a number once claimed stays its run's"
    verify(resolve(lake, "clothes/2"))


def test_the_first_weights_of_a_run_stand(lake: FakeLake) -> None:
    """A registration that died after its weights; the repeat's differ in the last bits."""
    claim = {"format": 1, "run_id": "r1", "content_id": "c1"}
    lake.store.create("models/clothes/1/claim.json", json.dumps(claim).encode())
    first = WEIGHTS[:-1] + b"\x3c"
    lake.store.create("models/clothes/1/model.safetensors", first)
    got = put(lake, "r1")
    verify(got)
    assert got.number == 1 and got.weights_path().read_bytes() == first


def test_a_failure_leaves_nothing_behind(lake: FakeLake) -> None:
    with pytest.raises(ValueError):
        put(lake, "r1", config={"x": float("nan")})
    assert names(lake) == [] and lake.store.entries("", hidden=True) == []


# ---- references


def test_references_resolve_or_say_what_there_is(lake: FakeLake) -> None:
    with pytest.raises(SevenfoldError, match="none yet"):
        resolve(lake, "clothes")
    put(lake, "r1")
    put(lake, "r2")
    set_alias(lake, "clothes", "champion", 1, expected=None)
    assert resolve(lake, "clothes@champion").number == 1
    assert resolve(lake, "clothes/2").number == resolve(lake, "clothes").number == 2
    for bad in (
        "clothes/3",
        "clothes/x",
        "clothes/",
        "clothes@",
        "clothes@nobody",
        "shoes",
        "../x",
        "clothes/../1",
        "",
    ):
        with pytest.raises(SevenfoldError):
            resolve(lake, bad)


# ---- aliases


def test_an_alias_moves_only_from_where_it_is_believed_to_be(lake: FakeLake) -> None:
    for run in ("r1", "r2", "r3"):
        put(lake, run)
    assert read_alias(lake, "clothes", "champion") is None
    set_alias(lake, "clothes", "champion", 1, expected=None, reasons=["first"], by="gate", clock=lambda: 1.0)
    moved = set_alias(lake, "clothes", "champion", 2, expected=1, reasons=["+3 points"], by="gate", clock=lambda: 2.0)
    assert set_alias(lake, "clothes", "champion", 2, expected=1) == moved, "a retry changes nothing"
    with pytest.raises(SevenfoldError, match="points at number 2"):
        set_alias(lake, "clothes", "champion", 3, expected=1)
    with pytest.raises(SevenfoldError, match="points at number 2"):
        set_alias(lake, "clothes", "champion", 3, expected=None)
    with pytest.raises(SevenfoldError, match="nothing"):
        set_alias(lake, "clothes", "latest", 3, expected=2)
    with pytest.raises(SevenfoldError, match="no number"):
        set_alias(lake, "clothes", "champion", 9, expected=2)
    back = set_alias(lake, "clothes", "champion", 1, expected=2, reasons=["rollback"], clock=lambda: 3.0)
    assert [(m.sequence, m.previous, m.number, m.time) for m in back.history] == [
        (1, None, 1, 1.0),
        (2, 1, 2, 2.0),
        (3, 2, 1, 3.0),
    ]
    assert back.history[:2] == moved.history and back == read_alias(lake, "clothes", "champion")
    assert aliases(lake, "clothes") == [back]


def test_a_move_in_between_is_never_overwritten(lake: FakeLake) -> None:
    for run in ("r1", "r2", "r3"):
        put(lake, run)
    set_alias(lake, "clothes", "champion", 1, expected=None)

    def another_writer() -> float:  # the clock is read after the alias, before the swap
        set_alias(lake, "clothes", "champion", 2, expected=1, by="the other")
        return 0.0

    with pytest.raises(SevenfoldError, match="another writer"):
        set_alias(lake, "clothes", "champion", 3, expected=1, clock=another_writer)
    now = read_alias(lake, "clothes", "champion")
    assert now is not None and [m.number for m in now.history] == [1, 2]


# ---- weights


def _with_header(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


BAD = {
    "pickle": b"\x80\x04\x95" + b"0" * 50,
    "torch zip": b"PK\x03\x04" + b"0" * 50,
    "empty": b"",
    "short": WEIGHTS[:-1],
    "long": WEIGHTS + b"0",
    "header too long": struct.pack("<Q", 10**12) + b"{}",
    "not json": _with_header(b"{nope"),
    "not an object": _with_header(b"[]"),
    "deep": _with_header(b"[" * 200_000),
    "entry": _with_header(b'{"a":{"dtype":"F32","shape":[1]}}', b"0000"),
    "dtype": _with_header(b'{"a":{"dtype":"O","shape":[1],"data_offsets":[0,4]}}', b"0000"),
    "size": _with_header(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', b"0000"),
    "negative": _with_header(b'{"a":{"dtype":"U8","shape":[-4],"data_offsets":[4,0]}}', b"0000"),
    "gap": _with_header(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', b"00000000"),
}


@pytest.mark.parametrize("kind", BAD)
def test_anything_but_whole_safetensors_is_refused(lake: FakeLake, kind: str) -> None:
    path = lake.weights.with_name("bad")
    path.write_bytes(BAD[kind])
    with pytest.raises(SevenfoldError, match="safetensors"):
        put(lake, "r1", weights=path)
    assert names(lake) == []


def test_real_files_pass(lake: FakeLake) -> None:
    got = check_safetensors(lake.weights)
    assert (got.tensors, got.values, got.bytes) == (2, 8, len(WEIGHTS))
    none = lake.weights.with_name("none")
    none.write_bytes(save({}, metadata={"a": "b"}))
    assert check_safetensors(none).values == 0


def test_a_header_whose_length_begins_like_a_pickle_is_accepted(tmp_path: Path) -> None:
    """0x80 is a pickle's first byte, and the low byte of one header length in 32."""
    body = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    body = body.ljust(0x80, b" ")
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(body).to_bytes(8, "little") + body + bytes(8))
    assert path.read_bytes()[:1] == b"\x80"
    assert check_safetensors(path).values == 2
