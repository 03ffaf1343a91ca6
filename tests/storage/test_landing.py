"""Invariant 3 across batches: known ids become aliases or proposed relabels, a known id never moves; batch records."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from sevenfold.storage import Lake, SevenfoldError


def test_a_known_id_with_the_same_label_is_an_alias_and_with_another_a_proposal(
    lake: Lake, tmp_path: Path, make: SimpleNamespace
) -> None:
    make.land(lake, make.folder(tmp_path / "a", {"train/cat/1.png": make.png(1), "train/cat/2.png": make.png(2)}), "a")
    first = make.commit(lake)
    second = {
        "test/cat/again.png": make.png(1), "test/dog/2.png": make.png(2), "test/dog/2b.png": make.png(2),
        "test/dog/3.png": make.png(3),
    }  # fmt: skip
    make.land(lake, make.folder(tmp_path / "b", second), "b")
    version = make.commit(lake)
    assert lake.batch("d", "b").counts == {"inputs": 4, "samples": 1, "aliases": 2, "relabels": 1, "quarantined": 0}
    aliases = lake.sql("select path, reason from aliases order by path").to_pylist()
    assert aliases == [
        {"path": "test/cat/again.png", "reason": "known already"},
        {"path": "test/dog/2b.png", "reason": "same bytes twice in this batch"},
    ]
    (proposal,) = lake.queue("d", "relabels-b").to_pylist()
    assert (proposal["kind"], proposal["label"], proposal["suggestion"]) == ("relabel", "cat", "dog")
    before = {r["id"]: (r["label"], r["split"], r["path"]) for r in lake.samples("d", first.name).to_pylist()}
    after = {r["id"]: (r["label"], r["split"], r["path"]) for r in lake.samples("d", version.name).to_pylist()}
    assert before.items() <= after.items(), "known samples keep label, split and path"
    make.reconciles(lake)


def test_a_proposal_is_against_the_label_that_review_gave(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    """Packed ahead, then relabelled before the commit: the queue and the counts follow the newest label."""
    make.land(lake, make.folder(tmp_path / "a", {"cat/1.png": make.png(1)}), "a")
    make.commit(lake)
    make.land(lake, make.folder(tmp_path / "b", {"dog/1.png": make.png(1), "dog/2.png": make.png(2)}), "b")
    packed = lake.pack("d", "b")
    assert packed.counts["relabels"] == 1 and lake.queue("d", "relabels-b").num_rows == 1
    lake.set_status("d", "b", "landed")  # not in the next commit
    (known,) = lake.samples("d").to_pylist()
    make.commit(lake, overlays=[make.overlay([known["id"]], label="dog")])
    lake.set_status("d", "b", "admitted")
    (tmp_path / "b" / "dog" / "2.png").unlink()  # its shard is there: the source is not needed again
    make.commit(lake)
    assert lake.batch("d", "b").counts == {"inputs": 2, "samples": 1, "aliases": 1, "relabels": 0, "quarantined": 0}
    assert lake.queue("d", "relabels-b").num_rows == 0
    make.reconciles(lake)


def test_an_excluded_sample_is_still_known(filled: Callable[..., Lake], tmp_path: Path, make: SimpleNamespace) -> None:
    lake = filled(4)
    gone = lake.samples("d")["id"][0].as_py()
    make.commit(lake, overlays=[make.overlay([gone], exclude=True)])
    make.land(lake, make.folder(tmp_path / "again", make.two_classes(4)), "second")
    make.commit(lake)
    assert lake.batch("d", "second").counts["aliases"] == 4
    assert gone not in lake.samples("d")["id"].to_pylist()


def test_the_copy_in_an_evaluation_split_is_kept(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    members = {f"{split}/cat/x.png": make.png(1) for split in ("train", "val", "test")}
    members["pool/x.png"] = make.png(1)
    make.land(lake, make.folder(tmp_path / "s", members), "b")
    (row,) = lake.batch_rows("d", "b").to_pylist()
    assert (row["split"], row["label"]) == ("test", "cat")


def test_the_same_batch_id_with_the_same_content_is_adopted_with_other_content_refused(
    lake: Lake, tmp_path: Path, make: SimpleNamespace
) -> None:
    source = make.folder(tmp_path / "s", make.two_classes(5))
    first, made = lake.ingest(source, "d", "b", clock=lambda: 1.0)
    assert made
    assert lake.ingest(source, "d", "b", clock=lambda: 2.0) == (first, False)
    os.utime(source / "cat/00001.png", (5, 5))  # other times, same bytes: read again, found equal
    assert lake.ingest(source, "d", "b", clock=lambda: 3.0) == (first, False)
    copy = make.folder(tmp_path / "copy", make.two_classes(5))
    assert lake.ingest(copy, "d", "b") == (first, False)
    (source / "cat/00001.png").write_bytes(make.png(66))
    with pytest.raises(SevenfoldError, match="exists with other content"):
        lake.ingest(source, "d", "b")
    assert lake.batch("d", "b") == first
    assert lake.batch_rows("d", "b").num_rows == 5


def test_two_landings_of_other_content_under_one_id_at_once_leave_one_whole(
    lake: Lake, tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second arrives after the first has looked and before it has written: the loser must not touch the files."""
    from sevenfold.storage import ingest as landing

    one, two = (make.folder(tmp_path / n, make.two_classes(6, start=k)) for n, k in (("one", 0), ("two", 100)))
    original, entered = landing.resolve, []

    def intrude(*arguments: object) -> object:
        if not entered:
            entered.append(1)
            lake.ingest(two, "d", "b")
        return original(*arguments)

    monkeypatch.setattr(landing, "resolve", intrude)
    with pytest.raises(SevenfoldError, match="exists with other content"):
        lake.ingest(one, "d", "b")
    assert set(lake.batch_rows("d", "b")["path"].to_pylist()) == set(make.two_classes(6, start=100))
    assert lake.batch("d", "b").source == str(two)


def test_a_landing_that_has_begun_to_write_is_not_overtaken(
    lake: Lake, tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sevenfold.storage import ingest as landing

    one, two = (make.folder(tmp_path / n, make.two_classes(6, start=k)) for n, k in (("one", 0), ("two", 100)))
    original, refused, rivals = landing.write_parquet, [], []

    def rival() -> None:
        try:
            lake.ingest(two, "d", "b")
        except SevenfoldError as e:
            refused.append(e)

    def write(*arguments: Any, **options: Any) -> bool:
        if not rivals:
            rivals.append(threading.Thread(target=rival))
            rivals[0].start()
            rivals[0].join(1.0)  # without a lock it is done by now
        return original(*arguments, **options)

    monkeypatch.setattr(landing, "write_parquet", write)
    record, made = lake.ingest(one, "d", "b")
    rivals[0].join()
    assert made and lake.batch("d", "b") == record and len(refused) == 1
    assert set(lake.batch_rows("d", "b")["path"].to_pylist()) == set(make.two_classes(6))


def test_a_status_is_one_of_four_and_committed_is_final(
    filled: Callable[..., Lake], tmp_path: Path, make: SimpleNamespace
) -> None:
    lake = filled(3)
    with pytest.raises(SevenfoldError, match="expected: landed, admitted, rejected, committed"):
        lake.set_status("d", "first", "admited")
    for status in ("rejected", "admitted", "landed"):
        assert lake.set_status("d", "first", status).status == "committed"
    with pytest.raises(SevenfoldError, match="no batch 'gone'"):
        lake.set_status("new", "gone", "admitted")
    assert lake.datasets() == ["d"], "a mistyped name leaves nothing behind"
    lake.ingest(make.folder(tmp_path / "r", make.two_classes(3, start=50)), "d", "bad")
    lake.set_status("d", "bad", "rejected", clock=lambda: 7.0)
    assert lake.batch("d", "bad").times["rejected"] == 7.0
    assert lake.commit("d", message="nothing new")[1] is False, "a rejected batch goes no further"


def test_a_verdict_during_sharding_is_not_lost(
    lake: Lake, tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sharding takes long; what others write to the batch's record meanwhile stays."""
    from sevenfold.storage import pack as packing

    make.land(lake, make.folder(tmp_path / "s", make.two_classes(4)), "b")
    original = packing._Writer.write

    def slow(writer: packing._Writer, rows: pa.Table) -> packing._Writer:
        lake.set_status("d", "b", "rejected", clock=lambda: 9.0)
        return original(writer, rows)

    monkeypatch.setattr(packing._Writer, "write", slow)
    lake.pack("d", "b")
    record = lake.batch("d", "b")
    assert record.status == "rejected" and record.times["rejected"] == 9.0 and record.packed is not None


def test_properties_are_there_for_every_sample_of_batch_and_version(
    filled: Callable[..., Lake], tmp_path: Path, make: SimpleNamespace
) -> None:
    lake = filled(10)
    make.land(lake, make.folder(tmp_path / "more", make.two_classes(12, start=5)), "second")
    make.commit(lake)
    table = lake.properties("d")
    assert table["id"].to_pylist() == lake.samples("d")["id"].to_pylist()
    assert all(column.null_count == 0 for column in table.columns)
    batch = lake.batch_properties("d", "second")
    assert batch.num_rows == 12 and batch["id"].to_pylist() == sorted(batch["id"].to_pylist())
    assert lake.signal("brightness")["in_sample"].to_pylist() == [False] * 22


def test_datasets_and_batches_whose_names_join_alike_keep_apart(
    lake: Lake, tmp_path: Path, make: SimpleNamespace
) -> None:
    for dataset, batch, start in (("a.b", "c", 0), ("a", "b.c", 100)):
        lake.ingest(make.folder(tmp_path / dataset, make.two_classes(4, start=start)), dataset, batch)
    for dataset, batch in (("a.b", "c"), ("a", "b.c")):
        ids = lake.batch_rows(dataset, batch)["id"].to_pylist()
        assert lake.batch_properties(dataset, batch)["id"].to_pylist() == ids


def test_names_of_full_length_work_everywhere(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    long = "n" * 100
    lake.ingest(make.folder(tmp_path / "s", make.two_classes(3)), long, long)
    lake.set_status(long, long, "admitted")
    lake.commit(long, message="long")
    assert lake.properties(long).num_rows == 3


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at /proc")
def test_workers_end_with_the_process_that_started_them(tmp_path: Path, make: SimpleNamespace) -> None:
    source = make.folder(tmp_path / "s", {f"cat/{i}.png": make.png(i) for i in range(1100)})
    script = (
        "import sys\nfrom sevenfold.storage import Lake, ingest\n"
        "if __name__ == '__main__':\n"
        "    ingest.WORTH_SECONDS = 0\n"
        "    wait = lambda done, *_: done and (print('measuring', flush=True), sys.stdin.read())\n"
        "    Lake.create(sys.argv[1]).ingest(sys.argv[2], 'd', 'b', workers=2, progress=wait)\n"
    )
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "lake"), str(source)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"measuring\n"
        started = children(process.pid)
        assert len(started) >= 2
        process.send_signal(signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + 20
    while alive(started) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(started)


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            found.append(pid)
    return found


def test_a_source_that_is_gone_names_the_batch_that_needs_it(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    make.land(lake, make.folder(tmp_path / "a", {"cat/1.png": make.png(1)}), "holiday")
    (tmp_path / "a").rename(tmp_path / "away")
    with pytest.raises(SevenfoldError, match="source of the batch holiday"):
        make.commit(lake)
    (tmp_path / "away").rename(tmp_path / "a")
    assert make.commit(lake).number == 1
