"""Shards held in memory: the same bytes as from the disk, within the limit, none taken for nothing, failures told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.training.held import HeldShards, worth_holding
from sevenfold.training.reader import ShardReader

SIZE, COUNT = 50, 200
BYTES = [np.random.default_rng(i).integers(0, 256, SIZE * COUNT, dtype=np.uint8).tobytes() for i in range(6)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    for i, data in enumerate(BYTES):
        (folder / str(i)).write_bytes(data)
    return folder


def reader_of(folder: Path, shards: int = 6, memory: int = 1 << 20, length: int = SIZE * COUNT) -> ShardReader:
    return ShardReader(lambda n: folder / str(n), lengths=np.full(shards, length), memory=memory)


def ask(reader: ShardReader, shard: int, rows: list[int]) -> list[memoryview] | None:
    at = np.array(rows, np.int64)
    return reader.slices(np.full(len(at), shard), at * SIZE, np.full(len(at), SIZE))


@given(st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, COUNT - 1), max_size=40)), max_size=30))
@settings(max_examples=40, deadline=None)
def test_slices_are_what_the_files_hold_within_the_limit(folder: Path, asked: list[tuple[int, list[int]]]) -> None:
    reader = reader_of(folder, memory=3 * SIZE * COUNT)
    for shard, rows in asked:
        found = ask(reader, shard, rows)
        assert reader.held_bytes <= 3 * SIZE * COUNT
        if found is not None:
            assert [bytes(f) for f in found] == [BYTES[shard][r * SIZE : (r + 1) * SIZE] for r in rows]


def test_a_few_look_ups_take_nothing_and_a_batch_takes_the_shard(folder: Path) -> None:
    reader = reader_of(folder)
    assert ask(reader, 0, [1, 2, 3]) is None and not reader.held_bytes
    assert ask(reader, 0, list(range(20))) is not None and reader.held_bytes == SIZE * COUNT


def test_a_shard_makes_room_when_its_window_has_passed_and_not_before(folder: Path) -> None:
    reader = reader_of(folder, memory=SIZE * COUNT)
    rows = list(range(40))
    assert ask(reader, 0, rows) is not None
    for _ in range(60):  # a window that does not fit: what is held stays, the rest is read singly
        assert ask(reader, 1, rows) is None
        assert ask(reader, 0, rows) is not None
    for _ in range(100):
        found = ask(reader, 1, rows)
    assert found is not None and ask(reader, 0, rows) is None
    assert reader.held_bytes == SIZE * COUNT


def test_a_file_that_ends_early_gives_short_slices(folder: Path) -> None:
    found = ask(reader_of(folder, length=SIZE * (COUNT + 10)), 0, [*range(20), COUNT + 1])
    assert found is not None and [len(f) for f in found] == [SIZE] * 20 + [0]


def test_a_disk_that_fails_is_left_to_single_reads(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    reader = reader_of(tmp_path, shards=1)
    assert ask(reader, 0, list(range(20))) is None and not reader.held_bytes
    sizes = np.full(1, SIZE)
    assert not reader.read_into(np.zeros(1, int), np.zeros(1, int), sizes, [memoryview(bytearray(SIZE))]).any()


def test_only_shards_of_small_samples_are_worth_it() -> None:
    groups, ends = np.array([0, 0, 1, 3]), np.array([1024, 16_000, 90_000, 8192])
    assert worth_holding(groups, ends, 4).tolist() == [16_000, 0, 0, 8192]


def test_a_shard_above_the_limit_is_never_taken() -> None:
    held = HeldShards(np.array([100]), limit=99)
    assert held.of([0] * 1000, lambda *_: pytest.fail("taken")) == {}
