"""What a check leaves behind: JUnit, SARIF, JSON, HTML, the findings, and GitHub's annotations and step summary."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sevenfold.pipelines.cli.answers import write_rows
from sevenfold.pipelines.cli.console import finite
from sevenfold.storage.errors import SevenfoldError

if TYPE_CHECKING:
    import pyarrow as pa

    from sevenfold.quality.findings import Keys
    from sevenfold.quality.verdict import Verdict
    from sevenfold.storage.lake import Lake
    from sevenfold.storage.project import Project

FORMAT = 1
"""Of the JSON document (docs/ci.md); a change that breaks a reader adds one."""


@dataclass(frozen=True)
class Subject:
    """One thing that was judged, and where its findings' keys lead.

    `sources`: batch -> where it came from; of a source in no lake, "" -> itself. `page` writes its HTML.
    """

    name: str
    kind: str
    verdicts: Sequence[Verdict]
    status: str | None
    rows: pa.Table
    quarantine: pa.Table | None
    sources: Mapping[str, str]
    page: Callable[[Path, Sequence[Verdict]], object]
    all_verdicts: Sequence[Verdict] = ()
    known: Keys | None = field(default=None, repr=False)

    @staticmethod
    def of(
        lake: Lake, project: Project, subject: str, kind: str, verdicts: Sequence[Verdict], name: str | None = None
    ) -> Subject:
        """What was judged: a version, a batch, or a source that is a batch of a temporary lake, called as it was given.

        Parameters
        ----------
        subject : the batch or version in the lake.
        name : what the user calls it, if it is something else.
        """

        def page(path: Path, said: Sequence[Verdict]) -> object:
            from sevenfold.assets.reporting import write_scorecard

            return write_scorecard(lake, project, subject, said, out=path)

        records = {b.batch: b for b in lake.batches(project.dataset)}
        if kind == "version":
            sources = {batch: b.source for batch, b in records.items()}
            return Subject(subject, kind, verdicts, None, lake.samples(project.dataset, subject), None, sources, page)
        record = records[subject]
        rows, aside = lake.batch_rows(project.dataset, subject), lake.quarantine(project.dataset, subject)
        status = None if kind == "source" else record.status
        return Subject(name or subject, kind, verdicts, status, rows, aside, {"": record.source}, page)

    def against(self, baseline: Sequence[Verdict], *, name: str, tolerance: float) -> Subject:
        """The same, read against a baseline."""
        from sevenfold.quality.baseline import compare
        from sevenfold.quality.catalogue import worse
        from sevenfold.quality.checks import registered

        read = compare(self.verdicts, baseline, name=name, worse=worse(registered()[0]), tolerance=tolerance)
        return replace(self, verdicts=read.verdicts, all_verdicts=self.verdicts, known=read.known)

    def findings(self) -> pa.Table:
        """All findings, those that the baseline knows too (quality.findings.FINDINGS)."""
        from sevenfold.quality.findings import findings_table

        return findings_table(self.all_verdicts or self.verdicts, self.rows, self.quarantine, known=self.known)

    def named(self, keys: Sequence[str]) -> list[str]:
        """Where the samples came from, by their keys; what is no sample keeps its key."""
        import pyarrow as pa
        import pyarrow.compute as pc

        place = pc.index_in(pa.array(keys, pa.string()), value_set=self.rows["id"].combine_chunks())
        paths = self.rows["path"].take(place).to_pylist()
        return [path or key for path, key in zip(paths, keys, strict=True)]

    def locate(self, row: Mapping[str, Any]) -> str:
        """The file of a finding, relative to the current folder where it lies in it; of an archive, the archive."""
        source = self.sources.get(row.get("batch") or "", next(iter(self.sources.values()), self.name))
        path = row.get("path")
        if "://" in source:
            return f"{source}/{path}" if path else source
        place = Path(source)
        if path and place.is_dir():
            place = place / path
        try:
            return place.resolve().relative_to(Path.cwd().resolve()).as_posix()
        except ValueError:
            return place.as_posix()


@dataclass(frozen=True)
class Outputs:
    """Where a check's answers go; None: not wanted."""

    junit: Path | None = None
    sarif: Path | None = None
    json: Path | None = None
    html: Path | None = None
    findings: Path | None = None
    github: bool = False

    def verify(self, subjects: int, *, also: Path | None = None) -> None:
        """Raises SevenfoldError for what cannot be written, before anything is measured; `also`: one more file."""
        asked = [self.junit, self.sarif, self.html, self.findings, also]
        files = [path for path in asked if path is not None]
        if self.json is not None and str(self.json) != "-":
            files.append(self.json)
        for path in files:
            _verify_file(path)
        twice = [p for p, n in Counter(p.resolve() for p in files if p.is_file() or not p.exists()).items() if n > 1]
        if twice:
            raise SevenfoldError("two outputs would be this one file", where=str(twice[0]), expected="a file for each")
        if self.html is not None and subjects != 1:
            raise one_subject(subjects, "--html")

    def write(self, subjects: Sequence[Subject], *, code: int, strict: bool, baseline: str | None) -> dict[str, Any]:
        """Write what was asked for; returns the JSON document."""
        verdicts = [v for s in subjects for v in s.verdicts]
        document = _document(subjects, code, strict, baseline, self.findings)
        if self.junit is not None:
            from sevenfold.quality.junit import junit_xml

            write_text(self.junit, junit_xml(verdicts, name="sevenfold"))
        if self.json is not None and str(self.json) != "-":
            _json(self.json, document)
        if self.sarif is not None or self.findings is not None or self.github:
            self._write_findings(subjects, code)
        if self.html is not None:
            subjects[0].page(self.html, subjects[0].verdicts)
        return document

    def _write_findings(self, subjects: Sequence[Subject], code: int) -> None:
        import pyarrow as pa

        from sevenfold.quality.findings import FINDINGS

        tables = [s.findings() for s in subjects]
        if self.findings is not None:
            write_rows(pa.concat_tables([FINDINGS.empty_table(), *tables]), self.findings)
        if self.sarif is not None:
            _json(self.sarif, _sarif(subjects, tables))
        if self.github:
            stream = sys.stderr if str(self.json) == "-" else sys.stdout  # the runner reads commands from both
            lines, page = _github(subjects, tables, code)
            for line in lines:
                print(line, file=stream)
            summary = os.environ.get("GITHUB_STEP_SUMMARY")
            if summary:
                _append(Path(summary), page)


def one_subject(found: int, option: str) -> SevenfoldError:
    """The error about an output of which there is one per subject."""
    return SevenfoldError(f"{found} subjects are to be judged", expected=f"one, for {option}", do="name the one")


def _document(
    subjects: Sequence[Subject], code: int, strict: bool, baseline: str | None, findings: Path | None
) -> dict[str, Any]:
    from sevenfold import __version__
    from sevenfold.quality.scorecard import Scorecard

    cards = [
        {**Scorecard.of(_named(s), subject=s.name).to_dict(), "kind": s.kind, "status": s.status} for s in subjects
    ]
    return {
        "format": FORMAT, "sevenfold": __version__, "exit_code": code, "strict": strict, "baseline": baseline,
        "findings": str(findings) if findings else None, "subjects": cards,
    }  # fmt: skip


def _named(s: Subject) -> list[Verdict]:
    """The verdicts under the name that the user gave."""
    return [replace(v, subject=s.name) for v in s.verdicts]


def _sarif(subjects: Sequence[Subject], tables: Sequence[pa.Table]) -> dict[str, Any]:
    from sevenfold import __version__
    from sevenfold.quality.catalogue import question
    from sevenfold.quality.checks import registered
    from sevenfold.quality.sarif import MOST, SCHEMA, sarif

    helps = {c.key: question(c) for c in registered()[0]}
    most = max(1, MOST // max(len(subjects), 1))
    runs: list[Any] = []
    for s, table in zip(subjects, tables, strict=True):
        shown = s.all_verdicts if s.known is not None else s.verdicts
        shown = _with_results(shown, s.verdicts)
        runs += sarif(shown, table, version=__version__, helps=helps, locate=s.locate, most=most)["runs"]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": runs}


def _with_results(full: Sequence[Verdict], read: Sequence[Verdict]) -> list[Verdict]:
    """What was read against a baseline, with all findings: `baselineState` tells the new ones."""
    return [replace(r, findings=f.findings, notes=f.notes) for f, r in zip(full, read, strict=True)]


def _github(subjects: Sequence[Subject], tables: Sequence[pa.Table], code: int) -> tuple[list[str], str]:
    from sevenfold.quality.github import MOST, annotate, summary

    lines: list[str] = []
    pages = []
    for s, table in zip(subjects, tables, strict=True):
        lines += annotate(s.verdicts, table, s.locate, most=MOST - len(lines))
        pages.append(summary(s.verdicts, table, s.locate, title=f"Sevenfold: {s.name}"))
    said = {0: "passed", 1: "failed", 2: "warned (--strict)", 3: "crashed"}[code]
    return lines, "\n".join(pages) + f"\nThe check {said} (exit code {code}).\n\n"


def _verify_file(path: Path) -> None:
    """Raises SevenfoldError where no file can come to be."""
    if path.is_dir():
        raise SevenfoldError("this is a folder", where=str(path), expected="a file to write")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise SevenfoldError("this is a file, and no folder", where=str(above), expected=f"a folder for {path.name}")
    if not os.access(path if path.exists() else above, os.W_OK):
        raise SevenfoldError(
            "there is no right to write here", where=str(path), expected="a file to write", do="choose another place"
        )


def _append(summary: Path, page: str) -> None:
    """The page behind what other steps said. It is a courtesy: without it the check has still been made."""
    try:
        with summary.open("a", encoding="utf-8") as file:
            file.write(page)
    except OSError as error:
        print(f"warning: no step summary: {error.strerror} ({summary})", file=sys.stderr)


def write_text(path: Path, text: str) -> None:
    """A text file of the user's, in UTF-8; folders on the way are made."""
    from sevenfold.storage import files

    path.parent.mkdir(parents=True, exist_ok=True)
    files.hand_out(path, text.encode())


def _json(path: Path, document: Mapping[str, Any]) -> None:
    import json

    write_text(path, json.dumps(finite(document), indent=2, ensure_ascii=False, default=str, allow_nan=False) + "\n")
