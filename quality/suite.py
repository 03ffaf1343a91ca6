"""The Great Expectations suite: the metrics that it names make a one-row frame, the suite validates it, docs are built.

A metric is ``rows`` or ``<column>_<nulls|min|max|...>`` (quality/frame.py). Validating one row keeps Great Expectations
fast at any size; the failing rows are looked up when a rule failed.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from sevenfold.quality.context import Check, Context
from sevenfold.quality.frame import forms, metrics, offenders, split_metric
from sevenfold.quality.verdict import Verdict
from sevenfold.storage.errors import SevenfoldError

DEFAULT_SUITE = Path(__file__).with_name("suites") / "default.json"
"""The suite that ships with the package; `sevenfold init` copies it for the user to edit."""


def default_suite_text() -> str:
    """The default suite's JSON, for `sevenfold init` to write."""
    return DEFAULT_SUITE.read_text(encoding="utf-8")


def load_suite(path: str | Path | None = None) -> dict[str, Any]:
    """A suite file (JSON, or YAML by its suffix) as {name, notes, expectations}; the default for None.

    Raises
    ------
    SevenfoldError
        For a missing file, broken syntax, or an expectation without a type and a column.
    """
    path = DEFAULT_SUITE if path is None else Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        suite = _parse(text, path)
    except FileNotFoundError:
        raise SevenfoldError(
            "there is no such file", where=str(path), expected="an expectation suite", do="write one: `sevenfold init`"
        ) from None
    except ValueError as error:
        raise SevenfoldError(f"the suite cannot be read: {error}", where=str(path), do="correct its syntax") from None
    listed = suite.get("expectations") if isinstance(suite, dict) else None
    if not isinstance(listed, list):
        raise SevenfoldError("there is no list `expectations`", where=str(path), do="see the default suite's shape")
    for i, entry in enumerate(listed):
        kwargs = entry.get("kwargs") if isinstance(entry, dict) else None
        if not isinstance(kwargs, dict) or not isinstance(entry.get("type"), str) or "column" not in kwargs:
            raise SevenfoldError(
                f"expectation {i} is {json.dumps(entry, default=str)[:120]}",
                where=str(path),
                expected='{"type": "expect_...", "kwargs": {"column": "<metric>", ...}}',
                do="correct this entry",
            )
    return {"name": str(suite.get("name") or path.stem), "notes": suite.get("notes"), "expectations": listed}


def validate(
    rows: pa.Table,
    properties: pa.Table | None = None,
    metadata: pa.Table | None = None,
    *,
    subject: str,
    suite_path: str | Path | None = None,
    docs_dir: str | Path | None = None,
    at: float | None = None,
) -> Verdict:
    """Validate rows and properties with a suite; one blocking verdict, and Data Docs when a folder is given.

    Parameters
    ----------
    rows, properties, metadata : samples; float columns and the user's own columns of the same samples, keyed by id.
    suite_path : the suite file; the default suite for None.
    docs_dir : the folder that Data Docs are built into (created; its earlier docs are replaced).
    at : unix time of the check run, shown in Data Docs; None leaves it to Great Expectations.

    Raises
    ------
    SevenfoldError
        For a suite file that cannot be read or names an unknown expectation.
    """
    spec = load_suite(suite_path)
    where = str(suite_path or DEFAULT_SUITE)
    where_said = str(suite_path) if suite_path else "your own copy of the default suite (`sevenfold init` writes one)"
    frame = metrics((entry["kwargs"]["column"] for entry in spec["expectations"]), rows, properties, metadata)
    results, docs = _run(frame, spec, where=where, subject=subject, docs_dir=docs_dir, at=at)
    broken, findings, worst = [], [], "pass"
    for entry, result in zip(spec["expectations"], results, strict=True):
        if result["success"]:
            continue
        broken.append(_in_words(entry, result, frame))
        findings += offenders(entry["kwargs"]["column"], entry["kwargs"], rows, properties, metadata)
        worst = "warn" if entry.get("severity") == "warning" and worst != "fail" else "fail"
    n = len(results)
    said = f"{len(broken)} of {n} expectations of the suite {spec['name']!r} failed"
    return Verdict(
        v="validity",
        check="suite",
        subject=subject,
        result="not_measurable" if n == 0 else worst,
        blocking=True,
        statistic=float(len(broken)),
        statistic_name="expectations that failed",
        n=rows.num_rows,
        message=(f"{said}: {' '.join(broken)}" if broken else f"All {n} expectations of {spec['name']!r} hold.")
        + (f" Data Docs: {docs}" if docs else ""),
        remedy=f"Exclude or mend the samples listed, or edit the rule in {where_said}." if broken else "",
        findings=tuple(dict.fromkeys(findings)),
    )


def _run(
    frame: Mapping[str, Any],
    spec: Mapping[str, Any],
    *,
    where: str,
    subject: str,
    docs_dir: str | Path | None,
    at: float | None,
) -> tuple[list[dict[str, Any]], Path | None]:
    """Results in the order of the spec's expectations, and the docs' index page."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # before the import: no telemetry
    import great_expectations as gx
    import pandas as pd
    from great_expectations.data_context.types.base import ProgressBarsConfig
    from great_expectations.exceptions import GreatExpectationsError
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.metadata_types import FailureSeverity

    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    suite = gx.ExpectationSuite(name=spec["name"], notes=spec["notes"])
    for i, entry in enumerate(spec["expectations"]):
        config = {"type": entry["type"], "kwargs": entry["kwargs"], "meta": {"order": i}, "notes": entry.get("notes")}
        try:
            suite.add_expectation_configuration(
                ExpectationConfiguration(**config, severity=FailureSeverity(entry.get("severity") or "critical"))
            )
        except (GreatExpectationsError, ValueError, TypeError) as error:
            first = str(error).strip().splitlines()[0]
            raise SevenfoldError(
                f"expectation {i} ({entry['type']} on {entry['kwargs'].get('column')}) is refused: {first}",
                where=where,
                expected="a Great Expectations expectation and its arguments",
                do="correct this entry",
            ) from None
    site = "sevenfold"
    if docs_dir is not None:
        folder = Path(docs_dir).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        context.add_data_docs_site(
            site_name=site,
            site_config={
                "class_name": "SiteBuilder",
                "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
                "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)},
            },
        )
    asset = context.data_sources.add_pandas("lake").add_dataframe_asset(subject)
    definition = context.validation_definitions.add(
        gx.ValidationDefinition(
            name=subject, data=asset.add_batch_definition_whole_dataframe("metrics"), suite=context.suites.add(suite)
        )
    )
    checkpoint = context.checkpoints.add(gx.Checkpoint(name=subject, validation_definitions=[definition]))
    run_id = None
    if at is not None:
        from datetime import UTC, datetime

        run_id = gx.RunIdentifier(run_name=subject, run_time=datetime.fromtimestamp(at, UTC))
    outcome = checkpoint.run(batch_parameters={"dataframe": pd.DataFrame([dict(frame)])}, run_id=run_id)
    (validation,) = outcome.run_results.values()
    by_order = {r.expectation_config.meta["order"]: r for r in validation.results if r.expectation_config is not None}
    results = [by_order[i].to_json_dict() for i in range(len(spec["expectations"]))]
    if docs_dir is None:
        return results, None
    context.build_data_docs(site_names=[site])
    return results, Path(docs_dir).absolute() / "index.html"


def _in_words(entry: Mapping[str, Any], result: Mapping[str, Any], frame: Mapping[str, Any]) -> str:
    """One failing expectation as a sentence: the rule, what was found, what was expected."""
    kwargs = entry["kwargs"]
    column = kwargs["column"]
    rule = str(entry.get("notes") or f"{entry['type']} on {column}.")
    if column not in frame:
        return f"{rule} Found no metric {column!r}: {_missing(column)}."
    wanted = ", ".join(f"{k} {v}" for k, v in kwargs.items() if k != "column")
    value = frame[column]
    shown = f"{value:g}" if isinstance(value, float) else repr(value) if isinstance(value, str) else str(value)
    failure = result.get("exception_info") or {}
    crash = failure.get("exception_message") if failure.get("raised_exception") else None
    return f"{rule} Found {column} = {shown}, expected {wanted}{f' ({crash})' if crash else ''}."


def _missing(metric: str) -> str:
    parts = split_metric(metric)
    return f"the column {parts[0]!r} is missing" if parts else forms()


def _parse(text: str, path: Path) -> Any:
    if path.suffix.lower() in (".yaml", ".yml"):
        import yaml

        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from None
    return json.loads(text)


def _suite(context: Context) -> Verdict:
    return validate(
        context.rows,
        context.properties,
        context.metadata,
        subject=context.subject,
        suite_path=context.suite_path,
        docs_dir=context.docs_dir,
        at=context.now,
    )


CHECKS = (Check("validity", "suite", _suite, ("batch",)),)
