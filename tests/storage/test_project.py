"""sevenfold.toml: found above, overruled by --lake and SEVENFOLD_LAKE, and precise about mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sevenfold.storage import SevenfoldError
from sevenfold.storage.project import find, load


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SEVENFOLD_LAKE", raising=False)
    folder = tmp_path / "project"
    (folder / "deep" / "down").mkdir(parents=True)
    (folder / "sevenfold.toml").write_text('lake = "data/lake"\ndataset = "toys"\nshard_bytes = 8192\n')
    return folder


def test_it_is_found_in_a_parent_and_its_paths_are_its_own(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project / "deep" / "down")
    found = find()
    assert (found.folder, found.dataset) == (project, "toys")
    assert found.lake_url == str(project / "data/lake") and found.home == project / ".sevenfold"
    assert found.create_lake().shard_bytes == 8192
    assert found.open_lake().root == project / "data/lake"


def test_the_environment_wins_over_the_file_and_an_argument_over_both(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SEVENFOLD_LAKE", str(tmp_path / "env"))
    assert find(project).lake_url == str(tmp_path / "env")
    assert find(project, tmp_path / "arg").lake_url == str(tmp_path / "arg")
    assert find(project).dataset == "toys", "the rest still comes from the file"
    monkeypatch.setenv("SEVENFOLD_LAKE", "")
    assert find(project).lake_url == str(project / "data/lake")


def test_with_a_lake_named_no_file_is_needed_without_one_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEVENFOLD_LAKE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert find(lake=Path("here")).lake_url == str(tmp_path / "here")
    with pytest.raises(SevenfoldError, match="run `sevenfold init`"):
        find()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('datset = "x"', "perhaps 'dataset'"),
        ("shardbytes = 9", "perhaps 'shard_bytes'"),
        ("zzz = 1", "one of lake, dataset"),
        ('folder = "/"', "drop it"),
        ("workers = 0", "workers: Input should be greater than or equal to 1"),
        ("lake = ", "this is not TOML"),
        ("\udcff", "this is not TOML"),
    ],
)
def test_a_mistake_names_the_key_and_the_nearest_right_one(project: Path, text: str, message: str) -> None:
    file = project / "sevenfold.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SevenfoldError, match=message) as caught:
        load(file)
    assert str(file) in str(caught.value)
    assert "folder" not in str(caught.value) or "folder" in text
