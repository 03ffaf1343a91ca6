"""All checks: which there are, and running them over one context. A check that crashes takes no other with it."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime

from sevenfold.quality import catalogue
from sevenfold.quality.context import Check, Context
from sevenfold.quality.plugins import Broken, load
from sevenfold.quality.suppressions import apply_suppressions
from sevenfold.quality.verdict import VS, Verdict, missing, to_table
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.progress import Progress, silent

MODULES = (
    "validity",
    "metadata",
    "suite",
    "variety",
    "veracity",
    "labels",
    "twins",
    "value",
    "volume",
    "volatility",
    "velocity",
)
"""The modules of sevenfold.quality that hold checks, each in its `CHECKS`."""

MOST_DATA = 2_000_000
"""Characters of a verdict's data, as JSON, that are kept: ten times what a check should need for its plots."""


def built_in() -> tuple[Check, ...]:
    """The checks that come with Sevenfold, in the order of the seven Vs."""
    found = [c for name in MODULES for c in importlib.import_module(f"sevenfold.quality.{name}").CHECKS]
    return tuple(sorted(found, key=lambda c: VS.index(c.v)))


def registered() -> tuple[tuple[Check, ...], tuple[Broken, ...]]:
    """The built-in checks and those of installed packages, by V; and the packages' that cannot be used."""
    own = built_in()
    others, broken = load(taken=[*catalogue.CHECKS, *(c.key for c in own)])
    return tuple(sorted([*own, *others], key=lambda c: VS.index(c.v))), tuple(broken)


def names() -> frozenset[str] | None:
    """The `V.check` that a policy may name; None (any) while a package's checks cannot be known."""
    checks, broken = registered()
    return None if broken else frozenset([*catalogue.CHECKS, *(c.key for c in checks)])


def judge(
    context: Context, *, checks: Sequence[Check] | None = None, progress: Progress | None = None
) -> list[Verdict]:
    """Run the checks for this kind of subject (None: all that are registered) and apply the policy's suppressions.

    What lacks its input says so as ``not_measurable``, and so does what the policy disables. An exception in a check
    becomes a verdict ``crashed`` with the error as its message, except what the user has to mend before anything can
    be judged (SevenfoldError), which is raised.
    """
    progress = progress or silent
    found, broken = registered() if checks is None else (tuple(checks), ())
    chosen = [c for c in found if context.kind in c.kinds]
    verdicts: list[Verdict] = [b.verdict(context.subject) for b in broken]
    for done, check in enumerate(chosen):
        # no count: checks take from milliseconds to seconds, and a time left drawn from them would be wrong
        progress(0, 0, f"check {done + 1} of {len(chosen)}, {check.key}")
        verdicts += _answers(check, context)
    progress(0, 0, "checks done")
    return apply_suppressions(verdicts, context.policy, today=day(context.now))


def day(now: float) -> date:
    """The UTC day of a unix time."""
    return datetime.fromtimestamp(now, UTC).date()


def _answers(check: Check, context: Context) -> list[Verdict]:
    if check.key in context.policy.disable:
        return [_disabled(check.v, check.name, context.subject)]
    try:
        answer = check.run(context)
        told = [answer] if isinstance(answer, Verdict) else list(answer)
        told = [_accepted(x, check, context.subject) for x in told]
    except SevenfoldError:
        raise
    except (Exception, SystemExit) as error:  # whatever it is, the other checks go on, and this one is told as crashed
        return [crashed(check, context.subject, error)]
    off = context.policy.disable  # a check may answer with the verdict of another name too
    return [_disabled(x.v, x.check, x.subject) if f"{x.v}.{x.check}" in off else x for x in told]


def _accepted(x: object, check: Check, subject: str) -> Verdict:
    """A verdict that can be stored and shown. Raises TypeError or ValueError for any other answer."""
    if not isinstance(x, Verdict):
        raise TypeError(f"it answered with a {type(x).__name__}, not with a Verdict")
    if x.subject != subject:
        raise ValueError(f"it answered about {x.subject!r}, and was asked about {subject!r}")
    name = f"{x.v}.{x.check}"
    if check.key not in catalogue.CHECKS and name in catalogue.CHECKS:
        raise ValueError(f"it answered as {name}, which comes with Sevenfold")
    size = sum(map(len, to_table([x])["data"].to_pylist()))  # raises for what is no JSON or no text
    if size > MOST_DATA:
        left = f" (Its plots are left out: {size:,} characters of data, and {MOST_DATA:,} are kept.)"
        return replace(x, data={}, message=x.message + left)
    return x


def _disabled(v: str, check: str, subject: str) -> Verdict:
    return missing(v, check, subject, "Disabled in the policy.", "Take it out of `disable`.")


def crashed(check: Check, subject: str, error: BaseException) -> Verdict:
    """The verdict about a check that raised: what, and where."""
    where = traceback.extract_tb(error.__traceback__)
    place = f" ({where[-1].filename}:{where[-1].lineno})" if where else ""
    return Verdict(
        check.v,
        check.name,
        subject,
        "crashed",
        message=_text(f"The check raised {type(error).__name__}: {str(error)[:2000]}{place}."),
        remedy="Report it, or mend your own check; nothing is known about the data from it.",
    )


def _text(said: str) -> str:
    """As UTF-8 can hold it: a message may quote half a character."""
    return said.encode("utf-8", "backslashreplace").decode()
