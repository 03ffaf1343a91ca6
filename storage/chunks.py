"""What a landing has measured so far, kept in hidden files so that the next try goes on where a killed one stopped.

A part holds the rows of some successive chunks of one source. It is named by what the rows depend on (the source's
fingerprint, the definitions, the decoders), carries its own digest and is a cache: one that is damaged is not used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import PIL
import pyarrow as pa
import simplejpeg

from sevenfold.storage.canonical import canonical_json, digest_bytes, digest_json
from sevenfold.storage.decode import USUAL, Accepts
from sevenfold.storage.measure import MEASURED
from sevenfold.storage.signals import MEASURE
from sevenfold.storage.sources import Input, Source
from sevenfold.storage.store import Entry, Store

CHUNK = 256
"""Inputs per unit of work at most: enough to hide the hand-over between processes, few enough for live progress."""

CHUNK_BYTES = 8 << 20
"""Bytes per unit of work, unless one input has more: 75 photographs."""

PLACED = MEASURED.append(pa.field("input", pa.int64()))
"""The columns of many measurements with `input`, the place among the source's inputs."""

_PART = re.compile(r"\.landing-(?P<key>[0-9a-f]{24})-(?P<first>[0-9]{8})-(?P<last>[0-9]{8})\.arrow")
_FAILURES = b"failures"


@dataclass(frozen=True)
class Part:
    """Measurements of the chunks [first, last): rows of PLACED, and (place, reason, detail) of the other inputs."""

    first: int
    last: int
    rows: pa.Table
    failures: list[tuple[int, str, str]]


def cut(inputs: Sequence[Input]) -> list[tuple[int, int]]:
    """The units of work as [start, stop) among the inputs: CHUNK inputs, or fewer whose bytes reach CHUNK_BYTES."""
    spans, start, size = [], 0, 0
    for place, item in enumerate(inputs, start=1):
        size += item.bytes
        if place - start == CHUNK or size >= CHUNK_BYTES or place == len(inputs):
            spans.append((start, place))
            start, size = place, 0
    return spans


class Kept:
    """The parts of one landing: of one source, of one dataset, by the definitions and decoders of this release."""

    def __init__(self, store: Store, dataset: str, source: Source, accepts: Accepts = USUAL) -> None:
        decoders = [PIL.__version__, simplejpeg.__version__]
        what = [source.kind, source.location, source.fingerprint, MEASURE, str(PLACED), CHUNK, CHUNK_BYTES, decoders]
        what.append(accepts.changed())
        self._store, self._folder, self._key = store, f"batches/{dataset}", digest_json(what)[:24]

    def read(self) -> list[Part]:
        """What is there and whole, in order; no chunk is in two parts."""
        parts: list[Part] = []
        for first, last, key in sorted(self._names()):
            if parts and first < parts[-1].last:
                continue
            try:
                part = _unpack(first, last, self._store.read(key))
            except FileNotFoundError:  # another landing of this source has ended meanwhile
                continue
            if part is not None:
                parts.append(part)
        return parts

    def add(self, part: Part) -> None:
        """Keep a part: whole or not at all."""
        name = f".landing-{self._key}-{part.first:08d}-{part.last:08d}.arrow"
        self._store.replace(f"{self._folder}/{name}", _pack(part))

    def clear(self) -> None:
        """Remove all of them, now that the batch is recorded."""
        for _, _, key in self._names():
            self._store.delete(key)

    def _names(self) -> list[tuple[int, int, str]]:
        matches = ((_PART.fullmatch(e.key.rpartition("/")[2]), e.key) for e in _hidden(self._store, self._folder))
        return [(int(m["first"]), int(m["last"]), key) for m, key in matches if m and m["key"] == self._key]


def _hidden(store: Store, folder: str) -> list[Entry]:
    return [e for e in store.entries(folder, hidden=True) if e.key.rpartition("/")[2].startswith(".")]


def _pack(part: Part) -> bytes:
    sink = pa.BufferOutputStream()
    rows = part.rows.replace_schema_metadata({_FAILURES: canonical_json(part.failures)}).combine_chunks()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    body = sink.getvalue().to_pybytes()
    return digest_bytes(body).encode() + body


def _unpack(first: int, last: int, data: bytes) -> Part | None:
    digest, body = data[:64], memoryview(data)[64:]
    if digest != digest_bytes(body).encode():
        return None
    with pa.ipc.open_file(pa.py_buffer(body)) as reader:
        rows = reader.read_all()
    failures = [(place, reason, detail) for place, reason, detail in json.loads(rows.schema.metadata[_FAILURES])]
    return Part(first, last, rows.replace_schema_metadata(None), failures)
