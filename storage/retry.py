"""Reading a batch's quarantined inputs again, after a fix, as a batch of their own."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.records import Batch
from sevenfold.storage.sources import Selected, Source

_BY_POLICY = ("unsupported", "too_large")
"""Reasons that depend on decode.Accepts."""


def changed_inputs(
    whole: Source, old: Batch, aside: pa.Table, landed: Sequence[str], *, loosened: bool = False
) -> Selected:
    """The inputs of `whole` that a retry of the batch `old` should land.

    Parameters
    ----------
    aside : the batch's quarantine (index.QUARANTINE).
    landed : paths of its samples and aliases.
    loosened : other images are accepted now: those that were set aside as unsupported or too large count as changed.

    Inputs under paths that the batch did not have belong to it: a fix may rename a file or move it to its class.
    What has not changed stays in the old batch's quarantine, but for contradictions, which may have been resolved.
    Raises SevenfoldError when nothing is quarantined, or nothing at the source has changed since.
    """
    if not aside.num_rows:
        raise SevenfoldError(f"the batch {old.batch} has nothing in quarantine", do="there is nothing to retry")
    before = {row["path"]: (row["bytes"], row["label"], row["split"]) for row in aside.to_pylist()}
    clashing = set(aside.filter(pc.equal(aside["reason"], "contradictory"))["path"].to_pylist())
    there = set(landed)
    changed = {
        i.path
        for i in whole.inputs
        if (i.path in before or i.path not in there)
        and (before.get(i.path) != (i.bytes, i.label, i.split) or i.modified > old.times["newest_input"])
    }
    if loosened:
        changed |= set(aside.filter(pc.is_in(aside["reason"], pa.array(_BY_POLICY)))["path"].to_pylist())
    here = {i.path for i in whole.inputs}
    if changed or clashing - here:  # taking one side of a contradiction away mends the other
        changed |= clashing & here
    if not changed:
        raise SevenfoldError(
            f"nothing that the batch {old.batch} set aside has changed at the source",
            where=old.source,
            do='mend or relabel the inputs that `sevenfold query "select * from quarantine"` lists, then retry',
        )
    return Selected(whole, frozenset(changed))
