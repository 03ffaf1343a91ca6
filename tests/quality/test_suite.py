import json
import socket
from pathlib import Path

import pytest

from sevenfold.quality import suite
from sevenfold.storage.errors import SevenfoldError


def write(folder: Path, *expectations: dict, name: str = "suite.json") -> Path:
    path = folder / name
    path.write_text(json.dumps({"name": "mine", "expectations": list(expectations)}))
    return path


def between(column: str, **kwargs: object) -> dict:
    return {"type": "expect_column_values_to_be_between", "kwargs": {"column": column} | kwargs}


def test_a_good_batch_passes_the_default_suite_and_docs_are_built(rows, properties, tmp_path: Path) -> None:
    table = rows()
    v = suite.validate(table, properties(table), subject="b1", docs_dir=tmp_path / "docs", at=1e9)
    assert (v.result, v.blocking, v.statistic, v.findings) == ("pass", True, 0.0, ())
    assert str(tmp_path / "docs" / "index.html") in v.message
    pages = list((tmp_path / "docs").rglob("*.html"))
    assert {"index.html", "default.html"} <= {p.name for p in pages} and len(pages) == 3


def test_failing_rules_say_what_was_found_and_which_samples(rows, tmp_path: Path) -> None:
    table = rows(5, width=[28, 28, 4, 28, 400], path=["a", None, "c", "d", "e"])
    ids = table["id"].to_pylist()
    path = write(
        tmp_path,
        between("width_min", min_value=8) | {"notes": "Images are at least 8 pixels wide."},
        between("width_max", max_value=100),
        between("path_nulls", max_value=0),
        between("height_min", min_value=8),
    )
    v = suite.validate(table, subject="b1", suite_path=path)
    assert v.result == "fail" and v.statistic == 3 and str(path) in v.remedy
    assert "Images are at least 8 pixels wide. Found width_min = 4, expected min_value 8." in v.message
    assert v.findings == (ids[2], ids[4], ids[1])


def test_severity_warning_warns(rows, tmp_path: Path) -> None:
    path = write(tmp_path, between("width_min", min_value=99) | {"severity": "warning"})
    assert suite.validate(rows(3), subject="b1", suite_path=path).result == "warn"


def test_a_missing_column_fails_in_plain_words(rows, tmp_path: Path) -> None:
    path = write(tmp_path, between("depth_min", min_value=1), between("depth", min_value=1))
    v = suite.validate(rows(3), subject="b1", suite_path=path)
    assert v.result == "fail"
    assert "the column 'depth' is missing" in v.message and "a metric is rows or <column>_" in v.message


def test_a_suite_may_be_yaml(rows, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "expectations:\n- type: expect_column_values_to_be_in_set\n  kwargs: {column: mode_max, value_set: [RGB]}\n"
    )
    assert suite.load_suite(path)["name"] == "s"
    assert suite.validate(rows(3), subject="b1", suite_path=path).result == "fail"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "no list `expectations`"),
        ('{"expectations": [{"type": "expect_x"}]}', "expectation 0"),
    ],
)
def test_a_broken_suite_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(SevenfoldError) as caught:
        suite.load_suite(path)
    assert said in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "expect_columns_to_be_lovely", "kwargs": {"column": "rows"}},
        between("rows", min_valu=1),
        between("rows", min_value=1) | {"severity": "grave"},
    ],
)
def test_an_expectation_that_does_not_exist_is_refused(rows, tmp_path: Path, entry: dict) -> None:
    with pytest.raises(SevenfoldError, match="expectation 0"):
        suite.validate(rows(3), subject="b1", suite_path=write(tmp_path, entry))


def test_nothing_is_sent_anywhere(rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*args: object) -> None:
        raise AssertionError(f"a connection was opened: {args[1:]}")

    monkeypatch.setattr(socket.socket, "connect", connect)
    path = write(tmp_path, between("rows", min_value=1))
    assert suite.validate(rows(3), subject="b1", suite_path=path, docs_dir=tmp_path / "docs").result == "pass"
