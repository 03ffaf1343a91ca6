"""Verdicts as Dagster asset checks: one check per V, its table of verdicts and their plots as metadata."""

import base64
import math
import re
from collections.abc import Iterator, Sequence

import dagster as dg

from sevenfold.quality.report.figures import figures, standalone
from sevenfold.quality.verdict import Verdict

PLOTS = 200_000
"""Characters of plots that one check's metadata may hold: the event log keeps every one of them."""
_WORST = {"crashed": 4, "fail": 3, "warn": 2, "not_measurable": 1, "pass": 0}


def specs(asset: str, vs: Sequence[str], *, blocking: Sequence[str] = ()) -> list[dg.AssetCheckSpec]:
    """A check spec per V on `asset`; those in `blocking` stop what is downstream when they fail."""
    return [
        dg.AssetCheckSpec(name=v, asset=asset, blocking=v in blocking, description=f"{v}: the worst verdict counts")
        for v in vs
    ]


def as_results(asset: str, vs: Sequence[str], verdicts: Sequence[Verdict]) -> Iterator[dg.AssetCheckResult]:
    """One result per V: failed when a verdict of it fails, with warnings as severity WARN.

    A warning never blocks: Dagster stops downstream only for a failed check of severity ERROR. A verdict that does
    not block by our own table (volatility, say) is reported as WARN even when it fails. A crashed check is an ERROR:
    nothing is known of what it should have judged.
    """
    for v in vs:
        mine = [x for x in verdicts if x.v == v]
        worst = max((x.result for x in mine), key=_WORST.__getitem__, default="not_measurable")
        stops = any(x.result == "crashed" or (x.result == "fail" and x.blocking) for x in mine)
        yield dg.AssetCheckResult(
            check_name=v,
            asset_key=asset,
            passed=worst in ("pass", "not_measurable"),
            severity=dg.AssetCheckSeverity.ERROR if stops else dg.AssetCheckSeverity.WARN,
            description="; ".join(x.message for x in mine if x.result == worst)[:1000] or "nothing to measure",
            metadata={
                "worst": worst,
                "verdicts": dg.MetadataValue.table([dg.TableRecord(_record(x)) for x in mine], schema=_TABLE),
                **({"plots": dg.MetadataValue.md(drawn)} if (drawn := plots(mine)) else {}),
            },
        )


def plots(verdicts: Sequence[Verdict], most: int = PLOTS) -> str:
    """The report's plots as Markdown with inline SVG images, those of the worst verdicts first; at most `most` long."""
    parts: list[str] = []
    room, left_out = most, 0
    for verdict in sorted(verdicts, key=lambda x: -_WORST[x.result]):
        named = False
        for figure in figures(verdict.data):
            encoded = base64.b64encode(standalone(figure).encode()).decode() if figure.body else ""
            told = f"![{_plain(figure.title)}](data:image/svg+xml;base64,{encoded})" if encoded else _plain(figure.note)
            if len(told) > room:
                left_out += 1
                continue
            room -= len(told)
            parts += [told] if named else [f"**{_plain(verdict.check.replace('_', ' '))}**: {verdict.result}", told]
            named = True
    if left_out:
        parts.append(f"{left_out} more plots are in the scorecard: `sevenfold report`.")
    return "\n\n".join(parts)


def _plain(words: str) -> str:
    """Without what Markdown would read as a link, an image or markup: names come from the data."""
    return re.sub(r"[^\w\s.,:;%+-]", " ", words)


_TABLE = dg.TableSchema(
    [
        dg.TableColumn("check", "string"),
        dg.TableColumn("result", "string"),
        dg.TableColumn("statistic", "string"),
        dg.TableColumn("interval", "string"),
        dg.TableColumn("thresholds", "string"),
        dg.TableColumn("message", "string"),
        dg.TableColumn("remedy", "string"),
        dg.TableColumn("findings", "int"),
    ]
)


def _record(x: Verdict) -> dict[str, str | int]:
    return {
        "check": x.check,
        "result": x.result,
        "statistic": f"{x.statistic_name} {_number(x.statistic)}",
        "interval": f"{_number(x.interval[0])} ... {_number(x.interval[1])}" if x.interval else "",
        "thresholds": ", ".join(f"{k} {_number(t)}" for k, t in x.thresholds.items()),
        "message": x.message,
        "remedy": x.remedy,
        "findings": len(x.findings),
    }


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.4g}"
