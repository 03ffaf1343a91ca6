"""The scorecard: seven cards, and below them what every check measured, against which limits, with what remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sevenfold.quality.report import plot
from sevenfold.quality.report.format import NONE, number
from sevenfold.quality.report.markup import Html, el, join, prose, table, text

if TYPE_CHECKING:
    from sevenfold.quality.verdict import Verdict

QUESTIONS = {
    "validity": "Does it obey its declared form?",
    "variety": "Does it cover the world it claims?",
    "veracity": "Can its labels be trusted?",
    "value": "What does each sample or batch contribute?",
    "volume": "Is there enough?",
    "volatility": "Is it still true?",
    "velocity": "Does it reach training in time?",
}
WORDS = {"fail": "fail", "warn": "warning", "pass": "pass", "not_measurable": "not measurable", "none": "not judged"}
_SHAPES = {
    "pass": "M7.5 12.5l3 3 6-7",
    "warn": "M12 7.5v6 M12 16.4v.2",
    "fail": "M8.5 8.5l7 7 M15.5 8.5l-7 7",
    "not_measurable": "M9.3 9.6a2.8 2.8 0 1 1 4 2.6c-.9.4-1.3.9-1.3 1.8 M12 16.6v.2",
    "none": "M8.5 12h7",
}
_FRAMES = {
    "pass": "M12 3a9 9 0 1 1 0 18a9 9 0 1 1 0-18z",
    "warn": "M12 2.8L22 20.2H2z",
    "fail": "M8.3 3h7.4L21 8.3v7.4L15.7 21H8.3L3 15.7V8.3z",
    "not_measurable": "M12 3a9 9 0 1 1 0 18a9 9 0 1 1 0-18z",
    "none": "M12 3a9 9 0 1 1 0 18a9 9 0 1 1 0-18z",
}


def status_icon(result: str, size: int = 20) -> Html:
    """A circle, triangle or octagon with its sign: told apart by shape, not only by colour."""
    result = result if result in _SHAPES else "none"
    return el(
        "svg", el("path", d=_FRAMES[result], class_="frame"), el("path", d=_SHAPES[result], class_="sign"),
        viewBox="0 0 24 24", width=size, height=size, class_=f"status-icon {result}", aria_hidden="true",
    )  # fmt: skip


def status(result: str) -> Html:
    """Icon and word."""
    return el("span", status_icon(result, 16), WORDS.get(result, result), class_=f"status {result}")


def worst(results: Sequence[str]) -> str:
    """The result a card shows: the worst measured one; "not measurable" only when nothing could be measured."""
    return next((word for word in ("fail", "warn", "pass", "not_measurable") if word in results), "none")


def by_v(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """The verdicts of each V, in the order of the seven; a V that nobody knows comes last."""
    found: dict[str, list[Verdict]] = {v: [] for v in QUESTIONS}
    for verdict in verdicts:
        found.setdefault(verdict.v, []).append(verdict)
    return found


def cards(verdicts: Sequence[Verdict]) -> Html:
    """Seven cards, each a link to its table."""
    return el("ul", *(_card(v, found) for v, found in by_v(verdicts).items()), class_="cards")


def _card(v: str, found: Sequence[Verdict]) -> Html:
    results = [verdict.result for verdict in found]
    result = worst(results)
    short = {"fail": "fail", "warn": "warn", "pass": "pass", "not_measurable": "unmeasured"}
    tally = [f"{results.count(word)} {said}" for word, said in short.items() if word in results]
    culprit = found[results.index(result)].check.replace("_", " ") if result in ("fail", "warn") else None
    inner = (
        el("span", status_icon(result, 26), el("span", WORDS[result], class_="word"), class_="verdict"),
        el("strong", v.capitalize()),
        el("span", QUESTIONS.get(v, ""), class_="question"),
        el("span", culprit, class_="culprit") if culprit else None,
        el("span", " · ".join(tally) if tally else "no check ran", class_="tally"),
    )
    return el("li", el("a", *inner, href=f"#v-{v}", class_=f"card {result}") if found
              else el("div", *inner, class_=f"card {result}"))  # fmt: skip


def details(verdicts: Sequence[Verdict]) -> Html:
    """A table per V that was judged."""
    return join(_details(v, found) for v, found in by_v(verdicts).items() if found)


def _details(v: str, found: Sequence[Verdict]) -> Html:
    heading = el("h3", v.capitalize(), el("span", QUESTIONS.get(v, ""), class_="question"))
    ranks = {"fail": 0, "warn": 1, "pass": 2}
    rows = (_row(verdict) for verdict in sorted(found, key=lambda one: ranks.get(one.result, 3)))
    head = ("verdict", "check", "statistic", "limits", "reference", "findings")
    body = table(head, rows, caption=f"{v.capitalize()}: what every check measured", numeric=(5,))
    return el("section", heading, body, class_="verdicts", id=f"v-{v}")


def _row(verdict: Verdict) -> tuple[Html, Html, Html, Html, Html, Html]:
    blocking = el("span", "blocking", class_="tag", title="a failure stops what follows") if verdict.blocking else None
    remedy = el("p", el("b", "Remedy: "), prose(verdict.remedy), class_="remedy") if verdict.remedy else None
    about = el("div", el("span", verdict.check.replace("_", " "), class_="check"), blocking,
               el("p", prose(verdict.message)), remedy, class_="about")  # fmt: skip
    offending = el("a", f"{len(verdict.findings):,}", href="#findings") if verdict.findings else text("0")
    return (status(verdict.result), about, _statistic(verdict), _limits(verdict.thresholds),
            el("span", verdict.reference or NONE, class_="reference"), offending)  # fmt: skip


def _statistic(verdict: Verdict) -> Html:
    parts: list[Html | None] = [el("span", verdict.statistic_name.replace("_", " "), class_="quiet"),
             el("span", number(verdict.statistic), class_="figure")]  # fmt: skip
    if verdict.interval:
        lo, hi = verdict.interval
        parts.append(el("span", f"[{number(lo)}, {number(hi)}]", class_="interval", title="confidence interval"))
        parts.append(gauge(verdict.statistic, verdict.interval, verdict.thresholds))
    more = [f"n = {number(verdict.n)}"]
    if verdict.effect is not None:
        more.append(f"effect {number(verdict.effect)}")
    if verdict.p is not None:
        more.append("p < 0.001" if verdict.p < 0.001 else f"p = {number(verdict.p)}")
    return el("div", *parts, el("span", *(el("span", one) for one in more), class_="more"), class_="statistic")


def _limits(thresholds: Mapping[str, float]) -> Html:
    if not thresholds:
        return text(NONE)
    items = (
        el("div", el("dt", key.replace("_", " ")), el("dd", _limit(key, limit))) for key, limit in thresholds.items()
    )
    return el("dl", *items, class_="limits")


def _limit(name: str, limit: float) -> str:
    """Suppressions carry their end as 20261231."""
    day = f"{int(limit):08d}"
    return f"{day[:4]}-{day[4:6]}-{day[6:]}" if name.endswith("_until") else number(limit)


def gauge(statistic: float | None, interval: tuple[float, float], thresholds: Mapping[str, float]) -> Html | None:
    """The statistic and its interval on a line, with the limits that share its scale.

    Which ones do is told by their names: warn..., fail... and max..._share; others (min_n, alpha) are of another kind.
    """
    limits = {
        name: limit
        for name, limit in thresholds.items()
        if name.startswith(("warn", "fail")) or (name.startswith("max") and name.endswith("_share"))
    }
    if statistic is None or not limits:
        return None
    values = [statistic, *interval, *limits.values()]
    lo, hi = min(values), max(values)
    if lo >= 0 and hi <= 1:
        lo = 0.0  # shares are read against none
    if not hi > lo:
        return None
    x = plot.linear(lo, hi, 6, 124)
    parts = [plot.rule(4, 11, 126, 11, "axis")]
    for name, limit in limits.items():
        parts.append(plot.rule(x(limit), 3, x(limit), 19, f"limit {'warn' if name.startswith('warn') else 'fail'}"))
    parts.append(plot.rule(x(interval[0]), 11, x(interval[1]), 11, "whisker"))
    parts.append(el("circle", cx=x(statistic), cy=11, r=4, class_="dot"))
    said = ", ".join(f"{name.replace('_', ' ')} {number(limit)}" for name, limit in limits.items())
    title = el("title", f"{number(statistic)}; {said}")
    return el("svg", title, *parts, viewBox="0 0 130 22", width=130, height=22, role="img", class_="gauge")
