"""Reading members of shards: any order, neighbours or not, few open files, and failures told apart."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.storage.errors import SevenfoldError
from sevenfold.training.reader import GAP, ShardReader

BYTES = [np.random.default_rng(i).integers(0, 256, 60_000, dtype=np.uint8).tobytes() for i in range(3)]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("shards")
    for i, data in enumerate(BYTES):
        (folder / str(i)).write_bytes(data)
    return [str(folder / str(i)) for i in range(len(BYTES))]


def located(paths: list[str]) -> Callable[[int], Path]:
    return lambda shard: Path(paths[shard])


def read(reader: ShardReader, members: list[tuple[int, int, int]]) -> list[bytes | None]:
    shards, offsets, sizes = np.array(members, np.int64).reshape(-1, 3).T
    places = [memoryview(bytearray(size)) for size in sizes.tolist()]
    good = reader.read_into(shards, offsets, sizes, places)
    return [bytes(place) if ok else None for place, ok in zip(places, good, strict=True)]


def there(shard: int, offset: int, size: int) -> bytes | None:
    data = BYTES[shard][offset : offset + size]
    return data if len(data) == size else None


member = st.tuples(st.integers(0, 2), st.integers(0, 61_000), st.integers(0, 3000))


@given(st.lists(member, max_size=80))
@settings(max_examples=60, deadline=None)
def test_each_member_is_what_lies_there(paths: list[str], members: list[tuple[int, int, int]]) -> None:
    assert read(ShardReader(located(paths), limit=1), members) == [there(*m) for m in members]


@given(st.lists(st.tuples(st.integers(1, 900), st.integers(0, GAP + 5)), min_size=1, max_size=300), st.randoms())
@settings(max_examples=60, deadline=None)
def test_neighbours_are_read_together_and_the_same(
    paths: list[str], runs: list[tuple[int, int]], random: object
) -> None:
    members, at = [], 0
    for size, gap in runs:
        members.append((1, at, size))  # the last of them lie beyond the end of the file
        at += size + gap
    random.shuffle(members)  # type: ignore[attr-defined]
    assert read(ShardReader(located(paths)), members) == [there(*m) for m in members]


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_few_files_stay_open(paths: list[str]) -> None:
    reader = ShardReader(located([paths[i % 3] for i in range(40)]), limit=4)
    before = open_descriptors()
    assert read(reader, [(i, 10 * i, 20) for i in range(40)]) == [there(i % 3, 10 * i, 20) for i in range(40)]
    assert open_descriptors() - before == reader.open_files == 4
    reader.close()
    assert open_descriptors() == before
    assert read(reader, [(0, 0, 5)]) == [there(0, 0, 5)]


def test_files_are_not_closed_under_another_thread(paths: list[str]) -> None:
    reader = ShardReader(located([paths[i % 3] for i in range(30)]), limit=1)
    wrong: list[int] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(60):
            places = zip(random.integers(0, 30, 9).tolist(), random.integers(0, 59_000, 9).tolist(), strict=True)
            members = [(shard, offset, 50) for shard, offset in places]
            if read(reader, members) != [there(s % 3, o, z) for s, o, z in members]:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and reader.open_files <= 1


def test_a_missing_file_names_the_remedy(tmp_path: Path) -> None:
    reader = ShardReader(located([str(tmp_path / "gone.tar")]))
    with pytest.raises(SevenfoldError, match="sevenfold verify") as caught:
        read(reader, [(0, 0, 5)])
    assert caught.value.where.endswith("gone.tar")


def test_a_disk_that_fails_is_no_crash(tmp_path: Path, paths: list[str]) -> None:
    reader = ShardReader(located([str(tmp_path), paths[0]]))  # reading a folder is an error of the system's, as EIO is
    assert read(reader, [(0, 0, 5), (1, 0, 5)]) == [None, there(0, 0, 5)]
    assert "directory" in (reader.reason(0, 0, 5) or "")
    assert reader.reason(1, 0, 5) is None
    assert "0 of 5 bytes" in (reader.reason(1, 1 << 30, 5) or "")


def test_a_copy_that_is_evicted_before_it_is_opened_is_found_again(tmp_path: Path) -> None:
    asked: list[int] = []

    def find(shard: int) -> Path:
        asked.append(shard)
        path = tmp_path / f"copy-{len(asked)}"
        if len(asked) > 1:
            path.write_bytes(b"abcdef")
        return path

    reader, data = ShardReader(find), bytearray(3)
    assert reader.read_into(np.array([0]), np.array([1]), np.array([3]), [memoryview(data)]).all()
    assert data == b"bcd" and asked == [0, 0]


def test_copies_that_were_evicted_are_closed_before_another_is_opened(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / str(i)).write_bytes(b"abc")
    reader = ShardReader(lambda shard: tmp_path / str(shard))

    def read(shard: int) -> None:
        reader.read_into(np.array([shard]), np.array([0]), np.array([3]), [memoryview(bytearray(3))])

    read(0)
    read(1)
    (tmp_path / "0").unlink()
    read(0)
    assert reader.open_files == 2, "what is open is read on"
    read(2)
    assert reader.open_files == 2, "and closed when the next is opened"
    reader.close()
