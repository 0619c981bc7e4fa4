"""Loads tables of a running server over JDBC, as texts that the server prints: a commit per table.

A read takes no lock: its rows are of moments while it ran, and the stream brings what changed meanwhile again
(`mirrors.operations.adoption`). A load that was stopped goes on with the next table.
"""

from __future__ import annotations

import hashlib
import itertools
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timezone

from pyspark.sql import functions as F

from cdc_pipeline.errors import SourceError
from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.baselines import BaselineFile, BaselineTable, append_baseline, baseline_tables
from cdc_pipeline.lake.writes import overwrite_once
from cdc_pipeline.mirrors.execution.alter_columns import MAPPING, needs_mapping
from cdc_pipeline.mirrors.merge.baseline_rows import FILE, ROW
from cdc_pipeline.mirrors.operations.adoption import is_adopted
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import TableName, TableSchema
from cdc_pipeline.snapshots.cell_texts import SERVER_SESSION, UTF8, text_sql
from cdc_pipeline.snapshots.definitions import ExportedTable
from cdc_pipeline.spark.jdbc import JdbcServer, Query

UTC = "+00:00"
_TABLES = (
    "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') "
    "AND table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') ORDER BY 1, 2"
)
_NOW = "SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)"
_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_ROWS_PER_RANGE = 500_000
_MOST_RANGES = 1_000
_ROW_BITS = 33  # of `monotonically_increasing_id`


@dataclass(frozen=True)
class ServerReading:
    """Loads tables of a server. `report` receives one line per table."""

    lake: Lake
    run_id: str
    report: Callable[[str], None]
    definitions_only: bool = False

    def load(
        self,
        server: JdbcServer,
        wants: Callable[[TableName], bool],
        may_begin: Callable[[int], None] = lambda started: None,
    ) -> str:
        """Loads the tables that are wanted, and returns the id of the baseline. Once all of them are adopted, the next call
        reads them again, as a new baseline.

        `may_begin` gets the server's time (ms) before anything is read, and raises if a read from then on is useless. Raises
        SourceError if the server refuses, has none of the tables or is TiDB; TransientError if it does not answer.
        """
        with self._connect(server) as query:
            version = query("SELECT VERSION()")[0][0] or ""
            if "TiDB" in version:
                raise SourceError(
                    f"{server.address} is TiDB, whose tables are read at a TSO: export them with Dumpling"
                )
            present = [TableName(*map(str, row)) for row in query(_TABLES)]
            started = _now(query)
        names = [name for name in present if wants(name)]
        if not names:
            shown = ", ".join(map(str, present[:20]))
            raise SourceError(f"{server.address} has none of the tables. Its tables: {shown or 'none'}")
        baseline = self._baseline(server, names)
        loaded = {table.name for table in baseline_tables(self.lake, baseline)}
        missing = [name for name in names if name not in loaded]
        if missing and not self.definitions_only:
            may_begin(started)
        for number, name in enumerate(missing, len(loaded)):
            self._load_table(server, baseline, number, name)
        return baseline

    def _connect(self, server: JdbcServer) -> AbstractContextManager[Query]:
        """For a few queries: a server or a proxy closes a connection that waits for long."""
        # with ANSI_QUOTES, SHOW CREATE TABLE would quote names like texts
        return server.connect(self.lake.spark, SERVER_SESSION.format(""))

    def _baseline(self, server: JdbcServer, names: Sequence[TableName]) -> str:
        """The first baseline of the server that lacks a table or is not adopted yet."""
        for number in itertools.count():
            content = repr((server.url, self.definitions_only, number))
            baseline = hashlib.sha256(content.encode()).hexdigest()[:16]
            loaded = {table.name for table in baseline_tables(self.lake, baseline)}
            if not loaded.issuperset(names) or not is_adopted(self.lake, baseline):
                break
        return baseline

    def _load_table(self, server: JdbcServer, baseline: str, number: int, name: TableName) -> None:
        with self._connect(server) as query:
            create = str(query(f"SHOW CREATE TABLE {_sql(name)}")[0][1])
            schema = ExportedTable(name, create, server.address, UTF8).schema
            if vectors := [column.name for column in schema.columns if column.type.base == "vector"]:
                raise SourceError(f"{name}: columns of type VECTOR are not read by JDBC: {', '.join(vectors)}")
            ranges = ["1 = 1"] if self.definitions_only else _ranges(query, name, schema)
            started = _now(query)
        rows = {} if self.definitions_only else self._write_rows(server, baseline, name, schema, ranges)
        with self._connect(server) as query:
            finished = _now(query)
        files = [BaselineFile(name, index, text, 0, "", rows.get(index, 0)) for index, text in enumerate(ranges)]
        total = sum(rows.values())
        loaded = BaselineTable(baseline, name, number, create, None, started, finished, UTC, total, server.address)
        append_baseline(self.lake, loaded, files if rows else (), datetime.now(timezone.utc), self.run_id)
        self.report(f"{name}: {total:,} rows")

    def _write_rows(
        self, server: JdbcServer, baseline: str, name: TableName, schema: TableSchema, ranges: Sequence[str]
    ) -> dict[int, int]:
        """Replaces the rows of the table in the lake. Returns the number of rows of each range."""
        columns = [f"c{index}" for index in range(len(schema.columns))]
        texts = [f"{text_sql(column)} AS {alias}" for column, alias in zip(schema.columns, columns, strict=True)]
        if (key := _range_key(schema)) is not None:
            texts.append(f"{quoted(key)} AS range_key")
        sql = f"SELECT {', '.join(texts)} FROM {_sql(name)}"
        # Spark quotes the names of columns with " unless it knows the database
        frame = server.read(self.lake.spark, sql, columns, ranges, SERVER_SESSION.format("ANSI_QUOTES"))
        row = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << _ROW_BITS) - 1)) + 1
        frame = frame.select(
            # Spark notes the length of the server's type at the column, and Delta would enforce it
            *(
                F.col(alias).cast("string").alias(column.name)
                for alias, column in zip(columns, schema.columns, strict=True)
            ),
            F.spark_partition_id().alias(FILE),
            row.alias(ROW),
        )
        path = self.lake.paths.baseline(baseline, name)
        commit = Commit(f"{self.lake.paths.app_id('baseline')}:{uuid.uuid4().hex}", 1, {"baseline": baseline})
        options = {MAPPING: "name"} if needs_mapping(frame.columns) else {}
        with server.named_errors(self.lake.spark):
            overwrite_once(frame, path, commit, **options)
        counts = self.lake.read_path(path).groupBy(FILE).count().collect()
        return {found[FILE]: found["count"] for found in counts}


def _range_key(schema: TableSchema) -> str | None:
    """The first column of the key, if it is an integer."""
    key = next((schema.find(column) for column in schema.row_key), None)
    return key.name if key is not None and key.type.base in _INTEGERS else None


def _ranges(query: Query, name: TableName, schema: TableSchema) -> list[str]:
    """Conditions on `range_key` that divide the rows of a large table."""
    key = _range_key(schema)
    if key is None:
        return ["1 = 1"]
    estimate = query(
        f"SELECT table_rows FROM information_schema.tables WHERE table_schema = {_text(name.database)} "
        f"AND table_name = {_text(name.table)}"
    )[0][0]
    number = min(int(estimate or 0) // _ROWS_PER_RANGE + 1, _MOST_RANGES)
    first, last = query(f"SELECT MIN({quoted(key)}), MAX({quoted(key)}) FROM {_sql(name)}")[0]
    if number == 1 or first is None or last is None:
        return ["1 = 1"]
    low, high = int(first), int(last)
    bounds = sorted({low + (high - low) * index // number for index in range(1, number)})
    ends = [None, *bounds, None]
    return [
        " AND ".join([f"range_key >= {start}"] * (start is not None) + [f"range_key < {end}"] * (end is not None))
        for start, end in itertools.pairwise(ends)
    ]


def _now(query: Query) -> int:
    """The server's time in ms since 1970."""
    return int(query(_NOW)[0][0] or 0)


def _sql(name: TableName) -> str:
    return f"{quoted(name.database)}.{quoted(name.table)}"


def _text(value: str) -> str:
    """A text as a literal, in any `sql_mode`."""
    return f"x'{value.encode().hex()}'"
