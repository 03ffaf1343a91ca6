"""Twins of a lake's samples: descriptors made once and kept, all pairs of a version, and one picture looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality.twins_confirm import ALONE, Aligned, align, alike, likely, score_of
from sevenfold.quality.twins_describe import PRODUCER, SIDE, THUMB, WIDTH, Described, describe, small
from sevenfold.quality.twins_grid import SHOWN, pair_grid
from sevenfold.quality.twins_index import NEAREST, TwinIndex
from sevenfold.quality.twins_pairs import Twins, find_twins, leaks, words_of
from sevenfold.storage.decode import accepted_pixels
from sevenfold.storage.descriptors import add_descriptors, read_descriptors
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.lake import Lake
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.project import Project

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("vector", pa.binary(WIDTH)),
        ("thumb", pa.binary(THUMB * THUMB)),
        ("hash", pa.int64()),
        ("mirrored_hash", pa.int64()),
    ]
)
"""A kept descriptor (see quality.twins_describe): int8 and uint8 numbers as bytes."""

BLOCK = 1024
"""Pictures that are read and described at once."""


@dataclass(frozen=True)
class Kept:
    """The descriptors of some samples, in their order, and how many of them had to be made."""

    described: Described
    made: int


@dataclass(frozen=True)
class Match:
    """A stored sample that shows the picture asked about. `transform`: what was done to it, in a few words."""

    id: str
    split: str
    path: str | None
    score: float
    transform: str


def described(lake: Lake, dataset: str, samples: pa.Table, *, progress: Progress = silent) -> Kept:
    """Descriptors of a version's samples (index.SAMPLES): those that are kept, and the others made and kept.

    Raises SevenfoldError when a picture cannot be read.
    """
    ids = samples["id"].combine_chunks()
    kept = [SCHEMA.empty_table(), *read_descriptors(lake.store, PRODUCER, dataset, SCHEMA)]
    table = pa.concat_tables(kept).combine_chunks()
    lacking = samples.filter(pc.invert(pc.is_in(ids, value_set=table["id"].combine_chunks())))
    if lacking.num_rows:
        table = pa.concat_tables([table, *_make(lake, dataset, lacking, progress)]).combine_chunks()
    place = pc.index_in(ids, value_set=table["id"].combine_chunks())
    same = table.num_rows == len(ids) and table["id"].combine_chunks().equals(ids)
    return Kept(_unpacked(table if same else table.take(place)), lacking.num_rows)


def twins(lake: Lake, project: Project, ref: str = "main", *, progress: Progress = silent) -> Twins:
    """All pairs and groups of a version's twins, by the project's policy."""
    from sevenfold.assets.judging import policy_of

    samples = lake.samples(project.dataset, ref)
    kept = described(lake, project.dataset, samples, progress=progress)
    reader = small_reader(lake, samples)
    return find_twins(samples, reader, policy=policy_of(project).veracity, described=kept.described, progress=progress)


def cross_split(lake: Lake, project: Project, ref: str = "main", *, progress: Progress = silent) -> pa.Table:
    """Samples that show a picture of val or test in another split (quality.twins_pairs.leaks)."""
    return leaks(twins(lake, project, ref, progress=progress))


@dataclass(frozen=True)
class Finder:
    """A version opened for questions: is this picture in already? Open once, ask often."""

    index: TwinIndex
    samples: pa.Table
    read: Callable[[Sequence[str]], np.ndarray]
    least: float

    @staticmethod
    def open(lake: Lake, project: Project, ref: str = "main", *, progress: Progress = silent) -> Finder:
        """Read (or make) the descriptors of a version."""
        from sevenfold.assets.judging import policy_of

        samples = lake.samples(project.dataset, ref)
        kept = described(lake, project.dataset, samples, progress=progress)
        return Finder(
            TwinIndex.of(kept.described),
            samples,
            small_reader(lake, samples),
            policy_of(project).veracity.min_twin_score,
        )

    def find(self, data: bytes, path: str = "") -> list[Match]:
        """The samples that show the picture in an image file's bytes, the best first.

        Raises SevenfoldError for bytes that are no image.
        """
        picture = picture_of(data, path)[None]
        asked = describe(picture)
        near = self.index.near(asked)
        rows, mirrored = near.second, near.mirrored
        thumbs = np.concatenate([asked.thumbs, self.index.described.thumbs[rows]])
        worth = likely(thumbs, np.zeros(len(rows), int), np.arange(1, len(rows) + 1), mirrored)
        rows, mirrored = rows[worth], mirrored[worth]
        if not len(rows):
            return []
        chosen = self.samples.take(pa.array(rows)).select(["id", "split", "path"]).to_pylist()
        pixels = self.read([c["id"] for c in chosen])
        aligned = align(np.repeat(picture, len(rows), axis=0), pixels, mirrored)
        scores = score_of(aligned.brightness, aligned.edges, _crowd(aligned))
        words = words_of(aligned, mirrored)
        equal = (pixels == picture).all((1, 2, 3))
        best: dict[str, Match] = {}
        for i in np.argsort(-(scores + equal), kind="stable"):
            if scores[i] >= self.least or equal[i]:
                score = 1.0 if equal[i] else float(scores[i])
                match = Match(**chosen[i], score=score, transform="equal pixels" if equal[i] else words[i])
                best.setdefault(match.id, match)
        return list(best.values())


def _crowd(aligned: Aligned) -> float:
    """What surrounds a picture that was asked about, by its neighbours alone: the nearest that is not alike.

    Where more than half of those that are looked at are alike they are a crowd, and the second of them counts.
    """
    residuals, same = np.sort(1 - aligned.edges), alike(aligned)
    if same.sum() > NEAREST // 2:
        return float(residuals[1])
    return float(np.min((1 - aligned.edges)[~same], initial=ALONE))


def find(lake: Lake, project: Project, file: Path, ref: str = "main") -> list[Match]:
    """The samples of a version that show the picture in a file, the best first."""
    return Finder.open(lake, project, ref).find(read_file(file), file.name)


def read_file(file: Path) -> bytes:
    """A file's bytes. Raises SevenfoldError."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise SevenfoldError(f"the file cannot be read: {error.strerror}", where=str(file)) from None


def listed(found: Twins, *, across: bool = False) -> pa.Table:
    """Pairs (PAIRS) with their `group`, those across splits first, then by score; `across`: only what leaks."""
    pairs = leaks(found) if across else found.pairs
    apart = pc.not_equal(pairs["keep_split"], pairs["exclude_split"])
    group = found.groups["group"].take(pc.index_in(pairs["keep"], value_set=found.groups["id"].combine_chunks()))
    order = [("apart", "descending"), ("score", "descending"), ("keep", "ascending"), ("exclude", "ascending")]
    return pairs.append_column("apart", apart).append_column("group", group).sort_by(order).drop_columns("apart")


def counts(pairs: pa.Table) -> dict[str, int]:
    """How many pairs are listed, in how many groups, of how many samples."""
    everyone = pa.chunked_array([*pairs["keep"].chunks, *pairs["exclude"].chunks], pa.string())
    return {
        "pairs": pairs.num_rows, "groups": len(pc.unique(pairs["group"])), "samples": len(pc.unique(everyone)),
    }  # fmt: skip


def grid(lake: Lake, samples: pa.Table, pairs: pa.Table, *, most: int = SHOWN) -> bytes:
    """A PNG of the first pairs (quality.twins_pairs.PAIRS) with score and transform beneath."""
    shown = pairs.slice(0, most)
    read = small_reader(lake, samples)
    first, second = (read(shown[column].to_pylist()) for column in ("keep", "exclude"))
    scores, transforms = shown["score"].to_pylist(), shown["transform"].to_pylist()
    return pair_grid(first, second, [f"{s or 0:.3f} {t}" for s, t in zip(scores, transforms, strict=True)])


def small_reader(lake: Lake, samples: pa.Table) -> Callable[[Sequence[str]], np.ndarray]:
    """ids -> uint8 [n, 32, 32, 3]: a version's pictures at the size in which they are compared."""
    ids = samples["id"].combine_chunks()
    places = samples.select(["id", "shard", "offset", "size"])

    def read(wanted: Sequence[str]) -> np.ndarray:
        return _pictures(lake, places.take(pc.index_in(pa.array(wanted, pa.string()), value_set=ids)))

    return read


def picture_of(data: bytes, path: str = "") -> np.ndarray:
    """uint8 [32, 32, 3] of an image file. Raises SevenfoldError for what is none."""
    return small(accepted_pixels(data, path))


def keep(lake: Lake, dataset: str, batch: str, ids: pa.ChunkedArray, made: Described) -> pa.Table:
    """Keep descriptors of some samples of a batch, beside those that are there; returns them as SCHEMA."""
    table = _packed(ids, made)
    add_descriptors(lake.store, PRODUCER, dataset, batch, table)
    return table


def _make(lake: Lake, dataset: str, samples: pa.Table, progress: Progress) -> Iterator[pa.Table]:
    """Describe samples and keep that, batch by batch, so that a killed run has lost one batch at most."""
    done = 0
    for batch in pc.unique(samples["batch"]).to_pylist():
        mine = samples.filter(pc.equal(samples["batch"], batch)).sort_by(
            [("shard", "ascending"), ("offset", "ascending")]
        )
        parts = []
        for start in range(0, mine.num_rows, BLOCK):
            progress(done + start, samples.num_rows, "describing pictures")
            parts.append(describe(_pictures(lake, mine.slice(start, BLOCK))))
        done += mine.num_rows
        yield keep(lake, dataset, batch, mine["id"], Described.joined(parts))


def _pictures(lake: Lake, places: pa.Table) -> np.ndarray:
    pixels = np.empty((places.num_rows, SIDE, SIDE, 3), np.uint8)
    for i, (data, key) in enumerate(zip(lake.read_images(places), places["id"].to_pylist(), strict=True)):
        pixels[i] = picture_of(data, key)
    return pixels


def _packed(ids: pa.ChunkedArray, described: Described) -> pa.Table:
    n = len(described)
    raw = (pa.py_buffer(np.ascontiguousarray(x).tobytes()) for x in (described.vectors, described.thumbs))
    fixed = [
        pa.Array.from_buffers(pa.binary(w), n, [None, b]) for w, b in zip((WIDTH, THUMB * THUMB), raw, strict=True)
    ]
    return pa.table(
        [ids.combine_chunks(), *fixed, pa.array(described.hashes), pa.array(described.mirrored)], schema=SCHEMA
    )


def _unpacked(table: pa.Table) -> Described:
    def numbers(name: str, width: int, kind: type) -> np.ndarray:
        column = table[name].combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], SCHEMA.field(name).type)
        if not len(column):
            return np.zeros((0, width), kind)
        return np.frombuffer(column.buffers()[1], kind, len(column) * width, column.offset * width).reshape(-1, width)

    return Described(
        numbers("vector", WIDTH, np.int8), numbers("thumb", THUMB * THUMB, np.uint8),
        table["hash"].to_numpy(), table["mirrored_hash"].to_numpy(),
    )  # fmt: skip
