"""JUnit XML from verdicts, for CI systems: a suite per V, a test case per check."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from sevenfold.quality.verdict import VS, Verdict

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(verdicts: Sequence[Verdict], *, name: str = "sevenfold") -> str:
    """Verdicts as a JUnit XML document.

    A ``fail`` is a failure, ``crashed`` an error, ``not_measurable`` is skipped, a ``warn`` passes with its message on
    system-out. Findings are counted, not listed: they are whole in the lake's verdict table.
    """
    root = ElementTree.Element("testsuites", name=_clean(name))
    for v in VS:
        mine = [x for x in verdicts if x.v == v]
        if not mine:
            continue
        tally = {r: str(sum(x.result == r for x in mine)) for r in ("fail", "crashed", "not_measurable")}
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=v,
            tests=str(len(mine)),
            failures=tally["fail"],
            errors=tally["crashed"],
            skipped=tally["not_measurable"],
        )
        for verdict in mine:
            _case(suite, verdict)
    for key, tag in (("tests", "tests"), ("failures", "failures"), ("errors", "errors"), ("skipped", "skipped")):
        root.set(key, str(sum(int(s.get(tag, "0")) for s in root)))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, verdict: Verdict) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=_clean(f"{verdict.subject}.{verdict.v}"), name=_clean(verdict.check), time="0"
    )
    text = [verdict.message]
    if verdict.remedy:
        text.append(f"What to do: {verdict.remedy}")
    if verdict.findings:
        text.append(f"{len(verdict.findings)} findings.")
    body = _clean("\n".join(text))
    if verdict.result == "fail":
        kind = "blocking" if verdict.blocking else "fail"
        ElementTree.SubElement(case, "failure", message=_clean(verdict.message), type=kind).text = body
    elif verdict.result == "crashed":
        ElementTree.SubElement(case, "error", message=_clean(verdict.message), type="crashed").text = body
    elif verdict.result == "not_measurable":
        ElementTree.SubElement(case, "skipped", message=_clean(verdict.message))
    else:
        ElementTree.SubElement(case, "system-out").text = f"{verdict.result}: {body}"


def _clean(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold."""
    return _ILLEGAL.sub("\ufffd", text)
