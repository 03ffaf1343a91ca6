"""Verification finds what is damaged and says where; repair puts it back from what is there, or says what is lost."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sevenfold.storage import Lake, tar
from sevenfold.storage.canonical import digest_bytes, digest_table
from sevenfold.storage.commit import SCHEMA
from sevenfold.storage.damage import Member, locate, walk
from sevenfold.storage.deep import FEW, decode_all
from sevenfold.storage.index import write_parquet
from sevenfold.storage.keys import index_key, overlay_key, shard_key
from sevenfold.storage.progress import silent
from sevenfold.storage.records import Manifest
from sevenfold.storage.repair import LEFT, QUARANTINED, REBUILT, REFETCHED, exclude, repair
from sevenfold.storage.verified import PROBLEMS, Finding, Report
from sevenfold.storage.verify import verify
from sevenfold.storage.versions import write_manifest

IMAGE, LABEL = 512, 1536
"""Where the first image and the first class number of a shard of small images begin."""


@pytest.fixture
def sound(filled: Callable[..., Lake]) -> Lake:
    lake = filled(60)
    assert look(lake).clean
    return lake


def look(lake: Lake, ref: str | None = None, **options: Any) -> Report:
    report = verify(lake.store, ["d"], ref, threads=2, **options)
    assert {f.problem for f in report.findings} <= PROBLEMS.keys()
    return report


def first_shard(lake: Lake) -> Path:
    return lake.shard_path(lake.manifest(lake.version("d").content_id).shards[0]["digest"])


def overwrite(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def members(path: Path) -> list[str]:
    with tarfile.open(path) as t:
        return t.getnames()


def test_a_sound_lake_is_clean_quick_and_deep_and_the_totals_count_it(sound: Lake, make: SimpleNamespace) -> None:
    ids = sound.samples("d")["id"].to_pylist()
    make.commit(sound, overlays=[make.overlay(ids[:3], exclude=True)])
    manifest = sound.manifest(sound.version("d").content_id)
    for deep in (False, True):
        report = look(sound, deep=deep)
        assert report.clean and report.deep is deep
        assert (report.versions, report.indexes, report.overlays, report.samples) == (2, 1, 1, 60)
        assert report.shards == len(manifest.shards) and report.bytes == sum(s["bytes"] for s in manifest.shards)
    assert look(sound, "v1").versions == 1


CASES = {
    "a bit of an image": (lambda d: flipped(d, IMAGE + 20), "content", IMAGE, 0),
    "a bit of a name": (lambda d: flipped(d, 3), "header", 3, 0),
    "a bit of a size": (lambda d: flipped(d, 130), "header", 130, 0),
    "a bit of a class number": (lambda d: flipped(d, LABEL), "label", LABEL, 1),
    "a bit of the padding": (lambda d: flipped(d, 1000), "padding", 1000, 0),
    "a bit of the end": (lambda d: flipped(d, len(d) - 7), "end", -7, None),
    "cut inside a member": (lambda d: d[: 2048 + 600], "truncated", 2048 + 600, 2),
    "cut inside a header": (lambda d: d[: 2048 + 100], "truncated", 2048 + 100, None),
    "cut at a member's boundary": (lambda d: d[:2048], "truncated", 2048, None),
    "cut before the end blocks": (lambda d: d[:-1024], "truncated", -1024, None),
    "cut between the end blocks": (lambda d: d[:-512], "end", -1024, None),
    "empty": (lambda d: b"", "truncated", 0, None),
    "bytes behind the end": (lambda d: d + b"more", "trailing", None, None),
    "zeros behind the end": (lambda d: d + bytes(512), "end", -1024, None),
    "a member twice": (lambda d: d[:2048] + d[:1024] + d[2048:], "extra_member", 2048, 0),
    "the first member gone": (lambda d: d[1024:], "missing_member", 0, 0),
    "a member gone": (lambda d: d[:2048] + d[3072:], "missing_member", 2048, 2),
    "the last member gone": (lambda d: d[:-2048] + d[-1024:], "missing_member", -2048, -1),
    "a header of zeros": (lambda d: d[:1024] + bytes(512) + d[1536:], "header", 1024, 1),
    "all zeros": (lambda d: bytes(len(d)), "missing_member", 0, 0),
}


@pytest.mark.parametrize("case", CASES)
def test_damage_is_named_by_shard_member_and_byte(sound: Lake, case: str) -> None:
    damage, problem, byte, member = CASES[case]
    path = first_shard(sound)
    names, data = members(path), path.read_bytes()
    overwrite(path, damage(data))
    found = look(sound).findings
    assert {f.key for f in found} == {shard_key(path.stem)}, "nothing else is blamed"
    assert all(f.versions == ("d/v1",) for f in found)
    named = [f for f in found if f.problem == problem]
    assert named, found
    if byte is not None:
        assert named[0].byte == (byte if byte >= 0 else len(data) + byte)
    if member is not None:
        assert named[0].member == names[member]
    if problem == "content":
        assert named[0].end == IMAGE + len((sound.read_images(sound.samples("d").slice(0, 1)))[0])
    if len(damage(data)) != len(data):
        assert "size" in {f.problem for f in found}


def test_a_truncation_names_the_members_that_are_lost(sound: Lake) -> None:
    path = first_shard(sound)
    names = members(path)
    overwrite(path, path.read_bytes()[:4096])
    (cut,) = [f for f in look(sound).findings if f.problem == "truncated"]
    assert f"{len(names) - 4} members are lost, {names[4]} to {names[-1]}" in cut.detail


def test_missing_files_are_named(sound: Lake, make: SimpleNamespace) -> None:
    ids = sound.samples("d")["id"].to_pylist()
    version = make.commit(sound, overlays=[make.overlay(ids[:3], exclude=True)])
    manifest = sound.manifest(version.content_id)
    keys = [shard_key(manifest.shards[1]["digest"]), overlay_key(manifest.overlays[0])]
    for key in keys:
        sound.store.delete(key)
    assert [(f.key, f.problem) for f in look(sound).findings] == [(k, "missing") for k in sorted(keys)]
    assert look(sound, "v1").findings[0].key == keys[0], "the overlay is not v1's"
    sound.store.delete(index_key(manifest.batches[0]["index"]))
    assert (index_key(manifest.batches[0]["index"]), "missing") in {(f.key, f.problem) for f in look(sound).findings}
    assert "overlay" not in {f.problem for f in look(sound).findings}, "nobody knows what is stored"
    sound.store.delete(f"manifests/{version.content_id}.json")
    assert ("unreadable", ("d/v2",)) in {(f.problem, f.versions) for f in look(sound).findings}
    sound.store.replace("datasets/d/versions/00000002.json", b"{}")
    assert "datasets/d/versions/00000002.json" in {f.key for f in look(sound).findings}


def relying_on(lake: Lake, change: Callable[[pa.Table], pa.Table], **entry: Any) -> Lake:
    """A version whose index has its own right digest and says what `change` makes of the truth."""
    manifest = lake.manifest(lake.version("d").content_id)
    table = change(pq.read_table(lake.store.local(index_key(manifest.batches[0]["index"]))))
    digest = digest_table(table)
    write_parquet(lake.store, index_key(digest), [table], table.schema, overwrite=False)
    lying = Manifest(manifest.classes, ({**manifest.batches[0], "index": digest, **entry},), (), SCHEMA)
    write_manifest(lake.store, lying)
    record = json.loads(lake.store.read("datasets/d/versions/00000001.json"))
    record |= {"number": 2, "content_id": lying.content_id}
    lake.store.create("datasets/d/versions/00000002.json", json.dumps(record).encode())
    return lake


def column(table: pa.Table, name: str, change: Callable[[list[Any]], list[Any]]) -> pa.Table:
    i = table.column_names.index(name)
    return table.set_column(i, table.schema.field(name), pa.array(change(table[name].to_pylist()), table[name].type))


LIES: dict[str, tuple[Callable[[pa.Table], pa.Table], str, str]] = {
    "offset": (lambda t: column(t, "offset", lambda x: [x[0] + 512, *x[1:]]), "index", "offset 1024"),
    "odd offset": (lambda t: column(t, "offset", lambda x: [x[0] + 7, *x[1:]]), "index", "offset 519"),
    "size": (lambda t: column(t, "size", lambda x: [x[0] + 1, *x[1:]]), "index", "bytes, the shard has"),
    "id": (lambda t: column(t, "id", lambda x: ["0" * 64, *x[1:]]), "index", "is not in the index"),
    "ext": (lambda t: column(t, "ext", lambda x: ["jpg", *x[1:]]), "index", "the shard lacks it"),
    "label": (
        lambda t: column(t, "label", lambda x: ["cat" if x[0] == "dog" else "dog", *x[1:]]),
        "index",
        "the member says",
    ),
    "swapped": (lambda t: column(t, "offset", lambda x: [x[1], x[0], *x[2:]]), "index", "offset"),
    "a row gone": (lambda t: t.slice(1), "index", "not in the index"),
    "a row twice": (lambda t: pa.concat_tables([t.slice(0, 1), t]), "duplicate", "more than once"),
    "another shard": (lambda t: column(t, "shard", lambda x: ["f" * 64, *x[1:]]), "index", "does not list"),
    "a huge offset": (lambda t: column(t, "offset", lambda x: [1 << 62, *x[1:]]), "index", "offset"),
    "a negative size": (lambda t: column(t, "size", lambda x: [-1, *x[1:]]), "index", "bytes"),
    "no components": (lambda t: t.drop_columns(["components"]), "index", "components"),
    "a long id": (lambda t: column(t, "id", lambda x: ["1" * 200, *x[1:]]), "index", "fits no header"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_index_that_lies_is_blamed_not_its_shards(sound: Lake, lie: str) -> None:
    change, problem, told = LIES[lie]
    relying_on(sound, change)
    found = look(sound, "v2").findings
    assert not look(sound, "v1").findings
    assert any(f.problem == problem and told in f.detail for f in found), found
    assert not [f for f in found if f.key.startswith("shards/")]


def test_a_manifest_that_lies_about_numbers_is_found(sound: Lake) -> None:
    shards = sound.manifest(sound.version("d").content_id).batches[0]["shards"]
    wrong = [{**shards[0], "samples": 1, "bytes": 99}, *shards[1:]]
    relying_on(sound, lambda t: t, samples=61, shards=wrong)
    said = {(f.problem, f.detail[:26]) for f in look(sound, "v2").findings}
    assert ("manifest", "the manifest says 61 sampl") in said
    assert ("manifest", "the manifest says 1 sample") in said
    assert "size" in {p for p, _ in said}


def test_rows_without_a_shard_are_legal(sound: Lake) -> None:
    manifest = sound.manifest(sound.version("d").content_id)
    shard = manifest.shards[0]["digest"]
    left = [s for s in manifest.batches[0]["shards"] if s["digest"] != shard]

    def taken_down(t: pa.Table) -> pa.Table:
        gone = pc.equal(t["shard"], shard)
        return t.set_column(
            t.column_names.index("shard"), "shard", pc.if_else(gone, pa.scalar(None, pa.string()), t["shard"])
        )

    relying_on(sound, taken_down, shards=left)
    assert look(sound, "v2", deep=True).clean


def test_a_flipped_bit_in_an_index_or_overlay_is_found(sound: Lake, make: SimpleNamespace) -> None:
    ids = sound.samples("d")["id"].to_pylist()
    manifest = sound.manifest(make.commit(sound, overlays=[make.overlay(ids[:3], exclude=True)]).content_id)
    for key in (index_key(manifest.batches[0]["index"]), overlay_key(manifest.overlays[0])):
        path = sound.store.local(key)
        good = path.read_bytes()
        for at in range(8, len(good), len(good) // 12):
            overwrite(path, flipped(good, at))
            found = look(sound).findings
            told = {f.problem for f in found if f.key == key}
            assert told & {"digest", "unreadable"} or not found, "a bit that no value depends on may flip"
        overwrite(path, good[: len(good) // 2])
        assert (key, "unreadable") in {(f.key, f.problem) for f in look(sound).findings}
        overwrite(path, good)
    assert look(sound).clean


def test_an_overlay_of_a_sample_that_is_not_stored_is_found(sound: Lake, make: SimpleNamespace) -> None:
    from sevenfold.storage.overlays import write_overlay

    manifest = sound.manifest(sound.version("d").content_id)
    digest = write_overlay(sound.store, make.overlay(["e" * 64], exclude=True))
    odd = Manifest(manifest.classes, manifest.batches, (digest,), SCHEMA)
    write_manifest(sound.store, odd)
    record = json.loads(sound.store.read("datasets/d/versions/00000001.json"))
    record |= {"number": 2, "content_id": odd.content_id}
    sound.store.create("datasets/d/versions/00000002.json", json.dumps(record).encode())
    assert [(f.problem, f.key) for f in look(sound).findings] == [("overlay", overlay_key(digest))]


def test_deep_finds_pixels_that_are_not_those_of_the_index(sound: Lake) -> None:
    relying_on(sound, lambda t: column(t, "width", lambda x: [9, *x[1:]]))
    assert look(sound, "v2").clean, "only decoding can tell"
    (found,) = look(sound, "v2", deep=True).findings
    assert found.problem == "pixels" and "width 8 instead of 9" in found.detail and found.byte == IMAGE


def test_processes_decode_what_this_one_does(sound: Lake) -> None:
    relying_on(sound, lambda t: column(t, "pixel_digest", lambda x: ["0" * 64, *x[1:]]))
    manifest = sound.manifest(sound.version("d", "v2").content_id)
    work = [(manifest.batches[0]["index"], s["digest"]) for s in manifest.shards]
    alone, together = (list(decode_all(sound.store, work, n, 2, silent)) for n in (60, FEW))
    assert alone == together and [w.problem for _, w in alone] == ["pixels"]


def test_labels_of_more_than_ten_classes_and_unlabelled_samples_verify(tmp_path: Path, make: SimpleNamespace) -> None:
    lake = Lake.create(tmp_path / "lake", shard_bytes=16 << 10)
    files = {f"train/c{i % 120:03d}/{i}.png": make.png(i, 4 + i % 9, 5) for i in range(240)}
    files |= {f"pool/{i}.png": make.png(1000 + i, channels=3) for i in range(20)}
    make.land(lake, make.folder(tmp_path / "s", files), "b")
    make.commit(lake)
    assert look(lake, deep=True).clean


@given(cuts=st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 6000), st.binary(max_size=700)), max_size=3))
@settings(max_examples=60, deadline=None)
def test_no_bytes_escape_or_crash_the_walk(cuts: list[tuple[int, int, bytes]]) -> None:
    bodies = [bytes([i]) * (i * 200) for i in range(5)]
    expected, pieces, at = [], [], 0
    for body in bodies:
        name = f"{digest_bytes(body)}.png".encode()
        expected.append(Member(name, at + tar.BLOCK, len(body)))
        pieces += [tar.header(name, len(body)), body, tar.padding(len(body))]
        at += tar.member_length(len(body))
    good = b"".join([*pieces, tar.END])
    data = good
    for a, b, new in cuts:
        data = data[: min(a, b)] + new + data[max(a, b) :]
    flaws = locate(data, expected, named=False)
    assert bool(flaws), "the digest is taken to be wrong, so something is always said"
    if data == good:
        assert [f.problem for f in flaws] == ["digest"]
    assert all(f.problem in PROBLEMS for f in flaws)
    found, _ = walk(data, expected)
    assert all(m.offset + m.size <= len(data) for m in found)


# Repair


def mend(lake: Lake) -> list[Any]:
    return repair(lake.store, ["d"], look(lake).findings)


@pytest.mark.parametrize("case", CASES)
def test_with_the_source_in_place_every_damage_is_mended_to_the_same_bytes(sound: Lake, case: str) -> None:
    path = first_shard(sound)
    good = path.read_bytes()
    overwrite(path, CASES[case][0](good))
    (done,) = mend(sound)
    assert (done.key, done.outcome) == (shard_key(path.stem), REBUILT)
    assert path.read_bytes() == good
    assert look(sound).clean


def test_a_missing_shard_comes_back_from_the_source(sound: Lake) -> None:
    path = first_shard(sound)
    good = path.read_bytes()
    path.unlink()
    (done,) = mend(sound)
    assert done.outcome == REBUILT and "from the source" in done.detail
    assert path.read_bytes() == good


def test_without_a_source_other_shards_lend_their_copies(sound: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    make.land(sound, make.folder(tmp_path / "again", make.two_classes(60)), "again", dataset="e")
    make.commit(sound, dataset="e")
    for folder in ("filled", "again"):
        shutil.rmtree(tmp_path / folder)
    other = {s["digest"] for s in sound.manifest(sound.version("e").content_id).shards}
    path = first_shard(sound)
    assert path.stem in other, "the same samples make the same shards"
    overlay = make.overlay(sound.samples("e")["id"].to_pylist()[:1], label="cow")
    make.commit(sound, dataset="e", overlays=[overlay])
    data = path.read_bytes()
    overwrite(path, flipped(data, 1000))
    assert repair(sound.store, ["d", "e"], look(sound).findings)[0].outcome == REBUILT, "padding is no sample"
    assert path.read_bytes() == data


def test_a_sample_is_fetched_from_another_shard(sound: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    one = first_shard(sound)
    row = sound.samples("d").filter(pc.equal(sound.samples("d")["shard"], one.stem)).to_pylist()[0]
    single = {f"{row['label']}/x.png": (tmp_path / "filled" / row["path"]).read_bytes()}
    make.land(sound, make.folder(tmp_path / "single", single), "single", dataset="e")
    make.commit(sound, dataset="e")
    for folder in ("filled", "single"):
        shutil.rmtree(tmp_path / folder)
    good = one.read_bytes()
    overwrite(one, flipped(good, row["offset"] + 3))
    (done,) = repair(sound.store, ["d", "e"], look(sound).findings)
    assert "1 samples from other shards" in done.detail
    assert one.read_bytes() == good


def test_what_cannot_be_had_is_set_aside_and_the_rest_stays_readable(
    sound: Lake, tmp_path: Path, make: SimpleNamespace
) -> None:
    path = first_shard(sound)
    rows = sound.samples("d").filter(pc.equal(sound.samples("d")["shard"], path.stem))
    images = sound.read_images(rows)
    bad = flipped(path.read_bytes(), IMAGE + 20)
    overwrite(path, bad)
    kept = tmp_path / "elsewhere"
    (tmp_path / "filled").rename(kept)
    (done,) = mend(sound)
    lost = rows["id"][0].as_py()
    assert (done.outcome, done.lost) == (QUARANTINED, (("d", lost),))
    assert sound.store.read(f"quarantine/shards/{path.stem}.tar") == bad, "the damaged bytes are kept"
    told = sound.sql("select path, detail from quarantine where reason = 'lost'").to_pylist()
    assert [(t["path"], lost in t["detail"]) for t in told] == [(rows["path"][0].as_py(), True)]
    after = sound.read_images(rows)
    assert after[1:] == images[1:] and not any(after[0]), "zeros, not pixels that are nearly right"
    (found,) = look(sound).findings
    assert (found.problem, found.member[:64]) == ("content", lost)

    make.land(sound, make.folder(tmp_path / "more", make.two_classes(3, 500)), "waiting")
    ((branch, version),) = exclude(sound.store, [done], clock=lambda: 5.0)
    assert (branch, version.name, version.parents) == ("main", "v2", (1,))
    assert lost not in sound.samples("d")["id"].to_pylist() and sound.samples("d").num_rows == 59
    assert sound.batch("d", "waiting").status == "admitted", "batches that wait go on waiting"
    assert not exclude(sound.store, [done]), "saying it again changes nothing"

    kept.rename(tmp_path / "filled")
    (done,) = mend(sound)
    assert done.outcome == REBUILT and look(sound).clean
    assert not sound.store.entries("quarantine/shards"), "whole again: nothing is set aside any more"


def test_a_shard_without_any_survivor_is_moved_to_quarantine(sound: Lake, tmp_path: Path) -> None:
    path = first_shard(sound)
    shutil.rmtree(tmp_path / "filled")
    overwrite(path, b"gone")
    (done,) = mend(sound)
    assert done.outcome == QUARANTINED and not path.exists()
    assert sound.store.read(f"quarantine/shards/{path.stem}.tar") == b"gone"
    assert [f.problem for f in look(sound).findings] == ["missing"]


def test_indexes_are_made_again_from_their_landings(sound: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    more = make.folder(tmp_path / "more", make.two_classes(30, 40))
    make.land(sound, more, "second")
    (more / "cat/00065.png").write_bytes(make.png(9999))  # changed between landing and commit
    make.commit(sound)
    indexes = [b["index"] for b in sound.manifest(sound.version("d").content_id).batches]
    good = [digest_table(pq.read_table(sound.store.local(index_key(i)))) for i in indexes]
    for i in indexes:
        sound.store.delete(index_key(i))
    first_shard_bytes = flipped((path := sound.root / shard_key(_shards(sound)[0])).read_bytes(), IMAGE)
    overwrite(path, first_shard_bytes)
    done = mend(sound)
    assert {d.outcome for d in done} == {REBUILT} and len(done) == 3
    assert [digest_table(pq.read_table(sound.store.local(index_key(i)))) for i in indexes] == good
    assert look(sound).clean


def _shards(lake: Lake) -> list[str]:
    return [s["digest"] for s in lake.manifest(lake.version("d").content_id).shards]


def test_what_cannot_be_mended_is_left_as_it_is(sound: Lake, make: SimpleNamespace) -> None:
    ids = sound.samples("d")["id"].to_pylist()
    manifest = sound.manifest(make.commit(sound, overlays=[make.overlay(ids[:3], exclude=True)]).content_id)
    overlay, index = overlay_key(manifest.overlays[0]), index_key(manifest.batches[0]["index"])
    overwrite(sound.store.local(overlay), b"PAR1")
    sound.store.delete(index)
    sound.store.delete("batches/d/first.parquet")
    done = {d.key: d for d in mend(sound)}
    assert {d.outcome for d in done.values()} == {LEFT} and {overlay, index} <= done.keys()
    assert sound.store.read(overlay) == b"PAR1"


def test_a_lie_with_its_own_digest_is_not_mended(sound: Lake) -> None:
    relying_on(sound, lambda t: column(t, "offset", lambda x: [x[0] + 512, *x[1:]]))
    assert {r.outcome for r in mend(sound)} == {LEFT}


def test_in_a_bucket_the_cache_and_the_lake_are_told_apart(bucket: str, tmp_path: Path, make: SimpleNamespace) -> None:
    lake = Lake.create(bucket, shard_bytes=16 << 10)
    make.land(lake, make.folder(tmp_path / "s", make.two_classes(20)), "b")
    make.commit(lake)
    digest = _shards(lake)[0]
    cached = lake.shard_path(digest)
    good = cached.read_bytes()
    assert look(lake).clean
    overwrite(cached, flipped(good, IMAGE + 9))
    (found,) = look(lake).findings
    assert (found.where, found.problem, found.byte) == ("cache", "content", IMAGE)
    assert [r.outcome for r in mend(lake)] == [REFETCHED]
    assert cached.read_bytes() == good and look(lake, deep=True).clean

    lake.store.replace(shard_key(digest), flipped(good, IMAGE + 9))
    cached.unlink()
    (found,) = look(lake).findings
    assert found.where == "lake"
    assert [r.outcome for r in mend(lake)] == [REBUILT]
    assert lake.store.read(shard_key(digest)) == good and look(lake).clean


@given(flips=st.lists(st.tuples(st.integers(0, 7), st.floats(0, 0.999), st.integers(0, 7)), min_size=1, max_size=4))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_bits_flip_they_are_found_and_mended(sound: Lake, flips: list[tuple[int, float, int]]) -> None:
    shards = _shards(sound)
    before = {d: sound.shard_path(d).read_bytes() for d in shards}
    for which, place, bit in flips:
        path = sound.shard_path(shards[which % len(shards)])
        data = bytearray(path.read_bytes())
        data[int(place * len(data))] ^= 1 << bit
        overwrite(path, bytes(data))
    damaged = {shard_key(d) for d in shards if sound.shard_path(d).read_bytes() != before[d]}
    found: tuple[Finding, ...] = look(sound).findings
    assert {f.key for f in found} == damaged
    repair(sound.store, ["d"], found)
    assert {d: sound.shard_path(d).read_bytes() for d in shards} == before
    assert sound.store.names("quarantine") == ["d"]


def test_a_branch_that_cannot_be_read_is_a_finding_beside_the_others(filled: Callable[..., Lake]) -> None:
    lake = filled(5)
    lake.branch("d", "other", "v1")
    lake.store.replace("datasets/d/refs/branches/other.json", b"{")
    lake.shard_path(lake.manifest(lake.version("d", "v1").content_id).shards[0]["digest"]).unlink()
    found = verify(lake.store, ["d"]).findings
    assert {(f.key, f.problem) for f in found if not f.key.startswith("shards/")} == {
        ("datasets/d/refs/branches", "unreadable")
    }
    assert any(f.problem == "missing" and f.key.startswith("shards/") for f in found)
