"""Which samples are mixed in: the sources of a mix beside the base selection, as rows of one table (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage.canonical import digest_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.training.config import UNTOUCHABLE, MixSource, TrainConfig
from sevenfold.training.mix import slots
from sevenfold.training.selection import Selection, choose, flags, fold_of


def blend(
    base: pa.Table, selection: Selection, tables: Sequence[pa.Table], config: TrainConfig, classes: Sequence[str]
) -> tuple[pa.Table, Selection]:
    """Put the sources of a mix beside the base selection.

    Parameters
    ----------
    base : the samples of the base version; its rows keep their numbers, those of other versions follow.
    selection : from the base.
    tables : the samples of each source of `config.mix`; `base` itself for a slice or a list of the same version.
    config : resolved.
    classes : of the base version; labels of other versions are matched by name.

    Returns
    -------
    The samples of all and the selection of all. What the base version evaluates on is left out of every source, and
    so is the fold that the base holds out: by id, and by pixel digest, since other files may show the same pixels.

    Raises SevenfoldError for a class that the base lacks, and for a source of which nothing is left.
    """
    if not config.mix and config.mix_size is None:
        return base, selection
    held = pc.is_in(base["split"], value_set=pa.array(sorted({*UNTOUCHABLE, *config.eval_splits}), pa.string()))
    held_ids = base["id"].filter(held).combine_chunks()
    shown = _pixels(base.filter(held))
    hidden = _pixels(base.take(pa.array(selection.held_out)))
    counts = slots(len(selection.rows), [source.ratio for source in config.mix], config.mix_size)
    for count, name in zip(counts, ["the base selection", *map(name_of, config.mix)], strict=True):
        if not count and config.epochs != 0:
            raise SevenfoldError(
                f"{name} has no slot in an epoch of {sum(counts)}", where="mix",
                do="change its ratio, or raise mix_size",
            )  # fmt: skip
    every, rows, digests, left_out = [base], [selection.rows], [selection.digest], [0]
    total = base.num_rows
    for source, table in zip(config.mix, tables, strict=True):
        chosen, how, dropped = choose(table, source.ids, source.splits, without=_barred(table, held_ids, shown))
        _check_classes(table.take(pa.array(chosen)), classes, source, config)
        if table is base:
            at = chosen
        else:
            kept, inverse = np.unique(chosen, return_inverse=True)
            every.append(table.take(pa.array(kept)).select(base.column_names))
            at, total = total + inverse, total + len(kept)
        ids = table["id"].take(pa.array(chosen)).to_pylist()
        if config.hold_out is not None and ids:  # only now: the folds of a score share one table
            inside = fold_of(ids, config.hold_out.of) != config.hold_out.fold
            inside &= ~flags(pc.is_in(table["pixel_digest"].take(pa.array(chosen)), value_set=hidden))
            at, ids = at[inside], [i for i, ok in zip(ids, inside.tolist(), strict=True) if ok]
        if not len(at):
            raise SevenfoldError(
                "nothing is left to mix in", where=f"{name_of(source)}: {how}", expected="labelled training samples",
                do=f"{dropped} were left out, since {config.dataset} evaluates on them" if dropped else "",
            )  # fmt: skip
        rows.append(at)
        digests.append(digest_json([source.content_id, how, ids]))
        left_out.append(dropped)
    names = [name_of(source) for source in config.mix]
    return pa.concat_tables(every), replace(
        selection,
        rows=np.concatenate(rows).astype(np.int64),
        parts=np.repeat(np.arange(len(rows)), [len(r) for r in rows]),
        mix=tuple(zip(["base", *names], digests, counts, strict=True)),
        left_out=tuple(left_out),
        description=", mixed with ".join([selection.description, *names]),
        digest=digest_json([digests, counts]),
    )


def _pixels(rows: pa.Table) -> pa.Array:
    """The pixel digests of samples, each once."""
    return pc.unique(rows["pixel_digest"]).drop_null()


def _barred(table: pa.Table, ids: pa.Array, pixels: pa.Array) -> pa.Array:
    """The ids of a source that are never mixed in: these, and those of the same pixels under another id."""
    twins = table["id"].filter(pc.is_in(table["pixel_digest"], value_set=pixels))
    return pc.unique(pa.chunked_array([ids, *twins.chunks], pa.string()))


def same_samples(samples: pa.Table, rows: np.ndarray) -> np.ndarray:
    """int64 [n]: equal where two rows hold the same sample (by id), whichever version they come from."""
    return samples["id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)[rows]


def name_of(source: MixSource) -> str:
    """How a source is called in plans and messages: free of paths, so that it is the same everywhere."""
    what = "listed ids" if source.ids is not None else "+".join(source.splits)
    return f"{what} of {str(source.content_id)[:12]}"


def _check_classes(rows: pa.Table, classes: Sequence[str], source: MixSource, config: TrainConfig) -> None:
    labels = rows["label"].filter(pc.is_valid(rows["offset"]))  # what was taken down keeps its row, not its label
    known = pc.is_in(labels, value_set=pa.array(list(classes), pa.string()))
    unknown = pc.value_counts(labels.filter(pc.invert(known)))
    if len(unknown):
        first = unknown[0].as_py()
        raise SevenfoldError(
            f"{len(unknown)} classes are not among those of {config.dataset}, the first is {first['values']!r} "
            f"({first['counts']} samples)",
            where=f"mix: {name_of(source)}",
            expected=", ".join(list(classes)[:20]),
            do="mix in a list of ids of known classes, or relabel",
        )
