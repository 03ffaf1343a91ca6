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

CLOSED = 64
"""Groups up to this size are looked at pair by pair, so that a leak is not missed among many copies."""


@dataclass(frozen=True)
class Twins:
    """All pairs (PAIRS) and groups (GROUPS) of some samples."""

    pairs: pa.Table
    groups: pa.Table


def describe_all(ids: Sequence[str], read_pixels: ReadPixels, progress: Progress = silent) -> Described:
    """Descriptors of some samples, in their order, read block by block."""
    parts = []
    for start in range(0, len(ids), BLOCK // 4):
        progress(start, len(ids), "describing pictures")
        parts.append(describe(_read(ids[start : start + BLOCK // 4], read_pixels)))
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
            ids.to_pylist(), read_pixels, progress
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
    names: list[str] = ids.to_pylist()
    found, aligned = _look(candidates, described, names, read_pixels, progress)
    more = _within_groups(found.take(alike(aligned)), len(names))
    if len(more):
        extra, how = _look(more, described, names, read_pixels, progress)
        columns = ("first", "second", "mirrored", "cosine")
        both = [np.concatenate([getattr(found, f), getattr(extra, f)]) for f in columns]
        found, aligned = _once(both, Aligned.joined([aligned, how]))
    of = _components(found.take(alike(aligned)), len(names))
    crowd = crowds(len(names), found.first, found.second, aligned, of, np.bincount(of, minlength=1))
    aligned = replace(aligned, score=score_of(aligned.brightness, aligned.edges, crowd))
    sure = aligned.score >= least
    return found.take(sure), aligned.take(sure)


def groups_of(pairs: pa.Table, samples: pa.Table) -> pa.Table:
    """The connected components of pairs as GROUPS, ordered by group; `samples`: id, split in canonical order."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    everyone = samples["id"].combine_chunks()
    a, b = (
        pc.index_in(pairs[c].combine_chunks(), everyone).to_numpy(zero_copy_only=False) for c in ("keep", "exclude")
    )
    linked = np.unique(np.concatenate([a, b]).astype(np.int64))
    if not len(linked):
        return GROUPS.empty_table()
    place = (np.searchsorted(linked, x) for x in (a, b))
    graph = coo_array((np.ones(len(a), np.int8), tuple(place)), shape=(len(linked), len(linked)))
    _, component = connected_components(graph, directed=False)
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


def _read(ids: Sequence[str], read_pixels: ReadPixels) -> np.ndarray:
    pixels = read_pixels(ids)
    return pixels if pixels.shape[1:3] == (SIDE, SIDE) else np.stack([small(p) for p in pixels])


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
    candidates: Candidates, described: Described, ids: Sequence[str], read_pixels: ReadPixels, progress: Progress
) -> tuple[Candidates, Aligned]:
    """Those candidates whose thumbnails agree, and how their pictures do; each block of pictures is read once."""
    kept = candidates.take(likely(described.thumbs, candidates.first, candidates.second, candidates.mirrored))
    parts = []
    for start in range(0, len(kept), BLOCK):
        progress(start, len(kept), "comparing pictures")
        some = slice(start, start + BLOCK)
        wanted, place = np.unique(np.concatenate([kept.first[some], kept.second[some]]), return_inverse=True)
        pixels = _read([ids[i] for i in wanted], read_pixels)
        half = len(place) // 2
        parts.append(align(pixels[place[:half]], pixels[place[half:]], kept.mirrored[some]))
    return _once([kept.first, kept.second, kept.mirrored, kept.cosine], Aligned.joined(parts))


def _once(columns: Sequence[np.ndarray], aligned: Aligned) -> tuple[Candidates, Aligned]:
    """Each pair once, in the orientation of the higher score, ordered by rows."""
    first, second, mirrored, _ = columns
    order = np.lexsort((mirrored, -aligned.edges - aligned.brightness, second, first))
    fresh = np.ones(len(order), bool)
    fresh[1:] = (np.diff(first[order]) != 0) | (np.diff(second[order]) != 0)
    order = order[fresh]
    return Candidates(*(c[order] for c in columns)), aligned.take(order)


def _components(found: Candidates, n: int) -> np.ndarray:
    """The connected component of each of n pictures: int [n]."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(found), np.int8), (found.first, found.second)), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1])


def _within_groups(found: Candidates, n: int) -> Candidates:
    """All pairs inside groups of 3 to CLOSED pictures that were not looked at, both ways round."""
    component = _components(found, n)
    sizes = np.bincount(component, minlength=1)
    members = np.flatnonzero((sizes[component] > 2) & (sizes[component] <= CLOSED))
    members = members[np.argsort(component[members], kind="stable")]
    edges = np.flatnonzero(np.diff(component[members])) + 1
    known = set(zip(found.first.tolist(), found.second.tolist(), strict=True))
    new = [
        (int(a), int(b))
        for group in np.split(members, edges)
        for i, a in enumerate(group)
        for b in group[i + 1 :]
        if (int(a), int(b)) not in known
    ]
    return _both_ways(np.array(new, np.int64).reshape(-1, 2))


def _embedded(embeddings: Embeddings | None, ids: pa.ChunkedArray) -> list[Candidates]:
    """Neighbours of embeddings, both ways round; those of samples that are not among `ids` are left out."""
    if embeddings is None or not len(embeddings.ids):
        return []
    place = pc.index_in(embeddings.ids, ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids)
    row = pc.fill_null(place, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    some = np.flatnonzero(row >= 0)
    some = some[np.argsort(row[some], kind="stable")]  # by row, whatever the order of the embeddings
    near = neighbours(embeddings.vectors[some], least=0.8)
    return [_both_ways(np.stack([row[some[near.first]], row[some[near.second]]], axis=1))]


def _both_ways(pairs: np.ndarray) -> Candidates:
    """Pairs [n, 2] as they are and mirrored; their cosine is not known."""
    a, b = (np.tile(pairs[:, i], 2) for i in (0, 1))
    mirrored = np.repeat([False, True], len(pairs))
    return Candidates(np.minimum(a, b), np.maximum(a, b), mirrored, np.full(len(a), np.nan, np.float32))
