"""Verdicts as Dagster asset checks: one check per V, its table of verdicts as metadata."""

import math
from collections.abc import Iterator, Sequence

import dagster as dg

from sevenfold.quality.verdict import Verdict

_WORST = {"fail": 3, "warn": 2, "not_measurable": 1, "pass": 0}


def specs(asset: str, vs: Sequence[str], *, blocking: Sequence[str] = ()) -> list[dg.AssetCheckSpec]:
    """A check spec per V on `asset`; those in `blocking` stop what is downstream when they fail."""
    return [
        dg.AssetCheckSpec(name=v, asset=asset, blocking=v in blocking, description=f"{v}: the worst verdict counts")
        for v in vs
    ]


def as_results(asset: str, vs: Sequence[str], verdicts: Sequence[Verdict]) -> Iterator[dg.AssetCheckResult]:
    """One result per V: failed when a verdict of it fails, with warnings as severity WARN.

    A warning never blocks: Dagster stops downstream only for a failed check of severity ERROR. A verdict that does
    not block by our own table (volatility, say) is reported as WARN even when it fails.
    """
    for v in vs:
        mine = [x for x in verdicts if x.v == v]
        worst = max((x.result for x in mine), key=_WORST.__getitem__, default="not_measurable")
        stops = any(x.result == "fail" and x.blocking for x in mine)
        yield dg.AssetCheckResult(
            check_name=v,
            asset_key=asset,
            passed=worst in ("pass", "not_measurable"),
            severity=dg.AssetCheckSeverity.ERROR if stops else dg.AssetCheckSeverity.WARN,
            description="; ".join(x.message for x in mine if x.result == worst)[:1000] or "nothing to measure",
            metadata={
                "worst": worst,
                "verdicts": dg.MetadataValue.table([dg.TableRecord(_record(x)) for x in mine], schema=_TABLE),
            },
        )


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
