"""Twins: samples that show the same picture, exactly or nearly. Candidates from several sources, one confirmation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality.context import ReadPixels
from sevenfold.quality.policy import Veracity
from sevenfold.quality.twins_confirm import Aligned, align, alike, crowds, likely, score_of
from sevenfold.quality.twins_describe import SIDE, Described, describe, mirror_signs, small
from sevenfold.quality.twins_groups import both_ways, components, within_groups
from sevenfold.quality.twins_search import Candidates, close_hashes, neighbours
from sevenfold.storage.embeddings import Embeddings
from sevenfold.storage.progress import Progress, silent

RANK = {"test": 0, "val": 1, "train": 2, "pool": 3}
"""Which twin stays when two splits share a picture: the lower rank; the other should be excluded.

Twins of train and pool are no leak: nothing is tested on either.
"""

PAIRS = pa.schema(
    [
        ("keep", pa.string()),
        ("keep_split", pa.string()),
        ("exclude", pa.string()),
        ("exclude_split", pa.string()),
        ("kind", pa.string()),
        ("score", pa.float64()),
        ("mirrored", pa.bool_()),
        ("transform", pa.string()),
    ]
)
"""`keep` comes first by split (:data:`RANK`), then by id. kind: exact (equal pixels) | near (confirmed on pixels) |
candidate (near by hash; there were no pixels to confirm on). `score` is 0 to 1, null of a candidate.
"""

GROUPS = pa.schema([("id", pa.string()), ("split", pa.string()), ("group", pa.string())])
"""Samples that have a twin; `group` is the id of the one that stands for all that are linked by pairs."""

BLOCK = 4096
"""Pictures that are read at once."""

SPAN = 16 * BLOCK
"""Pairs whose pictures are held together, each read once: 400 MB at most."""


@dataclass(frozen=True)
class Twins:
    """All pairs (PAIRS) and groups (GROUPS) of some samples."""

    pairs: pa.Table
    groups: pa.Table


def describe_all(ids: pa.Array | pa.ChunkedArray, read_pixels: ReadPixels, progress: Progress = silent) -> Described:
    """Descriptors of some samples, in their order, read block by block."""
    parts = []
    for start in range(0, len(ids), BLOCK // 4):
        progress(start, len(ids), "describing pictures")
        parts.append(describe(_read(ids.slice(start, BLOCK // 4), read_pixels)))
    return Described.joined(parts)


def find_twins(
    rows: pa.Table,
    read_pixels: ReadPixels | None,
    *,
    policy: Veracity,
    described: Described | None = None,
    embeddings: Embeddings | None = None,
    progress: Progress = silent,
) -> Twins:
    """Every pair of twins among some samples, and their groups; the order of the rows makes no difference.

    Parameters
    ----------
    rows : id, split, pixel_digest, and phash where there is no reader.
    read_pixels : reads the pictures that have to be looked at; without it near twins are candidates by hash alone.
    described : the descriptors of the rows, in their order; made with the reader when None.
    embeddings : of the samples or some of them: their neighbours are candidates too.
    """
    splits = rows["split"].combine_chunks().dictionary_encode()
    ranks = np.array([RANK.get(s, 9) for s in splits.dictionary.to_pylist()] or [0])
    rank = ranks[splits.indices.to_numpy(zero_copy_only=False)]
    order = pc.sort_indices(
        pa.table({"rank": rank, "id": rows["id"]}), [("rank", "ascending"), ("id", "ascending")]
    ).to_numpy()
    table = rows.select(["id", "split"]).take(order).combine_chunks()
    digests = rows["pixel_digest"].take(order).combine_chunks().dictionary_encode().indices
    _, first, node = np.unique(digests.to_numpy(zero_copy_only=False), return_index=True, return_inverse=True)
    stands = np.sort(first)  # the rows that stand for their copies, in canonical order
    copies = np.flatnonzero(first[node] != np.arange(len(order)))
    exact = _table(table, first[node[copies]], copies, "exact", None, np.zeros(len(copies), bool))
    if read_pixels is None:
        close = close_hashes(rows["phash"].to_numpy()[order[stands]], np.zeros(0, np.int64), policy.max_hash_bits)
        near = _table(table, stands[close.first], stands[close.second], "candidate", None, close.mirrored)
    else:
        ids = table["id"].take(stands)
        mine = described.take(order[stands]) if described is not None else describe_all(
            ids, read_pixels, progress
        )  # fmt: skip
        found, aligned = confirmed(mine, ids, read_pixels, policy.min_twin_score, embeddings, progress)
        near = _table(table, stands[found.first], stands[found.second], "near", aligned, found.mirrored)
    pairs = pa.concat_tables([exact, near])
    return Twins(pairs, groups_of(pairs.filter(pc.not_equal(pairs["kind"], "candidate")), table))


def confirmed(
    described: Described,
    ids: pa.ChunkedArray,
    read_pixels: ReadPixels,
    least: float,
    embeddings: Embeddings | None = None,
    progress: Progress = silent,
) -> tuple[Candidates, Aligned]:
    """The near twins among pictures of different pixels, as rows of `described`, and how they lie to each other."""
    progress(0, 0, "searching for twins")
    candidates = Candidates.joined(
        [
            neighbours(described.vectors, signs=mirror_signs()),
            close_hashes(described.hashes, described.mirrored, 6),
            *_embedded(embeddings, ids),
        ]
    )
    n = len(ids)
    found, aligned = _look(candidates, described, ids, read_pixels, progress)
    more = within_groups(found.take(alike(aligned)), n)
    if len(more):
        extra, how = _look(more, described, ids, read_pixels, progress)
        columns = ("first", "second", "mirrored", "cosine")
        both = [np.concatenate([getattr(found, f), getattr(extra, f)]) for f in columns]
        found, aligned = _once(both, Aligned.joined([aligned, how]))
    same = found.take(alike(aligned))
    of = components(same.first, same.second, n)
    crowd = crowds(n, found.first, found.second, aligned, of, np.bincount(of, minlength=1))
    aligned = replace(aligned, score=score_of(aligned.brightness, aligned.edges, crowd))
    sure = aligned.score >= least
    return found.take(sure), aligned.take(sure)


def groups_of(pairs: pa.Table, samples: pa.Table) -> pa.Table:
    """The connected components of pairs as GROUPS, ordered by group; `samples`: id, split in canonical order."""
    everyone = samples["id"].combine_chunks()
    a, b = (
        pc.index_in(pairs[c].combine_chunks(), everyone).to_numpy(zero_copy_only=False) for c in ("keep", "exclude")
    )
    linked = np.unique(np.concatenate([a, b]).astype(np.int64))
    if not len(linked):
        return GROUPS.empty_table()
    component = components(np.searchsorted(linked, a), np.searchsorted(linked, b), len(linked))
    _, leader = np.unique(component, return_index=True)  # the first in canonical order
    order = np.argsort(leader[component], kind="stable")
    chosen = samples.take(pa.array(linked[order]))
    return pa.table(
        [chosen["id"], chosen["split"], everyone.take(pa.array(linked[leader[component]][order]))], schema=GROUPS
    )


def leaks(twins: Twins) -> pa.Table:
    """One row of PAIRS for each sample that shows a picture of a split of lower :data:`RANK`, test or val.

    Beside it the keeper it resembles most: exact copies of either side count as that side. Those of train come first,
    then those of the pool, then unconfirmed ones; each by score.
    """
    import duckdb

    ranks = pa.table({"split": list(RANK), "rank": pa.array(RANK.values(), pa.int32())})
    with duckdb.connect() as connection:
        connection.register("pairs", twins.pairs)
        connection.register("ranks", ranks)
        return (
            connection.sql(
                """
            with copies as (select keep as node, exclude as id, exclude_split as split from pairs where kind = 'exact'),
            both_ways as (
                select keep a, keep_split a_split, exclude b, exclude_split b_split, kind, score, mirrored, transform
                from pairs
                union all
                select p.keep, p.keep_split, c.id, c.split, p.kind, p.score, p.mirrored, p.transform
                from pairs p join copies c on c.node = p.exclude where p.kind <> 'exact'
                union all
                select p.exclude, p.exclude_split, c.id, c.split, p.kind, p.score, p.mirrored, p.transform
                from pairs p join copies c on c.node = p.keep where p.kind <> 'exact'),
            ranked as (
                select t.*, coalesce(x.rank, 9) as a_rank, coalesce(y.rank, 9) as b_rank
                from both_ways t left join ranks x on x.split = a_split left join ranks y on y.split = b_split)
            select a as keep, a_split as keep_split, b as exclude, b_split as exclude_split, kind, score, mirrored,
                   transform
            from ranked where a_rank < b_rank and a_rank < 2
            qualify row_number() over (
                partition by b order by kind = 'candidate', score desc nulls last, kind, a_rank, a) = 1
            order by kind = 'candidate', b_split = 'pool', score desc nulls last, kind, exclude"""
            )
            .to_arrow_table()
            .cast(PAIRS)
        )


def words_of(aligned: Aligned, mirrored: np.ndarray) -> list[str]:
    """What was done to the second picture, in a few words each: `mirrored, shifted 6 %, enlarged 8 %`."""
    words = []
    shifts = np.hypot(aligned.down, aligned.right) / SIDE
    for turned, shift, zoom in zip(mirrored.tolist(), shifts.tolist(), aligned.zoom.tolist(), strict=True):
        said = ["mirrored"] if turned else []
        said += [f"shifted {shift:.0%}"] if shift > 0 else []
        said += [f"{'enlarged' if zoom > 1 else 'reduced'} {abs(zoom - 1):.0%}"] if zoom != 1 else []
        words.append(", ".join(said) or "in place")
    return words


def _read(ids: pa.Array | pa.ChunkedArray, read_pixels: ReadPixels) -> np.ndarray:
    """uint8 [n, 32, 32, 3]; read a block at a time, since the files of photographs are large."""
    found = np.empty((len(ids), SIDE, SIDE, 3), np.uint8)
    for start in range(0, len(ids), BLOCK):
        pixels = read_pixels(ids.slice(start, BLOCK).to_pylist())
        found[start : start + BLOCK] = pixels if pixels.shape[1:3] == (SIDE, SIDE) else [small(p) for p in pixels]
    return found


def _table(
    samples: pa.Table, keep: np.ndarray, exclude: np.ndarray, kind: str, aligned: Aligned | None, mirrored: np.ndarray
) -> pa.Table:
    n = len(keep)
    low, high = pa.array(np.minimum(keep, exclude)), pa.array(np.maximum(keep, exclude))
    score = pa.nulls(n, pa.float64()) if kind == "candidate" else pa.array(np.ones(n))
    words = ["equal pixels" if kind == "exact" else "close hashes"] * n
    if aligned is not None:
        score, words = pa.array(aligned.score.astype(np.float64)), words_of(aligned, mirrored)
    columns = [
        samples["id"].take(low),
        samples["split"].take(low),
        samples["id"].take(high),
        samples["split"].take(high),
    ]
    return pa.table([*columns, pa.array([kind] * n, pa.string()), score, pa.array(mirrored), words], schema=PAIRS)


def _look(
    candidates: Candidates, described: Described, ids: pa.ChunkedArray, read_pixels: ReadPixels, progress: Progress
) -> tuple[Candidates, Aligned]:
    """Those candidates whose thumbnails agree, and how their pictures do; a span of pairs reads each picture once."""
    kept = candidates.take(likely(described.thumbs, candidates.first, candidates.second, candidates.mirrored))
    parts = []
    for begin in range(0, len(kept), SPAN):
        span = kept.take(np.arange(begin, min(begin + SPAN, len(kept))))
        wanted, place = np.unique(np.stack([span.first, span.second]), return_inverse=True)
        pixels = _read(ids.take(pa.array(wanted)), read_pixels)
        first, second = place.reshape(2, -1)
        for start in range(0, len(span), BLOCK):
            progress(begin + start, len(kept), "comparing pictures")
            some = slice(start, start + BLOCK)
            parts.append(align(pixels[first[some]], pixels[second[some]], span.mirrored[some]))
    return _once([kept.first, kept.second, kept.mirrored, kept.cosine], Aligned.joined(parts))


def _once(columns: Sequence[np.ndarray], aligned: Aligned) -> tuple[Candidates, Aligned]:
    """Each pair once, in the orientation of the higher score, ordered by rows."""
    first, second, mirrored, _ = columns
    order = np.lexsort((mirrored, -aligned.edges - aligned.brightness, second, first))
    fresh = np.ones(len(order), bool)
    fresh[1:] = (np.diff(first[order]) != 0) | (np.diff(second[order]) != 0)
    order = order[fresh]
    return Candidates(*(c[order] for c in columns)), aligned.take(order)


def _embedded(embeddings: Embeddings | None, ids: pa.ChunkedArray) -> list[Candidates]:
    """Neighbours of embeddings, both ways round; those of samples that are not among `ids` are left out."""
    if embeddings is None or not len(embeddings.ids):
        return []
    place = pc.index_in(embeddings.ids, ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids)
    row = pc.fill_null(place, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    some = np.flatnonzero(row >= 0)
    some = some[np.argsort(row[some], kind="stable")]  # by row, whatever the order of the embeddings
    near = neighbours(embeddings.vectors[some], least=0.8)
    return [both_ways(np.stack([row[some[near.first]], row[some[near.second]]], axis=1))]
