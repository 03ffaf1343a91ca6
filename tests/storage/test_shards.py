"""Tars and index: stock readers, plain tar and our own offsets all see the same bytes."""

from __future__ import annotations

import errno
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.storage import Lake, shards, tar
from sevenfold.storage.canonical import digest_bytes, digest_table
from sevenfold.storage.shards import Sample
from sevenfold.storage.store import LocalStore

HEX = st.text("0123456789abcdef", min_size=1, max_size=64)


@given(key=HEX, ext=st.sampled_from(["png", "jpg", "cls", "json", "webp"]), size=st.integers(0, tar.MAX_MEMBER))
def test_a_header_is_the_one_that_tarfile_writes(key: str, ext: str, size: int) -> None:
    info = tarfile.TarInfo(f"{key}.{ext}")
    info.size, info.mode, info.mtime = size, 0o644, 0
    assert tar.header(info.name.encode(), size) == info.tobuf(tarfile.USTAR_FORMAT)


@pytest.mark.parametrize(("name", "size"), [(b"x" * 101, 1), (b"x", 8**11), (b"x", -1)])
def test_what_does_not_fit_a_header_is_refused(name: bytes, size: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        tar.header(name, size)


@given(size=st.integers(0, 5000))
def test_members_end_on_blocks(size: int) -> None:
    assert (size + len(tar.padding(size))) % tar.BLOCK == 0
    assert tar.member_length(size) == tar.BLOCK + size + len(tar.padding(size))


@pytest.fixture
def packed(filled: Callable[..., Lake]) -> Lake:
    lake = filled(60)
    assert len(lake.manifest(lake.version("d").content_id).shards) > 4
    return lake


def test_tarfile_webdataset_and_offsets_read_the_same_bytes(packed: Lake, tmp_path: Path) -> None:
    import webdataset

    rows = packed.samples("d")
    sources = [(tmp_path / "filled" / p).read_bytes() for p in rows["path"].to_pylist()]
    assert packed.read_images(rows) == sources
    assert [digest_bytes(d) for d in sources] == rows["id"].to_pylist()
    classes = packed.manifest(packed.version("d").content_id).classes
    by_id = {r["id"]: (data, classes.index(r["label"])) for r, data in zip(rows.to_pylist(), sources, strict=True)}
    paths = [packed.shard_path(s) for s in dict.fromkeys(rows["shard"].to_pylist())]

    seen = {}
    for path in paths:
        with tarfile.open(path) as t:
            for member in t:
                key, ext = member.name.split(".")
                seen.setdefault(key, {})[ext] = t.extractfile(member).read()  # type: ignore[union-attr]
    assert {k: (v["png"], int(v["cls"])) for k, v in seen.items()} == by_id

    dataset = webdataset.WebDataset([str(p) for p in paths], shardshuffle=False)
    read = {s["__key__"]: (s["png"], int(s["cls"])) for s in dataset}
    assert read == by_id

    decoded = webdataset.WebDataset([str(p) for p in paths], shardshuffle=False).decode("pil").to_tuple("png", "cls")
    assert sum(image.size == (8, 8) and 0 <= label < 2 for image, label in decoded) == rows.num_rows


def test_a_shard_holds_plain_files_only_sorted_by_id_with_fixed_metadata(packed: Lake) -> None:
    for shard in packed.manifest(packed.version("d").content_id).shards:
        data = packed.shard_path(shard["digest"]).read_bytes()
        assert digest_bytes(data) == shard["digest"]
        assert len(data) == shard["bytes"] <= packed.shard_bytes + len(tar.END)
        assert len(data) % tar.BLOCK == 0 and data.endswith(tar.END)
        with tarfile.open(fileobj=io.BytesIO(data), format=tarfile.USTAR_FORMAT) as t:
            members = t.getmembers()
            assert not t.pax_headers and not any(m.pax_headers for m in members)
        assert {(m.type, m.mode, m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members} == {
            (tarfile.REGTYPE, 0o644, 0, 0, 0, "", "")
        }
        names = [m.name for m in members]
        keys = [n.split(".")[0] for n in names]
        assert keys == sorted(keys), "by id, so that the classes are mixed"
        assert [n.split(".")[1] for n in names] == ["png", "cls"] * shard["samples"]


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar here")
def test_the_tar_command_lists_and_unpacks_a_shard(packed: Lake, tmp_path: Path) -> None:
    row = packed.samples("d").slice(0, 1).to_pylist()[0]
    shard = str(packed.shard_path(row["shard"]))
    done = subprocess.run(["tar", "tf", shard], capture_output=True, text=True, check=True)
    assert done.stderr == "" and done.stdout.splitlines()[0] == f"{row['id']}.png"
    subprocess.run(["tar", "xf", shard, "-C", str(tmp_path)], check=True)
    assert digest_bytes((tmp_path / f"{row['id']}.png").read_bytes()) == row["id"]


def test_an_index_file_holds_shard_after_shard_and_is_named_by_its_rows(packed: Lake) -> None:
    (batch,) = packed.manifest(packed.version("d").content_id).batches
    file = pq.ParquetFile(packed.root / "index" / batch["index"][:2] / f"{batch['index']}.parquet")
    assert file.num_row_groups == 1 < len(batch["shards"])
    assert digest_table(file.read()) == batch["index"]
    shards = [s for shard in batch["shards"] for s in [shard["digest"]] * shard["samples"]]
    assert file.read(columns=["shard"])["shard"].to_pylist() == shards
    rows = file.read()
    for row in rows.to_pylist():
        (cls,) = row["components"]
        with open(packed.shard_path(row["shard"]), "rb") as f:
            f.seek(cls["offset"])
            assert f.read(cls["size"]).decode() in {"0", "1"}
    other = file.read().slice(0, rows.num_rows - 1)
    assert digest_table(pa.concat_tables([other])) != batch["index"]


def test_unlabelled_samples_have_no_cls_member_and_shards_are_per_split(
    lake: Lake, tmp_path: Path, make: SimpleNamespace
) -> None:
    members = {"pool/1.png": make.png(1), "pool/2.png": make.png(2), "train/cat/3.png": make.png(3)}
    make.land(lake, make.folder(tmp_path / "s", members), "b")
    version = make.commit(lake)
    assert [(s["split"], s["samples"]) for s in lake.manifest(version.content_id).shards] == [("train", 1), ("pool", 2)]
    for row in lake.samples("d").to_pylist():
        with tarfile.open(lake.shard_path(row["shard"])) as t:
            assert {n.split(".")[1] for n in t.getnames()} == ({"png"} if row["label"] is None else {"png", "cls"})


def test_a_sample_larger_than_a_shard_gets_its_own(tmp_path: Path, make: SimpleNamespace) -> None:
    lake = Lake.create(tmp_path / "lake", shard_bytes=4096)
    members = {"train/cat/big.png": make.png(1, 64, 64, 3), **{f"train/cat/{i}.png": make.png(i) for i in range(2, 6)}}
    make.land(lake, make.folder(tmp_path / "s", members), "b")
    made = lake.manifest(make.commit(lake).content_id).shards
    assert sum(s["samples"] for s in made) == 5
    assert all(s["bytes"] <= 4096 + 1024 or s["samples"] == 1 for s in made)


EXT = st.sampled_from(["png", "jpg", "cls", "json", "txt"])
SAMPLES = st.lists(
    st.tuples(HEX, st.dictionaries(EXT, st.binary(max_size=1500), min_size=1, max_size=3).map(lambda d: [*d.items()])),
    min_size=1,
    max_size=12,
    unique_by=lambda sample: sample[0],
)


def by_tarfile(samples: Sequence[Sample]) -> bytes:
    """What a shard's bytes are meant to be, said by the standard library; its records of 10 KiB are cut off."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as t:
        for key, members in samples:
            for ext, data in members:
                info = tarfile.TarInfo(f"{key}.{ext}")
                info.size, info.mode = len(data), 0o644
                t.addfile(info, io.BytesIO(data))
        length = t.offset
    return buffer.getvalue()[:length] + tar.END


@given(groups=st.lists(SAMPLES, min_size=1, max_size=3), block=st.sampled_from([1, 3000, 1 << 20]))
@settings(max_examples=40, deadline=None)
def test_a_shard_is_what_tarfile_and_webdataset_make_of_its_samples(groups: list[list[Sample]], block: int) -> None:
    """Whatever the size of the blocks that are hashed and written; offsets point at the bytes."""
    import webdataset

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "BLOCK_BYTES", block)
        store = LocalStore(Path(folder))
        for samples, written in zip(groups, shards.write_shards(store, groups), strict=True):
            assert written is not None
            path = store.path(shards.shard_key(written.digest))
            data = path.read_bytes()
            assert data == by_tarfile(samples)
            assert (digest_bytes(data), len(data), len(samples)) == (written.digest, written.bytes, written.samples)
            for (_, members), offset, size, others in zip(
                samples, written.offsets, written.sizes, written.components.to_pylist(), strict=True
            ):
                assert data[offset : offset + size] == members[0][1]
                assert [(c["ext"], data[c["offset"] : c["offset"] + c["size"]]) for c in others] == members[1:]
            with tarfile.open(path) as t:
                seen = [(m.name, t.extractfile(m).read()) for m in t]  # type: ignore[union-attr]
            assert seen == [(f"{key}.{ext}", content) for key, members in samples for ext, content in members]
            read = webdataset.WebDataset([str(path)], shardshuffle=False, empty_check=False)
            assert [
                (s["__key__"], {k: v for k, v in s.items() if not k.startswith("__")}) for s in read
            ] == [(key, dict(members)) for key, members in samples]  # fmt: skip
        assert not list(Path(folder).rglob(".tmp-*"))


def one(key: str, data: bytes = b"x") -> Sample:
    return key, (("png", data),)


def test_a_shard_that_exists_is_left_as_it_is_and_an_empty_one_has_no_file(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert list(shards.write_shards(store, [[]])) == [None]
    assert not list(tmp_path.rglob("*.tar"))
    (first,) = shards.write_shards(store, [[one("a")]])
    assert first is not None
    path = store.path(shards.shard_key(first.digest))
    before = path.stat()
    again = list(shards.write_shards(store, [[one("a")], [], [one("b")]]))
    assert [shard and shard.digest for shard in again][:2] == [first.digest, None]
    assert path.stat().st_ino == before.st_ino and path.stat().st_mtime_ns >= before.st_mtime_ns
    assert len(list(tmp_path.rglob("*.tar"))) == 2 and not list(tmp_path.rglob(".tmp-*"))


@pytest.mark.parametrize(
    ("bad", "error", "match"),
    [
        (lambda: one("k" * 97), ValueError, "does not fit"),
        (lambda: ("c", ()), ValueError, "no members"),
        (lambda: 1 / 0, ZeroDivisionError, "division"),
    ],
)
def test_what_fails_in_the_middle_leaves_no_file(
    tmp_path: Path, bad: Callable[[], Sample], error: type[Exception], match: str
) -> None:
    """The shard before it is whole and has its name."""

    def second() -> Iterator[Sample]:
        yield one("b", bytes(3 << 20))
        yield bad()

    with pytest.raises(error, match=match):
        list(shards.write_shards(LocalStore(tmp_path), iter([[one("a")], second()])))
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert [p.read_bytes() for p in files] == [by_tarfile([one("a")])]


def alone(*words: str) -> dict[str, Any]:
    """What tests/storage/write_shards.py says."""
    script = str(Path(__file__).with_name("write_shards.py"))
    return json.loads(subprocess.run([sys.executable, script, *words], capture_output=True, check=True).stdout)


@pytest.mark.parametrize(("n", "size"), [(600, 100_000), (15_000, 1000)])
def test_memory_stays_below_one_shard(tmp_path: Path, n: int, size: int) -> None:
    """Blocks under way, and the places of the samples."""
    said = alone("peak", str(tmp_path), str(n), str(size))
    assert said["peak"] < 2 * (shards.AHEAD + 2) * shards.BLOCK_BYTES + 500 * n < 0.6 * said["bytes"]


@pytest.mark.parametrize("limit", [300_000, 5_000_000, 18_000_000])
def test_a_full_disk_in_the_middle_of_a_shard_is_told_and_leaves_nothing(tmp_path: Path, limit: int) -> None:
    """A file that may not grow further stands for the disk; the shard has 20 MB."""
    said = alone("full", str(tmp_path), str(limit))
    assert said["errno"] == errno.EFBIG and str(tmp_path / "shards") in said["text"]
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]
