"""Invariant 9: what was taken down is found nowhere in the lake and stays away; everything else is as it was."""

from __future__ import annotations

import io
import json
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import webdataset as wds
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sevenfold.storage import Lake, SevenfoldError, erase, redactions, takedown, tar, tombstones
from sevenfold.storage.canonical import digest_bytes
from sevenfold.storage.index import BAKED, INDEX, SLOT
from sevenfold.storage.keys import shard_key
from sevenfold.storage.repair import repair
from sevenfold.storage.rows import read_index
from sevenfold.storage.store import LocalStore
from sevenfold.storage.verify import verify
from sevenfold.storage.views import VIEWS

SCRIPT = Path(__file__).with_name("one_takedown.py")
NAME = "somebody-called-alice"
LABEL = "label-told-of-alice"
WORDS = "words-said-of-alice"
ALICE = 77_777


def erase_one(lake: Lake, key: str, **options: Any) -> takedown.Takedown:
    """Find and erase; the request must mean something that is there."""
    request = takedown.Request(key=key, **options)
    found = takedown.find(lake.store, request)
    assert not isinstance(found, takedown.Takedown)
    return takedown.carry_out(lake.store, request, found, "asked for", clock=lambda: 9.0)


def full_lake(root: Path, make: SimpleNamespace) -> tuple[Lake, str]:
    """A lake in which one image is everywhere that an image can be; returns it and the image's id."""
    lake = Lake.create(root / "lake", shard_bytes=16 << 10)
    image = make.png(ALICE, 24, 24, 3)
    key = digest_bytes(image)
    many = {f"train/{'cat' if i % 2 else 'dog'}/{i:05d}.png": make.png(i) for i in range(40)}
    one = make.folder(root / "one", {**many, f"train/cat/{NAME}-1.png": image, f"train/cat/{NAME}-2.png": image})
    make.land(lake, one, "first")
    make.commit(lake)
    lake.branch("d", "trial", "v1")
    zipped = make.folder(
        root / "zipped", {**make.two_classes(6, 100), f"dog/{NAME}-3.png": image, "cat/other-4.png": make.png(9)}
    )
    shutil.make_archive(str(root / "two"), "zip", zipped)
    make.land(lake, root / "two.zip", "second")
    said = make.overlay([key, lake.samples("d")["id"][0].as_py()], label=LABEL, reason=WORDS, reviewer="r")
    make.commit(lake, overlays=[said])
    make.commit(lake, overlays=[make.overlay([key], exclude=True, reason=WORDS)])
    lake.add_review("d", "waits", make.overlay([key], label=LABEL, reason=WORDS), reviewer="r", clock=lambda: 5.0)
    make.land(lake, one, "other", dataset="e")
    make.commit(lake, dataset="e")
    pair = {f"cat/{NAME}-5.png": image, f"dog/{NAME}-6.png": image, "cat/good.png": make.png(500)}
    make.land(lake, make.folder(root / "pair", pair), "pair")
    waiting = {**make.two_classes(5, 300), f"cat/{NAME}-7.png": image}
    lake.pack("f", make.land(lake, make.folder(root / "waiting", waiting), "waiting", dataset="f"))
    ids = [key, *lake.samples("d")["id"].to_pylist()[:4]]
    n = len(ids)
    values = pa.table({"id": ids, "value": [0.5] * n, "label": [LABEL] * n})
    lake.write_signal("loss", "run-1", values, scope="label", in_sample=False)
    lake.write_predictions("run-1", pa.table({"id": ids, "label": [LABEL] * n, "predicted": ["cat"] * n}))
    lake.write_queue("d", "hard", pa.table({"id": ids, "kind": ["hard"] * n, "label": [LABEL] * n}))
    path = f"cat/{NAME}-5.png"
    data = {
        "pairs": [[key, ids[1], f"twin of {path}"], [ids[1], ids[2], "near"]],
        "examples": {"title": "odd", "now": [key, ids[1]], "reference": []},
        "histograms": [{"name": "age", "edges": [0, 1], "now": [3], "reference": None}],
    }
    verdict = {
        "message": f"1 input is bad, the first is {path}",
        "findings": [path, key, ids[1]],
        "notes": ["empty", f"{NAME} is 12 years old", f"like {path}"],
        "data": json.dumps(data),
    }
    lake.append_verdicts("d", "pair", pa.Table.from_pylist([verdict]))
    card = {"name": "m", "number": 1, "run_id": "run-1", "content_id": lake.version("d", "v2").content_id, "saw": []}
    lake.store.create("models/m/1/model.json", json.dumps(card).encode())
    with lake.store.writing("runs/run-1/trained.parquet") as draft:
        pq.write_table(pa.table({"id": ids}), draft.file)
    left = lake.root / "shards" / "00" / ".tmp-killed"  # what a killed writer leaves
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(tar.header(f"{key}.png".encode(), len(image)) + image)
    (lake.root / "batches" / "d" / ".landing-killed.arrow").write_bytes(b"interim " + key.encode())
    unnamed = tar.header(f"{key}.png".encode(), len(image)) + image + tar.padding(len(image)) + tar.END
    lake.store.create(shard_key(digest_bytes(unnamed)), unnamed)
    return lake, key


def texts(lake: Lake) -> str:
    """Everything that a lake's files say: names, raw bytes as latin-1, and every value of every Parquet file."""
    said = []
    for path in sorted(p for p in lake.root.rglob("*") if p.is_file()):
        said += [str(path.relative_to(lake.root)), path.read_bytes().decode("latin-1")]
        if path.suffix == ".parquet":
            said.append(repr(pq.read_table(path).to_pylist()))
    return "\n".join(said)


def others(lake: Lake, key: str) -> dict[str, Any]:
    """Of every version: id, label, split, weight and bytes of all samples but one."""
    found = {}
    for dataset in lake.datasets():
        for version in lake.versions(dataset):
            rows = lake.samples(dataset, version.name)
            rows = rows.filter(pc.not_equal(rows["id"], key))
            images = [digest_bytes(x) for x in lake.read_images(rows)]
            found[f"{dataset} {version.name}"] = [rows.select(["id", "label", "split", "weight", "path"]), images]
    return found


def state(lake: Lake) -> dict[str, str]:
    """Every visible file by digest, Parquet by what it holds."""
    return {
        e.key: repr(pq.read_table(lake.root / e.key).to_pylist())
        if e.key.endswith(".parquet")
        else digest_bytes(lake.store.read(e.key))
        for e in lake.store.entries("")
    }


@pytest.fixture
def full(tmp_path: Path, make: SimpleNamespace) -> tuple[Lake, str]:
    return full_lake(tmp_path, make)


def test_the_whole_lake_holds_nothing_of_a_sample_afterwards(full: tuple[Lake, str], make: SimpleNamespace) -> None:
    lake, key = full
    image = make.png(ALICE, 24, 24, 3)
    before, manifests = others(lake, key), {e.key: lake.store.read(e.key) for e in lake.store.entries("manifests")}
    names = {(d, v.name, v.content_id) for d in lake.datasets() for v in lake.versions(d)}
    stored = lake.samples("d", "v1").num_rows
    pixel_digest = lake.samples("d", "v1").filter(pc.equal(lake.samples("d", "v1")["id"], key))["pixel_digest"][0]
    middle = len(image) // 2
    windows = [image[i : i + 64].decode("latin-1") for i in range(middle - 96, middle + 96, 16)]
    there = texts(lake)
    assert all(x in there for x in (windows[0], NAME, WORDS, image.decode("latin-1")))

    done = erase_one(lake, key)

    there = texts(lake)
    for needle in (image.decode("latin-1"), *windows, NAME, f"{key}.png"):
        assert needle not in there
    rows = [r for p in lake.root.rglob("*.parquet") for r in pq.read_table(p).to_pylist() if r.get("id") == key]
    assert rows, "its empty slots and what excludes it"
    for row in rows:
        said = {k: v for k, v in row.items() if v not in (None, "")}
        assert said.keys() <= {"id", "batch", "split", "weight", "exclude", "slot", "reviewer"}
    assert WORDS in there, "said of another sample"
    (verdict,) = lake.verdicts("d", "pair").to_pylist()
    other, third = verdict["findings"][2], json.loads(verdict["data"])["pairs"][0][1]
    assert verdict["findings"] == ["(taken down)", key, other]
    assert verdict["notes"] == ["", "", "like (taken down)"]
    assert json.loads(verdict["data"]) == {
        "pairs": [[other, third, "near"]],
        "examples": {"title": "odd", "now": [other], "reference": []},
        "histograms": [{"name": "age", "edges": [0, 1], "now": [3], "reference": None}],
    }
    assert manifests.items() <= {e.key: lake.store.read(e.key) for e in lake.store.entries("manifests")}.items()
    assert names == {(d, v.name, v.content_id) for d in lake.datasets() for v in lake.versions(d)}
    assert lake.samples("d", "v1").num_rows == stored - 1
    assert lake.samples_of(lake.version("d", "v1").content_id, masked=True).num_rows == stored
    after = others(lake, key)
    assert after.keys() == before.keys()
    for name, (table, images) in after.items():
        assert table.equals(before[name][0]), name
        assert images == before[name][1] == table["id"].to_pylist()
    stone = tombstones.read(lake.store)[key]
    assert (stone.pixel_digest, stone.reason, stone.time) == (pixel_digest.as_py(), "asked for", 9.0)
    assert lake.redacted(lake.version("d", "v1").content_id) == (done,)
    assert [m["model"] for m in done.models] == ["m/1"]
    assert done.models[0]["trained"] is True
    for dataset in ("d", "e", "f"):
        make.reconciles(lake, dataset)
    assert takedown.unfinished(lake.store) == []


def test_all_views_work_and_have_one_row_less(full: tuple[Lake, str]) -> None:
    lake, key = full
    count = "select count(*) as n, count(*) filter (id = '{}') as hits from samples_all where version = 'v1'"
    before = lake.sql(count.format(key)).to_pylist()[0]
    erase_one(lake, key)
    after = lake.sql(count.format(key)).to_pylist()[0]
    assert (before["hits"], after) == (2, {"n": before["n"] - 2, "hits": 0})
    lake.sql(f"select {', '.join(f'(select count(*) from {view})' for view in VIEWS)}", dataset="d")
    shards = lake.sql("select digest, bytes from shards")
    for digest, size in zip(shards["digest"].to_pylist(), shards["bytes"].to_pylist(), strict=True):
        assert lake.shard_path(digest).stat().st_size == size


def test_versions_are_compared_and_edited_as_before(full: tuple[Lake, str], make: SimpleNamespace) -> None:
    lake, key = full
    pairs = [("v1", "v2"), ("v2", "v3"), ("v1", "v3")]

    def rows_of_others() -> list[list[dict[str, Any]]]:
        return [[r for r in lake.diff("d", *p)["rows"].to_pylist() if r["id"] != key] for p in pairs]

    before = rows_of_others()
    erase_one(lake, key)
    assert rows_of_others() == before
    assert not [r for p in pairs for r in lake.diff("d", *p)["rows"].to_pylist() if r["id"] == key]
    other = lake.samples("d")["id"][5].as_py()
    after = make.commit(lake, overlays=[make.overlay([other], label="cat"), lake.overlay(lake.reviews("d")[0].overlay)])
    assert "" not in lake.manifest(after.content_id).classes
    assert key not in lake.samples("d", after.name)["id"].to_pylist()


def test_every_shard_index_and_tar_is_whole(full: tuple[Lake, str]) -> None:
    lake, key = full
    erase_one(lake, key)
    for path in (lake.root / "shards").rglob("*.tar"):
        data = path.read_bytes()
        assert digest_bytes(data) == path.stem
        with tarfile.open(fileobj=io.BytesIO(data)) as opened:
            assert key not in {m.name.partition(".")[0] for m in opened}
        keys = [x["__key__"] for x in wds.WebDataset(str(path), shardshuffle=False)]
        assert len(keys) == len(set(keys)) > 0
    redacted = redactions.current(lake.store)
    for dataset in lake.datasets():
        for version in lake.versions(dataset):
            manifest = redactions.opened(lake.manifest(version.content_id), redacted)
            for row in read_index(lake.store, manifest).to_pylist():
                if row["shard"] is None:
                    continue
                data = lake.shard_path(row["shard"]).read_bytes()
                assert digest_bytes(data[row["offset"] : row["offset"] + row["size"]]) == row["id"]
                for part in row["components"] or []:
                    header = data[part["offset"] - 512 : part["offset"]].rstrip(b"\0")
                    assert header.startswith(f"{row['id']}.{part['ext']}".encode())


def test_it_cannot_come_back_as_the_same_bytes_or_the_same_pixels(
    full: tuple[Lake, str], tmp_path: Path, make: SimpleNamespace
) -> None:
    lake, key = full
    erase_one(lake, key)
    image = make.png(ALICE, 24, 24, 3)
    again = io.BytesIO()
    Image.open(io.BytesIO(image)).save(again, "BMP")
    members = {"cat/bytes.png": image, "cat/pixels.bmp": again.getvalue(), "cat/new.png": make.png(901)}
    batch = make.land(lake, make.folder(tmp_path / "again", members), "again")
    aside = lake.quarantine("d", batch).to_pylist()
    assert [(r["path"], r["reason"]) for r in aside] == [
        ("cat/bytes.png", "taken_down"), ("cat/pixels.bmp", "taken_down"),
    ]  # fmt: skip
    assert aside[0]["detail"] == "this image was taken down on 1970-01-01: asked for"
    assert lake.batch_rows("d", batch)["path"].to_pylist() == ["cat/new.png"]
    make.commit(lake)
    assert key not in lake.samples("d")["id"].to_pylist()
    make.reconciles(lake)


def test_a_retry_and_the_batch_that_waited_do_not_bring_it_back(full: tuple[Lake, str], make: SimpleNamespace) -> None:
    lake, key = full
    erase_one(lake, key)
    make.commit(lake, dataset="f")
    make.reconciles(lake, "f")
    assert lake.samples("f").num_rows == 5
    make.commit(lake)
    retried, _ = lake.retry_quarantine("d", "second") if lake.quarantine("d", "second").num_rows else (None, False)
    assert retried is None
    for dataset in lake.datasets():
        assert key not in lake.samples(dataset)["id"].to_pylist()


def test_a_second_run_changes_nothing(full: tuple[Lake, str]) -> None:
    lake, key = full
    path = f"dog/{NAME}-3.png"
    done = erase_one(lake, path)
    before = state(lake)
    for request in (takedown.Request(key=key), takedown.Request(key=key[:8]), takedown.Request(key=path)):
        assert takedown.find(lake.store, request) == done
    assert takedown.finish(lake.store) == []
    assert state(lake) == before
    with pytest.raises(SevenfoldError, match="no sample of this lake"):
        takedown.find(lake.store, takedown.Request(key="dog/never.png"))


def test_what_was_said_of_it_does_not_come_back_when_it_is_said_again(lake: Lake, make: SimpleNamespace) -> None:
    root = lake.root.parent
    make.land(lake, make.folder(root / "source", make.two_classes(20)), "first")
    make.commit(lake)
    key, other = lake.samples("d")["id"].to_pylist()[3:5]
    said = make.overlay([key, other], label=LABEL, reason=[WORDS, "fine"])
    review = {"reviewer": "r", "clock": lambda: 5.0}
    lake.add_review("d", "one", said, **review)
    before = lake.commit("d", message="m", overlays=[said])[0]
    erase_one(lake, key)
    assert lake.commit("d", message="m", overlays=[said]) == (before, False)  # a writer that had died tries again
    waiting = [lake.overlay(r.overlay) for r in lake.pending_reviews("d")]
    assert lake.commit("d", message="m", overlays=waiting) == (before, False)
    assert not lake.add_review("d", "one", said, **review)[1]
    lake.add_review("d", "two", make.overlay([key], label="seen " + LABEL, reason=WORDS), **review)
    after = make.commit(lake, overlays=[make.overlay([key], label="new " + LABEL, reason=WORDS)])
    assert lake.manifest(after.content_id).classes == lake.manifest(before.content_id).classes
    assert WORDS not in texts(lake)
    assert set(lake.samples("d").filter(pc.equal(lake.samples("d")["id"], other))["label"].to_pylist()) == {LABEL}


def test_a_second_sample_of_the_same_shard_follows_the_chain(full: tuple[Lake, str]) -> None:
    lake, key = full
    content = lake.version("d", "v1").content_id
    slots = lake.samples_of(content, masked=True)
    shard = slots.filter(pc.equal(slots["id"], key))["shard"][0].as_py()
    beside = [i for i in slots.filter(pc.equal(slots["shard"], shard))["id"].to_pylist() if i != key]
    before = others(lake, key)
    erase_one(lake, key)
    for one in beside:  # until nothing of the shard is left
        erase_one(lake, one)
    assert [t.ids for t in lake.redacted(content)] == [t.ids for t in takedown.finished(lake.store) if t.versions]
    after = lake.samples_of(content, masked=True)
    assert after["id"].equals(slots["id"])
    groups = [dict(zip(t["id"].to_pylist(), t["shard"].to_pylist(), strict=True)) for t in (slots, after)]
    assert len(set(zip(groups[0].values(), groups[1].values(), strict=True))) == len(set(groups[0].values()))
    table, images = others(lake, key)["d v1"]
    assert images == table["id"].to_pylist() == [i for i in before["d v1"][1] if i not in beside]


def test_slots_keep_shard_split_weight_and_whether_there_was_a_label(full: tuple[Lake, str]) -> None:
    lake, key = full
    content = lake.version("d", "v2").content_id
    before = lake.samples_of(content, masked=True)
    erase_one(lake, key)
    after = lake.samples_of(content, masked=True)
    for name in ("id", "batch", "split", "weight"):
        assert after[name].equals(before[name])
    assert pc.is_valid(after["label"]).equals(pc.is_valid(before["label"]))
    gone = after.filter(pc.is_null(after["offset"]))
    assert gone["id"].to_pylist() == [key]
    assert {k for k, v in gone.to_pylist()[0].items() if v not in (None, "")} == {
        "id", "batch", "split", "weight", "shard",
    }  # fmt: skip


def test_a_dry_run_changes_nothing_and_names_what_would_be_touched(full: tuple[Lake, str]) -> None:
    lake, key = full
    before = state(lake)
    found = takedown.find(lake.store, takedown.Request(key=key))
    assert not isinstance(found, takedown.Takedown)
    assert state(lake) == before
    assert {(v["dataset"], v["version"]) for v in found.versions} == {
        ("d", "v1"),
        ("d", "v2"),
        ("d", "v3"),
        ("e", "v1"),
    }
    assert {(b["dataset"], b["batch"], b["samples"], b["aliases"], b["quarantined"]) for b in found.batches} == {
        ("d", "first", 1, 1, 0), ("d", "second", 1, 0, 0), ("d", "pair", 0, 0, 2), ("e", "other", 1, 1, 0),
        ("f", "waiting", 1, 0, 0),
    }  # fmt: skip
    assert {key.split("/")[0] for key in found.tables} == {"signals", "predictions", "queues"}
    assert (len(found.verdicts), len(found.caches), len(found.overlays)) == (1, 2, 3)
    with pytest.raises(SevenfoldError, match="needs a reason"):
        takedown.carry_out(lake.store, takedown.Request(key=key), found, " ")
    assert state(lake) == before


def test_selection_by_condition_sees_excluded_landed_and_relabelled_samples(full: tuple[Lake, str]) -> None:
    lake, key = full
    where = takedown.select(lake.store, takedown.Request(where=f"path like '%{NAME}-1.png'"))
    assert where == {key}, "excluded in the newest version, and so it is in the first"
    assert key in takedown.select(lake.store, takedown.Request(where=f"label = '{LABEL}'"))
    waits = lake.batch_rows("f", "waiting")["id"].to_pylist()
    assert takedown.select(lake.store, takedown.Request(where="dataset = 'f'")) == set(waits)
    with pytest.raises(SevenfoldError, match="nothing"):
        takedown.select(lake.store, takedown.Request(where="nothing = 1"))
    with pytest.raises(SevenfoldError, match="no condition"):
        takedown.select(lake.store, takedown.Request(where="true) union select ('1'"))
    with pytest.raises(SevenfoldError, match="not said"):
        takedown.select(lake.store, takedown.Request())


def test_twins_are_counted_and_taken_when_asked_for(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    image = make.pixels(3)
    members = {"cat/a.png": make.encoded(image), "cat/b.bmp": make.encoded(image, "BMP"), "cat/c.png": make.png(4)}
    make.land(lake, make.folder(tmp_path / "source", members), "b")
    make.commit(lake)
    found = takedown.find(lake.store, takedown.Request(key="cat/a.png"))
    assert not isinstance(found, takedown.Takedown)
    assert len(found.twins) == 1
    erase_one(lake, "cat/a.png", twins=True)
    assert lake.samples("d")["path"].to_pylist() == ["cat/c.png"]


def test_a_start_of_an_id_must_fit_one_sample(lake: Lake) -> None:
    ids = pa.chunked_array([["0123456789ab" + "0" * 52, "0123456789ab" + "1" * 52]])
    assert ids[0].as_py()[:8] == "01234567"
    rows = pa.table({"id": ids, "pixel_digest": ids})
    for row in rows.to_pylist():
        tombstones.write(lake.store, tombstones.Tombstone(row["id"], None, "r", 1.0, "t"))
    with pytest.raises(SevenfoldError, match="2 samples have ids that start with 01234567"):
        takedown.select(lake.store, takedown.Request(key="01234567"))
    assert len(takedown.select(lake.store, takedown.Request(key="0123456789ab1"))) == 1


def test_a_damaged_shard_gets_no_valid_name(full: tuple[Lake, str]) -> None:
    lake, key = full
    rows = lake.samples("d", "v1")
    shard = lake.shard_path(rows.filter(pc.equal(rows["id"], key))["shard"][0].as_py())
    good = shard.read_bytes()
    shard.write_bytes(good[:600] + bytes([good[600] ^ 1]) + good[601:])
    with pytest.raises(SevenfoldError, match="damaged"):
        erase_one(lake, key)
    assert len(takedown.unfinished(lake.store)) == 1
    shard.write_bytes(good)
    assert [t.ids for t in takedown.finish(lake.store)] == [(key,)]
    assert key not in lake.samples("d", "v1")["id"].to_pylist()


@pytest.mark.parametrize("first", ["the lost one", "another"])
def test_a_shard_that_has_lost_a_sample_can_be_cut_and_its_damaged_bytes_go(
    lake: Lake, tmp_path: Path, make: SimpleNamespace, first: str
) -> None:
    make.land(lake, make.folder(tmp_path / "source", make.two_classes(20)), "first")
    make.commit(lake)
    rows = lake.samples("d").to_pylist()
    lost, other = (r["id"] for r in rows[:2])
    assert rows[0]["shard"] == rows[1]["shard"]
    shard = lake.shard_path(rows[0]["shard"])
    bad = bytearray(shard.read_bytes())
    bad[rows[0]["offset"] + 60] ^= 1
    shard.write_bytes(bad)
    shutil.rmtree(tmp_path / "source")
    repair(lake.store, ["d"], verify(lake.store, ["d"]).findings)
    if first == "another":
        erase_one(lake, other)
        (found,) = verify(lake.store, ["d"]).findings
        assert found.problem == "content" and lost in found.detail
        assert [r.lost for r in repair(lake.store, ["d"], [found])] == [(("d", lost),)]
    erase_one(lake, lost)
    assert verify(lake.store, ["d"]).clean
    assert not lake.store.entries("quarantine/shards")
    whole = lake.samples("d")
    assert [digest_bytes(x) for x in lake.read_images(whole)] == whole["id"].to_pylist()
    assert set(whole["id"].to_pylist()) == {r["id"] for r in rows} - {lost, *([other] if first == "another" else [])}


@settings(deadline=None)  # it writes files
@given(st.lists(st.tuples(st.integers(0, 3000), st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_a_cut_shard_holds_all_other_members_byte_for_byte(samples: list[tuple[int, bool, bool]]) -> None:
    from tempfile import TemporaryDirectory

    from sevenfold.storage.store import LocalStore

    rng = np.random.default_rng(len(samples))
    pieces, kept, gone = [], [], set()
    at = 0
    places = {}
    for i, (size, labelled, goes) in enumerate(samples):
        key = digest_bytes(str(i).encode())
        parts = [("png", rng.bytes(size)), *([("cls", b"7")] if labelled else [])]
        whole = [tar.header(f"{key}.{ext}".encode(), len(data)) + data + tar.padding(len(data)) for ext, data in parts]
        places[key] = (at + tar.BLOCK, parts[0][1])
        at += sum(map(len, whole))
        pieces += whole
        if goes:
            gone.add(key)
        else:
            kept += whole
    old = b"".join([*pieces, tar.END])
    with TemporaryDirectory() as folder:
        store = LocalStore(Path(folder))
        digest = digest_bytes(old)
        store.create(f"shards/{digest[:2]}/{digest}.tar", old)
        cut = erase.cut_shard(store, digest, gone)
        assert cut is not None
        if not kept:
            assert cut.to is None
            return
        new = b"".join([*kept, tar.END])
        assert (cut.to, cut.bytes) == (digest_bytes(new), len(new))
        assert store.read(f"shards/{cut.to[:2]}/{cut.to}.tar") == new
        for key, (offset, data) in places.items():
            if key not in gone:
                assert new[cut.moved(offset) :][: len(data)] == data


ROWS = st.lists(
    st.tuples(st.sampled_from(["s0", "s1", None]), st.integers(0, 9), st.sampled_from([None, "cat"]),
              st.sampled_from([None, 0, 2]), st.booleans()), max_size=12,
)  # fmt: skip


@settings(deadline=None)
@given(ROWS, st.sampled_from([None, "new"]), st.sets(st.integers(0, 9), max_size=3), st.booleans())
def test_a_masked_index_is_what_a_look_at_each_row_gives(
    rows: list[tuple[str | None, int, str | None, int | None, bool]], to: str | None, gone: set[int], again: bool
) -> None:
    starts = np.array(sorted(gone), np.int64) * 4096
    cut = erase.Cut(to, 0, 0, starts, np.full(len(gone), 4096))
    schema = pa.schema([*INDEX, *BAKED, *([SLOT] if again else [])])
    index, expected, ids = [], [], set()
    for i, (shard, place, label, others, hit) in enumerate(rows):
        at = place * 4096 + tar.BLOCK
        parts = None if others is None else [{"ext": "cls", "offset": at + 1024 * n, "size": 1} for n in range(others)]
        row = {"id": str(i), "batch": "b", "shard": shard, "offset": at if shard else None, "components": parts,
               "label": label, "split": "train", "path": f"{i}.png", "weight": 0.5,
               "slot": "s9" if again else None}  # fmt: skip
        index.append(row)
        if hit:
            ids.add(str(i))
            expected.append({**row, "slot": shard or row["slot"], "label": label and "", "shard": None, "offset": None,
                             "components": None, "path": None})  # fmt: skip
        elif shard == "s1":
            back = 4096 * sum(g * 4096 < at for g in gone)
            parts = parts and [
                {**p, "offset": p["offset"] - 4096 * sum(g * 4096 < p["offset"] for g in gone)} for p in parts
            ]
            expected.append({**row, "shard": to, "offset": at - back, "components": parts})
        else:
            expected.append(row)
    masked = erase.masked_rows(pa.Table.from_pylist(index, schema=schema), ids, {"s1": cut})
    masked.validate(full=True)
    assert masked == pa.Table.from_pylist(expected, schema=pa.schema([*INDEX, *BAKED, SLOT]))


def killed_at(instants: int, tmp_path: Path, make: SimpleNamespace) -> int:
    """Take down in a process that is killed at random instants, again and again; returns how many kills hit."""
    lake, key = full_lake(tmp_path / "whole", make)
    copies = [tmp_path / f"copy{i}" for i in range(instants)]
    for copy in copies:
        shutil.copytree(lake.root, copy)

    def start(root: Path) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, str(SCRIPT), str(root), key], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    began = time.monotonic()
    process = start(lake.root)
    ready = time.monotonic()
    assert process.communicate(timeout=120)[0] == b"done\n"
    seconds = time.monotonic() - ready
    assert ready > began
    expected, hits = state(lake), 0
    chance = random.Random(instants)
    for i, copy in enumerate(copies):
        process = start(copy)
        time.sleep(seconds * (i + chance.random()) / instants)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        hits += process.returncode == -signal.SIGKILL
        opened = Lake.open(copy)
        for dataset in ("d", "e"):
            for version in opened.versions(dataset):
                rows = opened.samples(dataset, version.name)
                assert [digest_bytes(x) for x in opened.read_images(rows)] == rows["id"].to_pylist()
        process = start(copy)
        assert process.communicate(timeout=120)[0] == b"done\n"
        assert state(opened) == expected
        assert NAME not in texts(opened)
    return hits


def test_killed_at_any_instant_it_ends_the_same(tmp_path: Path, make: SimpleNamespace) -> None:
    assert killed_at(10, tmp_path, make) >= 5


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_at_a_hundred_instants(tmp_path: Path, make: SimpleNamespace) -> None:
    assert killed_at(100, tmp_path, make) >= 50


class Interrupted(LocalStore):
    """A disk on which something happens once, just before a file of one kind is read."""

    kind, act = "", staticmethod(lambda: None)

    def local(self, key: str) -> Path:
        if key.startswith(self.kind) and self.kind:
            self.kind = ""
            self.act()
        return super().local(key)


@pytest.mark.parametrize(("kind", "do"), [("index/", "read"), ("index/", "commit"), ("shards/", "compact")])
def test_who_reads_while_a_sample_is_taken_down_reads_again(
    lake: Lake, tmp_path: Path, make: SimpleNamespace, kind: str, do: str
) -> None:
    for name, start in (("one", 0), ("two", 20)):
        make.land(lake, make.folder(tmp_path / name, make.two_classes(20, start=start)), name)
        make.commit(lake)
    ids = lake.samples("d")["id"].to_pylist()
    store = Interrupted(lake.root)
    store.kind, store.act = kind, lambda: erase_one(lake, ids[0])  # type: ignore[method-assign, assignment]
    mine = Lake.open(store)
    if do == "commit":
        make.commit(mine, overlays=[make.overlay(ids[1:2], exclude=True)])
    elif do == "compact":
        mine.compact("d")
    assert set(mine.samples("d")["id"].to_pylist()) == set(ids[2 if do == "commit" else 1 :])
    assert not store.kind and verify(lake.store, ["d"]).clean
