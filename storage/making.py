"""Making the shards of a variant: threads decode and encode a few chunks ahead of the writing, in order.

What is written is noted in hidden files, so that the next try goes on where a killed one stopped.
"""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage.canonical import canonical_json, digest_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.keys import shard_key, variants_folder
from sevenfold.storage.progress import Progress
from sevenfold.storage.recipe import Slot, encode
from sevenfold.storage.shards import Sample, Written, write_shards
from sevenfold.storage.store import Store
from sevenfold.storage.variants import index_of, readable

CHUNK = 64
CHUNK_BYTES = 4 << 20
"""Images that a thread makes at once, and the bytes of their pixels: enough to hide the hand-over, little memory."""

NOTE_SECONDS = 2.0
"""What is written is noted about this often: a kill costs no more, and a shorter run notes nothing."""

_NOTE = re.compile(r"\.part-(?P<key>[0-9a-f]{24})-[0-9]{8}\.json")


@dataclass(frozen=True)
class Part:
    """What became of a slot: its shard's digest (None: nothing in it decodes) and, of each row, the place in it.

    `offsets`, `sizes` : int64 [rows], -1 where the shard has nothing of it.
    """

    digest: str | None
    bytes: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def samples(self) -> int:
        """How many it holds."""
        return sum(o >= 0 for o in self.offsets)


class Work:
    """Makes the shards of some slots, in order, and notes those that are done."""

    def __init__(
        self, store: Store, content: str, recipe: Mapping[str, Any], slots: list[Slot], threads: int, report: Progress
    ) -> None:
        self.store, self.recipe, self.slots, self.threads, self.report = store, recipe, slots, threads, report
        self.folder, self.key = variants_folder(content), digest_json([recipe, content, [s.of for s in slots]])[:24]
        self.total, self.done, self.remark = sum(s.rows.num_rows for s in slots), 0, ""
        self.chunk = min(CHUNK, max(1, CHUNK_BYTES // (recipe["size"] ** 2 * recipe["channels"])))

    def run(self, others: Mapping[str, Part]) -> list[Part]:
        """A part for each slot; those that an earlier try noted, and whose shards are there, are not made again.

        `others` : what other variants of the recipe have, by the digest of what decides a shard.
        """
        parts = {i: others[s.of] for i, s in enumerate(self.slots) if s.of in others} | self._noted()
        parts = {i: p for i, p in parts.items() if p.digest is None or self.store.renew(shard_key(p.digest))}
        self.done = sum(self.slots[i].rows.num_rows for i in parts)
        self.remark = f", {self.done:,} made before" if self.done else ""
        self._tell(0)
        todo = [i for i in range(len(self.slots)) if i not in parts]
        kept: list[list[int]] = [[] for _ in todo]
        fresh: dict[int, Part] = {}
        since = time.monotonic()
        with ThreadPoolExecutor(self.threads) as pool:
            made = self._encoded(pool, [self.slots[i] for i in todo])
            runs = groupby(made, key=lambda m: m[0])
            groups = (self._samples(run, kept[at]) for at, run in runs)
            for i, keep, shard in zip(todo, kept, write_shards(self.store, groups), strict=True):
                parts[i] = fresh[i] = _part(self.slots[i], keep, shard)
                if time.monotonic() - since > NOTE_SECONDS:
                    self._note(fresh)
                    fresh, since = {}, time.monotonic()
        return [parts[i] for i in range(len(self.slots))]

    def _encoded(self, pool: ThreadPoolExecutor, slots: list[Slot]) -> Iterator[tuple[int, int, Sample | None]]:
        """(slot's number among these, row, sample or None) in order, made by the pool a few chunks ahead."""
        chunks = (
            (at, first, slot.rows.slice(first, self.chunk))
            for at, slot in enumerate(slots)
            for first in range(0, slot.rows.num_rows, self.chunk)
        )
        ahead: deque[tuple[int, int, Future[list[Sample | None]]]] = deque()
        for at, first, rows in chunks:
            ahead.append((at, first, pool.submit(encode, self.store, rows, self.recipe)))
            if len(ahead) > 2 * self.threads + 1:
                yield from self._unpacked(*ahead.popleft())
        while ahead:
            yield from self._unpacked(*ahead.popleft())

    def _unpacked(
        self, at: int, first: int, made: Future[list[Sample | None]]
    ) -> Iterator[tuple[int, int, Sample | None]]:
        samples = made.result()
        yield from ((at, first + i, sample) for i, sample in enumerate(samples))
        self._tell(len(samples))

    def _tell(self, more: int) -> None:
        self.done += more
        self.report(self.done, self.total, f"materialising{self.remark}")

    def _samples(self, run: Iterator[tuple[int, int, Sample | None]], keep: list[int]) -> Iterator[Sample]:
        """What there is of a slot; `keep` collects which rows that is."""
        for _, row, sample in run:
            if sample is not None:
                keep.append(row)
                yield sample

    def _note(self, parts: Mapping[int, Part]) -> None:
        text = canonical_json({str(i): asdict(part) for i, part in parts.items()})
        self.store.replace(f"{self.folder}/.part-{self.key}-{min(parts):08d}.json", text)

    def _notes(self) -> Iterator[str]:
        for entry in self.store.entries(self.folder, hidden=True):
            match = _NOTE.fullmatch(entry.key.rpartition("/")[2])
            if match and match["key"] == self.key:
                yield entry.key

    def _noted(self) -> dict[int, Part]:
        found: dict[int, Part] = {}
        for key in self._notes():
            for i, value in json.loads(self.store.read(key)).items():
                part = Part(value["digest"], value["bytes"], tuple(value["offsets"]), tuple(value["sizes"]))
                found[int(i)] = part
        return found

    def clear(self) -> None:
        """Remove the notes, now that the variant is there."""
        for key in self._notes():
            self.store.delete(key)


def _part(slot: Slot, keep: list[int], shard: Written | None) -> Part:
    offsets, sizes = (np.full(slot.rows.num_rows, -1, np.int64) for _ in range(2))
    if shard is not None:
        offsets[keep], sizes[keep] = shard.offsets, shard.sizes
    return Part(
        shard.digest if shard else None, shard.bytes if shard else 0, tuple(offsets.tolist()), tuple(sizes.tolist())
    )


def parts_of(store: Store, recipe: Mapping[str, Any], content: str) -> dict[str, Part]:
    """What the variants that other contents have by the very same recipe hold, by what decides each shard.

    A version shares most of its shards with the one before it, so that most of its variant need not be made.
    """
    found: dict[str, Part] = {}
    for variant in readable(store):
        if variant.content_id == content or variant.recipe != recipe:
            continue
        try:
            index = index_of(store, variant)
        except (SevenfoldError, OSError, pa.ArrowException):  # verification tells; here it is only of no use
            continue
        slots = index["slot"].to_numpy()
        places = [pc.fill_null(index[name], -1).to_numpy() for name in ("offset", "size")]
        for shard in variant.shards:
            start, stop = np.searchsorted(slots, (shard["slot"], shard["slot"] + 1))
            offsets, sizes = (tuple(p[start:stop].tolist()) for p in places)
            found[shard["of"]] = Part(shard["digest"], shard["bytes"], offsets, sizes)
    return found
