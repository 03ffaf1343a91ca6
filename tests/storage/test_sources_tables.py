"""Tables as sources: CSV, JSONL and Parquet that name images or hold them, Hugging Face's among them."""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.sources import InputError, Source, open_source

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def said(source: Source) -> dict[str, tuple[str | None, str | None]]:
    return {i.path: (i.label, i.split) for i in source.inputs}


def problems(source: Source) -> dict[str, str]:
    return {i.path: i.problem[0] for i in source.inputs if i.problem}


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows), encoding="utf-8")
    return path


def huggingface(path: Path, images: list[Any], labels: list[int | None], names: list[str], **options: Any) -> Path:
    """A file as `datasets` writes it: Image and ClassLabel features in the schema's metadata."""
    features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
    schema = pa.schema(
        [("image", IMAGE), ("label", pa.int64())], {"huggingface": json.dumps({"info": {"features": features}})}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"image": pa.array(images, IMAGE), "label": labels}, schema=schema), path, **options)
    return path


# Which paths may be read


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_paths_that_lead_out_of_the_tables_folder_are_refused_and_absolute_ones_are_read(
    kind: str, tmp_path: Path, make: SimpleNamespace, lake: Lake
) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"root:x:0:0")
    meant = tmp_path / "meant.png"
    meant.write_bytes(make.png(2))
    home = make.folder(tmp_path / "home", {"img/1.png": make.png(1)})
    (home / "img/link.png").symlink_to(secret)
    paths = [
        "img/1.png",
        "img/../img/1.png",
        "../secret.png",
        "img/../../secret.png",
        "img/link.png",
        str(meant),
        "gone.png",
    ]
    table = home / f"t.{kind}"
    if kind == "csv":
        table.write_text("path,label\n" + "".join(f"{p},cat\n" for p in paths))
    elif kind == "jsonl":
        lines(table, *({"path": p, "label": "cat"} for p in paths))
    else:
        pq.write_table(pa.table({"path": paths, "label": ["cat"] * len(paths)}), table)
    lake.ingest(table, "d", "b")
    rows = {r["path"]: r for r in lake.quarantine("d", "b").to_pylist()}
    assert {p: r["reason"] for p, r in rows.items()} == {
        "../secret.png": "outside", "img/../../secret.png": "outside", "img/link.png": "outside",
        "gone.png": "unreadable",
    }  # fmt: skip
    assert not any("72 6f 6f 74" in r["detail"] for r in rows.values()), "the file is not quoted"
    assert set(lake.batch_rows("d", "b")["path"].to_pylist()) <= {"img/1.png", "img/../img/1.png", str(meant)}
    make.reconciles(lake)


@pytest.mark.parametrize("column", ["path", "File", "filename", "file_name", "image", "IMG"])
def test_columns_are_found_by_name_and_named_in_the_notes(column: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"id,{column},class\n1,x.png,cat\n")
    source = open_source(tmp_path / "a.csv")
    assert said(source) == {"x.png": ("cat", None)}
    assert f"images from the column {column}, labels from the column class" in source.notes


def test_a_csv_row_without_a_path_is_a_bad_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("path,label\nx.png,cat\n,dog\n")
    source = pickle.loads(pickle.dumps(open_source(tmp_path / "a.csv")))
    assert problems(source) == {"a.csv#00000001": "bad_row"}
    with pytest.raises(InputError, match="line 3 names no file"):
        source.read("a.csv#00000001")


# JSONL


def test_jsonl_names_images_or_holds_them(tmp_path: Path, make: SimpleNamespace, lake: Lake) -> None:
    images = [make.png(i) for i in range(4)]
    make.folder(tmp_path, {"img/0.png": images[0]})
    text = [base64.b64encode(i).decode() for i in images]
    table = lines(
        tmp_path / "a.jsonl",
        {"image": "img/0.png", "label": "cat", "split": "train"},
        {"image": text[1], "label": 7},
        "",
        {"image": f"data:image/png;base64,{text[2]}", "label": None, "split": "TEST"},
        {"image": {"bytes": text[3], "path": "x.png"}, "label": "dog", "split": "pool"},
    )
    source = open_source(table)
    assert said(source) == {
        "img/0.png": ("cat", "train"), "a.jsonl#00000001": ("7", None), "a.jsonl#00000002": (None, "test"),
        "a.jsonl#00000003": (None, "pool"),
    }  # fmt: skip
    assert "3 images are embedded" in source.notes
    for there in (source, pickle.loads(pickle.dumps(source)), open_source(table)):
        assert [there.read(i.path) for i in source.inputs] == [images[1], images[2], images[3], images[0]]
    make.land(lake, table, "b")
    make.commit(lake)
    assert lake.samples("d").num_rows == 4


def test_lines_that_cannot_be_used_are_set_aside(tmp_path: Path, lake: Lake, make: SimpleNamespace) -> None:
    make.folder(tmp_path, {"0.png": make.png(0)})
    deep = '{"path": ' + "[" * 100_000 + "}"
    table = lines(
        tmp_path / "a.ndjson", {"path": "0.png", "label": "cat"}, "{no json", "[1]", {"label": "cat"}, {"path": 3},
        {"path": ""}, {"path": "0.png", "label": [1]}, {"path": "0.png", "label": 1.5}, {"path": {"bytes": "!" * 80}},
        deep,
        '{"path": ' + "9" * 5000 + "}", '{"path": "\\ud800.png"}', '{"path": "0.png", "label": "\\ud800"}',
    )  # fmt: skip
    record, _ = lake.ingest(table, "d", "b")
    assert record.reasons == {"bad_row": 8, "label_unreadable": 3, "unreadable": 1}
    rows = {r["path"]: r["detail"] for r in lake.quarantine("d", "b").to_pylist()}
    assert "no line of JSON" in rows["a.ndjson#00000001"] and rows["a.ndjson#00000001"].startswith("byte 34:")
    assert "path is absent" in rows["a.ndjson#00000003"] and "base64" in rows["a.ndjson#00000008"]
    make.reconciles(lake)


@pytest.mark.parametrize(
    ("text", "message"),
    [("<html>\n<p>\n", "none of the first lines"), ('{"name": "x"}\n', "a column named path"), ("", "none of"),
     ('{"path": "x", "split": "holdout"}\n', "row 0: the split is 'holdout'")],
)  # fmt: skip
def test_a_jsonl_that_cannot_be_understood_says_why(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(SevenfoldError, match=message):
        open_source(tmp_path / "a.jsonl").inputs  # noqa: B018


# Parquet


def test_hugging_face_parquet_has_names_and_splits(tmp_path: Path, make: SimpleNamespace, lake: Lake) -> None:
    images = [make.png(i) for i in range(6)]
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/README.md").write_text("a card")
    rows = [{"bytes": data, "path": f"{i}.png"} for i, data in enumerate(images)]
    huggingface(tmp_path / "hf/data/train-00000-of-00002.parquet", rows[:2], [0, 1], ["cat", "dog"])
    huggingface(tmp_path / "hf/data/train-00001-of-00002.parquet", rows[2:4], [1, 0], ["cat", "dog"])
    huggingface(tmp_path / "hf/data/test-00000-of-00001.parquet", rows[4:], [-1, 1], ["cat", "dog"])
    source = open_source(tmp_path / "hf")
    assert source.kind == "parquet"
    assert said(source) == {
        "data/train-00000-of-00002.parquet#00000000": ("cat", "train"),
        "data/train-00000-of-00002.parquet#00000001": ("dog", "train"),
        "data/train-00001-of-00002.parquet#00000000": ("dog", "train"),
        "data/train-00001-of-00002.parquet#00000001": ("cat", "train"),
        "data/test-00000-of-00001.parquet#00000000": (None, "test"),
        "data/test-00000-of-00001.parquet#00000001": ("dog", "test"),
    }  # fmt: skip
    assert (
        "images from the column image, labels from the column label (embedded, named by its ClassLabel)" in source.notes
    )
    assert [source.read(i.path) for i in source.inputs] == [*images[4:], *images[:4]]
    make.land(lake, tmp_path / "hf", "b")
    make.commit(lake)
    assert sorted(lake.read_images(lake.samples("d"))) == sorted(images)


def test_rows_are_read_in_any_order_from_any_row_group(tmp_path: Path, make: SimpleNamespace) -> None:
    images = [make.png(i) for i in range(100)]
    table = pa.table({"img": pa.array(images, pa.large_binary()), "labels": [str(i) for i in range(100)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=37)
    source = open_source(tmp_path / "a.parquet")
    for i in (5, 99, 0, 36, 37, 74, 73, 38, 5, *range(100)):
        assert source.read(f"a.parquet#{i:08d}") == images[i]
    with pytest.raises(InputError, match="no such row"):
        source.read("a.parquet#00000100")


def test_parquet_rows_that_cannot_be_used_are_set_aside(tmp_path: Path, lake: Lake, make: SimpleNamespace) -> None:
    make.folder(tmp_path, {"beside.png": make.png(8)})
    images = [
        {"bytes": make.png(1), "path": None}, None, {"bytes": None, "path": None},
        {"bytes": None, "path": "beside.png"}, {"bytes": None, "path": "../x.png"},
        {"bytes": make.png(2), "path": None}, {"bytes": b"", "path": None},
    ]  # fmt: skip
    table = huggingface(tmp_path / "a.parquet", images, [0, 0, 0, 1, 0, 9, None], ["cat", "dog"])
    record, _ = lake.ingest(table, "d", "b")
    assert record.reasons == {"bad_row": 2, "label_unreadable": 1, "not_an_image": 1, "outside": 1}
    assert record.counts["samples"] == 2
    make.reconciles(lake)
    pq.write_table(
        pa.table({"path": ["beside.png", None, ""], "label": [1.0, float("nan"), 0.5]}), tmp_path / "b.parquet"
    )
    source = open_source(tmp_path / "b.parquet")
    assert said(source)["beside.png"] == ("1", None)
    assert problems(source) == {"b.parquet#00000001": "bad_row", "b.parquet#00000002": "label_unreadable"}


def test_parquet_files_that_cannot_be_understood_say_why(tmp_path: Path) -> None:
    good = huggingface(tmp_path / "good.parquet", [None] * 50, [0] * 50, ["cat"])
    (tmp_path / "cut.parquet").write_bytes(good.read_bytes()[:-50])
    pq.write_table(pa.table({"image": [1, 2]}), tmp_path / "numbers.parquet")
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "other.parquet")
    for name, message in (
        ("cut", "no readable Parquet"),
        ("numbers", "of type int64"),
        ("other", "a column named path"),
    ):
        with pytest.raises(SevenfoldError, match=message):
            open_source(tmp_path / f"{name}.parquet").inputs  # noqa: B018


@pytest.mark.parametrize("plain", [True, False])
def test_a_column_that_unpacks_to_gigabytes_is_read_within_bounds(plain: bool, tmp_path: Path) -> None:
    """One megabyte, stored once in a dictionary and named by 20,000 rows: 20 GB for who decodes the row group."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), pa.array([bytes(1 << 20)], pa.binary()))
    pq.write_table(pa.table({"image": column}), tmp_path / "bomb.parquet", store_schema=not plain)
    assert (tmp_path / "bomb.parquet").stat().st_size < 5 << 20
    code = (
        "import resource, sys\n"
        "from sevenfold.storage.sources import open_source\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "source = open_source(sys.argv[1])\n"
        "assert len(source.inputs) == 20_000\n"
        "assert len(source.read('bomb.parquet#00003000')) == 1 << 20\n"
        "status = open('/proc/self/status').read()\n"  # ru_maxrss would be that of whoever started the process
        "print(int(status.split('VmHWM:')[1].split()[0]) >> 10)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "bomb.parquet"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1024, "MB"


def test_a_shard_of_rows_in_any_order_costs_one_pass_over_each_row_group(
    tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sharding goes by id, which scatters the rows: one by one, each would decode its row group from the start."""
    images = [make.png(i) for i in range(900)]
    pq.write_table(pa.table({"image": images}), tmp_path / "rows.parquet", row_group_size=300)
    source = open_source(tmp_path / "rows.parquet")
    paths = [*[i.path for i in source.inputs][::-7], "rows.parquet#00009999"]
    begun: list[int] = []
    original = pq.ParquetFile.iter_batches

    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        begun.append(options["row_groups"][0])
        return original(self, *arguments, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    *found, missing = source.read_many(paths)
    assert begun == [0, 1, 2]
    assert found == [images[int(p.rpartition("#")[2])] for p in paths[:-1]]
    assert isinstance(missing, InputError)
