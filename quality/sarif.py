"""SARIF 2.1.0 from verdicts and their findings: rules are checks, results are findings, for code-scanning views.

OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0". The most results that GitHub shows of one
upload are 5,000, the most it takes 25,000: findings over the cap are counted, not listed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality.verdict import Verdict

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MOST = 5_000
"""Results in one document, shared by the checks: the worst of each come first."""

_LEVELS = {"fail": "error", "warn": "warning", "pass": "note", "not_measurable": "none"}


def sarif(
    verdicts: Sequence[Verdict],
    findings: pa.Table,
    *,
    version: str,
    helps: Mapping[str, str],
    locate: Callable[[Mapping[str, Any]], str],
    most: int = MOST,
) -> dict[str, Any]:
    """Verdicts as one SARIF run.

    What failed or warned becomes results: one per finding, or one about the subject where a check has no findings.
    A crashed check is a notification, and the execution was not successful.

    Parameters
    ----------
    findings : their findings (quality.findings.FINDINGS).
    version : of Sevenfold.
    helps : `V.check` -> what the check asks, in a sentence.
    locate : a finding, or {"subject": ...} for the subject itself -> the path of a file, relative to the checkout.
    most : results at the most.
    """
    broken = [x for x in verdicts if x.result in ("fail", "warn")]
    rules = sorted({f"{x.v}.{x.check}" for x in verdicts})
    number = {rule: i for i, rule in enumerate(rules)}
    results: list[dict[str, Any]] = []
    total = 0
    for i, verdict in enumerate(broken):
        fair = -(-(most - len(results)) // (len(broken) - i))  # what the others leave is used too
        mine = _findings_of(findings, verdict)
        total += max(mine.num_rows, 1)
        rows = mine.slice(0, max(fair, 1)).to_pylist()
        rule = f"{verdict.v}.{verdict.check}"
        results += [_result(verdict, row, number[rule], locate) for row in rows or [{"subject": verdict.subject}]]
    left = total - len(results)
    notes = [_crash(x, number[f"{x.v}.{x.check}"]) for x in verdicts if x.result == "crashed"]
    if left:
        told = f"{total} findings, of which {len(results)} are listed; all of them: sevenfold check --findings FILE"
        notes.append({"level": "note", "message": {"text": told}})
    driver = {
        "name": "Sevenfold",
        "version": version,
        "semanticVersion": version,
        "rules": [_rule(rule, helps, verdicts) for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "utf16CodeUnits",
        "results": results,
        "invocations": [
            {
                "executionSuccessful": not any(x.result == "crashed" for x in verdicts),
                "toolExecutionNotifications": notes,
            }
        ],
        "properties": {"findings": total, "listed": len(results)},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _findings_of(findings: pa.Table, verdict: Verdict) -> pa.Table:
    mine = pc.and_(
        pc.and_(pc.equal(findings["v"], verdict.v), pc.equal(findings["check"], verdict.check)),
        pc.equal(findings["subject"], verdict.subject),
    )
    found = findings.filter(mine)
    return found.take(pc.sort_indices(found, [("known", "ascending"), ("rank", "ascending")]))  # what is new first


def _rule(rule: str, helps: Mapping[str, str], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    v, _, check = rule.partition(".")
    about = helps.get(rule) or f"{check.replace('_', ' ').capitalize()}."
    remedy = next((x.remedy for x in verdicts if (x.v, x.check) == (v, check) and x.remedy), "")
    text = f"{about} What to do: {remedy}" if remedy else about
    return {
        "id": rule,
        "name": "".join(word.capitalize() for word in check.split("_")),
        "shortDescription": {"text": f"{v}: {check.replace('_', ' ')}"},
        "fullDescription": {"text": about},
        "help": {"text": text},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": [v]},
    }


def _result(
    verdict: Verdict, row: Mapping[str, Any], index: int, locate: Callable[[Mapping[str, Any]], str]
) -> dict[str, Any]:
    key = row.get("key")
    note = row.get("note")
    text = verdict.message if key is None else f"{note or verdict.check.replace('_', ' ')} ({key}). {verdict.message}"
    name = f"{verdict.v}.{verdict.check}"
    # a picture has no lines, but GitHub takes no result without one
    physical = {"artifactLocation": {"uri": quote(locate(row), safe="/")}, "region": {"startLine": 1}}
    place: dict[str, Any] = {"physicalLocation": physical}
    if key is not None:
        place["logicalLocations"] = [{"name": key, "fullyQualifiedName": f"{verdict.subject}/{key}"}]
    result: dict[str, Any] = {
        "ruleId": name,
        "ruleIndex": index,
        "level": _LEVELS[verdict.result],
        "message": {"text": text or name},
        "locations": [place],
        # the subject is no part of it: the same sample in the next version is the same finding
        "partialFingerprints": {"sevenfold/v1": hashlib.sha256(f"{name}\0{key or ''}".encode()).hexdigest()},
    }
    if row.get("known") is not None:
        result["baselineState"] = "unchanged" if row["known"] else "new"
    if row.get("rank") is not None:
        result["rank"] = round(max(0.0, 100.0 - (row["rank"] - 1) * 100.0 / max(len(verdict.findings), 1)), 2)
    return result


def _crash(verdict: Verdict, index: int) -> dict[str, Any]:
    return {
        "level": "error",
        "message": {"text": verdict.message or "the check crashed"},
        "associatedRule": {"id": f"{verdict.v}.{verdict.check}", "index": index},
    }
