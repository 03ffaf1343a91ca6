"""The gate: may the challenger take the champion's place? A pure decision with its reasons in plain sentences.

Both models are compared on the same held-out samples, pair by pair: what counts is the samples on which they differ
(`gained`: only the challenger is right; `lost`: only the champion is). Nothing is decided on a point estimate alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from sevenfold.intervals import mcnemar_p, paired_difference, wilson
from sevenfold.storage.errors import SevenfoldError
from sevenfold.training.gains import GainComparison, compare_gains

__all__ = ["Decision", "GainComparison", "GatePolicy", "Slice", "compare_gains", "decide", "held_out", "slices_by"]


class GatePolicy(BaseModel):
    """What the gate demands."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_regression: float = Field(0.01, ge=0, le=1, description="largest accuracy loss accepted on an old slice")
    min_gain: float = Field(0.0, ge=0, le=1, description="least accuracy gain, overall or on the new slices")
    alpha: float = Field(0.05, gt=0, lt=1, description="chance of a false alarm, shared among all slices judged")
    min_slice: int = Field(100, ge=1, description="a smaller slice is not measurable")


@dataclass(frozen=True)
class Slice:
    """A named part of the test set; `new` marks what the challenger was trained for and the champion has not seen."""

    name: str
    ids: frozenset[str]
    new: bool = False


@dataclass(frozen=True)
class Decision:
    """`promoted`, the `reasons` in plain sentences, and the numbers behind them.

    `slices` has a row per slice: slice, new, n, champion, champion_low, champion_high, challenger, challenger_low,
    challenger_high (accuracy, 95 % Wilson interval), difference, difference_low, difference_high (at the shared alpha),
    p (exact McNemar), gained, lost, verdict (gained | held | unclear | regressed | not_measurable | first).
    """

    promoted: bool
    reasons: tuple[str, ...]
    slices: pa.Table

    def explain(self) -> str:
        """The verdict and its reasons, one a line."""
        return "\n".join([f"{'promoted' if self.promoted else 'refused'}:", *(f"  - {r}" for r in self.reasons)])


SLICES_SCHEMA = pa.schema(
    [("slice", pa.string()), ("new", pa.bool_()), ("n", pa.int64())]
    + [
        (f"{name}{part}", pa.float64())
        for name in ("champion", "challenger", "difference")
        for part in ("", "_low", "_high")
    ]
    + [("p", pa.float64()), ("gained", pa.int64()), ("lost", pa.int64()), ("verdict", pa.string())]
)


def held_out(predictions: pa.Table, samples: pa.Table, split: str = "test") -> pa.Table:
    """The predictions on the labelled samples of `split`: what :func:`decide` takes."""
    names = zip(*(samples[c].to_pylist() for c in ("id", "split", "label")), strict=True)
    ids = {i for i, where, label in names if where == split and label is not None}
    return predictions.filter(pa.array([i in ids for i in predictions["id"].to_pylist()], pa.bool_()))


def slices_by(samples: pa.Table, column: str, *, new: Collection[str] = (), split: str = "test") -> list[Slice]:
    """A slice per value of `column` (label, batch ...) over the labelled samples of `split`, named `column=value`."""
    groups: dict[str, set[str]] = {}
    names = ("id", "split", "label", column)
    for i, where, label, value in zip(*(samples[c].to_pylist() for c in names), strict=True):
        if where == split and label is not None and value is not None:
            groups.setdefault(str(value), set()).add(i)
    return [Slice(f"{column}={v}", frozenset(groups[v]), v in set(new)) for v in sorted(groups)]


def decide(
    champion: pa.Table | None,
    challenger: pa.Table,
    slices: Sequence[Slice] = (),
    blocks: Sequence[str] = (),
    policy: GatePolicy | None = None,
) -> Decision:
    """Promote or refuse.

    Rules, in order; every one that fails is named:
      1. `blocks` (findings that forbid promotion, such as near-duplicates across splits) must be empty.
      2. Without a champion: the Wilson lower bound of overall accuracy must beat the share of the commonest label.
      3. No old slice may regress: a slice regresses when it lost more than `max_regression` *and* the interval of the
         paired difference lies below 0. It holds when the interval lies above -max_regression, else unclear (said,
         does not block), or not measurable below `min_slice` samples (said, does not block).
      4. A gain must be shown: overall or on the new slices taken together, at least `min_gain`, interval above 0.
    Intervals of rule 3 share alpha among the old slices, those of rule 4 among their two (Bonferroni), so an equal
    challenger is called a regression with chance at most alpha, and a gain likewise.

    Parameters
    ----------
    champion, challenger : predictions (id, label, predicted, in_sample) on the same held-out samples, see
        :func:`held_out`; None: there is no champion yet.
    slices : parts of the test set; `overall` is added and, when some are new, `new` (all of these) and `old`.

    Raises
    ------
    SevenfoldError : a row is in-sample or unlabelled, an id occurs twice, the two differ in ids or labels, the test set
        is empty, or a slice names an id outside it.
    """
    policy = policy or GatePolicy()
    ids, labels, right = _read(challenger, "challenger")
    parts = _parts(ids, slices, policy)
    blocked = tuple(f"Blocked: {finding.rstrip('.')}." for finding in blocks)
    if champion is None:
        return _first(labels, right, parts, blocked)
    champion_ids, champion_labels, champion_right = _read(champion, "champion")
    if champion_ids != ids or champion_labels != labels:
        raise SevenfoldError(
            f"champion and challenger were tested on other {'samples' if champion_ids != ids else 'labels'}",
            where="gate",
            expected="predictions on the same held-out ids and labels",
            do="score both on the same version",
        )
    rows = [_compare(part, champion_right, right, policy) for part in parts]
    by_role = [(part.role, row) for part, row in zip(parts, rows, strict=True)]
    old = [row for role, row in by_role if role == "old"]
    aims = [row for role, row in by_role if role == "gain"]
    regressed = [f"Regressed on {_say(r)}." for r in old if r["verdict"] == "regressed"]
    gained = [f"Gained on {_say(r)}." for r in aims if r["verdict"] == "gained"]
    reasons = [*blocked, *regressed, *gained]
    if not gained:
        reasons += [f"No gain shown on {_say(r)}; asked for: at least {policy.min_gain:.1%}, above 0." for r in aims]
    if old and not regressed:
        held = sum(r["verdict"] in ("held", "gained") for r in old)
        reasons.append(
            f"No old slice is shown to lose more than {policy.max_regression:.1%}: "
            f"{held} of {len(old)} are shown to hold."
        )
    reasons += [f"Not decided on {_say(r)}." for r in old if r["verdict"] == "unclear"]
    reasons += [
        f"Not measurable: {r['slice']} has {r['n']} samples, {policy.min_slice} are needed."
        for r in rows
        if r["verdict"] == "not_measurable"
    ]
    promoted = bool(gained) and not regressed and not blocked
    return Decision(promoted, tuple(reasons), pa.Table.from_pylist(rows, SLICES_SCHEMA))


@dataclass(frozen=True)
class _Part:
    name: str
    new: bool
    role: str  # gain: rule 4; old: rule 3; shown: in the table only
    member: np.ndarray  # positions in the sorted ids
    alpha: float


def _read(predictions: pa.Table, who: str) -> tuple[list[str], list[str], np.ndarray]:
    """Sorted ids, their labels, and bool [n] whether predicted == label."""
    seen = int(predictions["in_sample"].to_numpy().sum())
    found = ""
    if predictions.num_rows == 0:
        found = "no predictions"
    elif seen:
        found = f"{seen} of {predictions.num_rows} predictions are on samples the model was trained on"
    elif predictions["label"].null_count:
        found = f"{predictions['label'].null_count} predictions have no label to be judged against"
    elif len(set(predictions["id"].to_pylist())) < predictions.num_rows:
        found = "an id occurs twice"
    if found:
        raise SevenfoldError(
            found,
            where=f"gate, {who}",
            expected="one out-of-sample prediction for each labelled sample of the test split",
            do="score the model on the version's test split and pass it through `held_out`",
        )
    rows = predictions.select(["id", "label", "predicted"]).sort_by("id")
    labels = rows["label"].to_pylist()
    right = np.array([a == b for a, b in zip(labels, rows["predicted"].to_pylist(), strict=True)], dtype=bool)
    return rows["id"].to_pylist(), labels, right


def _parts(ids: list[str], slices: Sequence[Slice], policy: GatePolicy) -> list[_Part]:
    position = {i: k for k, i in enumerate(ids)}
    found: list[tuple[str, bool, str, np.ndarray]] = [("overall", False, "gain", np.arange(len(ids)))]
    fresh = frozenset().union(*(s.ids for s in slices if s.new))
    own = list(slices)
    if fresh:
        own = [Slice("new", fresh, True), Slice("old", frozenset(ids) - fresh), *own]
    for part in own:
        outside = part.ids - position.keys()
        if outside:
            raise SevenfoldError(
                f"slice {part.name!r} names {len(outside)} samples outside the test set, such as {min(outside)}",
                where="gate",
                expected="slices of the held-out samples",
            )
        role = ("gain" if part.name == "new" else "shown") if part.new else "old"
        found.append((part.name, part.new, role, np.array(sorted(position[i] for i in part.ids), dtype=np.int64)))
    judged = {"shown": 1}
    for _, _, role, member in found:
        judged[role] = judged.get(role, 0) + (role != "shown" and len(member) >= policy.min_slice)
    return [_Part(n, new, role, m, policy.alpha / max(judged[role], 1)) for n, new, role, m in found]


def _compare(part: _Part, champion: np.ndarray, challenger: np.ndarray, policy: GatePolicy) -> dict[str, Any]:
    was, now, n = champion[part.member], challenger[part.member], len(part.member)
    gained, lost, both = int((now & ~was).sum()), int((was & ~now).sum()), int((was & now).sum())
    low, high = paired_difference(both, gained, lost, n - both - gained - lost, 1 - part.alpha)
    row: dict[str, Any] = {"slice": part.name, "new": part.new, "n": n, "gained": gained, "lost": lost}
    row |= _accuracy("champion", was) | _accuracy("challenger", now)
    row |= {"difference": (gained - lost) / n if n else None, "difference_low": low, "difference_high": high}
    row["p"] = mcnemar_p(gained, lost)
    if n < policy.min_slice:
        row["verdict"] = "not_measurable"
    elif row["difference"] < -policy.max_regression and high < 0:
        row["verdict"] = "regressed"
    elif low > 0 and row["difference"] >= policy.min_gain:
        row["verdict"] = "gained"
    else:
        row["verdict"] = "held" if low >= -policy.max_regression else "unclear"
    return row


def _accuracy(who: str, right: np.ndarray) -> dict[str, float | None]:
    low, high = wilson(int(right.sum()), len(right))
    return {who: float(right.mean()) if len(right) else None, f"{who}_low": low, f"{who}_high": high}


def _say(row: dict[str, Any]) -> str:
    if not row["n"]:
        return f"{row['slice']} (no samples)"
    return (
        f"{row['slice']}: {row['champion']:.1%} -> {row['challenger']:.1%} on {row['n']} samples, "
        f"{100 * row['difference']:+.1f} points (interval {100 * row['difference_low']:+.1f} to "
        f"{100 * row['difference_high']:+.1f}; {row['gained']} gained, {row['lost']} lost, p {row['p']:.2g})"
    )


def _first(labels: list[str], right: np.ndarray, parts: list[_Part], blocked: tuple[str, ...]) -> Decision:
    """Rule 2: no champion yet."""
    chance = max(Counter(labels).values()) / len(labels)
    low, high = wilson(int(right.sum()), len(right))
    beats = low > chance
    reason = (
        f"There is no champion yet and the challenger {'beats' if beats else 'is not shown to beat'} chance: "
        f"{right.mean():.1%} of {len(right)} samples (interval {low:.1%} to {high:.1%}), "
        f"the commonest label alone gives {chance:.1%}."
    )
    rows = [
        {"slice": p.name, "new": p.new, "n": len(p.member), "verdict": "first"}
        | _accuracy("challenger", right[p.member])
        for p in parts
    ]
    return Decision(beats and not blocked, (*blocked, reason), pa.Table.from_pylist(rows, SLICES_SCHEMA))
