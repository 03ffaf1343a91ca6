"""What was decided: the gate with its slice table, the retrain decision, and the reconciliation of what came in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sevenfold.quality.report import plot
from sevenfold.quality.report.format import NONE, number, percent, points
from sevenfold.quality.report.markup import Html, el, join, prose, table
from sevenfold.quality.report.model import BatchCounts, Command, Decision, Gate, GateSlice, Reason
from sevenfold.quality.report.status import status_icon

FOREST = 250


def banner(word: str, sentence: str, tone: str) -> Html:
    """A decision in one line: icon, word, sentence."""
    said = el("div", el("strong", word), el("span", prose(sentence)))
    return el("div", status_icon(tone, 30), said, class_=f"banner {tone}")


def reasons(given: Sequence[Reason | str], against: str = "fail") -> Html | None:
    """A list whose marks say which way each reason spoke; `against` is the mark of those that spoke against."""
    if not given:
        return None
    tones = {True: "pass", False: against, None: "none"}
    spoken = {True: "for: ", False: "against: ", None: ""}
    items = (
        el(
            "li",
            status_icon(tones[one.ok], 18),
            el("span", el("span", spoken[one.ok], class_="hidden"), prose(one.text)),
        )
        for one in (Reason(each) if isinstance(each, str) else each for each in given)
    )
    return el("ul", *items, class_="reasons")


def decision(made: Decision) -> Html:
    """The retrain policy's word; a decision to retrain is no failure, so it is not painted as one."""
    word = "Retrain" if made.retrain else "Do not retrain"
    tone = "pass" if made.retrain else "none"
    return join((banner(word, made.headline, tone), reasons(made.reasons, against="none")))


def gate(made: Gate) -> Html:
    """Promoted or refused, why, and both models slice by slice."""
    if made.promoted:
        word, sentence = "Promoted", f"{made.alias} now points at {made.challenger} (before: {made.champion})."
    else:
        word, sentence = "Refused", f"{made.alias} stays at {made.champion}; {made.challenger} was not promoted."
    parts = (banner(word, sentence, "pass" if made.promoted else "fail"), reasons(made.reasons),
             _slices(made) if made.slices else None)  # fmt: skip
    return join(parts)


def _slices(made: Gate) -> Html:
    ends = [value for one in made.slices for value in (one.champion, one.challenger) if value is not None]
    ends += [end for one in made.slices for ends_of in (one.champion_interval, one.challenger_interval) if ends_of
             for end in ends_of]  # fmt: skip
    scale = plot.ticks(min(ends), max(ends), 4) if ends else [0.0, 1.0]
    rows: list[tuple[Html | str, ...]] = []
    for one in made.slices:
        difference = None if one.champion is None or one.challenger is None else one.challenger - one.champion
        word = {True: "pass", False: "fail", None: "none"}[one.ok]
        said = {True: "passes", False: "fails", None: "not decided"}[one.ok]
        note = el("span", prose(one.note), class_="remedy") if one.note else None
        named = el("span", el("b", one.name), el("span", f" {said}", class_="hidden"), note)
        name = el("span", status_icon(word, 16), named, class_="status slice")
        rows.append((name, number(one.n), _accuracy(one.champion, one.champion_interval),
                     _accuracy(one.challenger, one.challenger_interval),
                     _difference(difference, one.difference_interval), _forest(one, scale)))  # fmt: skip
    head = ("slice", "n", "champion", "challenger", "points", "accuracy, 95 % interval")
    axis = _scale(scale)
    marked = scale if len(scale) < 6 else scale[:: len(scale) - 1]
    digits = 0 if scale[-1] - scale[0] >= 0.04 else 1
    foot = (plot.label(axis(t), 12, percent(t, digits), anchor="middle") for t in marked)
    ruler = el("svg", *foot, viewBox=f"0 0 {FOREST} 16", width=FOREST, height=16, class_="chart", aria_hidden="true")
    rows.append(("", "", "", "", "", ruler))
    names = plot.legend((f"champion: {made.champion}", f"challenger: {made.challenger}"))
    body = table(head, rows, caption="Champion and challenger by slice", numeric=(1, 2, 3, 4))
    return el("div", names, body, class_="slices")


def _difference(value: float | None, interval: tuple[float, float] | None) -> Html:
    inside = f"{points(interval[0])} to {points(interval[1])}" if interval else None
    below = el("span", inside, class_="interval") if inside else None
    return el("span", el("b", NONE if value is None else points(value)), below, class_="accuracy")


def _scale(scale: Sequence[float]) -> Callable[[float], float]:
    return plot.linear(scale[0], scale[-1], 22, FOREST - 22)


def _accuracy(value: float | None, interval: tuple[float, float] | None) -> Html:
    inside = f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}" if interval else None
    below = el("span", inside, class_="interval") if inside else None
    return el("span", el("b", percent(value)), below, class_="accuracy")


def _forest(one: GateSlice, scale: Sequence[float]) -> Html:
    x = _scale(scale)
    parts = [plot.rule(x(t), 0, x(t), 40) for t in scale]
    pairs = ((one.champion, one.champion_interval), (one.challenger, one.challenger_interval))
    for i, (value, interval) in enumerate(pairs):
        y = 13 + 14 * i
        if interval:
            parts.append(plot.rule(x(interval[0]), y, x(interval[1]), y, f"line {plot.series(i)}"))
        if value is not None:
            parts.append(plot.marker(i, x(value), y, 4.5))
    says = f"{one.name}: champion {percent(one.champion)}, challenger {percent(one.challenger)}"
    return el("svg", el("title", says), *parts, viewBox=f"0 0 {FOREST} 40", width=FOREST, height=40, role="img",
              class_="chart forest")  # fmt: skip


def reconciliation(batches: Sequence[BatchCounts]) -> Html:
    """inputs = samples + aliases + relabels + quarantined, batch by batch and in sum."""

    signs = {"inputs": "", "samples": "= ", "aliases": "+ ", "relabels": "+ ", "quarantined": "+ "}
    terms = [name for name in signs if name != "relabels" or any(one.relabels for one in batches)]

    def row(one: BatchCounts) -> tuple[Html | str, ...]:
        why = ", ".join(f"{reason.replace('_', ' ')} {n:,}" for reason, n in one.reasons.items())
        off = one.inputs - one.samples - one.aliases - one.relabels - one.quarantined
        tone, said = (
            ("pass", "reconciles")
            if one.reconciles
            else ("fail", f"{abs(off):,} {'missing' if off > 0 else 'too many'}")
        )
        check = el("span", status_icon(tone, 16), said, class_=f"status {tone}")
        counts = (number(n) for n in (getattr(one, name) for name in terms))
        status = el("span", one.status, class_="quiet") if one.status else None
        batch = el("span", el("b", one.batch), status, class_="batch")
        because = el("span", why or NONE, class_="why")
        return (batch, *counts, check, because)

    rows = [row(one) for one in batches]
    if len(batches) > 1:
        total = {name: sum(getattr(one, name) for one in batches) for name in terms}
        rows.append(row(BatchCounts(batch="all batches", status="", **total)))
    head = ("batch", *(signs[name] + name for name in terms), "check", "quarantined because")
    body = table(head, rows, caption="Ingest counts by batch", numeric=range(1, 1 + len(terms)))
    note = "An alias is an input whose bytes were known already: its path is kept, its picture is not stored twice."
    if "relabels" in terms:
        note += " A relabel is a known picture under another label; it waits for review."
    return join((body, el("p", note, class_="quiet note")))


def commands(given: Sequence[Command]) -> Html:
    """What to type next; one click selects a whole command."""
    return el("dl", *(part for one in given for part in (el("dt", el("code", one.command)), el("dd", one.what))),
              class_="commands")  # fmt: skip
