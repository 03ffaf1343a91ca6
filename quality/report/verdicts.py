"""The seven Vs in full: what each asks, what was found, what to do; then every check with its measure and evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sevenfold.quality.report.album import Album
from sevenfold.quality.report.evidence import Fact, by_key, evidence, wanted
from sevenfold.quality.report.format import NONE, count, measured, number, without_unit
from sevenfold.quality.report.gauge import gauge
from sevenfold.quality.report.markup import Html, el, join, prose
from sevenfold.quality.report.model import Facts
from sevenfold.quality.report.scorecard import by_v
from sevenfold.quality.report.status import WORST_FIRST, status, status_icon, worst

if TYPE_CHECKING:
    from sevenfold.quality.verdict import Verdict

ASKS = {
    "validity": "Does every sample obey its declared form: does it decode, is it of an allowed size and kind, is its "
    "label one of the classes, is no rule of the suite broken?",
    "variety": "Does the data cover the world it claims: enough classes, slices and different pictures?",
    "veracity": "Can the labels be trusted: how many are wrong, do twins agree, is a test picture also trained on?",
    "value": "What does each sample or batch contribute to the model?",
    "volume": "Is there enough data to train on, and enough to tell an accuracy in every slice?",
    "volatility": "Is it still the same world as the reference's, or have pictures, labels or outputs moved?",
    "velocity": "Does the data arrive, and reach training, in time?",
}
_VERBS = {"crashed": "crashed", "fail": "failed", "warn": "warned", "not_measurable": "could not be measured"}


def details(verdicts: Sequence[Verdict], pictures: Mapping[str, bytes], facts: Facts, album: Album) -> Html:
    """A part for each V that was judged."""
    shown = {key for verdict in verdicts for side in wanted(verdict) for key in side}
    known = by_key(facts, shown)
    return join(_v(v, found, pictures, known, album) for v, found in by_v(verdicts).items() if found)


def _v(
    v: str, found: Sequence[Verdict], pictures: Mapping[str, bytes], known: Mapping[str, Fact], album: Album
) -> Html:
    ranked = sorted(found, key=lambda one: WORST_FIRST.index(one.result))
    result = worst([one.result for one in found])
    heading = el("h3", status_icon(result, 24), v.capitalize(), status_word(result))
    lines = [("Asks", ASKS.get(v, "")), ("Found", _found(ranked)), ("To do", _to_do(ranked))]
    told = el("dl", *(el("div", el("dt", name), el("dd", prose(said))) for name, said in lines if said), class_="told")
    return el("section", heading, told, *(_check(one, pictures, known, album) for one in ranked), class_="v",
              id=f"v-{v}")  # fmt: skip


def status_word(result: str) -> Html:
    """The result for those who do not see the icon."""
    return el("span", f": {result.replace('_', ' ')}", class_="hidden")


def _found(ranked: Sequence[Verdict]) -> str:
    """One sentence: how many checks did not pass, which they are, and how many did."""
    passed = sum(one.result == "pass" for one in ranked)
    if passed == len(ranked):
        return "The only check passed." if passed == 1 else f"All {passed} checks passed."
    parts = []
    for result, verb in _VERBS.items():
        names = [one.check.replace("_", " ") for one in ranked if one.result == result]
        if names:
            more = f" and {len(names) - 4} more" if len(names) > 4 else ""
            parts.append(f"{len(names)} {verb} ({', '.join(names[:4])}{more})")
    if passed:
        parts.append(f"{passed} passed")
    return f"Of {count(len(ranked), 'check')}: {', '.join(parts)}."


def _to_do(ranked: Sequence[Verdict]) -> str:
    """The remedy of the worst check; the others stand beside their checks."""
    bad = [one for one in ranked if one.result in ("crashed", "fail", "warn")]
    if not bad:
        return next((one.remedy for one in ranked if one.remedy), "Nothing.")
    return next((one.remedy for one in bad if one.remedy), "See the messages below.")


def _check(verdict: Verdict, pictures: Mapping[str, bytes], known: Mapping[str, Fact], album: Album) -> Html:
    suppressed = verdict.thresholds.get("suppressed_until")
    tags = (
        el("span", "blocking", class_="tag", title="a failure stops what follows") if verdict.blocking else None,
        el("span", f"suppressed until {_day(suppressed)}", class_="tag") if suppressed else None,
        el("span", f"against {verdict.reference}", class_="tag") if verdict.reference else None,
    )
    head = el("header", status(verdict.result), el("h4", verdict.check.replace("_", " ")), *tags)
    remedy = el("p", el("b", "To do: "), prose(verdict.remedy), class_="remedy") if verdict.remedy else None
    link = None
    if verdict.findings:
        link = el("p", el("a", f"{count(len(verdict.findings), 'finding')} in the list", href="#findings",
                          data_filter=f"check={verdict.v}.{verdict.check}"), class_="to-list")  # fmt: skip
    about = el("div", el("p", prose(verdict.message)), remedy, link, class_="about")
    shown = evidence(verdict, pictures, known, album)
    if shown and verdict.result in ("pass", "not_measurable"):
        shown = el("details", el("summary", "Plots and pictures"), shown, class_="folded")
    return el("article", head, el("div", about, _measure(verdict), class_="body"), shown,
              class_=f"check {verdict.result}")  # fmt: skip


def _measure(verdict: Verdict) -> Html | None:
    """Figure, interval, gauge, sizes and limits."""
    facts: list[Html | None] = []
    if verdict.statistic is not None:
        facts += [el("span", measured(verdict.statistic_name, verdict.statistic), class_="figure-value"),
                  el("span", verdict.statistic_name.replace("_", " "), class_="quiet")]  # fmt: skip
    of_effect = (
        verdict.statistic is None
        or not verdict.interval
        or not (verdict.interval[0] - 1e-9 <= verdict.statistic <= verdict.interval[1] + 1e-9)
    )
    unit = "" if of_effect else verdict.statistic_name
    more = [f"n = {number(verdict.n)}"] if verdict.n else []
    if verdict.interval:
        more.insert(0, "interval " + " to ".join(measured(unit, end) for end in verdict.interval))
    if verdict.effect is not None:
        more.append(f"effect {number(verdict.effect)}")
    if verdict.p is not None:
        more.append("p < 0.001" if verdict.p < 0.001 else f"p = {number(verdict.p)}")
    limits = [(without_unit(name), measured(name, limit)) for name, limit in verdict.thresholds.items()
              if name != "suppressed_until"]  # fmt: skip
    listed = el("dl", *(el("div", el("dt", name), el("dd", limit)) for name, limit in limits), class_="limits")
    if not (facts or more or limits):
        return None
    return el("div", el("p", *facts, class_="statistic") if facts else None, gauge(verdict),
              el("p", *(el("span", one) for one in more), class_="more") if more else None,
              listed if limits else None, class_="measure")  # fmt: skip


def _day(limit: float | None) -> str:
    """Suppressions carry their end as 20261231."""
    if limit is None:
        return NONE
    day = f"{int(limit):08d}"
    return f"{day[:4]}-{day[4:6]}-{day[6:]}"
