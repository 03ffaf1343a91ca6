"""Judging: a module per V, verdicts, policy, scorecard and reports. Names load their module only when used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sevenfold.quality.checks import built_in, judge
    from sevenfold.quality.context import Check, Context, Curve, Gain
    from sevenfold.quality.junit import junit_xml
    from sevenfold.quality.policy import Policy, default_policy_yaml, load_policy
    from sevenfold.quality.predictions import out_of_sample
    from sevenfold.quality.scorecard import Scorecard, exit_code
    from sevenfold.quality.suite import default_suite_text
    from sevenfold.quality.suppressions import apply_suppressions, is_suppressed
    from sevenfold.quality.verdict import RESULTS, SCHEMA, VS, Verdict, blocks, from_table, to_table

_HOMES = {
    "RESULTS": "verdict",
    "SCHEMA": "verdict",
    "VS": "verdict",
    "Check": "context",
    "Context": "context",
    "Curve": "context",
    "Gain": "context",
    "Policy": "policy",
    "Scorecard": "scorecard",
    "Verdict": "verdict",
    "apply_suppressions": "suppressions",
    "blocks": "verdict",
    "built_in": "checks",
    "default_policy_yaml": "policy",
    "default_suite_text": "suite",
    "exit_code": "scorecard",
    "from_table": "verdict",
    "is_suppressed": "suppressions",
    "judge": "checks",
    "junit_xml": "junit",
    "load_policy": "policy",
    "out_of_sample": "predictions",
    "to_table": "verdict",
}
__all__ = [
    "RESULTS",
    "SCHEMA",
    "VS",
    "Check",
    "Context",
    "Curve",
    "Gain",
    "Policy",
    "Scorecard",
    "Verdict",
    "apply_suppressions",
    "blocks",
    "built_in",
    "default_policy_yaml",
    "default_suite_text",
    "exit_code",
    "from_table",
    "is_suppressed",
    "judge",
    "junit_xml",
    "load_policy",
    "out_of_sample",
    "to_table",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"sevenfold.quality.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'sevenfold.quality' has no attribute {name!r}")
