"""What the loader benchmark reads: class folders of JPEGs, and each loader's own files made from them; cold or warm."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Runs one task of one loader in a process of its own: (loader, spec) -> what it printed."""


@dataclass(frozen=True)
class Images:
    """One set of images and how it is loaded."""

    name: str
    folder: Path
    samples: int
    side: int
    """Of the decoded square; the small ones have it already."""
    batch: int
    buffer: int
    """Samples of webdataset's shuffle buffer."""
    shard_bytes: int

    @property
    def files(self) -> Path:
        """The class folders."""
        return self.folder / "files/train"

    def store(self, loader: str) -> Path:
        """Where a loader's own files lie; webdataset reads the lake's tars, by a list of them."""
        names = {"files": "files/train", "bare": "files/train", "webdataset": "urls.json"}
        return self.folder / names.get(loader, loader)

    def read_by(self, loader: str) -> list[Path]:
        """The files a loader reads, whose pages are dropped before a cold run."""
        found = self.store("ours" if loader == "webdataset" else loader)
        return [p for p in found.rglob("*") if p.is_file()]


def small(folder: Path, source: Path, samples: int) -> Images:
    """The first images of each class folder of train/ in a zip."""
    images = Images("small", folder / "small", samples, 32, 256, 2000, 420 * samples)
    if not images.folder.exists():
        with zipfile.ZipFile(source) as z:
            names = sorted(n for n in z.namelist() if n.startswith("train/") and n.endswith(".jpg"))
            by_number = sorted(names, key=lambda n: n.rsplit("/", 1)[1])  # as many of each class
            _write(images, ((n.removeprefix("train/"), z.read(n)) for n in by_number[:samples]))
    return images


def photos(folder: Path, source: Path, samples: int) -> Images:
    """The JPEGs of a folder, repeated with a comment of their own so that their bytes differ, in ten classes."""
    images = Images("photos", folder / "photos", samples, 224, 64, 200, 16_000 * samples)
    if not images.folder.exists():
        given = sorted(p for p in source.iterdir() if p.suffix.lower() in (".jpg", ".jpeg"))

        def repeated() -> Iterator[tuple[str, bytes]]:
            for i in range(samples):
                data = given[i % len(given)].read_bytes()
                yield f"class-{i % len(given) % 10}/{i:05d}.jpg", _with_comment(data, f"copy {i // len(given)}")

        _write(images, repeated())
    return images


def _write(images: Images, files: Iterator[tuple[str, bytes]]) -> None:
    for name, data in files:
        path = images.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _with_comment(jpeg: bytes, text: str) -> bytes:
    """The same image with a COM segment after the first marker segments' start (SOI)."""
    comment = text.encode()
    return jpeg[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + jpeg[2:]


def prepare(images: Images, loaders: tuple[str, ...], ask: Ask) -> None:
    """Let each loader write its own files, once, and see them on disk, so that their pages can be dropped."""
    for loader in loaders:
        store = images.store(loader)
        if loader in ("files", "webdataset") or store.exists():
            continue
        about = {"urls": str(images.store("webdataset")), "about": str(images.folder / "about.json")}
        spec = {"store": str(store), "files": str(images.files), "shard_bytes": images.shard_bytes, **about}
        if loader == "ours":
            spec["files"] = str(images.files.parent)  # the folder above is the split's name
        ask(loader, {"task": "prepare", **spec})
    os.sync()
    found = json.loads((images.folder / "about.json").read_text())
    if found["samples"] != images.samples:
        raise SystemExit(f"{images.name}: the lake has {found['samples']} samples, {images.samples} were written")


def drop_pages(files: list[Path]) -> float:
    """Ask the kernel to forget the files' pages; returns the share of them that is resident afterwards."""
    for path in files:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
    looked = files if len(files) <= 500 else files[:: len(files) // 500]
    pages = [resident(path) for path in looked]
    return sum(p[0] for p in pages) / max(sum(p[1] for p in pages), 1)


def resident(path: Path) -> tuple[int, int]:
    """(pages in memory, pages) of a file, by mincore."""
    size = path.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    if not pages:
        return 0, 0
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    handle = os.open(path, os.O_RDONLY)
    try:
        at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, handle, 0)
    finally:
        os.close(handle)
    if at in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), f"cannot map {path}")
    seen = ctypes.create_string_buffer(pages)
    try:
        if libc.mincore(at, size, seen):
            raise OSError(ctypes.get_errno(), f"mincore of {path}")
    finally:
        libc.munmap(at, size)
    return sum(b & 1 for b in seen.raw[:pages]), pages
