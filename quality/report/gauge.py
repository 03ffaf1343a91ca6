"""The gauge: a statistic and its interval on a line, with the limits that it was read against."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sevenfold.quality.report import plot
from sevenfold.quality.report.format import measured
from sevenfold.quality.report.markup import Html, el

if TYPE_CHECKING:
    from sevenfold.quality.verdict import Verdict

WIDTH, LEFT, RIGHT, LINE = 260.0, 10.0, 250.0, 20.0
_LIMITS = re.compile(r"^(warn|fail|max|min|slo)(_|$)")
_EVIDENCE = re.compile(r"^min_(n|inputs|pairs|seeds|sizes|steps|samples|runs|batches|windows)$|_until$")
"""Thresholds on how much evidence there must be, and the end of a suppression: they share no scale with a statistic."""


def gauge(verdict: Verdict) -> Html | None:
    """The drawing, or None when there is no limit on the statistic's scale (their names share a word with its own).

    Where limits are about the effect (warn_effect), the effect is drawn instead of the statistic.
    """
    value, unit = verdict.statistic, verdict.statistic_name
    limits = {k: x for k, x in verdict.thresholds.items() if _LIMITS.match(k) and not _EVIDENCE.search(k)}
    about = _words(f"{verdict.statistic_name} {verdict.check}")
    of_effect = {name: limit for name, limit in limits.items() if "effect" in name}
    if of_effect and verdict.effect is not None:
        value, unit, limits = verdict.effect, "", of_effect
    else:
        limits = {k: x for k, x in limits.items() if not _words(k) or _words(k) & about}
    interval = verdict.interval
    if value is None:
        return None
    if interval and not interval[0] - 1e-9 <= value <= interval[1] + 1e-9:
        interval = None  # it is of the other number
    limits = _of_one_scale(value, interval, limits)
    if not limits:
        return None
    values = [value, *(interval or ()), *limits.values()]
    lo, hi = min(values), max(values)
    if lo >= 0:
        lo = 0.0  # shares, counts and times are read against none
    if not hi > lo:
        return None
    x = plot.linear(lo - 0.02 * (hi - lo) if lo else 0.0, hi + 0.06 * (hi - lo), LEFT, RIGHT)
    parts = [plot.rule(4, LINE, WIDTH - 4, LINE, "axis")]
    names = list(limits)
    places = plot.spread_out([x(limits[name]) for name in names], 46)
    for name, place in zip(names, places, strict=True):
        at, tone = x(limits[name]), "warn" if name.startswith("warn") else "fail"
        parts.append(plot.rule(at, LINE - 11, at, LINE + 11, f"limit {tone}"))
        where = min(max(place, 14.0), WIDTH - 22.0)
        word = name.partition("_")[0] if name.startswith(("warn", "fail")) else "limit"
        parts.append(plot.label(round(where, 1), LINE + 24, word, anchor="middle", kind=f"limit-name {tone}"))
    if interval:
        parts.append(plot.rule(x(interval[0]), LINE, x(interval[1]), LINE, "whisker"))
        parts += [plot.rule(x(end), LINE - 5, x(end), LINE + 5, "cap") for end in interval]
    parts.append(el("circle", cx=x(value), cy=LINE, r=5, class_="dot"))
    said = ", ".join(f"{name.replace('_', ' ')} {measured(name, limit)}" for name, limit in limits.items())
    between = f", between {measured(unit, interval[0])} and {measured(unit, interval[1])}" if interval else ""
    return el("svg", el("title", f"{measured(unit, value)}{between}; {said}"), *parts, viewBox=f"0 0 {WIDTH:g} 48",
              width=f"{WIDTH:g}", height=48, role="img", class_="gauge")  # fmt: skip


def _words(name: str) -> set[str]:
    """What a name is about: its words without plurals and without those that only say which end of a range is meant."""
    found = {word.removesuffix("s") for word in re.findall(r"[a-z]+", name.lower())}
    return found - {"warn", "fail", "max", "min", "slo", "of"}


def _of_one_scale(value: float, interval: tuple[float, float] | None, limits: Mapping[str, float]) -> dict[str, float]:
    """Without the limits that are of another kind: a share beside a count, a count that dwarfs the statistic."""
    reach = max(abs(v) for v in (value, *(interval or ())))
    if reach <= 1:
        return {k: x for k, x in limits.items() if abs(x) <= 1}
    return {k: x for k, x in limits.items() if x == 0 or 1 <= abs(x) <= 1000 * reach}
