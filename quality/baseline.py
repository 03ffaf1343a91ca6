"""Baselines: "no worse than that version" instead of "within the limits": only what is new or got worse fails.

The verdicts in the lake stay those of the policy's limits; a baseline decides how `sevenfold check` answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from sevenfold.quality.findings import Keys
from sevenfold.quality.verdict import Verdict
from sevenfold.storage.errors import SevenfoldError

FORMAT = 1
KNOWN = "known_to_baseline"
"""The key in the thresholds of a verdict that the baseline cleared; its value is the number of known findings."""

_RANK = {"pass": 0, "not_measurable": 0, "warn": 1, "fail": 2, "crashed": 3}
_KEPT = ("v", "check", "result", "statistic", "interval", "effect", "n", "findings")

Worse = Literal["larger", "smaller"]


@dataclass(frozen=True)
class Comparison:
    """Verdicts read against a baseline.

    `verdicts`: what was known or is no worse passes, what got worse fails; findings are the new ones alone.
    `known`: (V, check) -> the findings that the baseline has too.
    """

    verdicts: tuple[Verdict, ...]
    known: Keys


def compare(
    verdicts: Sequence[Verdict],
    baseline: Sequence[Verdict],
    *,
    name: str,
    worse: Mapping[str, Worse | None],
    tolerance: float = 0.05,
) -> Comparison:
    """Read verdicts against those of a baseline, check by check.

    - A check that failed or warned with findings: when the baseline has all of them and the statistic is no worse, it
      passes; else only the new findings stay.
    - One without findings passes when its statistic is no worse, or, where no direction of worse is declared, when
      the baseline's result was as bad.
    - One that passed fails when its statistic is worse beyond the tolerance and its interval excludes the baseline's.
    - A check that the baseline never ran, or could not measure, keeps its result. A crashed check stays crashed.

    Parameters
    ----------
    name : the baseline, for messages.
    worse : `V.check` -> whether a larger or a smaller statistic is worse; None where neither is declared.
    tolerance : share of the baseline's statistic by which it may worsen.
    """
    before = {(x.v, x.check): x for x in baseline}
    known: dict[tuple[str, str], frozenset[str]] = {key: frozenset(x.findings) for key, x in before.items()}
    read = []
    for x in verdicts:
        old = before.get((x.v, x.check))
        read.append(x if old is None else _read(x, old, name, worse.get(f"{x.v}.{x.check}"), tolerance))
    return Comparison(tuple(read), known)


def _read(x: Verdict, old: Verdict, name: str, direction: Worse | None, tolerance: float) -> Verdict:
    if x.result == "crashed" or x.result == "not_measurable" or old.result in ("crashed", "not_measurable"):
        return x
    change = _change(x, old, direction, tolerance)
    if x.result == "pass":
        if change != "worse":
            return x
        return replace(x, result="fail", message=f"Worse than {name}: {_numbers(x, old)}. {x.message}")
    there = set(old.findings)
    new = [i for i, key in enumerate(x.findings) if key not in there]
    count = len(x.findings) - len(new)
    if x.findings:
        cleared = not new and change != "worse"
        told = f"{len(new)} new, {count} known to {name}"
    else:
        cleared = change == "no worse" or (change is None and _RANK[x.result] <= _RANK[old.result])
        told = f"{_numbers(x, old)} of {name}" if change else f"{name} had a {old.result} too"
    if cleared:
        message = f"No worse than {name}: {told}. (By its limits a {x.result}: {x.message})"
        return replace(
            x, result="pass", blocking=False, message=message, thresholds={**x.thresholds, KNOWN: float(count)},
            findings=(), notes=(), 
        )  # fmt: skip
    if change == "worse":
        told += f"; worse than {name}: {_numbers(x, old)}"
    return replace(
        x,
        message=f"{told[0].upper()}{told[1:]}. {x.message}",
        findings=tuple(x.findings[i] for i in new),
        notes=tuple(x.notes[i] for i in new) if x.notes else (),
    )


def _change(x: Verdict, old: Verdict, direction: Worse | None, tolerance: float) -> Literal["worse", "no worse"] | None:
    """Whether the number that the interval is about got worse; None when that cannot be told.

    A number without an interval tells nothing about chance: it can be no worse, never significantly worse.
    """
    now, then = _pair(x, old)
    if direction is None or now is None or then is None:
        return None
    step = now - then if direction == "larger" else then - now
    if step <= tolerance * abs(then):
        return "no worse"
    if x.interval is None:
        return None if x.result == "pass" else "worse"
    low, high = x.interval
    excluded = low > then if direction == "larger" else high < then
    return "worse" if excluded else "no worse"


def _pair(x: Verdict, old: Verdict) -> tuple[float | None, float | None]:
    """What the interval is about, now and then: the effect where there is one, unless only the statistic lies in it."""
    if x.effect is None or (not _within(x.effect, x.interval) and _within(x.statistic, x.interval)):
        return x.statistic, old.statistic
    return x.effect, old.effect


def _within(value: float | None, interval: tuple[float, float] | None) -> bool:
    return interval is None or (value is not None and interval[0] <= value <= interval[1])


def _numbers(x: Verdict, old: Verdict) -> str:
    now, then = _pair(x, old)
    if now is None or then is None:
        return x.result
    name = x.statistic_name if now == x.statistic else "effect"
    return f"{name} {now:.4g} against {then:.4g}".strip()


def to_json(verdicts: Sequence[Verdict], *, subject: str, at: float) -> str:
    """Verdicts as a baseline file, for a folder that has no lake to keep them."""
    rows = [{key: value for key, value in asdict(x).items() if key in _KEPT} for x in verdicts if x.result != "crashed"]
    document = {"format": FORMAT, "subject": subject, "at": at, "verdicts": rows}
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str | bytes, *, where: str) -> list[Verdict]:
    """The verdicts of a baseline file. Raises SevenfoldError for anything else."""
    try:
        document: Any = json.loads(text)
        if document["format"] != FORMAT:
            raise ValueError(f"its format is {document['format']!r}")
        subject = str(document["subject"])
        return [_verdict(row, subject) for row in document["verdicts"]]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise SevenfoldError(
            f"this is no baseline: {type(error).__name__}: {error}",
            where=where,
            expected=f"a file of format {FORMAT}",
            do="write one with `sevenfold check ... --write-baseline FILE`",
        ) from None


def _verdict(row: Mapping[str, Any], subject: str) -> Verdict:
    kept = {key: row[key] for key in _KEPT}
    interval = kept.pop("interval")
    return Verdict(
        subject=subject, **{**kept, "findings": tuple(kept["findings"])}, interval=tuple(interval) if interval else None
    )
