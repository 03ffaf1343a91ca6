"""The report's charts: class balance, learning curves, arms by seed, step times."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, stdev

from sevenfold.quality.report import plot
from sevenfold.quality.report.format import count, number, percent, shorten
from sevenfold.quality.report.markup import Html, el, join, numbers
from sevenfold.quality.report.model import Arm, ClassBalance, Curve, StepTimes

WIDTH = 920
MOST_CLASSES = 30


def class_balance(versions: Sequence[ClassBalance]) -> Html:
    """Grouped bars: a row per class, a bar per version. Past 30 classes: the commonest and the rarest ones."""
    classes = list(dict.fromkeys(name for version in versions for name in version.counts))
    shown, note = classes, None
    if len(classes) > MOST_CLASSES:
        total = {name: sum(version.counts.get(name, 0) for version in versions) for name in classes}
        ranked = sorted(classes, key=lambda name: -total[name])
        shown = ranked[: MOST_CLASSES // 2] + ranked[-(MOST_CLASSES // 2) :]
        note = f"The {MOST_CLASSES // 2} commonest and {MOST_CLASSES // 2} rarest of {len(classes):,} classes."
    top = max((n for version in versions for n in version.counts.values()), default=0)
    scale = plot.ticks(0, max(top, 1), 6, whole=True)
    left, right, thick = plot.margin(shown), WIDTH - 60.0, 11.0 if len(versions) < 4 else 8.0
    row = thick * len(versions) + 12
    bottom = 8 + row * len(shown)
    x = plot.linear(0, scale[-1], left, right)
    parts = [plot.vertical_grid(scale, x, 4, bottom, number)]
    for r, name in enumerate(shown):
        y = 8 + r * row
        middle = y + thick * len(versions) / 2
        parts.append(plot.label(left - 10, middle + 4.5, shorten(name, 20), anchor="end", kind="name"))
        for v, version in enumerate(versions):
            n = version.counts.get(name, 0)
            at = y + v * thick
            hint = el("title", f"{name}, {version.version}: {count(n, 'sample')}")
            parts.append(el("rect", hint, x=left, y=at, width=round(max(x(n) - left, 0.5), 2), height=thick - 1.5,
                            rx=1.5, class_=f"fill {plot.series(v)}"))  # fmt: skip
            parts.append(plot.label(x(n) + 5, at + thick - 2.5, number(n), kind="value small"))
    parts.append(plot.label((left + right) / 2, bottom + 36, "samples", anchor="middle", kind="title"))
    says = f"Samples per class in {', '.join(version.version for version in versions)}"
    names = [version.version for version in versions]
    data = numbers(["class", *names], ((name, *(number(v.counts.get(name, 0)) for v in versions)) for name in classes),
                   caption=says)  # fmt: skip
    drawn = plot.drawing(join(parts), WIDTH, bottom + 44, says=says)
    return el("figure", plot.legend(names, square=True), drawn, el("figcaption", note) if note else None, data)


def learning_curves(curves: Sequence[Curve]) -> Html:
    """Accuracy by epoch: a thin line per run, a thick one with marks for its group's mean."""
    groups = list(dict.fromkeys(curve.group for curve in curves))
    xs = [x for curve in curves for x, _ in curve.points]
    ys = [y for curve in curves for _, y in curve.points]
    if not xs:
        return el("p", "No epoch has been evaluated.", class_="quiet")
    x_ticks = [t for t in plot.ticks(min(xs), max(xs), 10, whole=True) if min(xs) <= t <= max(xs)]
    y_ticks = plot.ticks(min(ys), max(ys), 6)
    left, right, top, bottom = 64.0, WIDTH - 190.0, 14.0, 330.0
    x = plot.linear(min(xs), max(xs), left + 12, right)
    y = plot.linear(y_ticks[0], y_ticks[-1], bottom, top)
    digits = 0 if all(abs(100 * t - round(100 * t)) < 1e-6 for t in y_ticks) else 1
    parts = [plot.vertical_grid(x_ticks, x, bottom, bottom, number), plot.rule(left, bottom, right, bottom, "axis")]
    for t in y_ticks:
        parts += [plot.rule(left, y(t), right, y(t)), plot.label(left - 8, y(t) + 4, percent(t, digits), anchor="end")]
    for curve in curves:
        path = " ".join(f"{x(a)},{y(b)}" for a, b in curve.points)
        which = plot.series(groups.index(curve.group))
        parts.append(el("polyline", el("title", curve.run), points=path, class_=f"line thin {which}"))
    means = {group: _mean_curve([curve for curve in curves if curve.group == group]) for group in groups}
    for g, group in enumerate(groups):
        path = " ".join(f"{x(a)},{y(b)}" for a, b in means[group])
        parts.append(el("polyline", points=path, class_=f"line {plot.series(g)}", stroke_dasharray=plot.DASHES[g % 6]))
        every = max(1, len(means[group]) // 12)
        parts += [
            plot.marker(g, x(a), y(b), 4, f"{group}, epoch {number(a)}: {percent(b, 2)}")
            for a, b in means[group][::every]
        ]
    ends = [y(means[group][-1][1]) if means[group] else bottom for group in groups]
    for g, (group, at) in enumerate(zip(groups, plot.spread_out(ends, 19), strict=True)):
        if means[group]:
            parts.append(plot.rule(x(means[group][-1][0]) + 6, ends[g], right + 16, round(at, 1), "leader"))
            parts.append(plot.marker(g, right + 24, round(at, 1), 4.5))
            value = percent(means[group][-1][1])
            parts.append(plot.label(right + 35, round(at + 4.5, 1), f"{shorten(group, 16)} · {value}", kind="name"))
    parts.append(plot.label((left + right) / 2, bottom + 36, "epoch", anchor="middle", kind="title"))
    parts.append(el("text", "validation accuracy", class_="title", text_anchor="middle",
                    transform=f"translate(14 {(top + bottom) / 2}) rotate(-90)"))  # fmt: skip
    rows = ((c.run, c.group, len(c.points), percent(c.points[-1][1], 2), percent(max(b for _, b in c.points), 2))
            for c in curves if c.points)  # fmt: skip
    says = "Validation accuracy by epoch"
    data = numbers(["run", "group", "evaluations", "last", "best"], rows, caption=says)
    note = "Thin lines are runs, thick lines the mean of a group's runs."
    if y_ticks[0] > 0:
        note += f" The vertical axis starts at {percent(y_ticks[0], digits)}."
    drawn = plot.drawing(join(parts), WIDTH, bottom + 44, says=says)
    return el("figure", drawn, el("figcaption", note), data)


def _mean_curve(curves: Sequence[Curve]) -> list[tuple[float, float]]:
    """The mean at each epoch that all runs of the group reached (a mean over fewer runs would jump)."""
    values: dict[float, list[float]] = {}
    for curve in curves:
        for epoch, accuracy in curve.points:
            values.setdefault(epoch, []).append(accuracy)
    return [(epoch, fmean(found)) for epoch, found in sorted(values.items()) if len(found) == len(curves)]


def arms(results: Sequence[Arm], note: str = "") -> Html:
    """A row per arm: a mark per seed, the mean and one standard deviation; the same seed is joined between rows."""
    values = [a for arm in results for a in arm.accuracy.values()]
    if not values:
        return el("p", "No seed has finished.", class_="quiet")
    pad = max(0.1 * (max(values) - min(values)), 0.002)
    scale = plot.ticks(min(values) - pad, max(values) + pad, 6)
    left, right, row = plot.margin([arm.name for arm in results]) + 6, WIDTH - 170.0, 58.0
    bottom = row * len(results) + 4
    x = plot.linear(scale[0], scale[-1], left, right)
    digits = 0 if all(abs(100 * t - round(100 * t)) < 1e-6 for t in scale) else 1
    parts = [plot.vertical_grid(scale, x, 4, bottom, lambda t: percent(t, digits))]
    for above, (upper, lower) in enumerate(pairwise(results)):
        for seed in sorted(set(upper.accuracy) & set(lower.accuracy)):
            y = row * above + row / 2
            parts.append(plot.rule(x(upper.accuracy[seed]), y, x(lower.accuracy[seed]), y + row, "pair"))
    for i, arm in enumerate(results):
        y = row * i + row / 2
        found = list(arm.accuracy.values())
        parts.append(plot.label(left - 14, y + 4.5, shorten(arm.name, 20), anchor="end", kind="name"))
        if not found:
            parts.append(plot.label(right + 18, y + 4.5, "no seed finished", kind="value"))
            continue
        mean, spread = fmean(found), stdev(found) if len(found) > 1 else None
        if spread is not None:
            lo, hi = max(mean - spread, scale[0]), min(mean + spread, scale[-1])
            parts.append(el("rect", x=x(lo), y=y - 9, width=round(x(hi) - x(lo), 2), height=18, rx=3,
                            class_=f"band {plot.series(i)}"))  # fmt: skip
        parts.append(plot.rule(x(mean), y - 15, x(mean), y + 15, f"mean {plot.series(i)}"))
        parts += [plot.marker(i, x(a), y, 4.5, f"seed {seed}: {percent(a, 2)}") for seed, a in arm.accuracy.items()]
        shown = percent(mean, 2) if spread is None else f"{100 * mean:.2f} ± {percent(spread, 2)}"
        parts.append(plot.label(right + 18, y, shown, kind="value strong"))
        parts.append(plot.label(right + 18, y + 16, count(len(found), "seed"), kind="value"))
    parts.append(plot.label((left + right) / 2, bottom + 36, "test accuracy", anchor="middle", kind="title"))
    says = "Accuracy by seed of each arm"
    seeds = sorted({seed for arm in results for seed in arm.accuracy})
    rows = ((f"{seed}", *(percent(arm.accuracy.get(seed), 2) for arm in results)) for seed in seeds)
    data = numbers(["seed", *(arm.name for arm in results)], rows, caption=says)
    explain = "Each mark is a seed, the upright line the mean, the band one standard deviation; lines join equal seeds."
    drawn = plot.drawing(join(parts), WIDTH, bottom + 44, says=says)
    return el("figure", el("p", note, class_="lead") if note else None, drawn, el("figcaption", explain), data)


def step_times(runs: Sequence[StepTimes]) -> Html:
    """Stacked bars: where a step's milliseconds go, a row per run."""
    phases = list(dict.fromkeys(phase for run in runs for phase in run.phases))
    total = max((sum(run.phases.values()) for run in runs), default=0.0)
    scale = plot.ticks(0, total or 1, 6)
    left, right, row = plot.margin([run.run for run in runs]) + 4, WIDTH - 130.0, 46.0
    bottom = row * len(runs) + 2
    x = plot.linear(0, scale[-1], left, right)
    parts = [plot.vertical_grid(scale, x, 2, bottom, number)]
    for r, run in enumerate(runs):
        y = row * r + 8
        parts.append(plot.label(left - 12, y + 19, shorten(run.run, 20), anchor="end", kind="name"))
        at = 0.0
        for phase, ms in run.phases.items():
            start, stop = x(at), x(at + ms)
            hint = el("title", f"{run.run}, {phase}: {number(ms)} ms")
            which = plot.series(phases.index(phase))
            parts.append(el("rect", hint, x=start, y=y, width=round(max(stop - start - 1, 0.5), 2), height=30, rx=2,
                            class_=f"fill {which}"))  # fmt: skip
            if stop - start > 38:
                parts.append(plot.label((start + stop) / 2, y + 19.5, number(ms), anchor="middle", kind="inside"))
            at += ms
        parts.append(plot.label(x(at) + 10, y + 13, f"{number(at)} ms", kind="value strong"))
        if run.idle_share is not None:
            parts.append(plot.label(x(at) + 10, y + 28, f"loader idle {percent(run.idle_share)}", kind="value"))
    parts.append(plot.label((left + right) / 2, bottom + 36, "milliseconds per step", anchor="middle", kind="title"))
    says = "Mean milliseconds per training step by phase"
    rows = ((run.run, number(run.steps), *(number(run.phases.get(p)) for p in phases), percent(run.idle_share))
            for run in runs)  # fmt: skip
    data = numbers(["run", "steps", *(f"{p} (ms)" for p in phases), "loader idle"], rows, caption=says)
    note = "Loader idle is the share of the step in which training waited for data."
    if all(run.idle_share is None for run in runs):
        note = ""
    drawn = plot.drawing(join(parts), WIDTH, bottom + 44, says=says)
    return el("figure", plot.legend(phases, square=True), drawn, el("figcaption", note) if note else None, data)
