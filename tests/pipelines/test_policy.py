"""The retrain policy is a table of cases."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sevenfold.pipelines.policy import DriftWindow, RetrainPolicy, RetrainState, decide


def w(result: str, effect: float | None = 0.4, harm: float | None = None, batch: str = "b") -> DriftWindow:
    return DriftWindow.model_validate({"batch": batch, "result": result, "effect": effect, "harm": harm})


WARN, FAIL, PASS, UNKNOWN = w("warn"), w("fail"), w("pass", 0.01), w("not_measurable", None)
DRIFT: dict[str, Any] = {"windows": (WARN, FAIL), "new_batches": 2}

# name, state fields, policy fields, retrains?, triggers, a phrase of the reasons
CASES: list[tuple[str, dict[str, Any], dict[str, Any], bool, tuple[str, ...], str]] = [
    ("nothing happened", {}, {}, False, (), "Nothing proposes"),
    ("one drifted window", {"windows": (WARN,), "new_batches": 1}, {}, False, (), "1 of 2 drifted"),
    ("two in a row", DRIFT, {}, True, ("drift",), "2 drifted windows in a row"),
    ("three in a row", {"windows": (WARN,) * 3, "new_batches": 3}, {}, True, ("drift",), "3 drifted windows"),
    ("a pass between", {"windows": (WARN, PASS, WARN), "new_batches": 3}, {}, False, (), "b passed"),
    ("it passed since", {"windows": (WARN, WARN, PASS), "new_batches": 3}, {}, False, (), "0 of 2 drifted"),
    ("drift after a pass", {"windows": (PASS, WARN, WARN), "new_batches": 3}, {}, True, ("drift",), "in a row"),
    ("unmeasured between", {"windows": (WARN, UNKNOWN, WARN), "new_batches": 3}, {}, True, ("drift",), "2 drifted"),
    ("only unmeasured", {"windows": (UNKNOWN,) * 4, "new_batches": 4}, {}, False, (), "0 of 2 drifted"),
    ("three asked for", DRIFT, {"drift_windows": 3}, False, (), "2 of 3 drifted"),
    (
        "one is enough by policy",
        {"windows": (WARN,), "new_batches": 1},
        {"drift_windows": 1},
        True,
        ("drift",),
        "1 dri",
    ),
    ("effect too small", DRIFT, {"min_effect": 0.5}, False, (), "less than 0.5"),
    (
        "effect unknown",
        {"windows": (w("warn", None),) * 2, "new_batches": 2},
        {"min_effect": 0.5},
        True,
        ("drift",),
        "",
    ),
    ("harmless", {"windows": (WARN, w("fail", harm=0.0)), "new_batches": 2}, {}, False, (), "without harm"),
    ("harmful", {"windows": (w("warn", harm=-0.1),) * 2, "new_batches": 2}, {}, True, ("drift",), "accuracy -0.100"),
    (
        "harm below the limit",
        {"windows": (w("warn", harm=-0.01),) * 2, "new_batches": 2},
        {"min_harm": 0.02},
        False,
        (),
        "without harm",
    ),
    ("four batches", {"new_batches": 4}, {}, False, (), "4 of 5 new batches"),
    ("five batches", {"new_batches": 5}, {}, True, ("new_batches",), "5 new batches"),
    ("batches switched off", {"new_batches": 50}, {"new_batches": None}, False, (), "50 new batches"),
    ("labels unused by default", {"reviewed_labels": 900}, {}, False, (), "900 reviewed labels"),
    (
        "labels by policy",
        {"reviewed_labels": 900},
        {"reviewed_labels": 500},
        True,
        ("reviewed_labels",),
        "900 reviewed",
    ),
    ("both triggers", {**DRIFT, "new_batches": 6}, {}, True, ("drift", "new_batches"), "6 new batches"),
    ("one runs", {**DRIFT, "running": True}, {}, False, ("drift",), "already running"),
    ("cooling down", {**DRIFT, "hours_since_retrain": 3.0}, {}, False, ("drift",), "3.0 h ago"),
    ("cooled down", {**DRIFT, "hours_since_retrain": 24.0}, {}, True, ("drift",), "in a row"),
    ("no cool-down", {**DRIFT, "hours_since_retrain": 0.0}, {"cool_down_hours": 0}, True, ("drift",), "in a row"),
    ("already trained", {**DRIFT, "attempts": 1}, {}, False, ("drift",), "already trained"),
    ("crashed once", {**DRIFT, "attempts": 1, "last_attempt_failed": True}, {}, True, ("drift",), "attempt 2"),
    ("crashed twice", {**DRIFT, "attempts": 2, "last_attempt_failed": True}, {}, False, ("drift",), "crashed"),
    ("nothing to learn", {"windows": (WARN, WARN)}, {}, False, ("drift",), "nothing new to learn"),
]


@pytest.mark.parametrize(
    ("fields", "limits", "retrain", "triggers", "phrase"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_case(
    fields: dict[str, Any], limits: dict[str, Any], retrain: bool, triggers: tuple[str, ...], phrase: str
) -> None:
    state = RetrainState(version="v4", **fields)
    got = decide(state, RetrainPolicy(**limits))
    assert got.retrain is retrain
    assert got.triggers == triggers
    assert phrase in " ".join(got.reasons)
    assert got.run_key == (f"retrain-v4-{state.attempts + 1}" if retrain else None)
    assert got.attempt == (state.attempts + 1 if retrain else None)


def test_every_obstacle_is_named_at_once() -> None:
    got = decide(RetrainState(version="v2", new_batches=9, running=True, attempts=1, hours_since_retrain=1))
    assert len(got.reasons) == 4 and sum(r.startswith("Held back") for r in got.reasons) == 3


states = st.builds(
    RetrainState,
    version=st.integers(1, 99).map("v{}".format),
    windows=st.lists(st.sampled_from([WARN, FAIL, PASS, UNKNOWN]), max_size=5).map(tuple),
    new_batches=st.integers(0, 9),
    reviewed_labels=st.integers(0, 9),
    hours_since_retrain=st.none() | st.floats(0, 100),
    running=st.booleans(),
    attempts=st.integers(0, 4),
    last_attempt_failed=st.booleans(),
)


@given(states)
def test_always_safe_pure_and_explained(state: RetrainState) -> None:
    got = decide(state)
    assert got == decide(state) and got.reasons and all(r.endswith(".") for r in got.reasons)
    assert got.retrain == (got.run_key is not None)
    if got.retrain:
        assert got.triggers and not state.running and state.attempts < RetrainPolicy().max_attempts
        started = state.model_copy(update={"attempts": state.attempts + 1, "last_attempt_failed": False})
        assert not decide(started).retrain, "the same version must not be trained twice"


@given(states)
def test_a_clean_newest_window_never_makes_drift_propose(state: RetrainState) -> None:
    assert "drift" not in decide(state.model_copy(update={"windows": (*state.windows, PASS)})).triggers


def test_a_misspelled_field_or_a_strange_version_is_refused() -> None:
    with pytest.raises(ValidationError):
        RetrainPolicy(cooldown=3)  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        RetrainState(version="../x")
