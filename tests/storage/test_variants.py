"""Variants: other bytes for the same samples, the same wherever they are made, and gone when they have to be."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import webdataset as wds
from PIL import Image

from sevenfold.storage import Lake, SevenfoldError, commit, gc, making, takedown, tar, variants
from sevenfold.storage import resize as resizing
from sevenfold.storage.canonical import canonical_json, digest_bytes, digest_table
from sevenfold.storage.index import INDEX, LANDING, conform, write_parquet
from sevenfold.storage.keys import index_key, shard_key
from sevenfold.storage.leases import lease
from sevenfold.storage.materialize import materialize
from sevenfold.storage.npy import npy_bytes, npy_pixels
from sevenfold.storage.recipe import cut, recipe_of
from sevenfold.storage.records import Manifest, Version
from sevenfold.storage.repair import repair
from sevenfold.storage.shards import index_rows, write_shards
from sevenfold.storage.sources import InputError
from sevenfold.storage.verify import verify

SCRIPT = Path(__file__).with_name("one_variant.py")


def smooth(seed: int, height: int = 40, width: int = 56) -> np.ndarray:
    """A picture that JPEG likes: uint8 [h, w, 3]."""
    few = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(few).resize((width, height), Image.Resampling.BICUBIC))


def photos(make: SimpleNamespace, n: int, start: int = 0) -> dict[str, bytes]:
    """`n` JPEGs in the folders cat and dog."""
    return {
        f"{'cat' if i % 2 else 'dog'}/{i:05d}.jpg": make.encoded(smooth(i), "JPEG", quality=95)
        for i in range(start, start + n)
    }


@pytest.fixture
def lake_of(tmp_path: Path, make: SimpleNamespace) -> Callable[..., Lake]:
    """A lake with a committed batch of `n` JPEGs."""

    def fill(n: int = 40, name: str = "lake") -> Lake:
        lake = Lake.create(tmp_path / name, shard_bytes=16 << 10)
        make.land(lake, make.folder(tmp_path / f"{name}-source", photos(make, n)), "first")
        make.commit(lake)
        return lake

    return fill


def content(lake: Lake) -> str:
    return lake.version("d").content_id


def pixels_of(lake: Lake, name: str, size: int, channels: int = 3) -> dict[str, np.ndarray]:
    """id -> what a variant's member decodes to."""
    rows = lake.variant_samples(content(lake), name)
    rows = rows.filter(pc.is_valid(rows["offset"]))
    images = lake.read_images(rows)
    return {i: resizing.squashed(x, size, channels) for i, x in zip(rows["id"].to_pylist(), images, strict=True)}


def files(lake: Lake) -> dict[str, bytes]:
    return {e.key: lake.store.read(e.key) for e in lake.store.entries("", hidden=True)}


# What it holds


def test_the_same_samples_with_other_places(lake_of: Callable[..., Lake]) -> None:
    lake = lake_of()
    before = lake.samples_of(content(lake))
    made = lake.materialize("d", size=24, format="raw")
    after = lake.variant_samples(content(lake), "24-raw")
    changed = ("shard", "offset", "size", "ext", "width", "height", "channels")
    assert after.drop_columns(changed).equals(before.drop_columns(changed)) and after.schema == before.schema
    assert set(after["ext"].to_pylist()) == {"npy"} and set(after["width"].to_pylist()) == {24}
    assert lake.variants(content(lake)) == [made] and made.counts == {"samples": 40, "undecodable": 0, "taken_down": 0}
    assert len(made.shards) > 3 and all(s["bytes"] <= 16 << 10 for s in made.shards)
    assert sum(s["bytes"] for s in made.shards) == made.tar_bytes
    for s in made.shards:
        assert set(after.filter(pc.equal(after["shard"], s["digest"]))["split"].to_pylist()) == {s["split"]}


@pytest.mark.parametrize("channels", [1, 3])
def test_raw_members_are_the_pixels_and_what_numpy_saves(lake_of: Callable[..., Lake], channels: int) -> None:
    lake = lake_of(10)
    lake.materialize("d", size=24, format="raw", channels=channels)
    rows = lake.variant_samples(content(lake), "24-raw")
    for original, member in zip(lake.read_images(lake.samples_of(content(lake))), lake.read_images(rows), strict=True):
        pixels = resizing.squashed(original, 24, channels)
        if channels == 3:
            with Image.open(io.BytesIO(original)) as image:
                assert np.array_equal(np.asarray(image.resize((24, 24), Image.Resampling.BILINEAR)), pixels)
        saved = io.BytesIO()
        np.save(saved, pixels)
        assert member == saved.getvalue() and len(member) == 128 + 24 * 24 * channels
        assert np.array_equal(np.load(io.BytesIO(member), allow_pickle=False), pixels)


def test_jpeg_members_are_near(lake_of: Callable[..., Lake]) -> None:
    lake = lake_of(20)
    lake.materialize("d", size=24, format="raw")
    lake.materialize("d", size=24, format="jpeg", quality=95)
    raw, jpeg = pixels_of(lake, "24-raw", 24), pixels_of(lake, "24-jpeg", 24)
    assert raw.keys() == jpeg.keys()
    assert max(np.abs(raw[i].astype(int) - jpeg[i]).mean() for i in raw) < 6


def test_a_damaged_raw_member_is_no_image() -> None:
    good = npy_bytes(smooth(1))
    assert np.array_equal(npy_pixels(good, 3), smooth(1))
    for bad in (good[:-1], good + b"x", good[:20], good.replace(b"|u1", b"|O "), good.replace(b"(40,", b"(41,")):
        with pytest.raises(InputError):
            resizing.squashed(bad, 24, 3)


def test_stock_webdataset_reads_it_with_edits_baked_in(lake_of: Callable[..., Lake], make: SimpleNamespace) -> None:
    lake = lake_of(30)
    ids = lake.samples("d")["id"].to_pylist()
    make.commit(lake, overlays=[make.overlay(ids[:5], label="owl"), make.overlay(ids[5:9], exclude=True)])
    make.commit(lake, overlays=[make.overlay(ids[9:12], split="test")])
    with pytest.raises(SevenfoldError, match="overlays"):
        lake.urls("d")
    classes = lake.manifest(content(lake)).classes
    for form, decode, field in (("jpeg", "rgb8", "jpg"), ("raw", None, "npy")):
        lake.materialize("d", size=24, format=form)
        found = {}
        for split in ("train", "val", "test", "pool"):
            urls = lake.urls("d", split=split, variant=f"24-{form}")
            for x in wds.WebDataset(urls, shardshuffle=False).decode(*([decode] if decode else [])) if urls else ():
                assert x[field].shape == (24, 24, 3) and x[field].dtype == np.uint8
                found[x["__key__"]] = (classes[x["cls"]], split)
        rows = lake.samples("d").to_pylist()
        assert found == {r["id"]: (r["label"], r["split"]) for r in rows} and len(rows) == 26


# Determinism


def test_threads_chunks_and_the_way_there_do_not_matter(
    lake_of: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for i, threads in enumerate((1, 2, 5)):
        monkeypatch.setattr(making, "CHUNK", (1, 7, 64)[i])
        lake = lake_of(60, f"lake{i}")
        made.append([lake.materialize("d", size=24, format=f, threads=threads) for f in ("jpeg", "raw")])
    told = [[(v.index, v.shards, v.recipe, v.counts) for v in pair] for pair in made]
    assert told[0] == told[1] == told[2]


def test_a_second_call_adopts_and_another_recipe_is_refused(lake_of: Callable[..., Lake]) -> None:
    lake = lake_of(10)
    options: dict[str, Any] = {"size": 24, "shard_bytes": lake.shard_bytes}
    first, made = materialize(lake.store, "d", "main", **options)
    assert made and materialize(lake.store, "d", "v1", **options) == (first, False)
    with pytest.raises(SevenfoldError, match="quality 90 instead of 50"):
        materialize(lake.store, "d", "main", **options, quality=50)
    other, made = materialize(lake.store, "d", "main", **options, quality=50, name="small")
    assert made and [v.name for v in lake.variants(content(lake))] == ["24-jpeg", "small"]
    lost = other.shards[0]["digest"]
    lake.store.delete(shard_key(lost))
    again, made = materialize(lake.store, "d", "main", **options, quality=50, name="small")
    assert made and again.shards == other.shards and lake.shard_path(lost).exists()


def test_a_variant_of_another_release_is_adopted(lake_of: Callable[..., Lake]) -> None:
    lake = lake_of(10)
    first = lake.materialize("d", size=24)
    told = json.loads(lake.store.read(first.key))
    told["recipe"]["encoder"] = "simplejpeg 0.0.1"
    lake.store.replace(first.key, json.dumps(told).encode())
    assert lake.materialize("d", size=24).recipe["encoder"] == "simplejpeg 0.0.1"


@pytest.mark.parametrize(
    "wrong", [{"size": 0}, {"size": 5000}, {"format": "png"}, {"quality": 0}, {"channels": 2}, {"name": "../x"}]
)
def test_nonsense_is_refused(lake_of: Callable[..., Lake], wrong: dict[str, Any]) -> None:
    with pytest.raises(SevenfoldError):
        lake_of(4).materialize("d", **{"size": 24, **wrong})


def test_a_version_without_samples_is_refused(lake_of: Callable[..., Lake], make: SimpleNamespace) -> None:
    lake = lake_of(4)
    make.commit(lake, overlays=[make.overlay(lake.samples("d")["id"].to_pylist(), exclude=True)])
    with pytest.raises(SevenfoldError, match="no samples"):
        lake.materialize("d", size=24)


# What does not decode


def with_garbage(lake: Lake, make: SimpleNamespace) -> str:
    """Commit a version with five images and one sample that is none; returns its id."""
    contents = sorted((make.png(i) for i in range(5)), key=digest_bytes)
    garbage = b"\x89PNG no image"
    members = sorted([(digest_bytes(x), x) for x in (*contents, garbage)])
    (shard,) = write_shards(lake.store, [[(key, (("png", x), ("cls", b"0"))) for key, x in members]])
    assert shard is not None
    rows = conform(pa.table({"id": [key for key, _ in members]}), LANDING)
    for name, value in {"ext": "png", "label": "cat", "split": "train"}.items():
        rows = rows.set_column(rows.column_names.index(name), name, pa.array([value] * 6))
    rows = rows.set_column(rows.column_names.index("channels"), "channels", pa.array([1] * 6, pa.int32()))
    index = index_rows(rows, "odd", shard)
    digest = digest_table(index)
    write_parquet(lake.store, index_key(digest), [index], INDEX, overwrite=False)
    told = {"digest": shard.digest, "samples": 6, "bytes": shard.bytes, "split": "train"}
    entry = {"batch": "odd", "digest": digest, "index": digest, "samples": 6, "shards": [told]}
    manifest = Manifest(("cat",), (entry,), (), {})
    assert commit.publish(lake.store, Version("d", 1, manifest.content_id, (), "odd", {}), "main", manifest)
    return digest_bytes(garbage)


def test_what_does_not_decode_is_said_and_masked(lake: Lake, make: SimpleNamespace) -> None:
    bad = with_garbage(lake, make)
    with pytest.warns(RuntimeWarning, match="1 samples do not decode"):
        made = lake.materialize("d", size=8, format="raw")
    assert made.counts == {"samples": 5, "undecodable": 1, "taken_down": 0}
    rows = lake.variant_samples(content(lake), "8-raw")
    assert [r["id"] for r in rows.to_pylist() if r["offset"] is None and r["shard"] is None] == [bad]
    masked = lake.variant_samples(content(lake), "8-raw", masked=True)
    assert set(masked["shard"].to_pylist()) == {made.shards[0]["digest"]} and masked["offset"].null_count == 1
    assert verify(lake.store, ["d"]).clean
    assert pixels_of(lake, "8-raw", 8, 1).keys() == set(rows["id"].to_pylist()) - {bad}


# Killed


@pytest.mark.parametrize("form", ["raw", pytest.param("jpeg", marks=pytest.mark.slow)])
def test_killed_at_any_moment_the_next_try_ends_the_same(lake_of: Callable[..., Lake], form: str) -> None:
    whole = lake_of(60, "whole").materialize("d", size=24, format=form, channels=3)
    lake = lake_of(60, "killed")
    remarks, chance = [], random.Random(form)
    for _ in range(3):
        command = [sys.executable, str(SCRIPT), str(lake.root), form]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            assert next(lines) == "ready\n"
            remarks.append(next(lines))
            for _, line in zip(range(chance.randint(4, 9)), lines, strict=False):
                remarks.append(line)
            time.sleep(chance.random() * 0.05)
            process.send_signal(signal.SIGKILL)
        assert verify(lake.store, ["d"]).clean and lake.samples("d").num_rows == 60
        lake.store.delete(f"variants/{content(lake)}/24-{form}.json")  # in case it was faster
    assert any("made before" in r for r in remarks), remarks
    for key in [e.key for e in lake.store.entries("leases")]:
        lake.store.delete(key)
    ended = lake.materialize("d", size=24, format=form, channels=3)
    assert (ended.shards, ended.index) == (whole.shards, whole.index)
    assert not [e for e in lake.store.entries("variants", hidden=True) if "/.part-" in e.key], "notes are removed"
    assert verify(lake.store, ["d"]).clean


def test_garbage_collection_leaves_the_shards_of_a_variant_that_is_being_made(lake_of: Callable[..., Lake]) -> None:
    """Making one may take longer than the grace: its first shards and notes are old by then."""
    lake = lake_of(10)
    digest = lake.materialize("d", size=24, format="raw").shards[0]["digest"]
    lake.remove_variant(content(lake), "24-raw")
    notes = [f"variants/{content(lake)}/.part-{'0' * 24}-{i:08d}.json" for i in range(2)]
    part = {"digest": digest, "bytes": 1, "offsets": [], "sizes": []}
    for key in notes:
        lake.store.create(key, canonical_json({"0": part}))
    now = time.time()
    for key, age in ((notes[0], 9000), (notes[1], 10), (shard_key(digest), 9000)):
        os.utime(lake.root / key, (now - age, now - age))
    mine = {*notes, shard_key(digest)}
    assert not mine & {g.key for g in gc.gc(lake.store, grace=3600, delete=True)}
    os.utime(lake.root / notes[1], (now - 9000, now - 9000))
    assert mine & {g.key for g in gc.gc(lake.store, grace=3600, delete=True)} == {*notes}
    assert mine & {g.key for g in gc.gc(lake.store, grace=3600, delete=True)} == {shard_key(digest)}


# Takedown


def erase_one(lake: Lake, key: str) -> takedown.Takedown:
    request = takedown.Request(key=key)
    found = takedown.find(lake.store, request)
    assert not isinstance(found, takedown.Takedown)
    return takedown.carry_out(lake.store, request, found, "asked for")


def traces_of(lake: Lake, key: str, windows: list[bytes]) -> list[str]:
    """Files that hold a member of this id, or a piece of its bytes."""
    return [k for k, data in files(lake).items() if f"{key}.".encode() in data or any(w in data for w in windows)]


def pieces(lake: Lake, key: str) -> list[bytes]:
    """Pieces of the end of a sample's bytes, as they lie in the version and in every variant."""
    tables = [lake.samples("d"), *(lake.variant_samples(content(lake), v.name) for v in lake.variants(content(lake)))]
    found = [lake.read_images(t.filter(pc.equal(t["id"], key)))[0] for t in tables]
    return [x[i - 26 : i - 2] for x in found for i in range(len(x) - 64, len(x), 8)]


def test_a_takedown_leaves_no_byte_of_it_in_any_variant(lake_of: Callable[..., Lake], make: SimpleNamespace) -> None:
    lake = lake_of(60)
    make.commit(lake, overlays=[make.overlay(lake.samples("d")["id"].to_pylist()[:1], weight=2.0)])
    for ref in ("v1", "v2"):
        for form in ("jpeg", "raw"):
            lake.materialize("d", ref, size=24, format=form)
    key = lake.samples("d")["id"][17].as_py()
    windows, rows = pieces(lake, key), lake.variant_samples(content(lake), "24-raw", masked=True)
    before = {v.name: v.shards for v in lake.variants(content(lake))}
    assert traces_of(lake, key, windows)
    traces = takedown.find(lake.store, takedown.Request(key=key))
    assert not isinstance(traces, takedown.Takedown) and len(traces.variants) == 4
    erase_one(lake, key)
    assert traces_of(lake, key, windows) == []
    assert lake.variants(content(lake)) == [] and verify(lake.store, ["d"]).clean
    with pytest.raises(SevenfoldError, match="a takedown deletes"):
        lake.variant_samples(content(lake), "24-raw")
    again = lake.materialize("d", size=24, format="raw")
    assert again.counts == {"samples": 59, "undecodable": 0, "taken_down": 1}
    assert len({s["digest"] for s in again.shards} & {s["digest"] for s in before["24-raw"]}) == len(again.shards) - 1
    after = lake.variant_samples(content(lake), "24-raw", masked=True)
    assert after["id"].equals(rows["id"])
    pairs = set(zip(rows["shard"].to_pylist(), after["shard"].to_pylist(), strict=True))
    assert len(pairs) == len(before["24-raw"]), "every sample shares its shard with the same ones as before"
    assert after.filter(pc.is_null(after["offset"]))["id"].to_pylist() == [key]


def test_a_takedown_of_a_whole_shard_keeps_the_places(lake_of: Callable[..., Lake]) -> None:
    lake = lake_of(60)
    made = lake.materialize("d", size=24, format="raw")
    rows = lake.variant_samples(content(lake), "24-raw", masked=True)
    for key in rows.filter(pc.equal(rows["shard"], made.shards[1]["digest"]))["id"].to_pylist():
        erase_one(lake, key)
    again = lake.materialize("d", size=24, format="raw")
    assert len(again.shards) == len(made.shards) - 1
    after = lake.variant_samples(content(lake), "24-raw", masked=True)
    pairs = set(zip(rows["shard"].to_pylist(), after["shard"].to_pylist(), strict=True))
    assert len(pairs) == len(made.shards) and after["shard"].null_count == 0


def test_a_takedown_that_was_killed_finds_the_rest(lake_of: Callable[..., Lake]) -> None:
    lake = lake_of(40)
    made = lake.materialize("d", size=24, format="raw")
    key = lake.samples("d")["id"][7].as_py()
    windows = pieces(lake, key)
    (shards,) = variants.holding(lake.store, [key])[0].values()
    for state in (0, 1, 2):  # what is deleted already: nothing, the shard, the index too
        copy = Lake.open(shutil.copytree(lake.root, lake.root.parent / f"copy{state}"))
        for gone in (shard_key(shards[0]), f"variants/{content(lake)}/{made.index}.parquet")[:state]:
            copy.store.delete(gone)
        erase_one(copy, key)
        assert traces_of(copy, key, windows) == [] and copy.variants(content(lake)) == []


def test_a_takedown_takes_what_an_unfinished_variant_wrote(lake_of: Callable[..., Lake]) -> None:
    lake = lake_of(40)
    made = lake.materialize("d", size=24, format="raw")
    key = lake.samples("d")["id"][7].as_py()
    windows = pieces(lake, key)
    lake.store.delete(made.key)  # as if it had been killed before that
    erase_one(lake, key)
    assert traces_of(lake, key, windows) == []
    assert lake.materialize("d", size=24, format="raw").counts["samples"] == 39


@pytest.mark.parametrize("moment", [-5, 0, 1, 2, 5, 40])
def test_a_variant_that_is_made_during_a_takedown_lacks_the_sample(
    lake_of: Callable[..., Lake], moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "CHUNK", 1)
    lake = lake_of(40)
    rows = lake.samples("d")
    full = pc.mode(rows["shard"].combine_chunks().dictionary_encode().indices)[0]["mode"].as_py()
    place = rows["shard"].to_pylist().index(pc.unique(rows["shard"])[full].as_py())
    key = rows["id"][place].as_py()  # the first of its shard: the others are read after it
    first = lake.materialize("d", size=24, format="raw", name="first")
    windows = pieces(lake, key)
    for name in first.keys:
        lake.store.delete(name)

    def meanwhile(done: int, total: int, what: str) -> None:
        if done >= min(place + moment, total) and not takedown.finished(lake.store):
            erase_one(lake, key)

    small = Lake(lake.store, 4 << 10)  # a shard for each sample, so that its own is written when another is read
    made = small.materialize("d", size=24, format="raw", threads=1, progress=meanwhile)
    assert made.counts == {"samples": 39, "undecodable": 0, "taken_down": 1}
    assert traces_of(lake, key, windows) == [] and verify(lake.store, ["d"]).clean


def test_two_that_make_the_same_variant_at_once_have_the_same(lake_of: Callable[..., Lake]) -> None:
    lake = lake_of(40)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: lake.materialize("d", size=24), range(2))
    assert first == second and lake.variants(content(lake)) == [first] and verify(lake.store, ["d"]).clean


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "other"), ("content_id", "0" * 64), ("recipe", {}), ("recipe", {"format": "zip", "size": 1}),
        ("index", "../../lake"), ("shards", [{}]), ("shards", "no"), ("counts", {"samples": -1}), ("created", {}),
        ("created", {"time": "noon"}), ("unknown", 1),
    ],
)  # fmt: skip
def test_a_forged_manifest_is_one_clear_error(lake_of: Callable[..., Lake], field: str, value: Any) -> None:
    lake = lake_of(4)
    made = lake.materialize("d", size=24)
    told = json.loads(lake.store.read(made.key))
    told[field] = value
    lake.store.replace(made.key, json.dumps(told).encode())
    for act in (
        lambda: lake.variants(content(lake)),
        lambda: lake.variant_samples(content(lake), "24-jpeg"),
        lambda: lake.materialize("d", size=24),
        lambda: lake.lineage("d"),
    ):
        with pytest.raises(SevenfoldError):
            act()
    assert [f.key for f in verify(lake.store, ["d"]).findings] == [made.key]
    erase_one(lake, lake.samples("d")["id"][0].as_py())
    assert not lake.store.exists(made.key), "nobody knows what it held"


# Kept, and not


def test_gc_keeps_a_variant_as_long_as_it_is_wanted(lake_of: Callable[..., Lake]) -> None:
    lake = lake_of(20)
    made = lake.materialize("d", size=24)
    lake.store.create(f"variants/{content(lake)}/.part-{'0' * 24}-00000000.json", b"{}")
    late: dict[str, Any] = {"grace": 0.0, "alone": True, "clock": lambda: time.time() + 60, "delete": True}
    assert [g.key.partition("/.")[2][:5] for g in gc.gc(lake.store, **late)] == ["part-"]
    with (
        lease(lake.store, "train", content_ids=[content(lake)]),
        pytest.raises(SevenfoldError, match="1 readers hold this version"),
    ):
        lake.remove_variant(content(lake), "24-jpeg")
    lake.remove_variant(content(lake), "24-jpeg")
    assert lake.variants(content(lake)) == []
    assert {g.key for g in gc.gc(lake.store, **late)} == made.keys - {made.key}
    assert not lake.store.entries("variants") and verify(lake.store, ["d"]).clean
    with pytest.raises(SevenfoldError, match="there is no variant"):
        lake.remove_variant(content(lake), "24-jpeg")


def test_gc_deletes_nothing_beside_an_unreadable_variant(lake_of: Callable[..., Lake]) -> None:
    lake = lake_of(10)
    made = lake.materialize("d", size=24)
    lake.store.replace(made.key, b"{}")
    with pytest.raises(SevenfoldError, match="variants of"):
        gc.gc(lake.store)
    lake.remove_variant(content(lake), "24-jpeg")
    gc.gc(lake.store)


def test_verify_tells_what_is_wrong_with_a_variant(lake_of: Callable[..., Lake]) -> None:
    lake = lake_of(20)
    made = lake.materialize("d", size=24)
    report = verify(lake.store, ["d"])
    assert report.clean and report.variants == 1
    flipped, missing = (shard_key(s["digest"]) for s in made.shards[:2])
    index = f"variants/{content(lake)}/{made.index}.parquet"
    data = bytearray(lake.store.read(flipped))
    data[600] ^= 1
    whole = files(lake)

    def found() -> list[tuple[str, str]]:
        return [(f.key, f.problem) for f in verify(lake.store, ["d"]).findings]

    lake.store.replace(flipped, bytes(data))
    assert found() == [(flipped, "digest")]
    lake.store.delete(missing)
    lake.store.delete(index)
    assert sorted(found()) == sorted([(flipped, "digest"), (missing, "missing"), (index, "missing")])
    mended = repair(lake.store, ["d"], verify(lake.store, ["d"]).findings)
    assert len(mended) == 3 and all("make it again" in m.detail for m in mended)
    lake.store.replace(index, whole[index])
    lake.store.replace(missing, whole[missing])
    lake.store.replace(flipped, whole[flipped])
    assert found() == []
    lake.store.replace(made.key, whole[made.key].replace(b'"samples":', b'"samplez":'))
    assert found() == [(made.key, "unreadable")]


def test_what_a_version_shares_with_another_is_not_made_again(
    lake_of: Callable[..., Lake], tmp_path: Path, make: SimpleNamespace
) -> None:
    lake = lake_of(60)
    first = lake.materialize("d", size=24, format="raw")
    make.land(lake, make.folder(tmp_path / "more", photos(make, 20, 100)), "second")
    train = lake.samples("d").filter(pc.equal(lake.samples("d")["split"], "train"))
    make.commit(lake, overlays=[make.overlay(train["id"].to_pylist()[:1], label="owl")])
    said: list[tuple[int, str]] = []
    second = lake.materialize("d", size=24, format="raw", progress=lambda done, total, what: said.append((done, what)))
    shared = {s["digest"] for s in first.shards} & {s["digest"] for s in second.shards}
    assert said[0][0] == sum(s["samples"] for s in first.shards if s["digest"] in shared) > 30
    assert "made before" in said[0][1] and said[-1][0] == 80 and len(shared) < len(first.shards)
    shared_out = lake_of(60, "alone")
    make.land(shared_out, tmp_path / "more", "second")
    make.commit(shared_out, overlays=[lake.overlay(lake.manifest(content(lake)).overlays[0])])
    assert content(shared_out) == content(lake)
    alone = shared_out.materialize("d", size=24, format="raw")
    assert (alone.shards, alone.index) == (second.shards, second.index)
    assert verify(lake.store, ["d"]).clean


def test_lineage_and_slots_of_a_compacted_version(lake_of: Callable[..., Lake], make: SimpleNamespace) -> None:
    lake = lake_of(20)
    lake.materialize("d", size=24)
    assert [v["name"] for v in lake.lineage("d").variants] == ["24-jpeg"]
    make.commit(lake, overlays=[make.overlay(lake.samples("d")["id"].to_pylist()[:3], exclude=True)])
    lake.compact("d")
    assert lake.lineage("d").variants == (), "another content id has variants of its own"
    made = lake.materialize("d", size=24, format="raw")
    assert made.counts["samples"] == 17 and len(pixels_of(lake, "24-raw", 24)) == 17


@pytest.mark.parametrize(("form", "size"), [("raw", 24), ("jpeg", 160)])
def test_shards_take_what_fits(form: str, size: int) -> None:
    recipe = recipe_of(size, form, 90, 3)
    same = {
        name: [value] * 999 for name, value in {"label": "cat", "split": "train", "batch": "b", "offset": 0}.items()
    }
    rows = pa.table({"id": [f"{i:064x}" for i in range(999)], **same})
    slots = cut(rows, Manifest(("cat",), ({"batch": "b"},), (), {}), recipe, 1 << 20)
    counts = [s.rows.num_rows for s in slots]
    assert sum(counts) == 999 and len(set(counts[:-1])) == 1
    if form == "raw":
        one = tar.member_length(128 + 24 * 24 * 3) + tar.member_length(1)
        assert counts[0] * one + len(tar.END) <= 1 << 20 < (counts[0] + 1) * one + len(tar.END)


def test_a_variant_in_a_bucket(bucket: str, tmp_path: Path, make: SimpleNamespace) -> None:
    source = make.folder(tmp_path / "source", photos(make, 30))
    told = []
    for where in (str(tmp_path / "here"), bucket):
        lake = Lake.create(where, shard_bytes=16 << 10)
        make.land(lake, source, "first")
        make.commit(lake)
        made = lake.materialize("d", size=24, format="raw", clock=lambda: 5.0)
        assert lake.materialize("d", size=24, format="raw") == made
        rows = lake.variant_samples(content(lake), "24-raw")
        images = [digest_bytes(x) for x in lake.read_images(rows)]
        assert verify(lake.store, ["d"]).clean
        key = rows["id"][3].as_py()
        erase_one(lake, key)
        assert lake.variants(content(lake)) == []
        again = lake.materialize("d", size=24, format="raw", clock=lambda: 5.0)
        lake.remove_variant(content(lake), "24-raw")
        keys = [e.key for e in lake.store.entries("") if not e.key.startswith("takedowns/")]
        told.append((made, rows, images, again, keys))
    assert told[0] == told[1]
