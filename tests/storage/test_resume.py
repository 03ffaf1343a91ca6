"""A landing that is killed goes on where it stopped; a worker that dies costs at most the input that killed it."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sevenfold.storage import Lake, SevenfoldError, chunks, workers
from sevenfold.storage import ingest as landing
from sevenfold.storage.chunks import Kept, cut
from sevenfold.storage.sources import FolderSource, Input
from sevenfold.storage.store import Entry, LocalStore, Store

SCRIPT = """
import sys, time
from pathlib import Path
from sevenfold.storage import Lake, chunks, ingest
from sevenfold.storage.sources import FolderSource

class Logged(FolderSource):
    def read(self, path):
        with open(sys.argv[3], "a") as log:
            log.write(path + "\\n")
        time.sleep(0.002)
        return super().read(path)

if __name__ == "__main__":
    chunks.CHUNK, ingest.KEEP_SECONDS, ingest.WORTH_SECONDS = 8, 0.0, 0.0
    report = lambda done, total, what: print(done, what, flush=True)
    source = Logged(Path(sys.argv[2]))
    batch, new = Lake.create(sys.argv[1]).ingest(source, "d", workers=2, progress=report)
    print(batch.batch, batch.digest)
"""


class Stop(Exception):
    """What interrupts a landing here."""


class Counting(FolderSource):
    """Remembers what was read, in this process."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads: list[str] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return super().read(path)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Chunks of four inputs, each kept at once, and processes for any work."""
    monkeypatch.setattr(chunks, "CHUNK", 4)
    monkeypatch.setattr(landing, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(landing, "WORTH_SECONDS", 0.0)
    return


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> type[FolderSource]:
    """A source that kills workers, from a module that they can import."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return importlib.import_module("deadly").Deadly


def parts_of(store: Store) -> list[Entry]:
    """What landings have measured and not finished with."""
    return [e for e in store.entries("batches", hidden=True) if "/.landing-" in e.key]


def stop_at(count: int) -> Callable[[int, int, str], None]:
    def report(done: int, total: int, what: str) -> None:
        if done >= count:
            raise Stop

    return report


def parts(lake: Lake) -> list[Path]:
    return [lake.root / e.key for e in parts_of(lake.store)]


def test_a_landing_killed_in_the_middle_goes_on_without_reading_finished_chunks_again(
    tmp_path: Path, make: SimpleNamespace
) -> None:
    members = {**make.two_classes(160), "cat/zz-bad.png": b"nothing", "cat/00000-bad.png": b""}
    source = make.folder(tmp_path / "s", members)
    (tmp_path / "script.py").write_text(SCRIPT)
    first, second = tmp_path / "first.log", tmp_path / "second.log"
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "lake"), str(source)]
    with subprocess.Popen([*command, str(first)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reached = next(int(line.split()[0]) for line in process.stdout if int(line.split()[0]) >= 60)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    lake = Lake.open(tmp_path / "lake")
    assert lake.batches("d") == [] and lake.datasets() in ([], ["d"])
    kept = [path.stem.split("-") for path in parts(lake)]
    finished = {8 * chunk + i for *_, start, stop in kept for chunk in range(int(start), int(stop)) for i in range(8)}
    assert len(finished) >= reached - 8, "all that was reported is kept, but for the last chunk"

    out = subprocess.run([*command, str(second)], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    assert f"{len(finished)} measuring" in out[0] and f"{len(finished)} measured before" in out[0]
    paths = sorted(members)
    assert sorted(second.read_text().split()) == [p for i, p in enumerate(paths) if i not in finished]
    assert parts(lake) == [], "nothing is left once the batch is recorded"
    whole, _ = Lake.create(tmp_path / "other").ingest(source, "d")
    assert out[-1] == f"{whole.batch} {whole.digest}"
    assert lake.batch("d", whole.batch).counts == whole.counts and whole.counts["quarantined"] == 2
    make.reconciles(lake)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("damage", [b"", b"\0" * 200, None])
def test_a_damaged_part_is_measured_again_and_no_other(
    damage: bytes | None, lake: Lake, tmp_path: Path, make: SimpleNamespace
) -> None:
    root = make.folder(tmp_path / "s", make.two_classes(40))
    with pytest.raises(Stop):
        lake.ingest(Counting(root), "d", "b", progress=stop_at(24))
    victim = sorted(parts(lake))[2]
    data = victim.read_bytes()
    victim.write_bytes(data[:300] + bytes([data[300] ^ 1]) + data[301:] if damage is None else damage)
    source = Counting(root)
    lake.ingest(source, "d", "b")
    names = sorted(make.two_classes(40))
    assert source.reads == names[8:12] + names[20:]
    whole, _ = Lake.create(tmp_path / "other").ingest(root, "d", "b")
    assert lake.batch("d", "b").digest == whole.digest and parts(lake) == []


@pytest.mark.usefixtures("small_steps")
def test_parts_serve_neither_a_changed_source_nor_another_dataset_and_stay_listed(
    lake: Lake, tmp_path: Path, make: SimpleNamespace
) -> None:
    root = make.folder(tmp_path / "s", make.two_classes(20))
    with pytest.raises(Stop):
        lake.ingest(Counting(root), "d", "b", progress=stop_at(12))
    other = Counting(root)
    lake.ingest(other, "e", "b")
    assert len(other.reads) == 20
    (root / "cat" / "00001.png").write_bytes(make.png(77))
    os.utime(root / "cat" / "00001.png", (5, 5))
    changed = Counting(root)
    lake.ingest(changed, "d", "b")
    assert len(changed.reads) == 20
    stale = parts_of(lake.store)
    assert len(stale) == 2 and all(e.key.startswith("batches/d/.landing-") and e.bytes > 0 for e in stale)
    assert lake.datasets() == ["d", "e"] and [b.batch for b in lake.batches("d")] == ["b"]


@pytest.mark.usefixtures("small_steps")
def test_parts_that_outlived_their_record_go_when_it_is_landed_again(
    lake: Lake, tmp_path: Path, make: SimpleNamespace
) -> None:
    """Killed between the record and the tidying up."""
    root = make.folder(tmp_path / "s", make.two_classes(20))
    with pytest.raises(Stop):
        lake.ingest(Counting(root), "d", "b", progress=stop_at(12))
    kept = {path: path.read_bytes() for path in parts(lake)}
    lake.ingest(Counting(root), "d", "b")
    for path, data in kept.items():
        path.write_bytes(data)
    assert not lake.ingest(Counting(root), "d", "b")[1] and parts(lake) == []


def test_a_short_landing_keeps_nothing_on_the_way(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    with pytest.raises(Stop):
        lake.ingest(make.folder(tmp_path / "s", make.two_classes(300)), "d", "b", progress=stop_at(300))
    assert parts(lake) == []


def test_overlapping_parts_of_two_landings_at_once_are_used_once(tmp_path: Path, make: SimpleNamespace) -> None:
    source = FolderSource(make.folder(tmp_path / "s", make.two_classes(4)))
    kept = Kept(LocalStore(tmp_path / "lake"), "d", source)
    empty = chunks.PLACED.empty_table()
    for first, last in ((0, 3), (2, 5), (3, 4), (6, 7)):
        kept.add(chunks.Part(first, last, empty, [(first, "not_an_image", "é ☃")]))
    found = kept.read()
    assert [(p.first, p.last) for p in found] == [(0, 3), (3, 4), (6, 7)]
    assert found[0].rows.schema == chunks.PLACED and found[0].failures == [(0, "not_an_image", "é ☃")]
    kept.clear()
    assert kept.read() == [] and parts_of(LocalStore(tmp_path / "lake")) == []


def test_units_of_work_are_cut_by_number_and_by_bytes() -> None:
    def sizes(*numbers: int) -> list[int]:
        inputs = [Input(str(i), None, None, size, 0.0) for i, size in enumerate(numbers)]
        spans = cut(inputs)
        assert [place for start, stop in spans for place in range(start, stop)] == list(range(len(inputs)))
        return [stop - start for start, stop in spans]

    assert sizes(*[100] * 600) == [256, 256, 88]
    assert sizes(*[1 << 20] * 20) == [8, 8, 4]
    assert sizes(1, 100 << 20, 1, 1) == [2, 2]
    assert sizes() == []


@pytest.mark.usefixtures("small_steps")
def test_an_input_that_kills_its_worker_again_is_set_aside_and_one_that_does_so_once_is_not(
    lake: Lake, tmp_path: Path, make: SimpleNamespace, deadly: type[FolderSource]
) -> None:
    members = {**make.two_classes(60), "cat/killer.png": make.png(900), "dog/00001-once.png": make.png(901)}
    record, _ = lake.ingest(deadly(make.folder(tmp_path / "s", members)), "d", "b", workers=2)
    assert record.counts["samples"] == 61 and record.reasons == {"crashes_decoder": 1}
    (row,) = lake.quarantine("d", "b").to_pylist()
    assert (row["path"], row["label"]) == ("cat/killer.png", "cat") and "died" in row["detail"]
    make.reconciles(lake)


@pytest.mark.usefixtures("small_steps")
def test_workers_that_keep_dying_end_the_landing_with_one_clear_error(
    lake: Lake, tmp_path: Path, make: SimpleNamespace, deadly: type[FolderSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "DEATHS", 2)
    members = {f"cat/killer{i}.png": make.png(i) for i in range(12)}
    with pytest.raises(SevenfoldError, match=r"died 3 times(.|\n)*memory"):
        lake.ingest(deadly(make.folder(tmp_path / "s", members)), "d", "b", workers=2)
    assert lake.batches("d") == []


def test_a_script_without_a_guarded_main_is_told_so(tmp_path: Path, make: SimpleNamespace) -> None:
    source = make.folder(tmp_path / "s", make.two_classes(600))
    (tmp_path / "script.py").write_text(
        "import sys\nfrom sevenfold.storage import Lake, ingest\ningest.WORTH_SECONDS = 0\n"
        "Lake.create(sys.argv[1]).ingest(sys.argv[2], 'd', 'b', workers=2)\n"
    )
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "lake"), str(source)]
    done: Any = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "worker processes die while they start" in done.stderr
    assert "if __name__ == '__main__':" in done.stderr
