"""The Great Expectations suite: one DuckDB query makes a one-row metric frame, the suite validates it, docs are built.

A metric is ``<column>_<nulls|min|max|distinct|type>`` over rows and properties joined on id, plus ``rows``. Validating
one row keeps Great Expectations fast at any size; the failing rows come from a follow-up query.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.quality.context import Check, Context
from sevenfold.quality.verdict import Verdict
from sevenfold.storage.errors import SevenfoldError

DEFAULT_SUITE = Path(__file__).with_name("suites") / "default.json"
"""The suite that ships with the package; `sevenfold init` copies it for the user to edit."""

_REDUCTIONS = ("nulls", "min", "max", "distinct", "type")


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


def metrics(rows: pa.Table, properties: pa.Table | None = None) -> dict[str, Any]:
    """All metrics of rows joined with properties on id, from one DuckDB query. Types are Arrow's names.

    Values are Python numbers and strings; the min and max of an empty or all-null column are None.
    """
    import duckdb

    table = _joined(rows, properties)
    plain = [f for f in table.schema if not pa.types.is_nested(f.type)]
    parts = ["count(*) as rows"]
    for field in plain:
        name, quoted = field.name, _quote(field.name)
        parts += [
            f"count(*) - count({quoted}) as {_quote(name + '_nulls')}",
            f"min({quoted}) as {_quote(name + '_min')}",
            f"max({quoted}) as {_quote(name + '_max')}",
            f"count(distinct {quoted}) as {_quote(name + '_distinct')}",
        ]
    with duckdb.connect() as connection:
        connection.register("samples", table)
        answer = connection.sql(f"select {', '.join(parts)} from samples").to_arrow_table()
    values: dict[str, Any] = answer.to_pylist()[0]
    for field in table.schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        values[f"{field.name}_type"] = str(kind).replace("large_", "")
    return values


def validate(
    rows: pa.Table,
    properties: pa.Table | None = None,
    *,
    subject: str,
    suite_path: str | Path | None = None,
    docs_dir: str | Path | None = None,
    at: float | None = None,
) -> Verdict:
    """Validate rows and properties with a suite; one blocking verdict, and Data Docs when a folder is given.

    Parameters
    ----------
    rows, properties : samples, and float columns keyed by id.
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
    frame = metrics(rows, properties)
    results, docs = _run(frame, spec, where=where, subject=subject, docs_dir=docs_dir, at=at)
    table = _joined(rows, properties)
    broken, findings, worst = [], [], "pass"
    for entry, result in zip(spec["expectations"], results, strict=True):
        if result["success"]:
            continue
        broken.append(_in_words(entry, result, frame))
        findings += _offenders(entry, table)
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
    column, _, reduction = metric.rpartition("_")
    if column and reduction in _REDUCTIONS:
        return f"the column {column!r} is missing"
    return f"a metric is rows or <column>_<{'|'.join(_REDUCTIONS)}>"


def _offenders(entry: Mapping[str, Any], table: pa.Table) -> list[str]:
    """The ids of the rows behind a failing null or range rule; none for rules about the whole table."""
    kwargs = entry["kwargs"]
    column, _, reduction = kwargs["column"].rpartition("_")
    if column not in table.column_names or "id" not in table.column_names:
        return []
    values = table[column]
    if reduction == "nulls":
        bad = pc.is_null(values)
    elif reduction in ("min", "max"):
        low, high = kwargs.get("min_value"), kwargs.get("max_value")
        if "value_set" in kwargs:
            bad = pc.invert(pc.is_in(values, pa.array(kwargs["value_set"])))
        elif low is None and high is None:
            return []
        else:
            sides = [pc.less(values, low)] if low is not None else []
            sides += [pc.greater(values, high)] if high is not None else []
            bad = sides[0] if len(sides) == 1 else pc.or_(*sides)
    else:
        return []
    return sorted(i or "" for i in table.filter(pc.fill_null(bad, False))["id"].to_pylist())


def _joined(rows: pa.Table, properties: pa.Table | None) -> pa.Table:
    if properties is None:
        return rows
    extra = ["id", *(c for c in properties.column_names if c not in rows.column_names)]
    return rows.join(properties.select(extra), "id", join_type="left outer")


def _parse(text: str, path: Path) -> Any:
    if path.suffix.lower() in (".yaml", ".yml"):
        import yaml

        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from None
    return json.loads(text)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _suite(context: Context) -> Verdict:
    return validate(
        context.rows,
        context.properties,
        subject=context.subject,
        suite_path=context.suite_path,
        docs_dir=context.docs_dir,
        at=context.now,
    )


CHECKS = (Check("validity", "suite", _suite, ("batch",)),)
