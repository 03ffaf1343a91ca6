"""DuckDB as the lens: one SELECT over the lake's views, read-only, bounded in memory, confined to the lake."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.lens import Asked, Lens, text
from sevenfold.storage.records import Manifest
from sevenfold.storage.store import Store
from sevenfold.storage.views import VIEWS, create_views

if TYPE_CHECKING:
    import duckdb

MEMORY = 3 << 29
"""Most bytes (1.5 GiB) that DuckDB may hold for one query, or half of the machine's memory if that is less. What does
not fit goes to a private temporary folder (TMPDIR decides where) that is removed with the query."""

BATCH_ROWS = 100_000
"""Rows of an answer that are in Python's hands at a time."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Answer:
    """A query's answer as it comes: its columns, and its record batches, which can be read once."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


def run(store: Store, query: str, dataset: str | None = None, ref: str = "main") -> pa.Table:
    """Answer one SELECT over the lake's views (views.VIEWS) as an Arrow table; see `Session.stream`."""
    with session(store) as asking:
        return asking.run(query, dataset, ref)


@contextmanager
def stream(store: Store, query: str, dataset: str | None = None, ref: str = "main") -> Iterator[Answer]:
    """Answer one SELECT batch by batch, for answers larger than memory; see `Session.stream`."""
    with session(store) as asking, asking.stream(query, dataset, ref) as answer:
        yield answer


@contextmanager
def session(store: Store) -> Iterator[Session]:
    """Many queries of one thread: the database is opened once, and footers and manifests are read once.

    What others write meanwhile is seen by the next query.
    """
    inside = store.folder
    with connected(inside) as (connection, plain):
        _lock(connection, inside)
        yield Session(store, connection, plain)


@dataclass(frozen=True)
class Session:
    """A lake with a database open beside it; see `session`."""

    store: Store
    connection: duckdb.DuckDBPyConnection
    plain: Callable[[Path], Path]
    manifests: dict[str, Manifest] = field(default_factory=dict)

    def run(self, query: str, dataset: str | None = None, ref: str = "main") -> pa.Table:
        """The whole answer; see `stream`."""
        with self.stream(query, dataset, ref) as answer:
            return pa.Table.from_batches(list(answer.batches), schema=answer.schema)

    @contextmanager
    def stream(self, query: str, dataset: str | None = None, ref: str = "main") -> Iterator[Answer]:
        """Answer one SELECT over the lake's views, batch by batch. Ctrl-C interrupts it.

        `samples` is the version `ref` of `dataset` (of the only dataset, or the first by name): a branch, tag, `v3`,
        the start of a content id, or a date `2026-05-01` for the newest version of main made by then.
        Raises SevenfoldError for anything that is not one SELECT, and for whatever DuckDB refuses.
        """
        import duckdb

        connection = self.connection
        try:
            asked = _parsed(connection, query, dataset, ref)
            create_views(connection, Lens(self.store, asked, self.plain, self.manifests))
        except duckdb.Error as e:
            raise _refusal(e) from None
        with ThreadPoolExecutor(1) as worker, ExitStack() as done:

            def wait(step: Callable[[], Result]) -> Result:
                # DuckDB does not look for signals while it works: the main thread has to be free to take them
                future = worker.submit(step)
                try:
                    return future.result()
                except (duckdb.Error, OSError) as e:  # OSError: how Arrow's streams pass on an error of DuckDB
                    raise _refusal(e) from None
                except BaseException:
                    connection.interrupt()
                    raise

            reader = wait(lambda: connection.sql(query).to_arrow_reader(BATCH_ROWS))
            done.callback(reader.close)  # also when the rest of the answer is not wanted
            names = _distinct(reader.schema.names)
            schema = pa.schema([f.with_name(n) for f, n in zip(reader.schema, names, strict=True)])

            def batches() -> Iterator[pa.RecordBatch]:
                while (batch := wait(lambda: next(reader, None))) is not None:
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

            yield Answer(schema, batches())


@contextmanager
def connected(inside: Path) -> Iterator[tuple[duckdb.DuckDBPyConnection, Callable[[Path], Path]]]:
    """A database in memory for the files of a folder, and how to write a path of one in SQL.

    It loads no extension, sees no Python variable and spills only into a folder of its own.
    """
    import duckdb

    with tempfile.TemporaryDirectory(prefix="sevenfold-query-") as made:
        private = Path(made)
        connection = duckdb.connect(":memory:", config={
            "autoinstall_known_extensions": "false", "autoload_known_extensions": "false",
            "python_enable_replacements": "false",
            "memory_limit": f"{memory_limit()}B", "temp_directory": str(private / "spill"),
            "secret_directory": str(private / "none"), "allow_persistent_secrets": "false",
        })  # fmt: skip
        try:
            # DuckDB draws it into the answer on stdout where it takes the program for a prompt, as under `python -c`
            connection.execute("SET enable_progress_bar = false")
            connection.execute("SET parquet_metadata_cache = true")  # files are opened to make a view and to read it
            yield connection, _plain(inside, private)
        finally:
            connection.close()


def memory_limit() -> int:
    """Bytes that one query may hold: MEMORY, or half of the machine's."""
    return min(MEMORY, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


def _lock(connection: duckdb.DuckDBPyConnection, inside: Path) -> None:
    """From here on nothing outside `inside` can be opened, and no setting can be changed back."""
    connection.execute("SET allowed_directories = [" + text(str(inside)) + "]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _plain(inside: Path, private: Path) -> Callable[[Path], Path]:
    """How a file of `inside` is written in SQL: DuckDB takes *, ? and [ in a path as patterns, so a link stands in."""
    if not any(c in str(inside) for c in "*?["):
        return lambda path: path
    link = private / "lake"
    link.symlink_to(inside, target_is_directory=True)
    return lambda path: link / path.relative_to(inside)


def _parsed(connection: duckdb.DuckDBPyConnection, query: str, dataset: str | None, ref: str) -> Asked:
    """Check that this is one SELECT, and find which views and columns it names."""
    import duckdb

    statements = connection.extract_statements(query)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise SevenfoldError("this is not one SELECT", where=query.strip()[:80], expected="a single SELECT query")
    ((described,),) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    tree = json.loads(described)
    if tree.get("error", True):  # a SELECT that DuckDB cannot describe (PIVOT): it gets every view
        return Asked(dataset, ref, frozenset(VIEWS), None)
    tables: set[str] = set()
    columns: set[str] = set()
    everything = False
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            pending += node.values()
            if node.get("type") == "BASE_TABLE":
                tables.add(node["table_name"].lower())
                everything |= node.get("schema_name", "") not in ("", "main")  # information_schema lists what there is
            everything |= node.get("type") == "SHOW_REF" and node.get("show_type") != "DESCRIBE"
            everything |= node.get("type") == "TABLE_FUNCTION" and node["function"]["function_name"] not in _ROWS
            if node.get("class") == "COLUMN_REF":
                columns |= {name.lower() for name in node["column_names"]}
            if node.get("class") == "STAR":
                columns.add("*")
    known = frozenset(VIEWS) if everything else frozenset(VIEWS) & tables
    return Asked(dataset, ref, known, None if "*" in columns else frozenset(columns))


_ROWS = ("range", "generate_series", "unnest")
"""Table functions that read no view. Any other may (query('select ...'), duckdb_views()), so it gets all of them."""


def _refusal(error: Exception) -> SevenfoldError:
    return SevenfoldError(str(error).strip(), expected=f"SQL over the views {', '.join(VIEWS)}")


def _distinct(names: list[str]) -> list[str]:
    """Names that all differ, so that rows as mappings lose no column: a, a_1, as DuckDB itself names them in a view."""
    found: list[str] = []
    for name in names:
        new, number = name, 0
        while new in found or (number and new in names):
            number += 1
            new = f"{name}_{number}"
        found.append(new)
    return found
