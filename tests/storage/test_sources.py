"""Sources: what each kind of source says about labels and splits, and what it makes of odd ones."""

from __future__ import annotations

import gzip
import os
import pickle
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.canonical import digest_bytes, digest_json
from sevenfold.storage.png import encode_png
from sevenfold.storage.resolve import split_of
from sevenfold.storage.sources import FolderSource, open_source


def said(path: Path, kind: str | None = None) -> dict[str, tuple[str | None, str | None]]:
    return {i.path: (i.label, i.split) for i in open_source(path, kind).inputs}


def write_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as z:
        for name, data in members.items():
            z.writestr(name, data)
    return path


LAYOUTS: dict[str, dict[str, tuple[str | None, str | None]]] = {
    "class folders": {"cat/1.png": ("cat", None), "dog/sub/2.png": ("dog", None), "3.png": (None, None)},
    "split folders": {
        "train/cat/1.png": ("cat", "train"), "Test/dog/2.png": ("dog", "test"), "val/3.png": (None, "val"),
        "pool/cat/4.png": (None, "pool"),
    },
    "other words for splits": {"training/a/1.png": ("a", "train"), "valid/a/2.png": ("a", "val"),
                               "unlabelled/x/3.png": (None, "pool"), "dev/a/4.png": ("a", "val")},
    "a class among the splits makes them classes": {"train/1.png": ("train", None), "ship/2.png": ("ship", None)},
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_folders_say_labels_and_splits(layout: str, kind: str, tmp_path: Path, make: SimpleNamespace) -> None:
    members = {name: make.png(i) for i, name in enumerate(LAYOUTS[layout])}
    path = make.folder(tmp_path / "s", members) if kind == "folder" else write_zip(tmp_path / "s.zip", members)
    assert said(path) == LAYOUTS[layout]


def test_what_was_guessed_is_stated(tmp_path: Path, make: SimpleNamespace, lake: Lake) -> None:
    split = make.folder(tmp_path / "a", {"train/cat/1.png": make.png(1), "test/dog/2.png": make.png(2)})
    plain = make.folder(tmp_path / "b", make.two_classes(4))
    assert lake.ingest(split, "d", "a")[0].notes == ("splits from the source: test, train", "2 labels from the source")
    assert lake.ingest(plain, "d", "b")[0].notes[0] == "no splits in the source: hashed 80/10/10"
    flat = make.folder(tmp_path / "c", {"1.png": make.png(1), "2.png": make.png(2)})
    climbing = lake.ingest(tmp_path / "a" / ".." / "c", "d", "c")[0]
    assert climbing.notes == ("no labels in the source: whatever its splits, all of it is pool",)
    assert climbing.source == str(flat.resolve())


def test_hidden_files_are_no_inputs(tmp_path: Path, make: SimpleNamespace) -> None:
    members = {"cat/1.png": b"x", "cat/.DS_Store": b"x", ".git/config": b"x", "__MACOSX/cat/1.png": b"x"}
    assert list(said(make.folder(tmp_path / "s", members))) == ["cat/1.png"]
    assert list(said(write_zip(tmp_path / "s.zip", members))) == ["cat/1.png"]


def test_without_splits_a_picture_always_lands_alike(tmp_path: Path, make: SimpleNamespace, lake: Lake) -> None:
    make.land(lake, make.folder(tmp_path / "s", make.two_classes(60)), "b")
    rows = lake.batch_rows("d", "b").to_pylist()
    assert all(r["split"] == split_of(r["pixel_digest"]) for r in rows)
    assert {r["split"] for r in rows} == {"train", "val", "test"}
    shares = [split_of(f"{i:064x}") for i in range(20_000)]
    assert abs(shares.count("train") / 20_000 - 0.8) < 0.01
    assert abs(shares.count("val") / 20_000 - 0.1) < 0.01


def test_ids_are_the_digests_of_the_files(tmp_path: Path, make: SimpleNamespace, lake: Lake) -> None:
    make.land(lake, make.folder(tmp_path / "s", make.two_classes(5)), "b")
    for row in lake.batch_rows("d", "b").to_pylist():
        data = (tmp_path / "s" / row["path"]).read_bytes()
        assert row["id"] == digest_bytes(data) and row["bytes"] == len(data)
        assert (row["width"], row["height"], row["channels"], row["mode"], row["format"]) == (8, 8, 1, "L", "PNG")


def test_inputs_come_in_path_order_and_the_fingerprint_does_not_depend_on_the_sources(
    tmp_path: Path, make: SimpleNamespace
) -> None:
    make.folder(tmp_path, {f"{i}.png": make.png(i) for i in range(5)})
    prints = set()
    for order in ([3, 1, 4, 0, 2], [0, 4, 2, 1, 3]):
        (tmp_path / "a.csv").write_text("path,label\n" + "".join(f"{i}.png,cat\n" for i in order))
        source = open_source(tmp_path / "a.csv")
        assert [i.path for i in source.inputs] == [f"{i}.png" for i in range(5)]
        prints.add(source.fingerprint)
    assert len(prints) == 1


# CSV


def test_a_csv_gives_paths_labels_and_splits(tmp_path: Path, make: SimpleNamespace, lake: Lake) -> None:
    make.folder(tmp_path, {f"img/{i}.png": make.png(i) for i in range(4)})
    (tmp_path / "a.csv").write_text(
        "\ufeffFile, Label ,split\nimg/0.png,cat,train\nimg/1.png,dog,TEST\n"
        "img/2.png,,\nimg/3.png,cat,pool\nno.png,cat,\n"
    )
    assert said(tmp_path / "a.csv") == {
        "img/0.png": ("cat", "train"), "img/1.png": ("dog", "test"), "img/2.png": (None, None),
        "img/3.png": (None, "pool"), "no.png": ("cat", None),
    }  # fmt: skip
    record, _ = lake.ingest(tmp_path / "a.csv", "d", "b")
    assert record.reasons == {"unreadable": 1}
    assert {r["path"]: r["split"] for r in lake.batch_rows("d", "b").to_pylist()}["img/2.png"] == "pool"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,label\nx,y\n", "a column named path"),
        ("", "the columns are none"),
        ("path,split\nx.png,holdout\n", "line 2: the split is 'holdout'"),
        ("path,label\nx.png,caf\xe9\n", "no CSV in UTF-8"),
        ('path,label\nx.png,"cat\ny.png,dog\n', "its quotes in pairs"),
    ],
)
def test_a_csv_that_cannot_be_understood_says_where(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(SevenfoldError, match=message):
        said(tmp_path / "a.csv")


def test_a_csv_naming_pipes_devices_folders_and_nul_sets_them_aside(tmp_path: Path, lake: Lake) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.csv").write_bytes(b"path,label\npipe.png,a\n/dev/zero,a\nfolder,a\nx\x00y.png,a\n")
    record, _ = lake.ingest(tmp_path / "a.csv", "d", "b")
    assert record.reasons == {"unreadable": 4}


# Folders and zips of odd names


def test_links_to_nothing_and_names_that_are_no_text_are_set_aside(
    tmp_path: Path, make: SimpleNamespace, lake: Lake
) -> None:
    source = make.folder(tmp_path / "s", {"cat/1.png": make.png(1)})
    (source / "cat/lost.png").symlink_to(source / "nowhere")
    (source / "cat/linked.png").symlink_to(source / "cat/1.png")
    os.mkfifo(source / "cat/pipe.png")
    with open(os.fsencode(source / "cat") + b"/caf\xe9.png", "wb") as f:
        f.write(make.png(2))
    record, _ = lake.ingest(source, "d", "b")
    assert {r["path"]: r["reason"] for r in lake.quarantine("d", "b").to_pylist()} == {
        "cat/caf\\xe9.png": "unreadable", "cat/lost.png": "unreadable", "cat/pipe.png": "unreadable",
    }  # fmt: skip
    assert record.counts["samples"] == 1 and record.counts["aliases"] == 1


def test_a_link_out_of_the_folder_is_set_aside_and_a_link_to_a_folder_is_named(
    tmp_path: Path, make: SimpleNamespace, lake: Lake
) -> None:
    (tmp_path / "secret.png").write_bytes(make.png(9))
    source = make.folder(tmp_path / "s", {"cat/1.png": make.png(1)})
    (source / "cat/out.png").symlink_to("../../secret.png")
    (source / "cat/absolute.png").symlink_to(tmp_path / "secret.png")
    (source / "dog").symlink_to(source / "cat")
    lake.ingest(source, "d", "b")
    assert {r["path"]: r["reason"] for r in lake.quarantine("d", "b").to_pylist()} == {
        "cat/out.png": "outside", "cat/absolute.png": "outside", "dog": "unsupported",
    }  # fmt: skip


def test_archives_in_a_folder_or_zip_are_not_opened(tmp_path: Path, make: SimpleNamespace, lake: Lake) -> None:
    members = {"cat/1.png": make.png(1), "cat/more.zip": b"PK\x03\x04", "cat/x.TAR": b"", "cat/y.tar.gz": b""}
    for number, path in enumerate([make.folder(tmp_path / "s", members), write_zip(tmp_path / "s.zip", members)]):
        record, _ = lake.ingest(path, "d", f"b{number}")
        assert record.reasons == {"unsupported": 3}
        assert all("nested archive" in r["detail"] for r in lake.quarantine("d", f"b{number}").to_pylist())


def test_hidden_files_are_counted_in_the_notes(tmp_path: Path, make: SimpleNamespace) -> None:
    members = {"cat/1.png": b"x", "cat/.DS_Store": b"x", ".git/config": b"x"}
    for path in (make.folder(tmp_path / "s", members), write_zip(tmp_path / "s.zip", members)):
        assert "2 hidden files are no inputs" in open_source(path).notes


def test_a_zip_that_is_none_is_refused_and_members_of_one_name_are_set_aside(
    tmp_path: Path, make: SimpleNamespace, lake: Lake
) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(SevenfoldError, match="no readable zip"):
        said(tmp_path / "a.zip")
    with pytest.warns(UserWarning), zipfile.ZipFile(tmp_path / "b.zip", "w") as z:
        for seed, name in enumerate(["1", "1", "2"]):
            z.writestr(f"cat/{name}.png", make.png(seed))
    lake.ingest(tmp_path / "b.zip", "d", "b")
    rows = lake.quarantine("d", "b").to_pylist()
    assert [r["reason"] for r in rows] == ["same_member_twice"] * 2
    assert {r["path"].partition("@")[0] for r in rows} == {"cat/1.png"}
    assert lake.batch_rows("d", "b")["path"].to_pylist() == ["cat/2.png"]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_zip_is_read_as_the_standard_library_reads_it(tmp_path: Path, make: SimpleNamespace, method: int) -> None:
    members = {f"cat/é{i}.png": make.png(i, 8 + i, 30) for i in range(8)}
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as z:
        for name, data in members.items():
            z.writestr(name, data)
    with open(tmp_path / "b.zip", "wb") as f:  # a program in front, as in an archive that unpacks itself
        f.write(b"#!/bin/sh\n" * 9)
        f.write((tmp_path / "a.zip").read_bytes())
    for path in (tmp_path / "a.zip", tmp_path / "b.zip"):
        source = pickle.loads(pickle.dumps(open_source(path)))
        assert {i.path: source.read(i.path) for i in source.inputs} == members


def test_a_zip_whose_members_overlap_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as z:
        z.writestr("kernel.png", bytes(100_000))
        for i in range(50):  # many names for the same bytes
            copy = zipfile.ZipInfo(f"{i}.png")
            kernel = z.filelist[0]
            copy.header_offset, copy.compress_size, copy.file_size, copy.CRC = (
                kernel.header_offset, kernel.compress_size, kernel.file_size, kernel.CRC,
            )  # fmt: skip
            z.filelist.append(copy)
    with pytest.raises(SevenfoldError, match=r"share the same bytes|[Oo]verlap"):
        said(tmp_path / "a.zip")


def test_a_source_of_another_kind_or_none_is_refused(tmp_path: Path, lake: Lake) -> None:
    (tmp_path / "a.rar").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    cases = [
        (tmp_path / "a.rar", None, "no source"), (tmp_path / "gone", None, "nothing there"),
        (tmp_path / "a.rar", "folder", "a file is no folder"), (tmp_path / "empty", "csv", "a folder is no csv"),
        (tmp_path / "empty", "bucket", "no source"), ("s3://b/x", "csv", "cannot be read from a bucket"),
        ("gs://b/x", None, "cannot be read from"),
    ]  # fmt: skip
    for path, kind, message in cases:
        with pytest.raises(SevenfoldError, match=message):
            open_source(path, kind).inputs  # noqa: B018
    with pytest.raises(SevenfoldError, match="holds no files"):
        lake.ingest(tmp_path / "empty", "d", "b")
    assert lake.datasets() == []


def test_the_kind_of_a_folder_is_guessed_from_what_lies_in_it(tmp_path: Path) -> None:
    cases = {
        "webdataset": [["a.tar", "classes.txt"], ["train/0.tar", "val/0.tar"]],
        "parquet": [["a.parquet"], ["data/train-0.parquet", "README.md"]],
        "folder": [
            ["cat/1.png", "extra.tar"],
            ["1.png", "a.parquet"],
            ["train/cat/1.png", "train/x.tar"],
            ["data/1.png"],
        ],
    }
    for kind, layouts in cases.items():
        for number, names in enumerate(layouts):
            root = tmp_path / f"{kind}{number}"
            for name in names:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).touch()
            assert open_source(root).kind == kind, names


def test_the_fingerprint_is_the_digest_of_the_listing(tmp_path: Path, make: SimpleNamespace) -> None:
    source = open_source(make.folder(tmp_path / "s", make.two_classes(3)))
    rows = [[i.path, i.label, i.split, i.bytes, round(i.modified, 6)] for i in source.inputs]
    assert source.fingerprint == digest_json(rows)


# idx


def idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    data = header + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


@pytest.mark.parametrize("stem", ["train", "emnist.letters"])
def test_idx_arrays_become_png_with_named_classes(tmp_path: Path, make: SimpleNamespace, lake: Lake, stem: str) -> None:
    images = np.stack([make.pixels(i, 5, 4) for i in range(3)])
    idx(tmp_path / f"{stem}-images-idx3-ubyte.gz", images)
    idx(tmp_path / f"{stem}-labels-idx1-ubyte", np.array([2, 0, 1]))
    (tmp_path / "classes.txt").write_text("bag\nboot\n")
    file = tmp_path / f"{stem}-images-idx3-ubyte.gz"
    assert said(file) == {
        f"{stem}#00000000": ("2", None), f"{stem}#00000001": ("bag", None), f"{stem}#00000002": ("boot", None),
    }  # fmt: skip
    make.land(lake, file, "b")
    make.commit(lake)
    rows = lake.samples("d")
    expected = {f"{stem}#{i:08d}": encode_png(image) for i, image in enumerate(images)}
    assert dict(zip(rows["path"].to_pylist(), lake.read_images(rows), strict=True)) == expected


def test_a_folder_of_idx_has_its_splits_by_stem(tmp_path: Path) -> None:
    for stem in ("train", "t10k"):
        idx(tmp_path / f"{stem}-images-idx3-ubyte", np.zeros((2, 4, 4)))
        idx(tmp_path / f"{stem}-labels-idx1-ubyte", np.zeros(2))
    assert {split for _, split in said(tmp_path).values()} == {"train", "test"}
    idx(tmp_path / "t10k-labels-idx1-ubyte", np.zeros(3))
    with pytest.raises(SevenfoldError, match="shape"):
        said(tmp_path)


def test_a_batch_without_a_name_gets_one_from_its_source(tmp_path: Path, make: SimpleNamespace, lake: Lake) -> None:
    source = make.folder(tmp_path / "données (1).v2", make.two_classes(3))
    record, made = lake.ingest(source, "d")
    assert made and record.batch == f"donn-es--1-{record.digest[:8]}".replace("--1--", "--1-")
    assert lake.ingest(FolderSource(source), "d")[1] is False
