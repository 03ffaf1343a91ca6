"""The command that foretells: what more data would bring, from the learning curve of a version's subsets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sevenfold.pipelines.cli.console import example, print_json, print_table, progress, say
from sevenfold.pipelines.cli.data import Json
from sevenfold.pipelines.cli.learn import Set, settings_of
from sevenfold.pipelines.cli.session import session

if TYPE_CHECKING:
    from sevenfold.quality.forecast import LearningCurve

AHEAD = (2.0, 5.0)
"""How many times the samples the command looks ahead to."""


def forecast(
    context: typer.Context,
    ref: Annotated[str, typer.Argument(help="A version (v3), branch or tag.")] = "main",
    sizes: Annotated[int, typer.Option(min=4, help="Training sizes, each half of the next; the check needs five.")] = 5,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each size; the check needs two.")] = 2,
    target_error: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="The test error to plan for; else the policy's.")
    ] = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Train on parts of a version and foretell what more data would bring, with intervals. Kept, and scored later.

    Finished runs are adopted: a second call trains nothing. Once a larger version is trained with the same settings,
    `sevenfold check` holds the forecast against what happened (volume.forecast_score).
    """
    from sevenfold.assets import forecasting
    from sevenfold.assets.judging import policy_of

    at = session(context)
    volume = policy_of(at.project).volume
    target = target_error if target_error is not None else volume.target_error
    with progress(f"training on parts of {ref}") as report:
        made = forecasting.forecast(
            at.lake,
            at.project,
            ref,
            sizes=sizes,
            seeds=seeds,
            split=volume.test_split,
            saturation=volume.saturation_per_doubling,
            overrides=settings_of({}, set_),
            progress=report,
        )
    ahead = [_ahead(made.curve, times) for times in AHEAD]
    needed = None if target is None else made.curve.needed(target)
    if json:
        plan = None if needed is None else _plan(target, *needed)
        told = {"key": made.key, "new": made.new, "adopted": _adopted(made.runs), "ahead": ahead, "target": plan}
        print_json({**told, **made.record})
        return
    _show_runs(made.record["version"], made.runs)
    curve = made.curve
    say(f"error = {curve.a:.3g} n^-{curve.b:.2f} + {curve.c:.3f}", "bold")
    for told in ahead:
        say(f"  at {told['n']:,} samples ({told['times']:g}x): {_span(told)}")
    gain, (low, high) = curve.gain_per_thousand(curve.largest)
    say(f"  1,000 more labels bring {100 * gain:.2f} points ({100 * low:.2f} to {100 * high:.2f})")
    if target is not None and needed is not None:
        from sevenfold.quality.volume import takes

        need, (low, high), chance = needed
        say(f"  {takes(target, need, low, high, chance)}")
    say(f"{'kept' if made.new else 'made before'}: {made.key}")
    say(f"next: sevenfold check {made.record['version']}{at.same}")


def _show_runs(version: str, runs: Any) -> None:
    kinds = sorted({r["n"] for r in runs})
    rows = []
    for n in kinds:
        errors = [r["error"] for r in runs if r["n"] == n]
        mean = sum(errors) / len(errors)
        spread = f"{min(errors):.1%} to {max(errors):.1%}" if len(errors) > 1 else ""
        old = sum(bool(r["adopted"]) for r in runs if r["n"] == n)
        rows.append([n, len(errors), f"{mean:.1%}", spread, f"{old} finished before" if old else ""])
    columns = ["training samples", "runs", "test error", "spread", ""]
    print_table(columns, rows, title=f"{version}: the learning curve", right=columns[:3])


def _ahead(curve: LearningCurve, times: float) -> dict[str, Any]:
    error, (low, high) = curve.error(times * curve.largest)
    return {"times": times, "n": math.floor(times * curve.largest), "error": error, "low": low, "high": high}


def _plan(target: float | None, need: float, span: tuple[float, float], chance: float) -> dict[str, Any]:
    return {"error": target, "needed": need, "low": span[0], "high": span[1], "chance": chance}


def _span(told: dict[str, Any]) -> str:
    return f"error {told['error']:.1%} ({told['low']:.1%} to {told['high']:.1%})"


def _adopted(runs: Any) -> int:
    return sum(bool(r["adopted"]) for r in runs)


COMMANDS = (
    ("forecast", forecast, example("sevenfold forecast v3 --target-error 0.1", "sevenfold forecast --sizes 6")),
)
