"""Further columns of a source: typed, kept by sample id, told of when they are left out, and gone with the sample."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.storage import Lake
from sevenfold.storage.sources import open_source
from sevenfold.storage.sources.further import MAX_TEXT, Gathering, numeric
from sevenfold.storage.takedown import Request, carry_out, find

ROWS = [
    {"path": "a.png", "label": "cat", "age": 3, "weight": 4, "wild": True, "caption": "a cat sleeps", "zip": "01234"},
    {"path": "b.png", "label": "dog", "age": 7, "weight": 2.5, "wild": False, "caption": None, "zip": "99999"},
    {"path": "c.png", "label": "dog", "age": None, "weight": 1, "wild": None, "caption": "ein Hund", "zip": "00501"},
]
TYPES = {"id": "string", "age": "int64", "weight": "double", "wild": "bool", "caption": "string", "zip": "string"}


def written(folder: Path, kind: str, make: SimpleNamespace) -> Path:
    """The same three rows as a table of a kind, or as a tar."""
    make.folder(folder, {f"{name}.png": make.png(i) for i, name in enumerate("abc")})
    if kind == "csv":
        lines = [",".join(ROWS[0])]
        lines += [",".join("" if v is None else str(v) for v in row.values()) for row in ROWS]
        (folder / "t.csv").write_text("\n".join(lines) + "\n")
        return folder / "t.csv"
    if kind == "jsonl":
        (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        return folder / "t.jsonl"
    if kind == "parquet":
        weights = pa.array([float(row["weight"]) for row in ROWS])
        table = pa.Table.from_pylist([{**row, "weight": 0} for row in ROWS])
        pq.write_table(table.set_column(table.column_names.index("weight"), "weight", weights), folder / "t.parquet")
        return folder / "t.parquet"
    with tarfile.open(folder / "t.tar", "w") as tar:
        for row in ROWS:
            said = {k: v for k, v in row.items() if k not in ("path", "caption")}
            parts = {"png": (folder / row["path"]).read_bytes(), "json": json.dumps(said).encode()}
            parts |= {"txt": row["caption"].encode()} if row["caption"] else {}
            for suffix, data in parts.items():
                member = tarfile.TarInfo(f"{row['path'][0]}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return folder / "t.tar"


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "webdataset"])
def test_every_table_keeps_its_further_columns_by_sample(
    kind: str, lake: Lake, tmp_path: Path, make: SimpleNamespace
) -> None:
    make.land(lake, written(tmp_path / "s", kind, make), "b")
    make.commit(lake)
    table = lake.metadata("d")
    assert table is not None
    caption = "txt" if kind == "webdataset" else "caption"
    assert {f.name: str(f.type) for f in table.schema} == {
        caption if k == "caption" else k: t for k, t in TYPES.items()
    }
    samples = lake.samples("d")
    assert table["id"].to_pylist() == samples["id"].to_pylist(), "the samples' order"
    names = [path.rpartition("/")[2] for path in samples["path"].to_pylist()]
    told = {n: {k: v for k, v in row.items() if k != "id"} for n, row in zip(names, table.to_pylist(), strict=True)}
    for row in ROWS:
        expected = {caption if k == "caption" else k: v for k, v in row.items() if k not in ("path", "label")}
        assert told[row["path"]] == expected
    assert sorted(samples["label"].to_pylist()) == ["cat", "dog", "dog"], "the label is no metadata"
    found = lake.sql("select m.age from samples s join metadata m using (id) where s.label = 'cat'")
    assert found["age"].to_pylist() == [3]
    assert any(note.startswith("metadata of 3 of 3 samples: ") for note in lake.batch("d", "b").notes)


def test_a_source_without_further_columns_has_no_metadata(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    make.land(lake, make.folder(tmp_path / "s", make.two_classes(2)), "b")
    make.commit(lake)
    assert lake.metadata("d") is None and lake.batch_metadata("d", "b") is None
    assert lake.sql("select * from metadata").num_rows == 0


def test_what_cannot_be_kept_is_told(tmp_path: Path, lake: Lake, make: SimpleNamespace) -> None:
    make.folder(tmp_path / "s", {"a.png": make.png(1), "b.png": make.png(2)})
    rows = [
        {"path": "a.png", "id": 1, "box": [1, 2], "Age": 1, "age": 2, "mixed": 1, "long": "x" * (MAX_TEXT + 1)},
        {"path": "b.png", "id": 2, "box": None, "Age": 1, "age": 2, "mixed": "two", "long": "y", "late": 1.5},
    ]
    (tmp_path / "s" / "t.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    make.land(lake, tmp_path / "s" / "t.jsonl", "b")
    table = lake.batch_metadata("d", "b")
    assert table is not None and table.column_names == ["id", "id_", "Age", "age_2", "mixed", "late"]
    by_own = {row["id_"]: row for row in table.to_pylist()}
    assert [by_own[i]["mixed"] for i in (1, 2)] == ["1", "two"] and [by_own[i]["late"] for i in (1, 2)] == [None, 1.5]
    notes = " | ".join(lake.batch("d", "b").notes)
    for said in ("column box holds nested", "column long holds", "column id is kept as id_", "age is kept as age_2"):
        assert said in notes


def test_of_copies_the_samples_own_row_is_kept(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    make.folder(tmp_path / "s", {"b.png": make.png(1), "a.png": make.png(1)})
    (tmp_path / "s" / "t.csv").write_text("path,label,age\nb.png,cat,2\na.png,cat,1\na.png,cat,9\n")
    make.land(lake, tmp_path / "s" / "t.csv", "b")
    table = lake.batch_metadata("d", "b")
    assert table is not None and table["age"].to_pylist() == [1]
    assert "the metadata of 2 aliases is not kept: that of the sample's own path is" in lake.batch("d", "b").notes


def test_the_digest_covers_metadata_and_a_changed_table_is_read_again(
    lake: Lake, tmp_path: Path, make: SimpleNamespace
) -> None:
    make.folder(tmp_path / "s", {"a.png": make.png(1)})
    table = tmp_path / "s" / "t.csv"
    digests = []
    for age in (1, 1, 200):
        table.write_text(f"path,label,age\na.png,cat,{age}\n")
        record, _ = lake.ingest(table, "d")
        digests.append(record.digest)
    assert digests[0] == digests[1] != digests[2]
    assert len(lake.batches("d")) == 2


def test_batches_of_other_types_come_together(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    for i, value in enumerate(("1", "1.5", "old")):
        make.folder(tmp_path / str(i), {"a.png": make.png(i)})
        (tmp_path / str(i) / "t.csv").write_text(f"path,label,age,n{i}\na.png,cat,{value},{i}\n")
        make.land(lake, tmp_path / str(i) / "t.csv", f"b{i}")
        make.commit(lake)
        found = lake.metadata("d")
        assert found is not None and str(found.schema.field("age").type) == ("int64", "double", "string")[i]
    assert sorted(found["age"].to_pylist()) == ["1", "1.5", "old"]
    assert found.column_names == ["id", "age", "n0", "n1", "n2"] and found["n1"].null_count == 2
    lake.compact("d")
    again = lake.metadata("d")
    assert again is not None and sorted(again.to_pylist(), key=str) == sorted(found.to_pylist(), key=str)


def test_a_takedown_takes_the_metadata_too(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    make.land(lake, written(tmp_path / "s", "csv", make), "b")
    make.commit(lake)
    gone = lake.sql("select id from samples where label = 'cat'")["id"][0].as_py()
    request = Request(key=gone)
    carry_out(lake.store, request, find(lake.store, request), "asked", clock=lambda: 5.0)
    table = pq.read_table(lake.root / "metadata" / "d" / "b.parquet")
    assert table.num_rows == 2 and gone not in table["id"].to_pylist() and 3 not in table["age"].to_pylist()
    found = lake.metadata("d")
    assert found is not None and found.num_rows == 2


WHOLE = st.integers(-(2**63), 2**63 - 1)
WORDS = st.one_of(WHOLE.map(str), st.floats(allow_nan=False).map(str), st.sampled_from(["true", "x", "007"]))
CELLS = {"a": st.one_of(st.none(), WHOLE, st.booleans()), "b": st.text(), "c": st.floats()}


@settings(max_examples=80, deadline=None)
@given(values=st.lists(st.one_of(st.none(), WORDS), min_size=1, max_size=6))
def test_text_becomes_a_number_only_where_nothing_is_lost(values: list[str | None]) -> None:
    column = numeric(pa.chunked_array([pa.array(values, pa.string())]))
    for before, after in zip(values, column.to_pylist(), strict=True):
        if before is None or isinstance(after, str):
            assert after == before
        elif isinstance(after, bool):
            assert before == str(after).lower()
        else:
            assert float(before) == float(after) and not before.startswith("00")


@settings(max_examples=60, deadline=None)
@given(pieces=st.lists(st.lists(st.fixed_dictionaries({}, optional=CELLS), max_size=3), max_size=4))
def test_rows_keep_their_values_however_they_are_cut(pieces: list[list[dict[str, object]]]) -> None:
    def gathered(parts: list[list[dict[str, object]]]) -> list[dict[str, object]]:
        gathering, count = Gathering(), 0
        for rows in parts:
            names = dict.fromkeys(k for row in rows for k in row)
            gathering.add([str(count + i) for i in range(len(rows))], {k: [row.get(k) for row in rows] for k in names})
            count += len(rows)
        found = gathering.finish()
        return [dict(sorted(row.items())) for row in found.table.to_pylist()] if found else []

    assert gathered(pieces) == gathered([[row for rows in pieces for row in rows]])


def test_a_csv_is_opened_for_its_columns_only_once_it_is_listed(tmp_path: Path, make: SimpleNamespace) -> None:
    source = open_source(written(tmp_path / "s", "csv", make))
    found = source.further()
    assert found is not None and found.table["path"].to_pylist() == ["a.png", "b.png", "c.png"]


def test_a_json_or_txt_beside_an_image_is_its_metadata(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    members = {
        "cat/a.png": make.png(1), "cat/a.json": b'{"age": 3, "box": [1]}', "cat/a.txt": b"a cat\n",
        "dog/b.jpg": make.encoded(make.pixels(2), "JPEG"), "dog/b.json": b"{broken", "dog/c.png": make.png(3),
        "dog/c.txt": b"\xff", "dog/lone.json": b"{}", "notes.txt": b"words",
    }  # fmt: skip
    source = make.folder(tmp_path / "s", members)
    record, _ = lake.ingest(source, "d", "b")
    assert record.counts["samples"] == 3 and record.reasons == {"not_an_image": 2}, "what stands alone is an input"
    ids = {row["path"]: row["id"] for row in lake.batch_rows("d", "b").to_pylist()}
    table = lake.batch_metadata("d", "b")
    assert table is not None
    told = {row["id"]: row for row in table.to_pylist()}
    assert told[ids["cat/a.png"]] == {"id": ids["cat/a.png"], "age": 3, "txt": "a cat"}
    assert any("4 .json and .txt files are metadata" in note for note in record.notes)
    (source / "cat/a.json").write_text('{"age": 30, "box": [1]}')
    assert open_source(source).fingerprint != record.fingerprint
