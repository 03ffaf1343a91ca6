"""When to retrain: a pure function from what is known (drift, new data, time, attempts) to an explained decision.

Nothing here reads a clock, a file or a Dagster instance: a sensor gathers a `RetrainState`, calls `decide`, and
launches the run under the decision's run key, so that the same state asked twice cannot start two runs.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Result = Literal["pass", "warn", "fail", "not_measurable", "crashed"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DriftWindow(_Frozen):
    """The volatility verdict on one batch (one window), as the policy sees it."""

    batch: str
    result: Result
    effect: float | None = Field(None, description="effect size of the drift, in the check's own unit")
    harm: float | None = Field(
        None, description="accuracy on this batch minus the champion's reference accuracy; None: no labels yet"
    )


class RetrainState(_Frozen):
    """Everything the decision may depend on."""

    version: str = Field(pattern=r"^v[0-9]+$", description="the version a retrain would train on")
    windows: tuple[DriftWindow, ...] = Field(
        (), description="drift verdicts on the batches since the champion's version, in order of arrival"
    )
    new_batches: int = Field(0, ge=0, description="batches admitted or committed since the champion's version")
    reviewed_labels: int = Field(0, ge=0, description="labels that review has added or changed since that version")
    hours_since_retrain: float | None = Field(
        None, ge=0, description="since the last retrain that finished, whatever the gate said; None: there was none"
    )
    running: bool = Field(False, description="a retrain is queued or running now, of any version")
    attempts: int = Field(0, ge=0, description="retrains of this version that were started")
    last_attempt_failed: bool = Field(False, description="the newest of them crashed (a refusal is no crash)")


class RetrainPolicy(_Frozen):
    """The thresholds; every one has a default that works."""

    drift_windows: int = Field(2, ge=1, description="drifted windows in a row that propose a retrain")
    min_effect: float = Field(0.0, ge=0, description="a smaller known effect is not counted as drift")
    min_harm: float = Field(0.0, ge=0, description="a known accuracy loss below this is not counted as harm")
    new_batches: int | None = Field(5, ge=1, description="new batches that propose a retrain; None: never")
    reviewed_labels: int | None = Field(None, ge=1, description="reviewed labels that propose one; None: never")
    cool_down_hours: float = Field(24.0, ge=0, description="least time between two retrains")
    max_attempts: int = Field(2, ge=1, description="starts per version; only a crash earns another")


class RetrainDecision(_Frozen):
    """What to do and why: `reasons` are plain sentences, those for it first, then those against."""

    retrain: bool
    run_key: str | None = Field(None, description="`retrain-<version>-<attempt>` when `retrain`, else None")
    attempt: int | None = None
    triggers: tuple[Literal["drift", "new_batches", "reviewed_labels"], ...] = ()
    reasons: tuple[str, ...]


def decide(state: RetrainState, policy: RetrainPolicy | None = None) -> RetrainDecision:
    """Retrain when something proposes it and nothing holds it back.

    Proposes (any one): `drift_windows` drifted windows in a row, counted back from the newest; `new_batches`;
    `reviewed_labels`. A window counts as drifted when its verdict is warn or fail and neither its effect nor its
    harm is known to be too small; unknown is not small. A window that was not measurable is passed over: it neither
    counts nor ends the row.
    Holds back (any one): a retrain running, the cool-down, this version already tried, nothing new to learn from.
    """
    policy = policy or RetrainPolicy()
    row, drift_said = _drifted_in_a_row(state.windows, policy)
    triggers: list[Literal["drift", "new_batches", "reviewed_labels"]] = []
    reasons: list[str] = []
    if row >= policy.drift_windows:
        triggers.append("drift")
        reasons.append(f"{row} drifted windows in a row ({policy.drift_windows} propose a retrain): {drift_said}.")
    if policy.new_batches is not None and state.new_batches >= policy.new_batches:
        triggers.append("new_batches")
        reasons.append(f"{state.new_batches} new batches since the champion ({policy.new_batches} propose a retrain).")
    if policy.reviewed_labels is not None and state.reviewed_labels >= policy.reviewed_labels:
        triggers.append("reviewed_labels")
        reasons.append(f"{state.reviewed_labels} reviewed labels ({policy.reviewed_labels} propose a retrain).")
    if not triggers:
        wanted = "" if policy.new_batches is None else f" of {policy.new_batches}"
        said = f": {drift_said}" if drift_said else ""
        reasons.append(
            f"Nothing proposes a retrain: {row} of {policy.drift_windows} drifted windows in a row{said}; "
            f"{state.new_batches}{wanted} new batches; {state.reviewed_labels} reviewed labels."
        )
        return RetrainDecision(retrain=False, reasons=tuple(reasons))

    held = _held_back(state, policy)
    if held:
        return RetrainDecision(retrain=False, triggers=tuple(triggers), reasons=(*reasons, *held))
    attempt = state.attempts + 1
    key = f"retrain-{state.version}-{attempt}"
    reasons.append(f"Nothing holds it back: attempt {attempt} on {state.version}, run key {key}.")
    return RetrainDecision(retrain=True, run_key=key, attempt=attempt, triggers=tuple(triggers), reasons=tuple(reasons))


def _held_back(state: RetrainState, policy: RetrainPolicy) -> list[str]:
    held = []
    if state.running:
        held.append("Held back: a retrain is already running.")
    since = state.hours_since_retrain
    if since is not None and since < policy.cool_down_hours:
        held.append(
            f"Held back: the last retrain was {since:.1f} h ago, the cool-down is {policy.cool_down_hours:g} h."
        )
    if state.attempts and not state.last_attempt_failed:
        held.append(f"Held back: {state.version} was already trained; only a new version can teach something new.")
    elif state.attempts >= policy.max_attempts:
        held.append(
            f"Held back: {state.attempts} attempts on {state.version} crashed, {policy.max_attempts} are allowed."
        )
    if state.new_batches == 0 and state.reviewed_labels == 0:
        held.append("Held back: no new batch and no reviewed label, so there is nothing new to learn from.")
    return held


def _drifted_in_a_row(windows: tuple[DriftWindow, ...], policy: RetrainPolicy) -> tuple[int, str]:
    """(length of the newest unbroken row of drifted windows, a phrase on them and on what ended the row)."""
    names: list[str] = []
    ended = ""
    for window in reversed(windows):
        if window.result == "not_measurable":
            continue
        too_small = _why_not_counted(window, policy)
        if too_small:
            ended = f"{window.batch} {too_small}"
            break
        effect = "" if window.effect is None else f" effect {window.effect:.3g}"
        harm = ", harm unknown" if window.harm is None else f", accuracy {window.harm:+.3f}"
        names.append(f"{window.batch} ({window.result}{effect}{harm})")
    phrases = [*reversed(names)]
    if ended and len(names) < policy.drift_windows:
        phrases.append(ended)
    return len(names), "; ".join(phrases)


def _why_not_counted(window: DriftWindow, policy: RetrainPolicy) -> str:
    if window.result == "pass":
        return "passed"
    if window.effect is not None and window.effect < policy.min_effect:
        return f"drifted by {window.effect:.3g}, less than {policy.min_effect:g}"
    if window.harm is not None and (window.harm >= 0 or -window.harm < policy.min_harm):
        return f"drifted without harm (accuracy {window.harm:+.3f})"
    return ""
