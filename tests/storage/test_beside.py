"""Labels and annotations from tables that lie apart from the images: joined, and whatever does not fit is told."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.sources import Beside, Table, open_source
from sevenfold.storage.takedown import Request, carry_out, find


@pytest.fixture
def images(tmp_path: Path, make: SimpleNamespace) -> Path:
    names = ("a.png", "b.png", "deep/c.png", "one/d.png", "two/d.png", "e.png")
    return make.folder(tmp_path / "images", {name: make.png(i) for i, name in enumerate(names)})


def labels_of(lake: Lake, batch: str = "b") -> dict[str, str | None]:
    rows = lake.batch_rows("d", batch)
    return dict(zip(rows["path"].to_pylist(), rows["label"].to_pylist(), strict=True))


def test_labels_are_joined_by_path_name_or_stem_and_the_rest_is_told(lake: Lake, images: Path) -> None:
    table = images / "labels.csv"
    table.write_text(
        "file,breed,age\na.png,cat,1\n/elsewhere/b.png,dog,2\nc,cow,3\nd.png,pig,4\nnone.png,hen,5\ne.png,,6\n"
    )
    record, _ = lake.ingest(images, "d", "b", labels=Table(table, "breed"))
    assert labels_of(lake) == {
        "a.png": "cat", "b.png": "dog", "deep/c.png": "cow", "one/d.png": None, "two/d.png": None, "e.png": None
    }  # fmt: skip
    assert record.counts["inputs"] == 6, "the table is no input"
    notes = " | ".join(record.notes)
    for said in (
        "labels from the column breed of labels.csv, joined by file: 3 images",
        "1 rows name no image of the source, the first is 'none.png'",
        "1 rows name several images, the first is 'd.png'",
        "3 images have no label there and land in the pool, the first is e.png",
    ):
        assert said in notes, said
    ages = lake.sql("select l.path, m.age from landed l join metadata m using (id) order by age").to_pylist()
    assert ages == [{"path": p, "age": a} for p, a in (("a.png", 1), ("b.png", 2), ("deep/c.png", 3), ("e.png", 6))]


def test_paths_that_start_in_a_folder_above_find_their_image_and_a_bare_name_must_be_the_only_one(
    lake: Lake, images: Path
) -> None:
    table = images.parent / "labels.csv"
    table.write_text("path,label\ntrain/one/d.png,cat\ntrain/two/d.png,dog\nabove/x/d.png,cow\n")
    record, _ = lake.ingest(images, "d", "b", labels=Table(table))
    assert {k: v for k, v in labels_of(lake).items() if v} == {"one/d.png": "cat", "two/d.png": "dog"}
    assert any("1 rows name several images, the first is 'above/x/d.png'" in note for note in record.notes)


def test_two_labels_of_one_image_set_it_aside_and_a_retry_reads_the_table_again(lake: Lake, images: Path) -> None:
    table = images.parent / "labels.csv"
    table.write_text("path,label\na.png,cat\na.png,dog\nb.png,dog\nb.png,dog\n")
    record, _ = lake.ingest(images, "d", "b", labels=Table(table))
    assert record.reasons == {"label_unreadable": 1}
    assert lake.quarantine("d", "b")["detail"].to_pylist() == ["labels.csv labels it 'cat' and 'dog'"]
    again, new = lake.ingest(images, "d", "b", labels=Table(table))
    assert (again, new) == (record, False)
    table.write_text("path,label\na.png,cat\nb.png,dog\n")
    retried, _ = lake.retry_quarantine("d", "b")
    assert labels_of(lake, retried.batch) == {"a.png": "cat"}


def test_a_changed_label_is_another_content(lake: Lake, images: Path, tmp_path: Path) -> None:
    table = tmp_path / "labels.jsonl"
    table.write_text('{"path": "a.png", "label": "cat"}\n')
    lake.ingest(images, "d", "b", labels=Table(table))
    table.write_text('{"path": "a.png", "label": "dog"}\n')
    with pytest.raises(SevenfoldError, match="other content"):
        lake.ingest(images, "d", "b", labels=Table(table))


def test_labels_from_parquet_with_several_workers(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    members = {f"{i:03d}.png": make.png(i) for i in range(30)}
    source = make.folder(tmp_path / "images", members)
    pq.write_table(pa.table({"id": [*members], "label": [i % 3 for i in range(30)]}), tmp_path / "l.parquet")
    made = Beside(open_source(source), Table(tmp_path / "l.parquet"))
    again = pickle.loads(pickle.dumps(made))
    assert again.inputs == made.inputs and again.fingerprint == made.fingerprint
    make.land(lake, source, "b", labels=Table(tmp_path / "l.parquet"), workers=2)
    make.commit(lake)
    assert sorted(lake.samples("d")["label"].to_pylist()) == sorted(str(i % 3) for i in range(30))


def test_a_table_that_cannot_serve_is_refused_with_what_it_has(lake: Lake, images: Path, tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    for text, said in (
        ("picture,label\na.png,cat\n", "no column names the image; there are picture, label"),
        ("path,breed\na.png,cat\n", "no column names the label; there are path, breed"),
        ("path,label\nother/f.png,cat\n", "no row of the column path finds its image"),
        ('path,label\n"a.png,cat\n', "it cannot be read"),
    ):
        table.write_text(text)
        with pytest.raises(SevenfoldError, match=said):
            lake.ingest(images, "d", "b", labels=Table(table))
    with pytest.raises(SevenfoldError, match="there is no column 'breed'"):
        table.write_text("path,label\na.png,cat\n")
        lake.ingest(images, "d", "b", labels=Table(table, "breed"))
    with pytest.raises(SevenfoldError, match="cannot be opened"):
        lake.ingest(images, "d", "b", labels=Table(tmp_path / "none.csv"))
    assert lake.batches("d") == []


def test_annotations_are_kept_by_sample_and_go_with_it(lake: Lake, images: Path, make: SimpleNamespace) -> None:
    (images / "copy.png").write_bytes((images / "a.png").read_bytes())
    (images / "bad.png").write_bytes(b"")
    table = images / "votes.csv"
    rows = ["path,worker,label", "a.png,w1,cat", "copy.png,w2,dog", "b.png,w1,dog", "b.png,w2,", "gone.png,w1,cat"]
    table.write_text("\n".join([*rows, "bad.png,w1,cat"]) + "\n")
    make.land(lake, images, "b", annotations=Table(table))
    make.commit(lake)
    found = lake.annotations("d")
    assert found is not None and found.equals(lake.batch_annotations("d", "b"))
    ids = {row["path"]: row["id"] for row in lake.batch_rows("d", "b").to_pylist()}
    expected = [(ids["a.png"], "w1", "cat"), (ids["a.png"], "w2", "dog"), (ids["b.png"], "w1", "dog")]
    assert [tuple(row.values()) for row in found.to_pylist()] == sorted(expected)
    notes = " | ".join(lake.batch("d", "b").notes)
    for said in (
        "4 annotations by 2 annotators",
        "1 annotations have no annotator",
        "1 rows name no image",
        "1 annotations are of inputs that were set aside",
    ):
        assert said in notes, said
    assert lake.sql("select count(*) as n from annotations")["n"].to_pylist() == [3]
    request = Request(key=ids["a.png"])
    carry_out(lake.store, request, find(lake.store, request), "asked", clock=lambda: 5.0)
    left = lake.annotations("d")
    assert left is not None and set(left["id"].to_pylist()) == {ids["b.png"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("path;label\na.png;cat\n", "it is parted by semicolons"),
        ("path,label,label\na.png,cat,dog\n", "two columns are called 'label'"),
        ("path,label\na.png,cat,dog\n", "row 1 has more values than the head has names"),
        ("photo,label\n", "there are photo, label"),
        ("", "there are none"),
    ],
)
def test_a_csv_that_can_be_read_in_two_ways_is_refused(images: Path, tmp_path: Path, text: str, said: str) -> None:
    table = tmp_path / "labels.csv"
    table.write_text(text)
    with pytest.raises(SevenfoldError, match=said):
        Beside(open_source(str(images)), Table(table)).inputs  # noqa: B018


def test_a_table_written_on_windows_names_the_same_images(images: Path, tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_bytes("\ufeffpath,label\r\none\\d.png,cat\r\n.\\two\\d.png,dog\r\n..\\..\\etc\\none.png,x\r\n".encode())
    found = {i.path: i.label for i in Beside(open_source(str(images)), Table(table)).inputs if i.label}
    assert found == {"one/d.png": "cat", "two/d.png": "dog"}
