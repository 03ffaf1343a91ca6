"""The scorecard's front: a verdict on the whole in one line, and seven cards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sevenfold.quality.report.format import count
from sevenfold.quality.report.markup import Html, el, join
from sevenfold.quality.report.status import WORDS, WORST_FIRST, status_icon, worst

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
_COUNTED = {"crashed": "crashed", "fail": "failed", "warn": "warned", "pass": "passed",
            "not_measurable": "could not be measured"}  # fmt: skip


def by_v(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """The verdicts of each V, in the order of the seven; a V that nobody knows comes last."""
    found: dict[str, list[Verdict]] = {v: [] for v in QUESTIONS}
    for verdict in verdicts:
        found.setdefault(verdict.v, []).append(verdict)
    return found


def front(verdicts: Sequence[Verdict]) -> Html:
    """The line and the cards."""
    return join((headline(verdicts), cards(verdicts)))


def headline(verdicts: Sequence[Verdict]) -> Html:
    """What follows from all verdicts, in one line."""
    results = [verdict.result for verdict in verdicts]
    result = worst(results)
    blocking = [x for x in verdicts if x.blocking and x.result == "fail"]
    word = "Blocked" if blocking else {"crashed": "A check crashed", "fail": "Failed", "warn": "Passed with warnings",
                                       "pass": "Passed", "not_measurable": "Not measurable"}[result]  # fmt: skip
    tally = ", ".join(f"{results.count(one)} {_COUNTED[one]}" for one in WORST_FIRST if one in results)
    said = f"{count(len(results), 'check')}: {tally}."
    if blocking:
        names = ", ".join(f"{x.v}.{x.check}" for x in blocking[:4]) + (" ..." if len(blocking) > 4 else "")
        said += f" What follows is stopped by {names}."
    tone = "fail" if blocking else result
    return el("div", status_icon(tone, 30), el("div", el("strong", word), el("span", said)),
              class_=f"banner {tone}")  # fmt: skip


def cards(verdicts: Sequence[Verdict]) -> Html:
    """Seven cards, each a link to what was judged."""
    return el("ul", *(_card(v, found) for v, found in by_v(verdicts).items()), class_="cards")


def _card(v: str, found: Sequence[Verdict]) -> Html:
    results = [verdict.result for verdict in found]
    result = worst(results)
    short = {"crashed": "crashed", "fail": "fail", "warn": "warn", "pass": "pass", "not_measurable": "unmeasured"}
    tally = [f"{results.count(word)} {said}" for word, said in short.items() if word in results]
    bad = result in ("crashed", "fail", "warn")
    culprit = found[results.index(result)].check.replace("_", " ") if bad else None
    inner = (
        el("span", status_icon(result, 23), el("span", WORDS[result], class_="word"), class_="verdict"),
        el("strong", v.capitalize()),
        el("span", QUESTIONS.get(v, ""), class_="question"),
        el("span", culprit, class_="culprit") if culprit else None,
        el("span", " · ".join(tally) if tally else "no check ran", class_="tally"),
    )
    return el("li", el("a", *inner, href=f"#v-{v}", class_=f"card {result}") if found
              else el("div", *inner, class_=f"card {result}"))  # fmt: skip
