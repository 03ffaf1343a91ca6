"""Your own checks: found through entry points of the group `sevenfold.checks`; a broken one takes no other with it.

An entry point names a `Check`, a sequence of them, or a function of a `Context` that answers with a verdict; the
function's check is called as the entry point is: `"variety.dark_share" = "mypackage.checks:dark_share"`. See
docs/checks.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from sevenfold.quality.context import Check
from sevenfold.quality.verdict import VS, Verdict

GROUP = "sevenfold.checks"


@dataclass(frozen=True)
class Broken:
    """An entry point that cannot be used, and why."""

    name: str
    distribution: str
    why: str

    def verdict(self, subject: str) -> Verdict:
        """The verdict `crashed` about it, under its V where its name tells one."""
        v, _, check = self.name.partition(".")
        if v not in VS:
            v, check = "validity", self.name
        return Verdict(
            v,
            re.sub(r"[^a-z0-9_]", "_", check.lower()) or "plugin",
            subject,
            "crashed",
            message=f"The check {self.name!r} of the package {self.distribution} cannot be used: {self.why}.",
            remedy=f"Mend {self.distribution}, or uninstall it; the other checks ran.",
        )


def load(taken: Iterable[str] = (), found: Sequence[EntryPoint] | None = None) -> tuple[list[Check], list[Broken]]:
    """The checks of all installed packages, by name of the entry point, and those that cannot be used.

    Parameters
    ----------
    taken : keys (`V.name`) that are in use: a check of the same key is refused, never replaced.
    found : the entry points; None looks at what is installed.
    """
    points = entry_points(group=GROUP) if found is None else found
    checks: list[Check] = []
    broken: list[Broken] = []
    used = set(taken)
    for point in sorted(points, key=lambda p: (p.name, p.value)):
        origin = f"{point.dist.name} {point.dist.version}" if point.dist else "(unknown)"
        try:
            mine = _checks(point.name, point.load())
        except (Exception, SystemExit) as error:  # importing runs anybody's code: whatever it does, the rest goes on
            broken.append(Broken(point.name, origin, f"{type(error).__name__}: {error}"))
            continue
        for check in mine:
            if check.key in used:
                broken.append(Broken(point.name, origin, f"there is a check {check.key} already"))
            else:
                used.add(check.key)
                checks.append(check)
    return checks, broken


def _checks(name: str, target: Any) -> list[Check]:
    if isinstance(target, Check):
        return [target]
    if callable(target):
        v, dot, check = name.partition(".")
        if not dot:
            raise ValueError(f"a function's entry point is called V.check, such as variety.{name}")
        return [Check(v, check, target)]
    if isinstance(target, Sequence) and not isinstance(target, str) and all(isinstance(c, Check) for c in target):
        return list(target)
    raise TypeError(f"it is a {type(target).__name__}; expected a Check, a sequence of Checks or a function")
