"""One full decode per image: validity, size, digests, perceptual hash and properties, all from the same pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from sevenfold.storage import pixels
from sevenfold.storage.canonical import digest_bytes
from sevenfold.storage.decode import EXTENSIONS, USUAL, Accepts, Decoded, decode, quiet
from sevenfold.storage.index import LANDING, PROPERTIES
from sevenfold.storage.sources import InputError


@dataclass(frozen=True)
class Measured:
    """What one decode tells. `properties` follows index.PROPERTIES."""

    id: str
    ext: str
    bytes: int
    width: int
    height: int
    channels: int
    mode: str
    format: str
    pixel_digest: str
    phash: int
    properties: tuple[float, ...]


_COLUMNS = [f.name for f in fields(Measured) if f.name != "properties"]
MEASURED = pa.schema([LANDING.field(c) for c in _COLUMNS] + [pa.field(p, pa.float64()) for p in PROPERTIES])
"""The columns of many measurements."""


def measure(data: bytes, path: str, accepts: Accepts = USUAL) -> Measured:
    """Decode `data` whole and measure it; `path` is only read for its suffix.

    Raises InputError with the quarantine reason (see decode.decode).
    """
    table, failures = measure_many([(data, path)], accepts)
    if failures:
        raise failures[0][1]
    row = table.to_pylist()[0]
    return Measured(**{c: row[c] for c in _COLUMNS}, properties=tuple(row[p] for p in PROPERTIES))


def measure_many(
    inputs: Iterable[tuple[bytes | InputError, str]], accepts: Accepts = USUAL
) -> tuple[pa.RecordBatch, list[tuple[int, InputError]]]:
    """Measure (bytes, path) pairs; an InputError in place of the bytes is passed on.

    Returns (rows of MEASURED for those that could be measured, in order; the others as (position, why)).
    """
    columns = _Columns()
    failures: list[tuple[int, InputError]] = []
    with quiet():
        for position, (data, path) in enumerate(inputs):
            try:
                if isinstance(data, InputError):
                    raise data
                columns.add(data, decode(data, path, accepts=accepts))
            except InputError as e:
                failures.append((position, e))
    return columns.finish(), failures


class _Columns:
    """Collects rows; the numbers are computed per shape once enough pixels have gathered."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, int, int, int, int, str, str, str]] = []
        self.phash: dict[int, int] = {}
        self.properties: dict[int, np.ndarray] = {}
        self.waiting: dict[tuple[int, ...], list[tuple[int, np.ndarray]]] = {}
        self.gathered = 0

    def add(self, data: bytes, decoded: Decoded) -> None:
        array = np.ascontiguousarray(decoded.pixels)
        height, width = array.shape[:2]
        channels = 1 if array.ndim == 2 else 3
        h = hashlib.sha256(b"%s %d %d " % (b"L" if channels == 1 else b"RGB", width, height))
        h.update(array.data)
        ext = EXTENSIONS[decoded.format]
        self.waiting.setdefault(array.shape, []).append((len(self.rows), array))
        self.rows.append(
            (digest_bytes(data), ext, len(data), width, height, channels, decoded.mode, decoded.format, h.hexdigest())
        )
        self.gathered += height * width
        if self.gathered >= pixels.STRIP:
            self.compute()

    def compute(self) -> None:
        for group in self.waiting.values():
            places = [place for place, _ in group]
            images = np.stack([a for _, a in group]) if len(group) > 1 else group[0][1][None]
            small = pixels.reduced(images)
            grey = pixels.grey_of(small)
            sizes = np.array([self.rows[place][2] for place in places], np.int64)
            self.phash.update(zip(places, pixels.phash(grey).tolist(), strict=True))
            self.properties.update(zip(places, pixels.properties(images, small, grey, sizes), strict=True))
        self.waiting.clear()
        self.gathered = 0

    def finish(self) -> pa.RecordBatch:
        self.compute()
        n = len(self.rows)
        measured = list(zip(*self.rows, strict=True)) if n else [()] * (len(_COLUMNS) - 1)
        table = np.stack([self.properties[i] for i in range(n)]) if n else np.zeros((0, len(PROPERTIES)))
        columns = [*measured, [self.phash[i] for i in range(n)], *np.ascontiguousarray(table.T)]
        return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, MEASURED, strict=True)], schema=MEASURED)
