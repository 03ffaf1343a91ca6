"""Which rows a run trains on, evaluates and predicts: pure functions of the samples table and the configuration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sevenfold.storage.canonical import digest_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.training.config import UNTOUCHABLE, TrainConfig
from sevenfold.training.draw import keys

_FOLD_SALT = 0


@dataclass(frozen=True)
class Selection:
    """The training rows of a run.

    Parameters
    ----------
    rows : int64 [n], rows of the samples table in order; a row may occur several times.
    held_out : int64, the rows that would be among them but for the fold that was left out.
    description : how they were chosen, in a few words.
    digest : over the ids of the rows, in order, and the description.
    parts : int64 [n], the source of each row where several are mixed; None for one.
    mix : per source (name, digest of its ids in order, slots in an epoch), as in the plan; () for one taken once.
    left_out : per source, how many samples were dropped since the base version evaluates on them.
    """

    rows: np.ndarray
    held_out: np.ndarray
    description: str
    digest: str
    parts: np.ndarray | None = None
    mix: tuple[tuple[str, str, int], ...] = ()
    left_out: tuple[int, ...] = ()


def fold_of(ids: Sequence[str], folds: int) -> np.ndarray:
    """int64 [n]: the fold of each sample, 0 ... folds - 1, by a salted hash of its id: the same in every version."""
    return (keys(ids, _FOLD_SALT, "fold") % np.uint64(folds)).astype(np.int64)


def select(samples: pa.Table, config: TrainConfig) -> Selection:
    """Choose the training rows: labelled, of positive weight, in the training splits or in the list of ids given.

    Raises SevenfoldError when nothing is left, when a listed id is not in the version or has no label, and when a
    listed sample is in a val or test split.
    """
    rows, description, _ = choose(samples, config.select_ids, config.train_splits)
    left_out = np.zeros(0, np.int64)
    if config.hold_out is not None:
        ids = samples["id"].take(pa.array(rows)).to_pylist()
        out = fold_of(ids, config.hold_out.of) == config.hold_out.fold
        rows, left_out = rows[~out], np.unique(rows[out])
        description += f", without fold {config.hold_out.fold} of {config.hold_out.of}"
    if config.epochs != 0 and not len(rows):
        raise SevenfoldError(
            "there is nothing to train on",
            where=f"{config.dataset}: {description}",
            expected="labelled samples of positive weight",
            do='look at `sevenfold query "select split, count(label) from samples group by 1"`',
        )
    ids = samples["id"].take(pa.array(rows)).to_pylist()
    return Selection(rows, left_out, description, digest_json([description, ids]))


def choose(
    samples: pa.Table, listed: str | None, splits: Sequence[str], *, without: pa.Array | None = None
) -> tuple[np.ndarray, str, int]:
    """The ids in the file `listed`, in order, or else what is labelled in the splits; never the ids `without`.

    Returns (rows int64, in a few words how, how many were left out).
    """
    trainable = flags(pc.and_(pc.is_valid(samples["label"]), pc.greater(samples["weight"], 0.0)))
    if listed is not None:
        ids = read_ids(Path(listed))
        kept = ids if without is None else _without(ids, without)
        return _listed(samples, trainable, kept, listed), "listed ids", len(ids) - len(kept)
    inside = flags(pc.is_in(samples["split"], value_set=pa.array(list(splits), pa.string()))) & trainable
    barred = np.zeros(len(inside), bool) if without is None else flags(pc.is_in(samples["id"], value_set=without))
    how = "labelled in " + "+".join(splits)
    return np.flatnonzero(inside & ~barred), how, int((inside & barred).sum())


def read_ids(path: Path) -> list[str]:
    """Ids from a JSON list or the `id` column of a Parquet file, in order, repeats kept."""
    try:
        if path.suffix == ".parquet":
            return pq.read_table(path, columns=["id"])["id"].to_pylist()
        ids = json.loads(path.read_bytes())
    except (OSError, ValueError, KeyError) as error:
        raise SevenfoldError(
            f"the list of ids cannot be read: {error}", where=str(path), expected="a JSON list, or Parquet with id"
        ) from error
    if not isinstance(ids, list) or not all(isinstance(i, str) for i in ids):
        raise SevenfoldError("is not a list of ids", where=str(path), expected='["0a1b...", ...]')
    return ids


def image_shape(samples: pa.Table, config: TrainConfig) -> tuple[int, int]:
    """(size, channels): as configured, else the images' own side if they share one, else 64; grey if all are grey."""
    if config.size is not None:
        size = config.size
    else:
        sides = {x for name in ("width", "height") for x in pc.unique(samples[name].drop_null()).to_pylist()}
        size = sides.pop() if len(sides) == 1 else 64
    if config.channels is not None:
        return size, config.channels
    return size, 1 if pc.all(pc.equal(samples["channels"], 1)).as_py() else 3


def _listed(samples: pa.Table, trainable: np.ndarray, ids: list[str], where: str) -> np.ndarray:
    found = pc.index_in(pa.array(ids, pa.string()), value_set=samples["id"].combine_chunks())
    missing = [i for i, ok in zip(ids, found.is_valid().to_pylist(), strict=True) if not ok]
    if missing:
        raise SevenfoldError(
            f"{len(missing)} of {len(ids)} ids are not in this version, the first is {missing[0]}",
            where=where,
            do="list ids of this version, or train another version",
        )
    rows = found.to_numpy().astype(np.int64)
    splits = samples["split"].take(found)
    bad = flags(pc.is_in(splits, value_set=pa.array(UNTOUCHABLE, pa.string()))) | ~trainable[rows]
    if bad.any():
        first = ids[int(np.flatnonzero(bad)[0])]
        raise SevenfoldError(
            f"{int(bad.sum())} of {len(ids)} ids cannot be trained on, the first is {first}",
            where=where,
            expected="labelled samples of positive weight outside val and test",
        )
    return rows


def _without(ids: list[str], barred: pa.Array) -> list[str]:
    out = set(barred.to_pylist())
    return [i for i in ids if i not in out]


def flags(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """bool [n]: null is false."""
    return np.asarray(pc.fill_null(values, False)).astype(bool)
