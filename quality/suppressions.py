"""Suppressions: what a named person accepted until a date softens verdicts, and every softened verdict says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date

from sevenfold.quality.policy import Policy, Suppression
from sevenfold.quality.verdict import Verdict

SUPPRESSED = "suppressed_until"
"""The key in a suppressed verdict's thresholds; its value is the last day as a number, 20270131."""


def apply_suppressions(verdicts: Iterable[Verdict], policy: Policy, *, today: date) -> list[Verdict]:
    """Soften the verdicts that a valid suppression names, and say so in their messages.

    A suppressed ``fail`` becomes a non-blocking ``warn`` and a suppressed ``warn`` stays one; both carry
    :data:`SUPPRESSED` in their thresholds and do not count for ``--strict``. With a `key` only that finding is
    accepted: it leaves the findings, and the verdict is softened when none other is left. An expired suppression
    changes nothing but the message.
    """
    return [_suppress(v, policy.suppressions, today) for v in verdicts]


def is_suppressed(verdict: Verdict) -> bool:
    """Whether a valid suppression softened this verdict."""
    return SUPPRESSED in verdict.thresholds


def _suppress(verdict: Verdict, suppressions: Sequence[Suppression], today: date) -> Verdict:
    if verdict.result not in ("warn", "fail"):
        return verdict
    mine = [
        s for s in suppressions if s.check == f"{verdict.v}.{verdict.check}" and s.subject in (None, verdict.subject)
    ]
    valid = [s for s in mine if s.until >= today]
    whole = [s for s in valid if s.key is None]
    if whole:
        return _softened(verdict, max(whole, key=lambda s: s.until))
    there = set(verdict.findings)
    accepted: dict[str | None, Suppression] = {s.key: s for s in sorted(valid, key=lambda s: s.until) if s.key in there}
    if accepted:
        verdict = _without(verdict, accepted)
        if not verdict.findings:
            return _softened(verdict, min(accepted.values(), key=lambda s: s.until))
    kept = [s for s in mine if s.until < today and (s.key is None or (s.key in there and s.key not in accepted))]
    if kept:
        last = max(kept, key=lambda s: s.until)
        what = "A suppression" if last.key is None else f"A suppression of {last.key}"
        note = f" ({what} by {last.reviewer} expired on {last.until} and is ignored.)"
        return replace(verdict, message=verdict.message + note)
    return verdict


def _softened(verdict: Verdict, by: Suppression) -> Verdict:
    note = f"Suppressed until {by.until} by {by.reviewer} ({by.reason}); it was a {verdict.result}. "
    return replace(
        verdict,
        result="warn",
        blocking=False,
        message=note + verdict.message,
        thresholds={**verdict.thresholds, SUPPRESSED: float(by.until.strftime("%Y%m%d"))},
    )


def _without(verdict: Verdict, accepted: dict[str | None, Suppression]) -> Verdict:
    """The verdict without the accepted findings, and who accepted them in its message."""
    keep = [i for i, key in enumerate(verdict.findings) if key not in accepted]
    who = ", ".join(sorted({f"{s.reviewer} until {s.until} ({s.reason})" for s in accepted.values()}))
    n = len(verdict.findings) - len(keep)
    said = f" ({n} {'finding is' if n == 1 else 'findings are'} accepted by {who}.)"
    return replace(
        verdict,
        message=verdict.message + said,
        findings=tuple(verdict.findings[i] for i in keep),
        notes=tuple(verdict.notes[i] for i in keep) if verdict.notes else (),
    )
