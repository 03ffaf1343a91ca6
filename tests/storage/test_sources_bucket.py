"""Sources in a bucket: a prefix of class folders, and archives and tables read by ranges, from a real S3 protocol."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.sources import InputError, open_source
from sevenfold.storage.tar import END, header, padding


def test_a_prefix_is_a_folder(bucket: str, lake: Lake, make: SimpleNamespace, tmp_path: Path) -> None:
    members = {
        "train/cat/1.png": make.png(1), "train/dog/2 ü.png": make.png(2), "test/cat/3.png": make.png(3),
        "test/cat/cut.png": make.png(4, 32, 32)[:400], "test/cat/more.zip": b"PK",
        ".hidden/x.png": b"x", "train/dog": b"",
    }  # fmt: skip
    make.upload(bucket, members)
    make.upload(bucket.replace("prefix", "prefixed"), {"train/cat/other.png": make.png(9)})
    source = open_source(bucket)
    assert source.kind == "bucket" and source.name == "prefix" and source.location == bucket
    assert {i.path: (i.label, i.split) for i in source.inputs} == {
        "train/cat/1.png": ("cat", "train"), "train/dog/2 ü.png": ("dog", "train"), "test/cat/3.png": ("cat", "test"),
        "test/cat/cut.png": ("cat", "test"), "test/cat/more.zip": ("cat", "test"),
    }  # fmt: skip
    assert "1 hidden files are no inputs" in source.notes
    # the same as from a disk
    for batch, opened in (("a", source), ("b", open_source(make.folder(tmp_path / "s", {
        k: v for k, v in members.items() if k != "train/dog"})))):  # fmt: skip
        record, _ = lake.ingest(opened, "d", batch, clock=lambda: 1.0)
        assert record.reasons == {"truncated": 1, "unsupported": 1}
    assert lake.batch("d", "a").digest == lake.batch("d", "b").digest
    assert lake.batch("d", "a").source == bucket


def test_batches_from_a_bucket_are_committed_and_retried(bucket: str, lake: Lake, make: SimpleNamespace) -> None:
    make.upload(bucket, {"cat/1.png": make.png(1), "dog/2.png": make.png(2), "dog/cut.png": make.png(3)[:30]})
    name = make.land(lake, bucket, None)
    assert name.startswith("prefix-")
    make.commit(lake)
    assert lake.samples("d").num_rows == 2
    make.upload(bucket, {"dog/cut.png": make.png(3)})
    record, made = lake.retry_quarantine("d", name)
    assert made and record.counts["samples"] == 1
    make.reconciles(lake)


def test_objects_that_go_away_are_set_aside_and_a_bucket_that_is_not_there_is_an_error(
    bucket: str, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.upload(bucket, {"cat/1.png": make.png(1)})
    source = open_source(bucket)
    assert source.read("cat/1.png") == make.png(1)
    with pytest.raises(InputError, match="no such object"):
        source.read("cat/2.png")
    assert open_source(f"{bucket}/nothing/here").inputs == []
    with pytest.raises(SevenfoldError, match="there is no bucket no-such-bucket-anywhere"):
        open_source("s3://no-such-bucket-anywhere/x").inputs  # noqa: B018
    with pytest.raises(SevenfoldError, match="s3://bucket/prefix"):
        open_source("s3:///x").inputs  # noqa: B018


def test_archives_and_tables_in_a_bucket_are_read_by_ranges(bucket: str, make: SimpleNamespace) -> None:
    images = {f"cat/{i}.png": make.png(i, 20, 20) for i in range(5)}
    zipped, parquet, tar = io.BytesIO(), io.BytesIO(), b""
    with zipfile.ZipFile(zipped, "w") as z:
        for name, data in images.items():
            z.writestr(name, data)
    pq.write_table(pa.table({"image": list(images.values()), "label": ["cat"] * 5}), parquet)
    for name, data in images.items():
        tar += header(name.encode(), len(data)) + data + padding(len(data))
    objects = {"a.zip": zipped.getvalue(), "b.parquet": parquet.getvalue(), "c.tar": tar + END}
    make.upload(bucket, objects)
    for name, kind in (("a.zip", "zip"), ("b.parquet", "parquet"), ("c.tar", "webdataset")):
        source = open_source(f"{bucket}/{name}")
        assert source.kind == kind and source.name == name
        assert [source.read(i.path) for i in source.inputs] == list(images.values())
    tars = open_source(bucket, "webdataset")
    assert [i.path for i in tars.inputs] == [f"c.tar/{n}" for n in images]
    assert [tars.read(i.path) for i in tars.inputs] == list(images.values())


def test_a_prefix_of_tars_or_of_parquet_files_is_known_by_its_names(bucket: str, make: SimpleNamespace) -> None:
    table = io.BytesIO()
    pq.write_table(pa.table({"image": [make.png(1), make.png(2)], "label": ["a", "b"]}), table)
    make.upload(f"{bucket}/hf", {f"train-0000{i}-of-00002.parquet": table.getvalue() for i in range(2)})
    tar = header(b"k.png", 3) + b"abc" + padding(3) + END
    make.upload(f"{bucket}/wds", {"train-000.tar": tar, "README.md": b"hello"})
    make.upload(f"{bucket}/plain", {"cat/1.png": make.png(1)})
    hf = open_source(f"{bucket}/hf")
    assert (hf.kind, len(hf.inputs), {i.split for i in hf.inputs}) == ("parquet", 4, {"train"})
    assert hf.read(hf.inputs[-1].path) == make.png(2)
    assert open_source(f"{bucket}/wds").kind == "webdataset"
    assert open_source(f"{bucket}/plain").kind == "bucket"
