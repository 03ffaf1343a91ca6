"""Which kind of source lies at a path or URL, and how to open it."""

from __future__ import annotations

import os
from pathlib import Path

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.names import SPLIT_WORDS
from sevenfold.storage.sources.arrays import IDX_IMAGES, IdxSource
from sevenfold.storage.sources.base import Source, as_root, suffix_of
from sevenfold.storage.sources.csv_table import CsvSource
from sevenfold.storage.sources.folder import BucketSource, FolderSource
from sevenfold.storage.sources.jsonl import JsonlSource
from sevenfold.storage.sources.parquet import ParquetSource
from sevenfold.storage.sources.tar_samples import IMAGES
from sevenfold.storage.sources.webdataset import SUFFIXES, WebdatasetSource
from sevenfold.storage.sources.zips import ZipSource
from sevenfold.storage.store import open_store

SOURCES: dict[str, type[Source]] = {
    s.kind: s
    for s in (
        FolderSource, ZipSource, CsvSource, JsonlSource, ParquetSource, WebdatasetSource, IdxSource, BucketSource,
    )
}  # fmt: skip
"""By the name that `--kind` takes."""

_BY_SUFFIX = {"zip": "zip", "csv": "csv", "jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet"}
_OF_FOLDERS = {"folder", "webdataset", "parquet", "idx"}
_OF_FILES = SOURCES.keys() - {"folder", "bucket"}
_IN_BUCKETS = {"bucket", "zip", "parquet", "webdataset"}


def open_source(path: str | os.PathLike[str], kind: str | None = None) -> Source:
    """The source at a path or `s3://bucket/prefix`, its kind guessed from the names there unless given.

    Raises SevenfoldError when nothing is there or no kind fits.
    """
    root = as_root(os.fspath(path))
    if isinstance(root, str):
        kind = kind or _kind_of_file(root) or _kind_of_prefix(root)
        if kind == "folder":
            kind = "bucket"
        if kind in SOURCES and kind not in _IN_BUCKETS:
            raise SevenfoldError(
                f"a source of kind {kind} cannot be read from a bucket",
                where=root,
                expected=f"one of {', '.join(sorted(_IN_BUCKETS))}",
                do="copy it here first",
            )
    else:
        root = root.resolve() if ".." in root.parts else root.absolute()
        if not root.exists():
            raise SevenfoldError("there is nothing there", where=str(root), do="check the path")
        kind = kind or (_kind_of_folder(root) if root.is_dir() else _kind_of_file(root.name))
    if kind not in SOURCES or (kind == "bucket" and isinstance(root, Path)):
        raise SevenfoldError(
            f"this is no source that can be read here (kind {kind})",
            where=str(root),
            expected="a folder or s3://bucket/prefix of class folders, a zip of them, a table (csv, jsonl, parquet) "
            "that names or holds images, WebDataset tars, or idx files",
        )
    if isinstance(root, Path) and kind not in (_OF_FOLDERS if root.is_dir() else _OF_FILES):
        there = "folder" if root.is_dir() else "file"
        raise SevenfoldError(f"a {there} is no {kind}", where=str(root), do="check the path, or leave --kind out")
    return SOURCES[kind](root)


def _kind_of_file(name: str) -> str | None:
    if IDX_IMAGES.fullmatch(name):
        return "idx"
    return "webdataset" if name.endswith(SUFFIXES) else _BY_SUFFIX.get(suffix_of(name))


def _kind_of_folder(folder: Path) -> str:
    """idx, webdataset or parquet when such files lie in the folder, or in its folders `data` or of splits.

    Images or folders of another name beside them make it a folder of images.
    """
    files, folders = _names(folder)
    if any(IDX_IMAGES.fullmatch(n) for n in files):
        return "idx"
    deeper = [n for n in folders if n.lower() in {"data", *SPLIT_WORDS}]
    suffixes = {suffix_of(n) for n in files}
    flat = len(deeper) == len(folders)
    for name in deeper:
        inner, below = _names(folder / name)
        suffixes |= {suffix_of(n) for n in inner}
        flat = flat and not below
    if flat and not suffixes & IMAGES:
        for suffix, kind in (("tar", "webdataset"), ("parquet", "parquet")):
            if suffix in suffixes:
                return kind
    return "folder"


def _kind_of_prefix(url: str) -> str:
    """webdataset or parquet when such objects, and neither images nor folders, lie directly under the prefix."""
    if not url.startswith("s3://"):  # the source itself says what can be read
        return "bucket"
    names = open_store(url).names("")
    suffixes = {suffix_of(n) for n in names}
    if "" not in suffixes and not suffixes & IMAGES:
        for suffix, kind in (("tar", "webdataset"), ("parquet", "parquet")):
            if suffix in suffixes:
                return kind
    return "bucket"


def _names(folder: Path) -> tuple[list[str], list[str]]:
    """(files, folders) directly in a folder, without the hidden ones."""
    with os.scandir(folder) as listing:
        found = [(item.name, item.is_dir()) for item in listing if not item.name.startswith(".")]
    return [n for n, is_folder in found if not is_folder], [n for n, is_folder in found if is_folder]
