"""The scorecard: the newest verdict of each check about one subject, by V; and the exit code that follows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from sevenfold.quality.report.status import WORST_FIRST
from sevenfold.quality.suppressions import is_suppressed
from sevenfold.quality.verdict import VS, Verdict, from_table


@dataclass(frozen=True)
class Scorecard:
    """One subject's newest verdicts by V: every V is there, those never judged with no verdict."""

    subject: str
    by_v: dict[str, tuple[Verdict, ...]]

    @classmethod
    def of(cls, verdicts: pa.Table | Sequence[Verdict] | None, *, subject: str | None = None) -> Scorecard:
        """The newest verdict of each check about one subject.

        Parameters
        ----------
        verdicts : a verdict table of any number of check runs (newest by ``at``; among equals the later row), or
            verdicts in order of time; None is no verdict (what an empty lake returns).
        subject : whose; None takes the last verdict's subject.
        """
        if isinstance(verdicts, pa.Table):
            items = from_table(verdicts)
            if "at" in verdicts.column_names:
                times = verdicts["at"].to_pylist()
                order = sorted(range(len(items)), key=lambda i: float("-inf") if times[i] is None else times[i])
                items = [items[i] for i in order]
        else:
            items = list(verdicts or ())
        if subject is None:
            subject = items[-1].subject if items else "(nothing)"
        newest = {(x.v, x.check): x for x in items if x.subject == subject}
        by_v = {v: tuple(x for key, x in sorted(newest.items()) if key[0] == v) for v in VS}
        return cls(subject, by_v)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All verdicts, in the order of the seven."""
        return tuple(v for group in self.by_v.values() for v in group)

    def result(self, v: str) -> str | None:
        """The worst result of one V (crashed, fail, warn, pass, not_measurable); None when nothing judged it."""
        found = {x.result for x in self.by_v[v]}
        return next((r for r in WORST_FIRST if r in found), None)

    def to_dict(self, *, findings: bool = False) -> dict[str, Any]:
        """Plain data for JSON; findings are counted, and listed when asked for."""
        return {
            "subject": self.subject,
            "results": {v: self.result(v) for v in VS},
            "verdicts": {v: [_plain(x, findings) for x in self.by_v[v]] for v in VS},
        }

    def to_json(self, *, findings: bool = False) -> str:
        """:meth:`to_dict` as indented JSON."""
        return json.dumps(self.to_dict(findings=findings), indent=2, ensure_ascii=False, allow_nan=False)

    def to_text(self) -> str:
        """Plain text: a line per check, then the message and remedy of what did not pass."""
        lines = [f"Scorecard of {self.subject}"]
        width = max((len(x.check) for x in self.verdicts), default=5)
        for v in VS:
            if not self.by_v[v]:
                lines.append(f"  {v:<10}  {'-':<{width}}  not judged")
            for i, x in enumerate(self.by_v[v]):
                lines.append(f"  {v if i == 0 else '':<10}  {x.check:<{width}}  {_summary(x)}".rstrip())
        for x in self.verdicts:
            if x.result in ("warn", "fail", "crashed"):
                lines += ["", f"{x.v}.{x.check}: {x.result.upper()}", f"  {x.message}"]
                lines += [f"  What to do: {x.remedy}"] if x.remedy else []
        return "\n".join(lines) + "\n"


def exit_code(verdicts: Iterable[Verdict], *, strict: bool = False) -> int:
    """3 when a check crashed, 1 when one failed (blocking or not), 2 when ``strict`` and one warned, else 0.

    What was suppressed does not count.
    """
    worst = {x.result for x in verdicts if not is_suppressed(x)}
    return 3 if "crashed" in worst else 1 if "fail" in worst else 2 if strict and "warn" in worst else 0


def _summary(x: Verdict) -> str:
    parts = [f"{x.result.replace('_', ' '):<14}"]
    if x.statistic is not None:
        parts.append(f"{x.statistic:.4g}")
        if x.interval is not None:
            parts.append(f"[{x.interval[0]:.4g}, {x.interval[1]:.4g}]")
        parts.append(x.statistic_name)
    if x.p is not None:
        parts.append(f"p {x.p:.2g}")
    if x.blocking and x.result == "fail":
        parts.append("(blocking)")
    if x.findings:
        parts.append(f"({len(x.findings)} findings)")
    return " ".join(parts)


def _plain(x: Verdict, findings: bool) -> dict[str, Any]:
    row = asdict(x)
    del row["data"]  # what plots are drawn from
    row["finding_count"] = len(x.findings)
    row["findings"], row["notes"] = list(x.findings), list(x.notes)
    row["interval"] = list(x.interval) if x.interval else None
    if not findings:
        del row["findings"], row["notes"]
    return row
