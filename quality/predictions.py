"""Reading the predictions table: only what is out of sample, and its probabilities as an array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage.errors import SevenfoldError


def out_of_sample(predictions: pa.Table | None) -> pa.Table | None:
    """The predictions that were not made by a model trained on the sample; None when there are none.

    Raises
    ------
    SevenfoldError
        When the table does not say which are in sample.
    """
    if predictions is None:
        return None
    if "in_sample" not in predictions.column_names:
        raise SevenfoldError(
            "the predictions do not say whether they are in sample",
            where="predictions",
            expected="a column in_sample (bool)",
            do="score the samples again with `sevenfold score`",
        )
    kept = predictions.filter(pc.invert(pc.fill_null(predictions["in_sample"], True)))
    return kept if kept.num_rows else None


def probabilities(predictions: pa.Table, classes: Sequence[str]) -> np.ndarray:
    """``probs`` as float64 [n, k].

    Raises
    ------
    SevenfoldError
        When their length is not the number of classes.
    """
    n, k = predictions.num_rows, len(classes)
    flat = pc.list_flatten(predictions["probs"]).to_numpy().astype(np.float64)
    lengths = pc.list_value_length(predictions["probs"])
    if n and (lengths.null_count or set(pc.unique(lengths).to_pylist()) != {k}):
        raise SevenfoldError(
            f"probs have {sorted(set(lengths.to_pylist()), key=str)} entries",
            where="predictions",
            expected=f"{k}, one per class of the manifest",
            do="score with a model of this version's classes",
        )
    return flat.reshape(n, k)
