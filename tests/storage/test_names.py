"""Names that become paths: hostile ones are refused by every door of the lake, before anything is written or read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.names import check_name, version_number
from sevenfold.storage.sources import FolderSource

HOSTILE = [
    "../x",
    "..",
    ".",
    "",
    "/",
    "/etc",
    "a/b",
    ".hidden",
    "a\0b",
    "n" * 101,
    "a b",
    "é",
    "*",
    "a\n",
    "-x",
    "a\\b",
]
ROW = pa.table({"id": ["x"], "value": [1.0]})

Door = Callable[[Lake, str], Any]
DOORS: dict[str, Door] = {
    "batches, dataset": lambda k, n: k.batches(n),
    "batch, dataset": lambda k, n: k.batch(n, "first"),
    "batch, batch": lambda k, n: k.batch("d", n),
    "batch_rows, dataset": lambda k, n: k.batch_rows(n, "first"),
    "batch_rows, batch": lambda k, n: k.batch_rows("d", n),
    "batch_properties, dataset": lambda k, n: k.batch_properties(n, "first"),
    "batch_properties, batch": lambda k, n: k.batch_properties("d", n),
    "quarantine, dataset": lambda k, n: k.quarantine(n, "first"),
    "quarantine, batch": lambda k, n: k.quarantine("d", n),
    "retry_quarantine": lambda k, n: k.retry_quarantine("d", n),
    "set_status, dataset": lambda k, n: k.set_status(n, "first", "admitted"),
    "set_status, batch": lambda k, n: k.set_status("d", n, "admitted"),
    "pack, dataset": lambda k, n: k.pack(n, "first"),
    "pack, batch": lambda k, n: k.pack("d", n),
    "commit, dataset": lambda k, n: k.commit(n, message="m"),
    "commit, branch": lambda k, n: k.commit("d", message="m", branch=n),
    "versions": lambda k, n: k.versions(n),
    "version": lambda k, n: k.version(n),
    "refs": lambda k, n: k.refs(n, "tags"),
    "refs, kind": lambda k, n: k.refs("d", n),
    "tag": lambda k, n: k.tag("d", n),
    "tag, dataset": lambda k, n: k.tag(n, "t"),
    "branch": lambda k, n: k.branch("d", n),
    "rollback, branch": lambda k, n: k.rollback("d", "v1", branch=n),
    "manifest": lambda k, n: k.manifest(n),
    "samples": lambda k, n: k.samples(n),
    "samples_of": lambda k, n: k.samples_of(n),
    "properties": lambda k, n: k.properties(n),
    "shard_path": lambda k, n: k.shard_path(n),
    "overlay": lambda k, n: k.overlay(n),
    "write_signal, name": lambda k, n: k.write_signal(n, "p", ROW, scope="content", in_sample=False),
    "write_signal, producer": lambda k, n: k.write_signal("s", n, ROW, scope="content", in_sample=False),
    "write_signal, part": lambda k, n: k.write_signal("s", "p", ROW, scope="content", in_sample=False, part=n),
    "write_signal, part of two": lambda k, n: k.write_signal(
        "s", "p", ROW, scope="content", in_sample=False, part=f"d@{n}"
    ),
    "signal, name": lambda k, n: k.signal(n),
    "write_predictions": lambda k, n: k.write_predictions(n, ROW.select(["id"])),
    "predictions": lambda k, n: k.predictions(n),
    "append_verdicts, dataset": lambda k, n: k.append_verdicts(n, "v1", ROW),
    "append_verdicts, subject": lambda k, n: k.append_verdicts("d", n, ROW),
    "verdicts, dataset": lambda k, n: k.verdicts(n),
    "write_queue, dataset": lambda k, n: k.write_queue(n, "q", ROW.select(["id"])),
    "write_queue, name": lambda k, n: k.write_queue("d", n, ROW.select(["id"])),
    "queue, dataset": lambda k, n: k.queue(n, "q"),
    "queue, name": lambda k, n: k.queue("d", n),
    "add_review, dataset": lambda k, n: k.add_review(n, "r", ROW.select(["id"]), reviewer="x"),
    "add_review, name": lambda k, n: k.add_review("d", n, ROW.select(["id"]), reviewer="x"),
    "add_review, branch": lambda k, n: k.add_review("d", "r", ROW.select(["id"]), branch=n, reviewer="x"),
    "pending_reviews, dataset": lambda k, n: k.pending_reviews(n),
}
EMPTY_MEANS_ALL: dict[str, Door] = {
    "signal, producer": lambda k, n: k.signal("brightness", n),
    "verdicts, subject": lambda k, n: k.verdicts("d", n),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, make: SimpleNamespace) -> Lake:
    root = tmp_path_factory.mktemp("names")
    lake = Lake.create(root / "in" / "lake")
    make.land(lake, make.folder(root / "s", make.two_classes(2)), "first")
    make.commit(lake)
    return lake


def everything(lake: Lake) -> list[Path]:
    return sorted(lake.root.parent.parent.rglob("*"))


@pytest.mark.parametrize("door", [*DOORS, *EMPTY_MEANS_ALL])
def test_hostile_names_are_refused_at_every_door(door: str, shared: Lake) -> None:
    before = everything(shared)
    for name in HOSTILE:
        if door in EMPTY_MEANS_ALL and name == "":
            continue
        with pytest.raises(SevenfoldError):
            {**DOORS, **EMPTY_MEANS_ALL}[door](shared, name)
        assert everything(shared) == before, f"{name!r} left something behind"


def test_hostile_dataset_and_batch_names_are_refused_before_anything_is_read(
    shared: Lake, tmp_path: Path, make: SimpleNamespace
) -> None:
    class Unread(FolderSource):
        def _list(self) -> Any:
            raise AssertionError("listed")

    before = everything(shared)
    for name in [*HOSTILE, "b.aliases"]:
        if name not in ("", "b.aliases"):
            with pytest.raises(SevenfoldError):
                shared.ingest(Unread(tmp_path), name, "b")
        if name:
            with pytest.raises(SevenfoldError):
                shared.ingest(Unread(tmp_path), "d", name)
    assert everything(shared) == before


def test_a_path_that_leads_back_into_the_lake_is_refused_too(shared: Lake) -> None:
    looks: list[Callable[[], Any]] = [
        lambda: shared.signal("../signals/brightness"),
        lambda: shared.signal("brightness", "../brightness/measure-2"),
        lambda: shared.batch("d", "../d/first"),
        lambda: shared.batches("../batches/d"),
        lambda: shared.version("../datasets/d"),
    ]
    for look in looks:
        with pytest.raises(SevenfoldError, match="cannot be used as a name"):
            look()


@pytest.mark.parametrize("name", ["a", "A1", "v2.0+retry1", "2024-01-01_x=y", "n" * 100])
def test_ordinary_names_are_fine(name: str) -> None:
    assert check_name(name, "name") == name


@pytest.mark.parametrize(
    ("text", "number"), [("v7", 7), ("7", 7), ("v007", 7), ("v", None), ("vv7", None), ("v-1", None), ("v7 ", None)]
)
def test_version_numbers(text: str, number: int | None) -> None:
    assert version_number(text) == number
