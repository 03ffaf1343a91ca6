"""Pairs of samples that show the same picture across splits: exact by pixel digest, near by hash, then by pixels."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sevenfold.quality.context import ReadPixels

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
        ("bits", pa.int32()),
        ("distance", pa.float64()),
    ]
)
"""kind exact | near | candidate (not confirmed on pixels: no reader was given); distance is mean absolute, 0..255."""

_CHUNK = 4096
_NEAREST = 20


def exact_pairs(rows: pa.Table) -> pa.Table:
    """Every sample whose pixel digest also occurs in a split of lower :data:`RANK`, beside one keeper; PAIRS."""
    return _query(
        rows,
        """
        with ranked as (
            select id, split, rank,
                   first_value(id) over w as keep, first_value(split) over w as keep_split,
                   first_value(rank) over w as best
            from s window w as (partition by pixel_digest order by rank, id))
        select keep, keep_split, id as exclude, split as exclude_split, 'exact' as kind, 0::int as bits,
               0.0::double as distance
        from ranked where rank > best and best < 2 order by exclude""",
    )


def hash_candidates(rows: pa.Table, max_bits: int) -> pa.Table:
    """Pairs across splits whose perceptual hashes differ in at most ``max_bits`` (0..7) and whose pixels differ.

    Two 64-bit hashes within 7 bits agree in at least one of their eight bytes, so none is missed; a sample to exclude
    keeps its 20 nearest, so that a folder of blank frames stays affordable. Ordered by bits, then ids; kind
    ``candidate``.
    """
    if not 0 <= max_bits <= 7:
        raise ValueError(f"max_bits is {max_bits}; eight 8-bit bands are complete for 0..7 only")
    bands = ", ".join(f"{{'b': {k}, 'v': (phash >> {8 * k}) & 255}}" for k in range(8))
    return _query(
        rows,
        f"""
        with h as (select distinct phash, rank from s),
        banded as (select phash, rank, unnest([{bands}]) as band from h),
        near as (
            select distinct a.phash as pa, b.phash as pb, a.rank as ra, b.rank as rb
            from banded a join banded b on a.band = b.band and a.rank < b.rank and a.rank < 2
            where bit_count(xor(a.phash, b.phash)) <= {int(max_bits)})
        select x.id as keep, x.split as keep_split, y.id as exclude, y.split as exclude_split, 'candidate' as kind,
               bit_count(xor(pa, pb))::int as bits, null::double as distance
        from near join s x on x.phash = pa and x.rank = ra join s y on y.phash = pb and y.rank = rb
        where x.pixel_digest <> y.pixel_digest
        qualify row_number() over (partition by y.id order by bits, x.id) <= {_NEAREST}
        order by bits, exclude, keep""",
    )


def confirm(candidates: pa.Table, read_pixels: ReadPixels, max_distance: float) -> pa.Table:
    """The candidates whose mean absolute pixel difference (0..255) is at most ``max_distance``, as kind ``near``.

    Pixels are read in blocks, each picture once per block.
    """
    keep, exclude = candidates["keep"].to_pylist(), candidates["exclude"].to_pylist()
    distance = np.zeros(len(keep))
    for start in range(0, len(keep), _CHUNK):
        a, b = keep[start : start + _CHUNK], exclude[start : start + _CHUNK]
        wanted = sorted(set(a) | set(b))
        row = {sample: i for i, sample in enumerate(wanted)}
        pixels = np.asarray(read_pixels(wanted)).reshape(len(wanted), -1).astype(np.int16)
        left, right = pixels[[row[i] for i in a]], pixels[[row[i] for i in b]]
        distance[start : start + len(a)] = np.abs(left - right).mean(1)
    near = distance <= max_distance
    kept = candidates.filter(pa.array(near))
    kept = kept.set_column(kept.schema.get_field_index("distance"), "distance", pa.array(distance[near], pa.float64()))
    kept = kept.set_column(kept.schema.get_field_index("kind"), "kind", pa.array(["near"] * kept.num_rows, pa.string()))
    return kept.cast(PAIRS)


def _query(rows: pa.Table, sql: str) -> pa.Table:
    import duckdb

    ranks = pa.array([RANK.get(s, 9) for s in rows["split"].to_pylist()], pa.int32())
    table = rows.select(["id", "split", "pixel_digest", "phash"]).append_column("rank", ranks)
    with duckdb.connect() as connection:
        connection.register("s", table)
        return connection.sql(sql).to_arrow_table().cast(PAIRS)
