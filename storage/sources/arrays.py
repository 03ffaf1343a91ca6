"""idx arrays (the MNIST family) as a source: each element becomes a PNG."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.sources.base import Input, InputError, Source
from sevenfold.storage.sources.columns import class_name, class_names

IDX_IMAGES = re.compile(r"(?P<stem>.+)-images[-.]idx3-ubyte(\.gz)?")
"""What a file of images is called."""


class IdxSource(Source):
    """idx arrays (the MNIST family): `<stem>-images-idx3-ubyte[.gz]` beside `<stem>-labels-idx1-ubyte[.gz]`.

    The root is one images file or a folder of them; with a folder, stems train and t10k are the splits train and
    test. Labels take their names from a `classes.txt` beside them (one per line), else they are the numbers. Each
    image becomes a PNG with stored deflate blocks, whose bytes do not depend on a compressor's release.
    """

    kind = "idx"

    @property
    def _folder(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    @cached_property
    def _arrays(self) -> dict[str, tuple[np.ndarray, np.ndarray | None, float]]:
        from sevenfold.storage.idx import read_idx

        found = {}
        for path in sorted(self._folder.iterdir()) if self.path.is_dir() else [self.path]:
            match = IDX_IMAGES.fullmatch(path.name)
            if not match:
                continue
            images = read_idx(path)
            labels = None
            for suffix in ("-labels-idx1-ubyte.gz", "-labels-idx1-ubyte"):
                beside = self._folder / (match["stem"] + suffix)
                if beside.exists():
                    labels = read_idx(beside)
                    break
            if images.ndim != 3 or (labels is not None and labels.shape != images.shape[:1]):
                raise SevenfoldError(
                    f"images of shape {images.shape}, labels of shape {None if labels is None else labels.shape}",
                    where=str(path),
                    expected="[n, height, width] and [n]",
                )
            found[match["stem"]] = (images, labels, path.stat().st_mtime)
        return found

    def _list(self) -> Iterator[Input]:
        names = class_names(self._folder)
        splits = {"train": "train", "t10k": "test", "test": "test"} if self.path.is_dir() else {}
        for stem, (images, labels, modified) in self._arrays.items():
            for i in range(len(images)):
                name = None if labels is None else class_name(int(labels[i]), names)
                yield Input(f"{stem}#{i:08d}", name, splits.get(stem), images[i].nbytes, modified)

    def read(self, path: str) -> bytes:
        """See Source.read."""
        from sevenfold.storage.png import encode_png

        stem, number = path.rsplit("#", 1)
        try:
            return encode_png(self._arrays[stem][0][int(number)])
        except (KeyError, IndexError):
            raise InputError("unreadable", "the arrays have no such image any more") from None
