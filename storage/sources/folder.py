"""A folder of images, on a disk or as a prefix in a bucket: class folders, or split folders of class folders."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

from sevenfold.storage.canonical import digest_json
from sevenfold.storage.sources.base import Input, InputError, Source, check_archive, check_size, climbs, suffix_of
from sevenfold.storage.sources.blobs import bucket_error, s3_store, split_url
from sevenfold.storage.sources.further import MAX_TEXT, Further, Gathering
from sevenfold.storage.sources.layout import by_folders, is_hidden
from sevenfold.storage.store import Entry

SIDECARS = (".json", ".txt")
_IMAGES = frozenset({"jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff"})
_PIECE = 1 << 14


class FolderSource(Source):
    """Images under a folder; its sub-folders name classes, or splits and then classes.

    A .json or .txt that has the name of an image beside it is no input but that image's metadata.
    A link to a file inside the folder is read; one that leads out is set aside (`outside`), and so is a link to a
    folder (`unsupported`), since it may lead round in circles.
    """

    kind = "folder"

    @cached_property
    def _files(self) -> list[tuple[str, int, float]]:
        """(path, bytes, modified) of everything that is no folder, hidden files included."""
        found: list[tuple[str, int, float]] = []
        folders = [(os.fspath(self.root), "")]
        while folders:
            folder, prefix = folders.pop()
            try:
                items = list(os.scandir(folder))
            except OSError:  # it may not be listed: an input that cannot be read
                found.append((_text(prefix.rstrip("/")), 0, 0.0))
                continue
            for item in items:
                if item.is_dir(follow_symlinks=False):
                    folders.append((item.path, f"{prefix}{item.name}/"))
                    continue
                try:
                    status = item.stat()
                    size, modified = status.st_size, status.st_mtime
                except OSError:  # a link to nothing is an input that cannot be read, not nothing
                    size, modified = 0, 0.0
                found.append((_text(f"{prefix}{item.name}"), size, modified))
        return found

    @cached_property
    def _sidecars(self) -> dict[str, str]:
        """Path of a .json or .txt that has the name of an image beside it -> the image's path."""
        named = {p for p, _, _ in self._files if p.endswith(SIDECARS) and not is_hidden(p)}
        if not named:
            return {}
        images = {p.rpartition(".")[0]: p for p, _, _ in self._files if suffix_of(p) in _IMAGES}
        return {p: images[stem] for p in sorted(named) if (stem := p.rpartition(".")[0]) in images}

    def _list(self) -> Iterator[Input]:
        beside = self._sidecars
        return by_folders([row for row in self._files if row[0] not in beside] if beside else self._files)

    def _remarks(self) -> Iterable[str]:
        if self._sidecars:
            yield f"{len(self._sidecars):,} .json and .txt files are metadata of the images beside them"
        yield from hidden_remark(path for path, _, _ in self._files)

    @property
    def stamp(self) -> str:
        """See Source.stamp."""
        there = [row for row in self._files if row[0] in self._sidecars]
        return digest_json([list(row) for row in sorted(there)]) if there else ""

    def further(self) -> Further | None:
        """See Source.further: what a .json (an object) or .txt (`txt`) says of the image beside it."""
        gathering = Gathering()
        rows: dict[str, dict[str, Any]] = {}

        def gather() -> None:
            names = dict.fromkeys(name for row in rows.values() for name in row)
            gathering.add([*rows], {name: [row.get(name) for row in rows.values()] for name in names})
            rows.clear()

        for path, image in self._sidecars.items():
            if image not in rows and len(rows) >= _PIECE:  # both sidecars of an image are next to each other
                gather()
            rows.setdefault(image, {}).update(self._said(path))
        if rows:
            gather()
        return gathering.finish()

    def _said(self, path: str) -> dict[str, Any]:
        try:
            text = self.read(path).decode()
            value = {"txt": text.strip()[:MAX_TEXT]} if path.endswith(".txt") else json.loads(text)
        except (InputError, ValueError, RecursionError):  # it says nothing that can be read
            return {}
        return value if isinstance(value, dict) else {}

    def read(self, path: str) -> bytes:
        """See Source.read."""
        if climbs(path):
            raise InputError("outside", "the path leads out of the folder")
        full = self.path / path
        if full.is_symlink():
            if full.is_dir():
                raise InputError("unsupported", f"a link to a folder ({_text(full.readlink())}) is not followed")
            if full.exists() and not full.resolve().is_relative_to(self.path.resolve()):
                raise InputError("outside", f"the link leads out of the folder, to {_text(full.readlink())}")
        elif full.is_dir():
            raise InputError("unreadable", "the folder may not be listed")
        check_archive(path)
        return read_file(full)


class BucketSource(Source):
    """The same layout under `s3://bucket/prefix`; objects are read one by one and never kept on a disk."""

    kind = "bucket"

    @cached_property
    def _client(self) -> tuple[Any, str]:
        """(obstore client, prefix with its slash)."""
        bucket, prefix = split_url(self.location)
        return s3_store(bucket), f"{prefix}/" if prefix else ""

    @cached_property
    def _files(self) -> list[tuple[str, int, float]]:
        found = [(e.key, e.bytes, e.modified) for e in bucket_entries(self.location)]
        # an empty object named like a folder is how some tools make folders
        folders = {path[:cut] for path, _, _ in found for cut in _slashes(path)}
        return [row for row in found if row[1] or row[0] not in folders]

    def _list(self) -> Iterator[Input]:
        return by_folders(self._files)

    def _remarks(self) -> Iterable[str]:
        return hidden_remark(path for path, _, _ in self._files)

    @property
    def at_once(self) -> int:
        """See Source.at_once: many requests are under way together."""
        return 64

    def read_many(self, paths: Sequence[str]) -> list[bytes | InputError]:
        """See Source.read_many: from threads, since a request waits more than it works."""
        with ThreadPoolExecutor(16) as pool:
            return list(pool.map(self._try, paths))

    def read(self, path: str) -> bytes:
        """See Source.read. A bucket that stops answering raises SevenfoldError: that is no fault of the input."""
        import obstore

        check_archive(path)
        client, prefix = self._client
        try:
            answer = obstore.get(client, prefix + path)
            check_size(answer.meta["size"])
            return bytes(answer.bytes())
        except FileNotFoundError:
            raise InputError("unreadable", "the bucket has no such object any more") from None
        except obstore.exceptions.PermissionDeniedError:
            raise InputError("unreadable", "the bucket does not allow this object to be read") from None
        except obstore.exceptions.BaseError as e:
            raise bucket_error(e, f"{self.location}/{path}") from None


def bucket_entries(url: str) -> list[Entry]:
    """Everything below `s3://bucket/prefix`, by key relative to it. Raises SevenfoldError when it cannot be listed."""
    s3_store(split_url(url)[0])  # says what is missing when obstore is not installed
    from obstore.exceptions import BaseError

    from sevenfold.storage.bucket import BucketStore

    try:
        return BucketStore(url).entries("", hidden=True)
    except (OSError, BaseError) as e:
        raise bucket_error(e, url) from None


def hidden_remark(paths: Iterable[str]) -> tuple[str, ...]:
    """A note on the hidden files that a listing leaves out; none when there are none."""
    hidden = sum(is_hidden(path) and not climbs(path) for path in paths)
    return (f"{hidden:,} hidden files are no inputs",) if hidden else ()


def read_file(path: Path) -> bytes:
    """The bytes of a regular file within the size limit; raises InputError for anything else."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe or a device may never end
            raise InputError("unreadable", "it is not a regular file")
        check_size(status.st_size)
        return path.read_bytes()
    except (OSError, ValueError) as e:
        detail = e.strerror if isinstance(e, OSError) else str(e)
        raise InputError("unreadable", f"{type(e).__name__}: {detail}") from None


def _text(name: str | Path) -> str:
    """A name that is no text is shown with escapes; reading it fails, so that it ends in quarantine."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _slashes(path: str) -> Iterator[int]:
    at = path.find("/")
    while at >= 0:
        yield at
        at = path.find("/", at + 1)
